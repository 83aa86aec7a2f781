"""Hits of one input, capped per pattern and rank prefix, in order."""

from __future__ import annotations

from . import lazy
from .model import Hit

_RANKS = 1024
"""Different rank prefixes that are told apart in one input."""
_KEPT_BYTES = 32 << 20
"""Text of hits kept of one input; beyond, they are only counted."""
SATURATED = 3000
"""Hits in a row of one pattern of which none was kept: from then on only its last ones are looked for."""
SATURATED_BRIEFLY = 500
"""The same for patterns that only say where an input is worth reading."""
_RANK_FIRST = lazy.regex_bytes(
    rb"\[(?:rank|default|trainer|Rank |RANK )(\d{1,6})[\]|]|[ \t]{0,6}(\d{1,6}): |\[(?:\d+,)?(\d{1,6})\][:<]"
)
_RANK_NEAR = lazy.regex_bytes(
    rb"\[(?:rank|default|trainer|Rank |RANK )(\d{1,6})[\]|]|\"(?:global_)?rank\": ?\"?(\d{1,6})"
    rb"|\[rank=(\d{1,6})\]|\brank(\d{1,6})\["
)


def rank_prefix(text: bytes | bytearray, start: int, end: int) -> bytes:
    """The number in a prefix that tells ranks apart, as it stands there; empty without one."""
    match = _RANK_FIRST.match(text, start, end) or _RANK_NEAR.search(text, start, end)
    return match.group(match.lastindex or 0) if match else b""


_Raw = tuple[int, int, int, bytes]
"""Line, offset in the input, pattern, text."""


class Hits:
    """Hits as they come, in order of records, capped per pattern and rank prefix."""

    def __init__(self, cap: int, brief: frozenset[int] = frozenset()) -> None:
        self.cap = cap
        self.brief = brief
        self.counts: dict[int, int] = {}
        self.first: list[_Raw] = []
        self.last: dict[tuple[int, bytes], _Raw] = {}
        self.kept: dict[tuple[int, bytes], int] = {}
        self.ranks: set[bytes] = set()
        self.bytes = 0
        self.in_vain: dict[int, int] = {}
        """Pattern → hits since one was kept."""
        self.done: dict[int, int] = {}
        """Saturated pattern → line of the hit that made it so."""

    def count(self, pattern: int, rank: bytes) -> tuple[tuple[int, bytes], bool]:
        """Counts one hit; its key, and whether it is to be kept among the first ones."""
        self.counts[pattern] = self.counts.get(pattern, 0) + 1
        if rank not in self.ranks:
            if len(self.ranks) >= _RANKS:
                rank = b""
            self.ranks.add(rank)
        key = (pattern, rank)
        first = self.kept.get(key, 0) < self.cap and self.bytes < _KEPT_BYTES
        self.in_vain[pattern] = 0 if first else self.in_vain.get(pattern, 0) + 1
        return key, first

    def saturated(self, pattern: int) -> bool:
        """Whether looking further for this pattern is in vain."""
        return self.in_vain.get(pattern, 0) >= (SATURATED_BRIEFLY if pattern in self.brief else SATURATED)

    def keep(self, key: tuple[int, bytes], line: int, offset: int, text: bytes) -> None:
        self.kept[key] = self.kept.get(key, 0) + 1
        self.bytes += len(text)
        self.first.append((line, offset, key[0], text))

    def keep_last(self, key: tuple[int, bytes], line: int, offset: int, text: bytes) -> None:
        old = self.last.get(key)
        if old is None and self.bytes >= _KEPT_BYTES:
            return
        if old is None or old[:2] < (line, offset):
            self.bytes += len(text) - (len(old[3]) if old else 0)
            self.last[key] = (line, offset, key[0], text)

    def add(self, pattern: int, rank: bytes, line: int, offset: int, text: bytes) -> None:
        key, first = self.count(pattern, rank)
        (self.keep if first else self.keep_last)(key, line, offset, text)

    def result(self, source: int) -> tuple[Hit, ...]:
        found = sorted([*self.first, *self.last.values()], key=lambda hit: hit[:3])
        return tuple(
            Hit(source, line, offset, text.decode("utf-8", "replace"), pattern)
            for line, offset, pattern, text in found
        )

    def capped(self) -> tuple[int, ...]:
        held: dict[int, int] = {}
        for (pattern, _), number in self.kept.items():
            held[pattern] = held.get(pattern, 0) + number
        for pattern, _ in self.last:
            held[pattern] += 1
        return tuple(sorted(p for p, count in self.counts.items() if count > held.get(p, 0)))
