"""What was made from a text, kept on disk between builds under a digest of that text and of the code that made it."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]
FORGOTTEN_AFTER = 14 * 24 * 3600.0  # seconds since it was written or last used by a build that tidied up


class Kept:
    def __init__(self, folder: Path | None) -> None:
        """Without a folder everything is made anew each time."""
        self._folder = folder
        self._used: set[str] = set()

    def get(self, key: str, make: Callable[[], Json], worth: Callable[[Json], bool] = bool) -> Json:
        """The object made under this key before, or now. `key` must change with all that `make` depends on.

        `worth` says whether what was made may stand for what would be made the next time.
        """
        if self._folder is None:
            return make()
        name = hashlib.sha256(f"{code_version()}\n{key}".encode()).hexdigest()[:40] + ".json"
        self._used.add(name)
        try:
            found = json.loads((self._folder / name).read_bytes())
            if isinstance(found, dict):
                return found
        except (OSError, ValueError):
            pass
        made = make()
        if worth(made):
            self._write(name, json.dumps(made, ensure_ascii=False))
        return made

    def tidy(self) -> None:
        """Removes what no build has used for two weeks; what this one used counts as new."""
        if self._folder is None or not self._folder.is_dir():
            return
        now = time.time()
        for path in self._folder.iterdir():
            try:
                age = now - path.stat().st_mtime
                if path.name in self._used and age > FORGOTTEN_AFTER / 2:
                    path.touch()
                elif path.name not in self._used and age > FORGOTTEN_AFTER:
                    path.unlink()
            except OSError:
                continue

    def _write(self, name: str, content: str) -> None:
        """Whole or not at all: two builds may share the folder. A folder that cannot be written to costs time only."""
        assert self._folder is not None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False, encoding="utf-8") as handle:
                handle.write(content)
            Path(handle.name).replace(self._folder / name)
        except OSError:
            return


@lru_cache(maxsize=1)
def code_version() -> str:
    """Of everything that turns an entry into a page: this package, and the libraries it does that with."""
    from importlib.metadata import version

    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    for name in ("markdown", "markdown-it-py", "pygments", "pymdown-extensions", "mkdocs"):
        digest.update(version(name).encode())
    return digest.hexdigest()
