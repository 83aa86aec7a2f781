"""Contributed code runs without network, without secrets, under resource limits.

`isolate()` is called once by the server before it imports anything heavy: a user
namespace gives it a network with nothing but loopback and, where mounting is allowed,
a file system that can only be written in the run's own folder. Every step is tried in
a short-lived child first, so that a machine that forbids it is left with a stated
reason instead of a broken server.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import site
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

_NEWNS, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, _NR_MOUNT_SETATTR = -100, 0x8000, 1, 442
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38

GIB = 1024**3
DEFAULT_LIMITS = {"as": 8 * GIB, "fsize": GIB // 4, "nproc": 256, "nofile": 1024}

# Credentials a person may have in the home directory; covered by nothing where mounting works.
_SECRETS = (
    ".ssh",
    ".aws",
    ".config",
    ".docker",
    ".kube",
    ".gnupg",
    ".netrc",
    ".git-credentials",
    ".cache/huggingface/token",
    ".pypirc",
    ".npmrc",
)

_KEEP = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
)


def clean_environment(work: Path, imports: list[str]) -> dict[str, str]:
    """An allow-list: what a secret is called cannot be known."""
    env = {key: os.environ[key] for key in _KEEP if key in os.environ}
    return env | {
        "HOME": str(work / "home"),
        "TMPDIR": str(work / "tmp"),
        "PYTHONPATH": os.pathsep.join(imports),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
        # Without it a plain torch.cuda.is_available() initialises CUDA and poisons later forks.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        # HOME is a throw-away folder, but torch may be installed for this user only.
        "PYTHONUSERBASE": site.getuserbase(),
    }


def isolate(work: Path) -> dict[str, str]:
    """Isolates the rest of this (single-threaded) program; says what was possible and what was not.

    A new process namespace begins with the next fork, so the function forks: it returns in
    the isolated child only, and the outer process just waits for it and ends as it does.
    """
    if sys.platform != "linux":
        return {
            "network": f"open: no network namespaces on {sys.platform}",
            "files": "open",
            "processes": "open",
        }
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    report: dict[str, str] = {}
    for flags in (_NEWUSER | _NEWNET | _NEWPID, _NEWUSER | _NEWNET, _NEWNET):
        problem = _probe(_enter, flags)
        if problem is None:
            _enter(flags)
            report["network"] = "none (namespace with loopback only)"
            report["processes"] = "own namespace" if flags & _NEWPID else "shared"
            break
        report.setdefault("network", f"open: {problem}")
    else:
        return {**report, "files": "open", "processes": "shared"}
    if flags & _NEWPID:
        inner = os.fork()
        if inner:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 0xFF)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    problem = _probe(_read_only, work)
    if problem is None:
        _read_only(work)
    report["files"] = f"open: {problem}" if problem else "read-only outside the run's folder"
    if flags & _NEWPID and problem is None:
        hidden = _probe(_own_proc)
        if hidden is None:
            _own_proc()
    return report


def limit(limits: dict[str, int], device: str) -> None:
    """Resource limits of one run; called in its child."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, value in limits.items():
        if name == "as" and device == "cuda":
            continue  # CUDA reserves far more address space than memory
        which = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if which is None:
            continue
        hard = resource.getrlimit(which)[1]
        value = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(which, (value, value))


def _probe(action: Callable[..., None], *arguments: object) -> str | None:
    """Tries an action in a child; its error, or None."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action(*arguments)
        except BaseException as error:
            os.write(write, (str(error) or type(error).__name__).encode()[:500])
            os._exit(1)
        os._exit(0)
    os.close(write)
    text = os.read(read, 500).decode(errors="replace")
    os.close(read)
    status = os.waitpid(pid, 0)[1]
    return None if status == 0 else text or f"probe ended with status {status}"


def _enter(flags: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _libc().unshare(flags))
    if flags & _NEWUSER:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _loopback_up()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        socket.create_connection(server.getsockname(), timeout=2).close()


def _loopback_up() -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        get, put, up = 0x8913, 0x8914, 0x1
        request = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(sock, get, request))[1]
        fcntl.ioctl(sock, put, struct.pack("16sH14s", b"lo", flags | up, b""))


def _read_only(work: Path) -> None:
    """Everything read-only but the work folder; /dev/shm private; known credentials covered."""
    _call("unshare", _libc().unshare(_NEWNS))
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    _mount(str(work), str(work), "", _MS_BIND)
    home = Path(os.environ.get("FAULTBOOK_CALLER_HOME", "/nonexistent"))
    for path in (home / name for name in _SECRETS):
        if path.is_dir():
            _mount("none", str(path), "tmpfs", 0)
        elif path.is_file():
            _mount("/dev/null", str(path), "", _MS_BIND)
    _set_read_only("/", True)
    _set_read_only(str(work), False)
    if Path("/dev/shm").is_dir():
        _mount("none", "/dev/shm", "tmpfs", 0)


def _own_proc() -> None:
    """Only this namespace's processes are visible, so no caller's environment can be read."""
    _mount("proc", "/proc", "proc", 0)


class _MountAttr(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def _set_read_only(path: str, on: bool) -> None:
    attr = _MountAttr(*((_MOUNT_ATTR_RDONLY, 0) if on else (0, _MOUNT_ATTR_RDONLY)), 0, 0)
    code = _libc().syscall(
        _NR_MOUNT_SETATTR,
        _AT_FDCWD,
        path.encode(),
        _AT_RECURSIVE if on else 0,
        ctypes.byref(attr),
        ctypes.sizeof(attr),
    )
    _call("mount_setattr", code)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    code = _libc().mount(source.encode(), target.encode(), kind.encode() or None, flags, None)
    _call(f"mount {target}", code)


def _prctl(option: int, value: int) -> None:
    _libc().prctl(option, value, 0, 0, 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, code: int) -> None:
    if code != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def kill_strays() -> int:
    """Kills what escaped its process group, between two runs; returns how many there were.

    As first process of its namespace the server may simply kill everyone else in it;
    otherwise it has, as sub-reaper, inherited every orphan.
    """
    killed = 0
    for _ in range(50):
        if os.getpid() == 1:
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
        else:
            for pid in _children():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, 0)[0]:
                killed += 1
        except ChildProcessError:
            return killed
    return killed


def _children() -> list[int]:
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    except OSError:
        return []
