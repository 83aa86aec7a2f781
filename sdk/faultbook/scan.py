"""One pass over an input: which lines match which patterns.

`Scanner` looks for the literals of all patterns at once (`gates`), in blocks of one reused
buffer, and tries a pattern (`confirm`) only on a record that holds one of its literals. No
Python object is made for any other line, so memory does not grow with the log.

The answer does not depend on the block size, the gate or threads: records are judged in
order, with a fixed amount of text around them in sight, and only then are hits capped: for
each pattern and rank prefix (`[rank3]`, `[default3]`, `3:`) the first `cap` and the last
are kept, while `counts` counts matching records. A pattern of which 3,000 hits in a row
were of no use (a value that stands on every line) is dropped for the rest of the input; its
last hits are then looked for in the input's last 128 KiB. One whose literal stands everywhere
and which matches nowhere is looked for by its whole expression, where Vectorscan is installed.

A pattern from which no literal can be derived is tried on every record: right, but slow.
The catalogue has none (`faultbook check` refuses them).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from .confirm import Matcher
from .excerpts import records, windows
from .gates import ExpressionGate, Gate, Part, choose_gate
from .literals import SHORTEST, required_literals
from .model import Scanned, Source
from .scan_pass import BLOCK, Pass
from .signatures import Pattern
from .sources import discover
from .streams import open_stream

__all__ = ["Scanner", "records", "scan_files", "windows"]


class Scanner:
    """Scans any number of inputs for the same patterns; safe to share between threads,
    and picklable."""

    def __init__(
        self, patterns: Sequence[Pattern], gate: str | None = None, cap: int = 50, brief: Iterable[int] = ()
    ) -> None:
        """`brief`: numbers of patterns that only say where an input is worth reading; given up sooner."""
        self.patterns = tuple(patterns)
        self.cap = max(1, cap)
        self.brief = frozenset(brief)
        self._gate_name = gate
        wanted: dict[bytes, list[int]] = {}
        self._literals = [_literals(pattern) for pattern in self.patterns]
        for number, literals in enumerate(self._literals):
            for literal in literals:
                wanted.setdefault(literal, []).append(number)
        self.literals = tuple(sorted(wanted))
        self.users = (*(tuple(wanted[x]) for x in self.literals), *((n,) for n in range(len(self.patterns))))
        """Patterns by literal; then each pattern by itself, for gates that look for whole expressions."""
        self.without_literal = tuple(n for n, literals in enumerate(self._literals) if not literals)
        self.gate: Gate = choose_gate(self.literals, gate)
        self._parts: dict[frozenset[int], Gate] = {}
        self._matchers: list[Matcher | None] = [None] * len(self.patterns)
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return Scanner, (self.patterns, self._gate_name, self.cap, tuple(self.brief))

    def scan(self, source: Source, block: int | None = None, told: Callable[[Source, int], None] | None = None) -> Scanned:
        """Everything found in one input; `told` how many bytes were read, every now and then. Raises SourceError when it
        cannot be read."""
        with open_stream(source) as stream:
            scanned = Pass(self, source.index, block or BLOCK).run(stream, partial(told, source) if told else None)
        return scanned

    def matcher(self, number: int) -> Matcher:
        made = self._matchers[number]
        if made is None:
            made = self._matchers[number] = Matcher(self.patterns[number], self._literals[number])
        return made

    def gate_without(self, done: frozenset[int]) -> Gate:
        """A gate for the literals that other patterns use."""
        part = self._parts.get(done) if done else self.gate
        if part is None:
            kept = [n for n in range(len(self.literals)) if not done.issuperset(self.users[n])]
            part = self._parts[done] = Part(choose_gate([self.literals[n] for n in kept], self._gate_name), kept)
        return part

    def expressions(self, patterns: frozenset[int], anchored: bool) -> Gate | None:
        """A gate for whole patterns instead of their literals; None where there is no engine for that."""
        if self.gate.name != "hyperscan":
            return None
        kept = sorted(patterns)
        try:
            gate = ExpressionGate([self.patterns[n] for n in kept], anchored)
        except Exception:  # an expression that Vectorscan refuses: the literals serve as well
            return None
        return Part(gate, [len(self.literals) + n for n in kept])

    def buffer(self, size: int) -> bytearray:
        """This thread's buffer: allocating one per input would halve the rate on small files."""
        kept: bytearray | None = getattr(self._local, "buffer", None)
        self._local.buffer = None  # so that a scan within a scan gets its own
        return kept if kept is not None and len(kept) >= size else bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        self._local.buffer = buffer


def scan_files(
    paths: Sequence[str | os.PathLike[str]], patterns: Sequence[Pattern], gate: str | None = None, cap: int = 50
) -> list[Scanned]:
    """Scans files or directories one after the other; a plain function for pools of workers."""
    scanner = Scanner(patterns, gate, cap)
    return [scanner.scan(source) for source in discover(paths) if not source.skipped]


def _literals(pattern: Pattern) -> tuple[bytes, ...]:
    """Compiled ones, else the author's anchors, else derived ones."""
    texts = pattern.literals or pattern.anchors
    if not texts:
        try:
            texts = required_literals(pattern.pattern, pattern.ignore_case)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a usable pattern: {pattern.pattern!r}: {error}") from None
    if any(len(text) < SHORTEST or not text.isascii() or re.search(r"[\n\r]", text) for text in texts):
        return ()
    return tuple(text.lower().encode("ascii") for text in texts)

