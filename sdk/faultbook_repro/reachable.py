"""Makes folders reachable for a user who may not pass through those above them, and nothing else of those.

Root's Python often lives in a home folder closed to others (pyenv, conda). In a mount namespace of this process alone,
such a closed folder is covered by an empty one that shows only what is needed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .core import sandbox

_MS_MOVE = 8192


def expose(paths: Iterable[Path]) -> None:
    """Needs root only where a folder above one of the paths is closed; raises OSError where mounting is not possible."""
    wanted = closed_above(paths)
    if not wanted:
        return
    sandbox._call("unshare", sandbox._libc().unshare(sandbox._NEWNS))
    sandbox._mount("none", "/", "", sandbox._MS_REC | sandbox._MS_PRIVATE)
    for closed, shown in wanted.items():
        stage = Path(tempfile.mkdtemp(prefix="faultbook-open-"))
        sandbox._mount("none", str(stage), "tmpfs", 0)
        stage.chmod(0o755)
        for path in shown:
            target = stage / path.relative_to(closed)
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if path.is_dir():
                target.mkdir(mode=0o755)
            else:
                target.touch()
            sandbox._mount(str(path), str(target), "", sandbox._MS_BIND | sandbox._MS_REC)
        sandbox._mount(str(stage), str(closed), "", _MS_MOVE)
        stage.rmdir()


def closed_above(paths: Iterable[Path]) -> dict[Path, list[Path]]:
    """Topmost closed folder → what has to be shown of it: for each path the part just below its last closed folder."""
    found: dict[Path, list[Path]] = {}
    resolved = {way for path in paths for way in (Path(os.path.realpath(path)), Path(os.path.abspath(path)))}
    for path in sorted(p for p in resolved if p.exists()):
        above = [folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001]
        if not above:
            continue
        shown = above[-1] / path.relative_to(above[-1]).parts[0]
        real = found.setdefault(Path(os.path.realpath(above[0])), [])
        if not any(shown == other or other in shown.parents for other in real):
            real.append(shown)
    return found
