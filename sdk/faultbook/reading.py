"""Lines of a source for the incident: all of a small one, of a large one those around events."""

from __future__ import annotations

import functools

from . import scan
from .attribution import read_text
from .event_patterns import EVENT_PATTERNS
from .model import Source

WHOLE = 16 << 20
"""Characters up to which a source is read whole."""
AROUND = 60
"""Lines read before and after a hit of a larger one: a traceback and what led to it."""
EDGE = 2000
"""Lines read from each end of a larger one: banners, last progress, launcher's verdict."""
MOST_HITS = 2000
"""Hits looked at; beyond, the first and the last ones."""


def texts(source: Source) -> list[tuple[int, str]]:
    """(line number, text), in order."""
    found: list[tuple[int, str]] = []
    size = 0
    for number, text in read_text(source):
        size += len(text) + 1
        if size > WHOLE:
            return parts(source)
        found.append((number, text))
    return found


def parts(source: Source) -> list[tuple[int, str]]:
    """Head, tail, and the surroundings of every event."""
    scanned = _scanner().scan(source)
    hits = sorted({hit.line for hit in scanned.hits})
    if len(hits) > MOST_HITS:
        hits = hits[: MOST_HITS // 2] + hits[-MOST_HITS // 2 :]
    wanted = [(1, EDGE), (max(1, scanned.lines - EDGE), scanned.lines)]
    wanted += [(max(1, line - AROUND), line + AROUND) for line in hits]
    return scan.windows(source, wanted, scanned)


@functools.lru_cache(maxsize=1)
def _scanner() -> scan.Scanner:
    return scan.Scanner([event.pattern for event in EVENT_PATTERNS])
