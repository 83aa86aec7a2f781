"""Everything that can be said about kb/ without running anything."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import confusion, lint
from .loader import entry_folders, load_kb
from .problems import Problem


@dataclass(frozen=True, slots=True)
class Report:
    """What `faultbook check` prints."""

    problems: tuple[Problem, ...]
    entries: int
    """Entries looked at."""
    signatures: int
    logs: int
    seconds: float

    def to_dict(self) -> dict[str, object]:
        return {
            "schema": "faultbook.check/1",
            "entries": self.entries,
            "signatures": self.signatures,
            "logs": self.logs,
            "problems": [p.to_dict() for p in self.problems],
        }


def check(kb: Path, paths: Sequence[Path] = (), healthy_logs: Mapping[str, str] | None = None) -> Report:
    """Loads kb/ and tests every signature on every log; `paths` limits what is reported, not what
    is read, since an entry can only be confused with others when they are there. `healthy_logs`
    (name → text) are more logs on which no signature may fire."""
    start = time.perf_counter()
    roots = [path.resolve() for path in paths]
    only = {f for f in entry_folders(kb) if any(_inside(f.resolve(), root) for root in roots)} if paths and kb.is_dir() else None
    knowledge = load_kb(kb, only)
    items = [i for i in knowledge.loaded if only is None or i.folder in only]
    slugs = None if only is None else frozenset(i.slug for i in items)
    problems = list(knowledge.problems)
    if only is not None:
        shown = ("kb/taxonomy.yaml", *(i.path.removesuffix("entry.yaml") for i in items))
        problems = [p for p in problems if p.path.startswith(shown)]
    # Another entry's signature that fires on this one's log is reported too, at its own place.
    problems += confusion.problems_of(knowledge, only=slugs)
    problems += lint.problems_of(knowledge, slugs, healthy_logs)
    problems = sorted(set(problems))
    usable = [i for i in items if i.entry is not None]
    return Report(
        tuple(problems),
        len(items),
        sum(len(i.entry.signatures) for i in usable if i.entry is not None),
        sum(len(i.logs) for i in usable),
        time.perf_counter() - start,
    )


def _inside(folder: Path, root: Path) -> bool:
    """Whether the entry lies in the path, or the path (a file of it) lies in the entry."""
    return folder == root or root in folder.parents or folder in root.parents
