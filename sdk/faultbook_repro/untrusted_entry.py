"""An entry whose names and files are what they seem, before anything is read from it or written beside it.

`verify --record` and `--keep` write as the person who calls them, to paths made of the entry's slug and variants, in the
entry's own folder: a link there, or a name with a slash, would be a way out of it. And `core.entry` reads the YAML in the
ordinary way, which expands aliases and recurses: what would blow up there is refused before.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from faultbook_schema import files, yaml_nodes

from .core import entry
from .core.entry import Entry
from .core.spec import SpecError

_VARIANT = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,60})?")


def load_entry(folder: Path) -> Entry | None:
    """As `core.entry.load_entry`; raises SpecError, one line, for whatever is wrong with the files."""
    refuse_harmful(folder)
    try:
        loaded = entry.load_entry(folder)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"{folder.name}: cannot be read: {str(error)[:200] or type(error).__name__}") from None
    if loaded is None:
        return None
    if loaded.slug != folder.name:
        raise SpecError(f"{folder.name}: its slug is {loaded.slug[:80]!r}; folder and slug are the same word")
    for variant in loaded.spec.variants if loaded.spec is not None else ():
        if not _VARIANT.fullmatch(variant):
            raise SpecError(f"{folder.name}: {variant[:80]!r} is no name for a variant (letters, digits, `-`, `_`, `.`)")
    return loaded


def refuse_harmful(folder: Path) -> None:
    """Raises SpecError for links, pipes, and files that cost more to read than an entry may."""
    for path in (folder, *_files(folder), *_files(folder / "logs")):
        about = path.lstat()
        if stat.S_ISLNK(about.st_mode):
            raise SpecError(f"{folder.name}: {path.name[:80]!r} is a link; entries hold plain files only")
        if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
            raise SpecError(f"{folder.name}: {path.name[:80]!r} is no plain file")
        if stat.S_ISREG(about.st_mode) and about.st_size > files.MAX_LOG:
            raise SpecError(f"{folder.name}: {path.name[:80]!r} is larger than {files.MAX_LOG:,} bytes")
    data, problem = files.read_bytes(folder, "entry.yaml", f"{folder.name}/entry.yaml", yaml_nodes.MAX_BYTES + 1)
    node, problems = yaml_nodes.read(data, f"{folder.name}/entry.yaml") if data is not None else (None, [problem])
    if node is None and problems:
        raise SpecError(str(problems[0]))
    if (folder / "repro.py").exists():
        data, problem = files.read_bytes(folder, "repro.py", f"{folder.name}/repro.py", files.MAX_REPRO + 1)
        if data is None or len(data) > files.MAX_REPRO:
            raise SpecError(str(problem) if problem else f"{folder.name}/repro.py:1: larger than {files.MAX_REPRO:,} bytes")


def _files(folder: Path) -> list[Path]:
    try:
        return [Path(found.path) for found in os.scandir(folder)]
    except OSError:
        return []
