"""Gates: where in a block do literals occur, case aside?

A gate is the fast first stage of a scan. Three implementations answer identically, so the
choice changes the speed and nothing else: Vectorscan (package `hyperscan`), a Rust
Aho-Corasick automaton (`ahocorasick_rs`), and pure Python, which always works.
`FAULTBOOK_GATE` (hyperscan, ahocorasick, python) overrides the choice.
"""

from __future__ import annotations

import heapq
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from .portable import without_anchors
from .signatures import Pattern

Block = bytes | bytearray | memoryview


class Gate(Protocol):
    """What a scan asks of a gate."""

    name: str

    def find(self, block: Block) -> list[tuple[int, int]]:
        """(end offset, index of the literal) of every occurrence, overlapping ones too,
        sorted; ASCII letters match in both cases."""
        ...


_COMMON = b" 0e12osat.nci-5r3:l4967/p8md,uhf_gb'[]"
"""Bytes of logs, the most frequent first."""
_WEIGHT = bytes(len(_COMMON) - at if (at := _COMMON.find(byte)) >= 0 else 0 for byte in range(256))


def _rare_end(literal: bytes) -> int:
    """How much of a literal Vectorscan is given. It looks at a literal's last bytes first, so one that ends as healthy
    lines do makes it stop for nothing: the longest of those beginnings of ten bytes or more that end in the rarest three."""
    weight = literal.translate(_WEIGHT)
    best = end = min(10, len(literal))
    least = sum(weight[end - 3 : end])
    for end in range(best + 1, len(literal) + 1):
        here = weight[end - 3] + weight[end - 2] + weight[end - 1]
        if here <= least:
            best, least = end, here
    return best


