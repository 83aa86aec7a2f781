"""One pass over an input: which lines match which patterns.

`Scanner` looks for the literals of all patterns at once (`gates`), in blocks of one reused
buffer, and tries a pattern (`confirm`) only on a record that holds one of its literals. No
Python object is made for any other line, so memory does not grow with the log.

The answer does not depend on the block size, the gate or threads: records are judged in
order, with a fixed amount of text around them in sight, and only then are hits capped: for
each pattern and rank prefix (`[rank3]`, `[default3]`, `3:`) the first `cap` and the last
are kept, while `counts` counts matching records. A pattern of which 8,000 hits in a row
were of no use (a value that stands on every line) is dropped for the rest of the input; its
last hits are then looked for in the input's last 128 KiB.

A pattern from which no literal can be derived is tried on every record: right, but slow.
The catalogue has none (`faultbook check` refuses them).
"""

from __future__ import annotations

import os
import re
import sys
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from . import lazy
from .confirm import ANSI, LOOK, Matcher, Record, following, join, joined_readings, line_before, window_number
from .excerpts import HEAD_BYTES, TAIL_BYTES, head_records, records, tail_records, windows
from .gates import Gate, Part, choose_gate
from .hits import Hits, rank_prefix
from .literals import SHORTEST, required_literals
from .model import Scanned, Source
from .portable import WINDOW
from .signatures import Pattern
from .sources import discover
from .streams import open_stream

__all__ = ["Scanner", "records", "scan_files", "windows"]

BLOCK = 1 << 19
_GIANT = 1 << 18
"""A longer record is never held whole: it is tried in windows around the literals."""
_WRAPPED = 1 << 17
"""Inputs up to this size are also searched for literals that a terminal's wrap broke."""
_JOINS = 1000
"""Failed attempts per pattern to join a line with its neighbours, before giving up on it."""
_MARK = 1 << 18
"""Distance of the places whose line number is kept."""
_MANY = 500
"""Candidates in one region from which on it is worth asking whether there is any match."""
_LINE_END = lazy.regex_bytes(rb"[\n\r]")
_SLOW_COUNT = sys.version_info < (3, 13)


class Scanner:
    """Scans any number of inputs for the same patterns; safe to share between threads,
    and picklable."""

    def __init__(self, patterns: Sequence[Pattern], gate: str | None = None, cap: int = 50) -> None:
        self.patterns = tuple(patterns)
        self.cap = max(1, cap)
        self._gate_name = gate
        wanted: dict[bytes, list[int]] = {}
        self._literals = [_literals(pattern) for pattern in self.patterns]
        for number, literals in enumerate(self._literals):
            for literal in literals:
                wanted.setdefault(literal, []).append(number)
        self.literals = tuple(sorted(wanted))
        self.users = tuple(tuple(wanted[literal]) for literal in self.literals)
        self.without_literal = tuple(n for n, literals in enumerate(self._literals) if not literals)
        self.gate: Gate = choose_gate(self.literals, gate)
        self._parts: dict[frozenset[int], Gate] = {}
        self._matchers: list[Matcher | None] = [None] * len(self.patterns)
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return Scanner, (self.patterns, self._gate_name, self.cap)

    def scan(self, source: Source, block: int | None = None) -> Scanned:
        """Everything found in one input. Raises SourceError when it cannot be read."""
        with open_stream(source) as stream:
            scanned = _Pass(self, source.index, block or BLOCK).run(stream)
        return scanned

    def matcher(self, number: int) -> Matcher:
        made = self._matchers[number]
        if made is None:
            made = self._matchers[number] = Matcher(self.patterns[number], self._literals[number])
        return made

    def gate_without(self, done: frozenset[int]) -> Gate:
        """A gate for the literals that other patterns use."""
        part = self._parts.get(done)
        if part is None:
            kept = [n for n, users in enumerate(self.users) if not done.issuperset(users)]
            part = self._parts[done] = Part(choose_gate([self.literals[n] for n in kept], self._gate_name), kept)
        return part

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


