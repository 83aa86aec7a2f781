"""Of a small input: which signatures could hold at all, before any of them is built.

A cold start has time for a few thousand look-ups, not for making a thousand signatures and an automaton over their
literals. Most signatures require a literal that the input does not hold; asking the compiled JSON is enough to see
that. What is left out here could not have matched: the texts looked at are all those that `scan` would look at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import facts
from .confirm import ANSI, joined_readings
from .literals import SHORTEST
from .model import Source
from .sources import SourceError, open_stream

SMALL = 48 << 10
"""Bytes of all inputs together up to which this is cheaper than one gate for all literals."""

class Pregate:
    """The texts of a small input, asked for literals."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts = [reading.lower() for text in texts for reading in _readings(text)]
        # Of four bytes each, so that a literal is searched only where its beginning occurs.
        self._starts = {four for t in self._texts for four in zip(t, t[1:], t[2:], t[3:], strict=False)}
        self._known: dict[str, bool] = {}

    def holds(self, literal: str) -> bool:
        """Whether the literal occurs, case aside."""
        known = self._known.get(literal)
        if known is None:
            wanted = literal.lower().encode()
            known = tuple(wanted[:4]) in self._starts and any(wanted in text for text in self._texts)
            self._known[literal] = known
        return known

    def may_hold(self, row: Mapping[str, Any]) -> bool:
        """Whether a signature, as compiled JSON, could hold; metric signatures are not judged here."""
        if row["kind"] != "log":
            return True
        required, optional = row.get("all", ()), row.get("any", ())
        if not all(self.may_match(p.get("literals") or p.get("anchors") or (), p["pattern"]) for p in required):
            return False
        if not optional:
            return bool(required)
        return any(self.may_match(p.get("literals") or p.get("anchors") or (), p["pattern"]) for p in optional)

    def may_match(self, literals: Sequence[str], pattern: str) -> bool:
        """Whether a pattern could match; a line of `facts`, which stands in no input, is not judged here."""
        if not literals or facts.PREFIX in pattern or any(len(x) < SHORTEST or not x.isascii() for x in literals):
            return True
        return any(map(self.holds, literals))


def _readings(text: bytes) -> list[bytes]:
    """The text, without colour codes, and with wrapped lines joined, as `scan` reads them."""
    found = [text]
    if b"\x1b" in text:
        found.append(ANSI.sub(b"", text))
    lines = text.replace(b"\r\n", b"\n").split(b"\n")
    if len(lines) > 1 and max(map(len, lines)) >= 40:
        found += [joined for joined, _ in joined_readings(lines)]
    return found


def of_small(sources: Sequence[Source]) -> Pregate | None:
    """The pre-gate of these inputs; None when they are not small, or cannot be read here."""
    left = SMALL
    texts = []
    for source in sources:
        size = len(source.data) if source.data is not None else os.path.getsize(source.path) if source.path else 0
        if size > left:
            return None
    for source in sources:
        try:
            with open_stream(source) as stream:
                text = stream.read(left + 1)
        except (SourceError, OSError):
            return None
        left -= len(text)
        if left < 0:
            return None
        texts.append(text)
    return Pregate(texts)
