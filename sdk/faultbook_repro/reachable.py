"""What of the machine a run can get at, beyond what `core.sandbox` takes away: made small in a mount namespace.

The sandbox leaves the file system in sight, read-only. That is not enough: a socket in it can be connected to however it
is mounted (a desktop's bus, a container engine, an agent with keys), and a home folder can be read by who owns it. So
`conceal` covers the home folder, folders closed to other users and /run with empty ones, in which only what the
interpreter and the entries need is shown, and puts a dead file over each socket elsewhere.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .core import sandbox

_NEWIPC, _MS_MOVE = 0x08000000, 8192


def conceal(needed: Iterable[Path]) -> None:
    """For this process and those it starts, for good. Raises OSError where the kernel does not allow it."""
    uid, gid = os.geteuid(), os.getegid()
    user = 0 if uid == 0 else sandbox._NEWUSER
    sandbox._call("unshare", sandbox._libc().unshare(user | sandbox._NEWNS | _NEWIPC))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    sandbox._mount("none", "/", "", sandbox._MS_REC | sandbox._MS_PRIVATE)
    sockets = bound_sockets()
    for folder, shown in covered(needed).items():
        _cover(folder, shown)
    for path in sockets:
        if path.exists():  # not below a folder that is covered by now
            sandbox._mount("/dev/null", str(path), "", sandbox._MS_BIND)


def covered(needed: Iterable[Path]) -> dict[Path, list[Path]]:
    """Folder to cover → the paths below it that stay in sight."""
    always = {Path(os.path.realpath(p)) for p in (Path.home(), Path("/run"), Path("/var/run")) if p.is_dir()} - {Path("/")}
    found: dict[Path, list[Path]] = {folder: [] for folder in sorted(always)}
    ways = {way for path in needed for way in (Path(os.path.realpath(path)), Path(os.path.abspath(path)))}
    for path in sorted(p for p in ways if _there(p)):
        above = [f for f in reversed(path.parents) if f in always or not f.stat().st_mode & 0o001]
        if above and f"{above[0]}" != "/":
            shown = found.setdefault(above[0], [])
            if not any(other == path or other in path.parents for other in shown):
                shown.append(path)
    # A folder that lies in another covered one is gone with it.
    return {f: shown for f, shown in found.items() if not any(other in f.parents for other in found)}


def bound_sockets() -> list[Path]:
    """Every socket of this network namespace that has a name in the file system."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    names = {fields[7] for line in lines if len(fields := line.split(None, 7)) == 8 and fields[7].startswith("/")}
    return sorted({Path(os.path.realpath(name)) for name in names if _there(Path(name))})


def _cover(folder: Path, shown: list[Path]) -> None:
    """An empty folder over this one, with the paths shown where they were."""
    stage = Path(tempfile.mkdtemp(prefix="faultbook-cover-"))
    sandbox._mount("none", str(stage), "tmpfs", 0)
    stage.chmod(0o755)
    for path in shown:
        target = stage / path.relative_to(folder)
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if path.is_dir():
            target.mkdir(mode=0o755)
        else:
            target.touch()
        sandbox._mount(str(path), str(target), "", sandbox._MS_BIND | sandbox._MS_REC)
    sandbox._mount(str(stage), str(folder), "", _MS_MOVE)
    stage.rmdir()


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
