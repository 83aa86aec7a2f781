"""Whether this machine can hold other people's code, and as whom it runs.

`core.sandbox` isolates a run as far as the kernel allows and reports what it could not do. This is the policy on top:
`held(work)` runs `work` as an unprivileged user where every part of the isolation is possible, and refuses to run
anything where one is missing, unless the caller has read the code and says so.

Everything that touches a reproduction happens in a child process with a mount namespace of its own, in which `reachable`
has covered what a run has no business with. Started by root, that child becomes `nobody` for good as well: root's files
stay unreadable even though the sandbox leaves the file system in sight.
"""

from __future__ import annotations

import json
import os
import pickle
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from .core.runner import RunnerError
from .core.sandbox import clean_environment
from .reachable import conceal

T = TypeVar("T")

# What `core.sandbox.isolate` reports when it has done everything, and the namespace's own /proc, which it does not report:
# without it the environment of every process of the same user can be read.
_PROBE = """
import json, os, sys
from pathlib import Path
from faultbook_repro.core.sandbox import isolate
report = isolate(Path(sys.argv[1]))
if sys.platform == "linux":
    try:
        report["proc"] = "own" if os.readlink("/proc/self") == str(os.getpid()) else "shared"
    except OSError:
        report["proc"] = "shared"
print(json.dumps(report))
"""
_COMPLETE = {"network": "none", "files": "read-only", "processes": "own", "proc": "own"}


class Refused(RunnerError):
    """This machine cannot hold a reproduction; nothing of it was run."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"reproductions are other people's code, and this machine cannot hold them ({reason}); "
            "--trust runs them all the same: read every repro.py first"
        )


def held(
    work: Callable[[Path | None], T], *, trust: bool = False, reads: Iterable[Path] = (), keep: Path | None = None
) -> T:
    """Runs `work`, which runs reproductions, as an unprivileged user on a machine that can isolate them.

    `reads` are folders that it needs beside the interpreter's own. It is given the folder to leave files in, all of which
    are in `keep` afterwards. What it returns or raises must survive pickling. Raises `Refused` before anything is run;
    with `trust` it just calls `work`.
    """
    if trust:
        return work(keep)
    if sys.platform != "linux":
        raise Refused(f"{sys.platform} has no namespaces")
    if keep is None:
        return _in_child(lambda: _checked(work, None), list(reads))
    place = Path(tempfile.mkdtemp(prefix="faultbook-keep-")).resolve()
    if os.geteuid() == 0:
        os.chown(place, *_nobody())
    try:
        return _in_child(lambda: _checked(work, place), [*reads, place])
    finally:
        shutil.copytree(place, keep, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(place, ignore_errors=True)


def _checked(work: Callable[[Path | None], T], keep: Path | None) -> T:
    if reason := lacking():
        raise Refused(reason)
    return work(keep)


def lacking() -> str | None:
    """The first part of the isolation that is not possible for this user here, or None; takes a tenth of a second."""
    folder = Path(tempfile.mkdtemp(prefix="faultbook-probe-")).resolve()
    package = str(Path(__file__).resolve().parents[1])
    try:
        (folder / "tmp").mkdir()
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, str(folder)],
            env=clean_environment(folder, [package, *filter(None, sys.path)]),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        report: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"the isolation could not be tried: {error}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    said = {name: str(report.get(name, "open")) for name in _COMPLETE}
    return next((f"{name}: {said[name]}" for name, word in _COMPLETE.items() if not said[name].startswith(word)), None)


def _in_child(work: Callable[[], T], reads: list[Path]) -> T:
    """There is one thread, so forking is safe."""
    answer_from, answer_to = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(answer_from)
        _answer(work, reads, answer_to)
    os.close(answer_to)
    try:
        with os.fdopen(answer_from, "rb") as answers:
            data = answers.read()
    finally:
        status = os.waitpid(pid, 0)[1]
    if not data:
        raise RunnerError(f"the unprivileged process ended with status {status}")
    # Written by this package's own code: a reproduction is in namespaces of its own and cannot reach that process.
    good, value = pickle.loads(data)
    if good:
        result: T = value
        return result
    raise value


def _answer(work: Callable[[], Any], reads: list[Path], answer_to: int) -> NoReturn:
    """The child's whole life."""
    answer: tuple[bool, object]
    try:
        _confine(reads)
        answer = (True, work())
    except BaseException as error:
        answer = (False, error)
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)
    except Exception:
        data = pickle.dumps((False, RunnerError(f"{type(answer[1]).__name__}: {answer[1]}")))
    with os.fdopen(answer_to, "wb") as answers:
        answers.write(data)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _nobody() -> tuple[int, int]:
    try:
        entry = pwd.getpwnam("nobody")
        return entry.pw_uid, entry.pw_gid
    except KeyError:
        return 65534, 65534


def _confine(reads: Iterable[Path]) -> None:
    """Out of sight of what is not needed; and no longer root, in real, effective and saved ids and groups."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    programs = os.environ.get("PATH", "").split(os.pathsep)
    own = [sys.executable, sys.prefix, sys.base_prefix, *sys.path, __file__, *libraries, *programs]
    own.append(os.environ.get("CUDA_HOME", ""))
    try:
        conceal([*(Path(path) for path in own if path.startswith("/")), *reads])
        if os.geteuid() == 0:
            uid, gid = _nobody()
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
    except OSError as error:
        raise Refused(f"no namespace to confine it to: {error}") from None
    if not os.access(sys.executable, os.X_OK) or not os.access(__file__, os.R_OK):
        raise Refused(f"an unprivileged user cannot read {sys.executable}")
    if not os.access(os.environ.get("HOME", ""), os.X_OK):
        os.environ["HOME"] = "/nonexistent"
    os.umask(0o022)
    tempfile.tempdir = None  # chosen anew: the caller's may be out of sight, or closed to others
    if not os.access(tempfile.gettempdir(), os.W_OK):
        raise Refused("there is no temporary folder for an unprivileged user")
    if not os.access(".", os.R_OK | os.X_OK):
        os.chdir("/")
