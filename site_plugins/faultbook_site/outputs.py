"""The files of an earlier build stay where they are until this one has put its own over them; what it left alone goes.

mkdocs empties the site's folder first. Deleting and creating thousands of files took a third of a build that changes little.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path


class Outputs:
    def __init__(self, site: Path) -> None:
        self._site = site
        self._aside = site / ".faultbook-earlier"  # mkdocs leaves hidden names at the top of the folder alone
        self._start = 0
        self._unchanged: set[str] = set()

    def hide(self) -> None:
        """Before mkdocs empties the folder. Files at the top are few, and are left to it."""
        if not self._site.is_dir():
            return
        self.show()  # of a build that was killed between the two
        with contextlib.suppress(OSError):  # what cannot be moved is emptied by mkdocs
            self._aside.mkdir()
            self._start = self._aside.stat().st_ctime_ns
            for found in self._folders():
                Path(found.path).rename(self._aside / found.name)

    def show(self) -> None:
        if not self._aside.is_dir():
            return
        for path in list(self._aside.iterdir()):
            if (self._site / path.name).exists():  # only where a folder could not be emptied
                shutil.rmtree(path)
            else:
                path.rename(self._site / path.name)
        self._aside.rmdir()

    def put(self, path: str, content: bytes) -> None:
        """Writes a file below the site, unless it is there as it should be."""
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} lies outside the site")
        target = f"{self._site}/{path}"
        try:
            with open(target, "rb") as earlier:
                same = os.fstat(earlier.fileno()).st_size == len(content) and earlier.read() == content
            if same:
                self._unchanged.add(target)
                return
        except FileNotFoundError:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_bytes(content)

    def tidy(self) -> None:
        """Removes what was neither written since `hide` nor found unchanged, and folders without a file."""
        if not self._start:
            return
        for found in self._folders():
            self._tidy(found.path)

    def _folders(self) -> list[os.DirEntry[str]]:
        with os.scandir(self._site) as inside:
            return [f for f in inside if f.is_dir(follow_symlinks=False) and not f.name.startswith(".")]

    def _tidy(self, folder: str) -> bool:
        """Whether anything is left in it."""
        left = False
        with os.scandir(folder) as inside:
            for found in list(inside):
                if found.is_dir(follow_symlinks=False):
                    left |= self._tidy(found.path)
                # The time of the last change of the file, which a copy that keeps its source's times cannot set back.
                elif found.path in self._unchanged or found.stat(follow_symlinks=False).st_ctime_ns >= self._start:
                    left = True
                else:
                    os.unlink(found.path)
        if not left:
            os.rmdir(folder)
        return left
