"""An entry whose names and files are what they seem, before anything is read from it or written beside it.

`verify --record` and `--keep` write as the person who calls them, to paths made of the entry's slug and variants, in the
entry's own folder: a link there, or a name with a slash, would be a way out of it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from .core import entry
from .core.entry import Entry
from .core.spec import SpecError

_VARIANT = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,60})?")


def load_entry(folder: Path) -> Entry | None:
    """As `core.entry.load_entry`; raises SpecError for links and for names that lead elsewhere."""
    for path in (folder, folder / "entry.yaml", folder / "repro.py", folder / "logs", *_files(folder / "logs")):
        if path.is_symlink():
            raise SpecError(f"{folder.name}: {path.name[:80]!r} is a link; entries hold plain files only")
    loaded = entry.load_entry(folder)
    if loaded is None:
        return None
    if loaded.slug != folder.name:
        raise SpecError(f"{folder.name}: its slug is {loaded.slug[:80]!r}; folder and slug are the same word")
    for variant in loaded.spec.variants if loaded.spec is not None else ():
        if not _VARIANT.fullmatch(variant):
            raise SpecError(f"{folder.name}: {variant[:80]!r} is no name for a variant (letters, digits, `-`, `_`, `.`)")
    return loaded


def _files(folder: Path) -> list[Path]:
    try:
        return [Path(found.path) for found in os.scandir(folder)]
    except OSError:
        return []