def count_lines(buf: bytearray, view: memoryview, start: int, until: int) -> int:
    """Line ends in a part of the buffer. `count` looks at one byte at a time before Python 3.13;
    deleting them, which leaps from one to the next, is three times as fast on lines of usual length."""
    size = until - start
    if _SLOW_COUNT and size > 1 << 14 and buf.count(b"\n", start, start + 4096) < 4096 // 64:
        return size - len(bytes(view[start:until]).replace(b"\n", b""))
    return buf.count(b"\n", start, until)


class _Pass:
    """The state of one pass. Offsets within the buffer are plain ints; `base` is the
    offset in the input of the buffer's first byte."""

    def __init__(self, scanner: Scanner, source: int, block: int) -> None:
        self.scanner = scanner
        self.source = source
        self.block = max(1, block)
        size = self.block + _GIANT + 4 * LOOK + 2 * WINDOW
        self.buf = scanner.buffer(size)
        self.view = memoryview(self.buf)
        self.base = 0
        self.filled = 0
        self.lines = 0
        """Line ends before `counted`."""
        self.counted = 0
        self.gate = scanner.gate
        self.marks: list[tuple[int, int]] = []
        self.next_mark = _MARK
        """Offset in the input from which on the next line's beginning is kept."""
        self.hits = Hits(scanner.cap)
        self.joins: dict[int, int] = {}
        self.joined_until: dict[int, int] = {}
        self.giant: _Giant | None = None
        self.odd = self.redrawn = False
        """Whether the region holds colour codes or backslashes; `\\r`."""
        self.region_line = 1
        self.exhausted: set[int] = set()
        """Patterns of which so many candidates came to nothing that lines are no longer joined for them."""
        self.skip: set[int] = set()
        """Those of them that match nowhere in the region."""
        self.done = 0
        """How many saturated patterns the gate leaves out."""
        self.last: dict[tuple[int, bytes], tuple[int, int]] = {}
        """Key → place in the buffer of the region's last hit beyond the cap."""

    def run(self, stream: BinaryIO) -> Scanned:
        head, tail = bytearray(), b""
        todo = 0  # where the part that is not yet judged begins
        last = b""
        while True:
            got: int = stream.readinto(self.view[self.filled:self.filled + self.block])  # type: ignore[attr-defined]
            if len(head) < HEAD_BYTES:
                head += self.view[self.filled:self.filled + min(got, HEAD_BYTES - len(head))]
            tail = self._tail(tail, got)
            self.filled += got
            if got:
                last = bytes(self.view[self.filled - 1:self.filled])
            todo = self._judge(todo, at_end=got == 0)
            if got == 0:
                break
            if len(self.buf) - self.filled < self.block:
                todo = self._make_room(todo)
        size = self.base + self.filled
        self._count(self.filled)
        if self.hits.done:
            self._last_of_done(tail, size)
        if size <= _WRAPPED:
            self._broken_literals(bytes(self.view[:self.filled]) if self.base == 0 else b"")
        self.view.release()
        self.scanner.give_back(self.buf)
        ends_mid_line = bool(last) and last != b"\n"
        lines = self.lines + ends_mid_line
        return Scanned(
            source=self.source, hits=self.hits.result(self.source), lines=lines, size=size,
            head=head_records(bytes(head), whole=size <= HEAD_BYTES),
            tail=tail_records(tail, lines, whole=size <= TAIL_BYTES, ends_mid_line=ends_mid_line),
            counts=dict(sorted(self.hits.counts.items())), capped=self.hits.capped(), ends_mid_line=ends_mid_line,
            marks=tuple(self.marks),
        )

    def _tail(self, tail: bytes, got: int) -> bytes:
        """The last bytes of the input so far (a copy of a few per cent of each block)."""
        fresh = bytes(self.view[self.filled + max(0, got - TAIL_BYTES):self.filled + got])
        return fresh if len(fresh) == TAIL_BYTES else (tail + fresh)[-TAIL_BYTES:]

    def _make_room(self, todo: int) -> int:
        """Moves what is still needed to the front: the unjudged part and what precedes it."""
        keep = max(0, todo - LOOK - 1)
        self._count(keep)
        self.counted -= keep
        size = self.filled - keep
        self.view[:size] = self.view[keep:self.filled]
        self.base += keep
        self.filled = size
        return todo - keep

    def _count(self, until: int) -> None:
        while self.base + until > self.next_mark:
            end = self.buf.find(b"\n", max(self.counted, self.next_mark - self.base), until) + 1
            if end == 0:
                break
            self.lines += count_lines(self.buf, self.view, self.counted, end)
            self.counted = end
            self.marks.append((self.lines + 1, self.base + end))
            self.next_mark = self.base + end + _MARK
        if until > self.counted:
            self.lines += count_lines(self.buf, self.view, self.counted, until)
            self.counted = until

    def _judge(self, todo: int, at_end: bool) -> int:
        """Judges records up to the last one whose neighbourhood is in sight; returns its end."""
        limit = self.filled if at_end else self.filled - LOOK
        if self.giant is not None:
            todo = self._go_on_with_giant(todo, limit, at_end)
            if self.giant is not None:
                return todo
        if at_end:
            until = self.filled
        elif limit <= todo:
            return todo
        else:
            newline = self.buf.rfind(b"\n", todo, limit)
            until = max(newline, self.buf.rfind(b"\r", max(newline, todo), limit)) + 1
        if until > todo:
            self._region(todo, until)
            return until
        if self.filled - todo > _GIANT + LOOK:
            self._count(todo)
            self.giant = _Giant(self, self.base + todo, self.lines + 1)
            return self._go_on_with_giant(todo, limit, at_end)
        return todo

    def _region(self, start: int, until: int) -> None:
        """Whole records: the gate, then the candidates in order."""
        buf = self.buf
        self._count(start)
        self.region_line = self.lines + 1
        coloured = buf.find(b"\x1b", start, until) >= 0
        self.odd = coloured or buf.find(b"\\", start, until) >= 0
        self.redrawn = buf.find(b"\r", start, until) >= 0
        hits = self._gate(start, until, coloured)
        self.skip = set()
        if self.exhausted and not self.odd:
            hits = self._without_misses(start, until, list(hits))
        if self.scanner.without_literal:
            self._every_record(start, until, hits)
        else:
            users = self.scanner.users
            record_start, record_end = start, start - 1
            wanted: tuple[int, ...] = ()
            for position, literal in hits:
                if position > record_end:
                    if wanted:
                        self._record(record_start, record_end, wanted)
                    record_start, record_end = self._bounds(max(start, record_end), position, until)
                    wanted = users[literal]
                elif wanted is not users[literal]:
                    wanted = tuple(sorted({*wanted, *users[literal]}))
            if wanted:
                self._record(record_start, record_end, wanted)
        self._settle_last(start)
        if len(self.hits.done) > self.done:
            self.done = len(self.hits.done)
            self.gate = self.scanner.gate_without(frozenset(self.hits.done))

    def _without_misses(self, start: int, until: int, hits: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Where a literal stands on every line and its pattern matches on none, one search of the region
        tells so. Only for patterns for which a record that does not match has no other consequence."""
        if len(hits) < _MANY:
            return hits
        users = self.scanner.users
        longest = max(map(len, bytes(self.view[start:until]).split(b"\n")))
        literals = {literal for _, literal in hits}
        asked = {number for literal in literals for number in users[literal]}
        for number in sorted(asked & self.exhausted - self.hits.done.keys()):
            matcher = self.scanner.matcher(number)
            if longest <= matcher.window and matcher.within_lines and matcher.search(self.buf, start, until) is None:
                self.skip.add(number)
        settled = self.skip | self.hits.done.keys()
        dead = {literal for literal in literals if settled.issuperset(users[literal])}
        return [hit for hit in hits if hit[1] not in dead]

    def _last_of_done(self, tail: bytes, size: int) -> None:
        """The last hits of patterns that were given up as saturated."""
        start = tail.find(b"\n") + 1 if len(tail) < size else 0
        line = self.lines - tail.count(b"\n", start) + 1
        for match in re.finditer(rb"[^\n\r]+|\n", tail[start:]):
            if match[0] == b"\n":
                line += 1
                continue
            record = Record(match[0], 0, len(match[0]))
            for number, given_up in sorted(self.hits.done.items()):
                found = record.match(self.scanner.matcher(number)) if line > given_up else None
                if found is not None:
                    offset = size - len(tail) + start + match.start() + found.shift
                    self.hits.add(number, rank_prefix(match[0], 0, 160), line, offset, found.text)

    def _settle_last(self, start: int) -> None:
        """Copies the last hits out of the buffer, once per region instead of once per hit."""
        line, counted = self.region_line, start
        for key, (low, high) in sorted(self.last.items(), key=lambda item: item[1]):
            line += count_lines(self.buf, self.view, counted, low)
            counted = low
            self.hits.keep_last(key, line, self.base + low, bytes(self.buf[low:high]))
        self.last.clear()

    def _every_record(self, start: int, until: int, hits: Iterable[tuple[int, int]]) -> None:
        """The slow way, for patterns without a literal."""
        hits = iter(hits)
        hit = next(hits, None)
        for match in re.finditer(rb"[^\n\r]+", self.buf[start:until]):
            wanted = set(self.scanner.without_literal)
            while hit is not None and hit[0] <= start + match.end():
                wanted.update(self.scanner.users[hit[1]])
                hit = next(hits, None)
            self._record(start + match.start(), start + match.end(), tuple(sorted(wanted)))

    def _gate(self, start: int, until: int, coloured: bool) -> Iterable[tuple[int, int]]:
        """(a buffer offset in the record, literal), in order of records."""
        block = self.view[start:until]
        if coloured:
            return self._coloured_gate(block, start)
        found = self.gate.find(block)
        return found if start == 0 else [(start + end, literal) for end, literal in found]

    def _coloured_gate(self, block: memoryview, start: int) -> Iterator[tuple[int, int]]:
        """Colour codes may stand inside a literal: looks in the text without them, and finds the
        record again by its number, as line ends are the same in both."""
        plain = ANSI.sub(b"", block)
        real, bare = _LINE_END.finditer(block), _LINE_END.finditer(plain)
        real_end, bare_end = 0, -1
        for end, literal in self.gate.find(plain):
            while bare_end < end:
                bare_match, real_match = next(bare, None), next(real, None)
                if bare_match is None or real_match is None:
                    bare_end, real_end = len(plain), len(block)
                else:
                    bare_end, real_end = bare_match.start(), real_match.start()
            yield start + real_end, literal

    def _bounds(self, low: int, position: int, until: int) -> tuple[int, int]:
        """The record around the byte before `position`; it begins at or after `low`."""
        buf = self.buf
        start = buf.rfind(b"\n", low, position) + 1 or low
        end = buf.find(b"\n", position, until)
        if end < 0:
            end = until
        if self.redrawn:
            start = buf.rfind(b"\r", start, position) + 1 or start
            carriage = buf.find(b"\r", position, end)
            if carriage >= 0:
                end = carriage
        return start, end

    def _record(self, start: int, end: int, patterns: Sequence[int]) -> None:
        size = end - start
        if size > _GIANT:
            self._count(start)
            _Giant(self, self.base + start, self.lines + 1).piece(start, end, complete=True)
            return
        record: Record | None = None
        rank: bytes | None = None
        done = self.hits.done
        for number in patterns:
            if number in done or number in self.skip:
                continue
            matcher = self.scanner.matcher(number)
            if not self.odd and size <= matcher.window and not matcher.caret:
                if matcher.search(self.buf, start, end) is not None:
                    if rank is None:
                        rank = self._rank(start, end)
                    key, first = self.hits.count(number, rank)
                    if first:
                        self._count(start)
                        self.hits.keep(key, self.lines + 1, self.base + start, bytes(self.buf[start:end]))
                    else:
                        self.last[key] = (start, end)
                        if self.hits.saturated(number):
                            self._count(start)
                            done[number] = self.lines + 1
                    continue
                found = None
            else:
                if record is None:
                    record = Record(self.buf, start, end)
                found = record.match(matcher)
            if found is None:
                self._join(number, matcher, start, end)
                continue
            if rank is None:
                rank = self._rank(start, end)
            self._count(start)
            self.hits.add(number, rank, self.lines + 1, self.base + start + found.shift, found.text)
            if self.hits.saturated(number):
                done[number] = self.lines + 1

    def _rank(self, start: int, end: int) -> bytes:
        return rank_prefix(self.buf, start, min(end, start + 160))

    # --- wrapped lines ---

    def _join(self, number: int, matcher: Matcher, start: int, end: int) -> None:
        """Tries the record with the next ones, then the one before with it."""
        tried = self.joins.get(number, 0)
        if tried >= _JOINS:
            self.exhausted.add(number)
            return
        if end - start > LOOK:
            return
        self.joins[number] = tried + 1
        if self.joined_until.get(number, -1) > self.base + start:
            return  # part of a match that began on the line before
        lines = [(start, end), *following(self.buf, end, self.filled)]
        before = line_before(self.buf, start, self.base)
        for first in ([lines] if before is None else [lines, [before, *lines]]):
            text = join(matcher, [bytes(self.buf[low:high]) for low, high in first])
            if text is not None:
                low, high = first[0][0], first[1][1]
                lines_before = self.buf.count(b"\n", min(low, self.counted), max(low, self.counted))
                line = self.lines + (lines_before if low >= self.counted else -lines_before) + 1
                self.hits.add(number, self._rank(low, first[0][1]), line, self.base + low, text)
                self.joined_until[number] = self.base + high
                self.joins[number] = tried
                return

    def _broken_literals(self, data: bytes) -> None:
        """Literals that stand across a line end, in a small input."""
        lines = data.replace(b"\r\n", b"\n").split(b"\n")
        if len(lines) < 2 or max(map(len, lines)) < 40:
            return
        offsets = [0]
        for line in data.split(b"\n"):
            offsets.append(offsets[-1] + len(line) + 1)
        tried: set[tuple[int, int]] = set()
        for text, places in joined_readings(lines):
            for end, literal in self.scanner.gate.find(text):
                first = bisect_right(places, end - len(self.scanner.literals[literal]))
                if first >= len(places) - 1 or places[first] >= end:
                    continue  # within one line
                for number in self.scanner.users[literal]:
                    if (first, number) in tried:
                        continue
                    tried.add((first, number))
                    found = join(self.scanner.matcher(number), lines[first:first + 5])
                    if found is not None and self.joined_until.get(number, -1) <= offsets[first]:
                        rank = rank_prefix(lines[first], 0, 160)
                        self.hits.add(number, rank, first + 1, offsets[first], found)
                        self.joined_until[number] = offsets[first + 1]

    # --- records too long to hold ---

    def _go_on_with_giant(self, todo: int, limit: int, at_end: bool) -> int:
        giant = self.giant
        assert giant is not None
        ends = [e for e in (self.buf.find(b"\n", todo, limit), self.buf.find(b"\r", todo, limit)) if e >= 0]
        if ends or at_end:
            end = min(ends, default=self.filled)
            giant.piece(todo, end, complete=True)
            self.giant = None
            return end
        if self.filled - todo <= _GIANT:
            return todo
        giant.piece(todo, limit, complete=False)
        return max(todo, limit - WINDOW)


class _Giant:
    """One record longer than the buffer: seen piece by piece, tried in windows."""

    def __init__(self, owner: _Pass, start: int, line: int) -> None:
        self.owner = owner
        self.start = start
        """Offset in the input."""
        self.line = line
        self.rank = owner._rank(start - owner.base, owner.filled)
        self.matched: set[int] = set()
        self.tried: dict[int, int] = {}
        """Pattern → number of the last window that it was tried in."""

    def piece(self, start: int, end: int, complete: bool) -> None:
        """Judges the literals in buf[start:end] whose windows lie within it, or all when the
        record ends there."""
        owner = self.owner
        scanner = owner.scanner
        shift = owner.base - self.start  # buffer offset + shift = distance from the record's start
        for position, literal in scanner.gate.find(owner.view[start:end]):
            for number in scanner.users[literal]:
                if number in self.matched or number in owner.hits.done:
                    continue
                matcher = scanner.matcher(number)
                window = window_number(start + position - 1 + shift, matcher.window)
                low = window * (matcher.window // 2) - shift
                high = low + matcher.window
                if self.tried.get(number, -1) >= window or (high >= end and not complete):
                    continue
                self.tried[number] = window
                high = min(high, end)
                record_end = end if complete else end + 1
                span = matcher.span(owner.buf, low, high, self.start - owner.base, record_end)
                if span is not None:
                    self.matched.add(number)
                    text = bytes(owner.view[low:high])
                    owner.hits.add(number, self.rank, self.line, owner.base + low, text)