class HyperscanGate:
    """The beginnings of all literals in one Vectorscan database; the rest is compared where one stands."""

    name = "hyperscan"

    def __init__(self, literals: Sequence[bytes]) -> None:
        uses: dict[bytes, list[tuple[int, bytes]]] = {}
        for number, literal in enumerate(literals):
            end = _rare_end(literal)
            uses.setdefault(literal[:end], []).append((number, literal[end:]))
        self._uses = tuple(uses.values())
        self._plain = all(len(use) == 1 and not use[0][1] for use in self._uses)
        self._database = _Database(list(uses), [True] * len(uses), literal=True)

    def find(self, block: Block) -> list[tuple[int, int]]:
        found = self._database.scan(block)
        if not self._plain:
            found = list(self._completed(memoryview(block), found))
        found.sort()
        return found

    def _completed(self, block: memoryview, found: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        for end, beginning in found:
            for number, rest in self._uses[beginning]:
                if not rest or bytes(block[end : end + len(rest)]).lower() == rest:
                    yield end + len(rest), number


class ExpressionGate:
    """Whole expressions in one Vectorscan database, for patterns whose literals stand everywhere and say nothing.
    Wherever a pattern matches within a record, its end is found; what is found need not be a match, as a class may
    match a line end. `anchored`: `^` and `$` hold at line ends, which is right only where no `\\r` ends a record; else
    they are left out."""

    name = "hyperscan"

    def __init__(self, patterns: Sequence[Pattern], anchored: bool) -> None:
        texts = [p.pattern if anchored else without_anchors(p.pattern) for p in patterns]
        self._database = _Database([x.encode("ascii") for x in texts], [p.ignore_case for p in patterns], literal=False)

    def find(self, block: Block) -> list[tuple[int, int]]:
        return sorted(self._database.scan(block))


class _Database:
    """Compiled for Vectorscan; a scratch for each thread."""

    def __init__(self, expressions: Sequence[bytes], caseless: Sequence[bool], literal: bool) -> None:
        import hyperscan

        self._hyperscan = hyperscan
        lines = 0 if literal else hyperscan.HS_FLAG_MULTILINE
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        # no SOM_LEFTMOST: start offsets cost a factor of 4, and the end is enough
        self._database.compile(
            expressions=list(expressions), ids=list(range(len(expressions))), elements=len(expressions),
            flags=[lines | (hyperscan.HS_FLAG_CASELESS if either else 0) for either in caseless], literal=literal,
        )  # fmt: skip
        self._local = threading.local()

    def scan(self, block: Block) -> list[tuple[int, int]]:
        """(end, number) of all matches."""
        scratch = getattr(self._local, "scratch", None)
        if scratch is None:  # a scratch serves one thread at a time
            scratch = self._local.scratch = self._hyperscan.Scratch(self._database)
        found: list[tuple[int, int]] = []

        def on_match(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            found.append((end, number))

        scan: Any = self._database.scan  # its stub wants str or bytes
        scan(block, match_event_handler=on_match, scratch=scratch)
        return found


class AhoCorasickGate:
    """One automaton over the lowercased block."""

    name = "ahocorasick"

    def __init__(self, literals: Sequence[bytes]) -> None:
        import ahocorasick_rs

        self._automaton = ahocorasick_rs.BytesAhoCorasick(list(literals))

    def find(self, block: Block) -> list[tuple[int, int]]:
        lowered = bytes(block).lower()
        found = self._automaton.find_matches_as_indexes(lowered, overlapping=True)
        return sorted((end, literal) for literal, _, end in found)


class PythonGate:
    """`bytes.find` over the lowercased block, for a few short fragments that together
    occur in all literals; the literals of a fragment are compared only where it stands."""

    name = "python"

    def __init__(self, literals: Sequence[bytes]) -> None:
        self._literals = list(literals)
        self._fragments = _hitting_set(self._literals)

    def find(self, block: Block) -> list[tuple[int, int]]:
        lowered = bytes(block).lower()
        found = set()
        for fragment, uses in self._fragments.items():
            at = lowered.find(fragment)
            while at >= 0:
                for literal, shift in uses:
                    start = at - shift
                    text = self._literals[literal]
                    if start >= 0 and lowered.startswith(text, start):
                        found.add((start + len(text), literal))
                at = lowered.find(fragment, at + 1)
        return sorted(found)


class Part:
    """A gate for some literals of a longer list, with the list's numbers."""

    def __init__(self, gate: Gate, numbers: Sequence[int]) -> None:
        self.name = gate.name
        self._gate, self._numbers = gate, numbers

    def find(self, block: Block) -> list[tuple[int, int]]:
        return [(end, self._numbers[literal]) for end, literal in self._gate.find(block)] if self._numbers else []


_FRAGMENT = 5
"""Length of the fragments: shorter ones stand on too many lines, longer ones serve fewer literals."""


def _hitting_set(literals: Sequence[bytes]) -> dict[bytes, list[tuple[int, int]]]:
    """Greedy: fragment → [(literal, offset of the fragment in it)], each literal once."""
    holders: dict[bytes, dict[int, int]] = {}
    for number, text in enumerate(literals):
        size = min(_FRAGMENT, len(text))
        for start in range(len(text) - size + 1):
            holders.setdefault(text[start:start + size], {}).setdefault(number, start)
    waiting = set(range(len(literals)))
    chosen: dict[bytes, list[tuple[int, int]]] = {}
    # What a fragment would still hit only shrinks, so one whose old count leads after a recount is the best.
    queue = [(-len(held), fragment) for fragment, held in holders.items()]
    heapq.heapify(queue)
    while waiting:
        _, best = heapq.heappop(queue)
        hits = len(holders[best].keys() & waiting)
        if queue and (-hits, best) > queue[0]:
            if hits:
                heapq.heappush(queue, (-hits, best))
            continue
        chosen[best] = [(number, shift) for number, shift in holders[best].items() if number in waiting]
        waiting -= holders[best].keys()
    return chosen


_GATES: dict[str, Callable[[Sequence[bytes]], Gate]] = {
    "hyperscan": HyperscanGate,
    "ahocorasick": AhoCorasickGate,
    "python": PythonGate,
}


def choose_gate(literals: Sequence[bytes], name: str | None = None) -> Gate:
    """The named gate, else the one of `FAULTBOOK_GATE`, else the fastest that is installed.

    Raises ValueError with one line when a gate asked for is unknown or not installed.
    """
    if any(not text or text != text.lower() for text in literals):
        raise ValueError("a gate takes non-empty lowercase literals")
    if not literals:
        return PythonGate(literals)
    wanted = name or os.environ.get("FAULTBOOK_GATE") or None
    if wanted is not None and wanted not in _GATES:
        raise ValueError(f"no gate {wanted!r}: choose one of {', '.join(_GATES)}")
    failure: Any = None
    for candidate in (wanted,) if wanted else _GATES:
        try:
            return _GATES[candidate](literals)
        except Exception as error:  # not installed, or no build for this processor
            failure = error
    raise ValueError(f"gate {wanted!r} does not work here: {failure}")
