"""One pass over one input, block by block: what `scan.Scanner` does with a stream."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, BinaryIO

from .confirm import ANSI, LOOK, Matcher, Record, following, join, joined_readings, line_before, window_number
from .excerpts import HEAD_BYTES, TAIL_BYTES, head_records, tail_records
from .hits import Hits, rank_prefix
from .line_numbers import LineNumbers, count_ends
from .model import Scanned
from .portable import WINDOW

if TYPE_CHECKING:
    from .gates import Gate
    from .scan import Scanner

BLOCK = 1 << 19
_GIANT = 1 << 18
"""A longer record is never held whole: it is tried in windows around the literals."""
_WRAPPED = 1 << 17
"""Inputs up to this size are also searched for literals that a terminal's wrap broke."""
_JOINED = 1 << 18
"""Bytes of lines per pattern that were joined with their neighbours in vain, before giving up on it."""
_HOPELESS = 5000
"""Further candidates of a pattern that came to nothing: from then on its whole expression is looked for."""
_IDLE = 5000
"""Occurrences of literals that no pattern wants any more: then a gate without them pays."""


class Pass:
    """The state of one pass. Offsets within the buffer are plain ints; `base` is the
    offset in the input of the buffer's first byte."""

    def __init__(self, scanner: Scanner, source: int, block: int) -> None:
        self.scanner = scanner
        self.source = source
        self.block = max(1, block)
        size = self.block + max(_GIANT + 4 * LOOK + 2 * WINDOW, TAIL_BYTES)
        self.buf = scanner.buffer(size)
        self.view = memoryview(self.buf)
        self.base = 0
        self.filled = 0
        self.lines = LineNumbers(self.buf, self.view)
        self.hits = Hits(scanner.cap, scanner.brief)
        self.joins: dict[int, int] = {}
        self.joined_until: dict[int, int] = {}
        self.giant: _Giant | None = None
        self.odd = self.redrawn = False
        """Whether the region holds colour codes or backslashes; `\\r`."""
        self.done: frozenset[int] = frozenset()
        """Saturated patterns that the gate leaves out."""
        self.hopeless: frozenset[int] = frozenset()
        """Patterns that `expressions` looks for as a whole, where that is possible."""
        self.expressions: dict[bool, Gate | None] = {}
        """Made when first needed, with anchors and without."""
        self.misses: dict[int, int] = {}
        """Pattern → candidates that came to nothing after lines were no longer joined for it."""
        self.longest = WINDOW
        """Records up to this size are tried whole by all hopeless patterns."""
        self.dead: frozenset[int] = frozenset()
        """Literals that only saturated patterns use."""
        self.known_done = 0
        """How many saturated patterns `dead` knows of."""
        self.idle = 0
        self.last: dict[tuple[int, bytes], tuple[int, int]] = {}
        """Key → place in the buffer of the region's last hit beyond the cap."""

    def run(self, stream: BinaryIO, told: Callable[[int], None] | None = None) -> Scanned:
        head = bytearray()
        todo = 0  # where the part that is not yet judged begins
        while True:
            got: int = stream.readinto(self.view[self.filled : self.filled + self.block])  # type: ignore[attr-defined]
            if len(head) < HEAD_BYTES:
                head += self.view[self.filled : self.filled + min(got, HEAD_BYTES - len(head))]
            self.filled += got
            if told is not None:
                told(self.base + self.filled)
            todo = self._judge(todo, at_end=got == 0)
            if got == 0:
                break
            if len(self.buf) - self.filled < self.block:
                todo = self._make_room(todo)
        size = self.base + self.filled
        self.lines.count(self.filled)
        tail = bytes(self.view[max(0, self.filled - TAIL_BYTES) : self.filled])
        if self.hits.done:
            self._last_of_done(tail, size)
        if size <= _WRAPPED:
            self._broken_literals(bytes(self.view[: self.filled]) if self.base == 0 else b"")
        self.view.release()
        self.scanner.give_back(self.buf)
        ends_mid_line = bool(tail) and not tail.endswith(b"\n")
        lines = self.lines.ends + ends_mid_line
        return Scanned(
            source=self.source, hits=self.hits.result(self.source), lines=lines, size=size,
            head=head_records(bytes(head), whole=size <= HEAD_BYTES),
            tail=tail_records(tail, lines, whole=size <= TAIL_BYTES, ends_mid_line=ends_mid_line),
            counts=dict(sorted(self.hits.counts.items())), capped=self.hits.capped(), ends_mid_line=ends_mid_line,
            marks=tuple(self.lines.marks),
        )  # fmt: skip

    def _make_room(self, todo: int) -> int:
        """Moves what is still needed to the front: the unjudged part with what precedes it, and the input's tail."""
        keep = max(0, min(todo - LOOK - 1, self.filled - TAIL_BYTES))
        self.lines.count(keep)
        self.lines.moved(keep)
        size = self.filled - keep
        self.view[:size] = self.view[keep : self.filled]
        self.base += keep
        self.filled = size
        return todo - keep

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
            self.giant = _Giant(self, self.base + todo, self.lines.at(todo))
            return self._go_on_with_giant(todo, limit, at_end)
        return todo

    def _region(self, start: int, until: int) -> None:
        """Whole records: the gate, then the candidates in order."""
        buf = self.buf
        line = self.lines.at(start)
        coloured = buf.find(b"\x1b", start, until) >= 0
        self.odd = coloured or buf.find(b"\\", start, until) >= 0
        self.redrawn = buf.find(b"\r", start, until) >= 0
        hits = self._gate(start, until, coloured)
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
        self._settle_last(start, line)
        self._refit()

    def _refit(self) -> None:
        """From the next region on, looks no longer for what is in vain."""
        done = self.hits.done
        if len(done) > self.known_done:
            self.known_done = len(done)
            users = self.scanner.users
            self.dead = frozenset(n for n in range(len(self.scanner.literals)) if done.keys() >= set(users[n]))
        if self.idle >= _IDLE:
            self.idle = 0
            self.done = frozenset(done)
        if any(count >= _HOPELESS and n not in self.hopeless and n not in done for n, count in self.misses.items()):
            # those that are nearly so come along, as an engine for many costs little more than one for few
            self.hopeless = frozenset(n for n, count in self.misses.items() if count >= _HOPELESS // 4 and n not in done)
            self.expressions = {}
            self.longest = min((self.scanner.matcher(n).window for n in self.hopeless), default=WINDOW)

    def _last_of_done(self, tail: bytes, size: int) -> None:
        """The last hits of patterns that were given up as saturated."""
        start = tail.find(b"\n") + 1 if len(tail) < size else 0
        line = self.lines.ends - tail.count(b"\n", start) + 1
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

    def _settle_last(self, place: int, line: int) -> None:
        """Copies the last hits out of the buffer, once per region instead of once per hit. `place` is on line `line`."""
        for key, (low, high) in sorted(self.last.items(), key=lambda item: item[1]):
            if low < self.lines.counted:
                line += count_ends(self.buf, self.view, place, low)
            else:
                line = self.lines.at(low)
            place = low
            self.hits.keep_last(key, line, self.base + low, bytes(self.view[low:high]))
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

    def _gate(self, start: int, until: int, coloured: bool) -> list[tuple[int, int]]:
        """(a buffer offset in the record, literal), in order of records."""
        block = self.view[start:until]
        gate = self.scanner.gate_without
        if coloured:
            found = self._coloured_gate(block, gate(self.done))
        elif self.hopeless and not self.odd and self._all_short(start, until) and (whole := self._whole()) is not None:
            found = sorted(gate(self.done | self.hopeless).find(block) + whole.find(block))
        else:
            found = gate(self.done).find(block)
        if self.dead:
            wanted = [hit for hit in found if hit[1] not in self.dead]
            self.idle += len(found) - len(wanted)
            found = wanted
        return found if start == 0 else [(start + end, literal) for end, literal in found]

    def _whole(self) -> Gate | None:
        """What looks for hopeless patterns as a whole in this region."""
        anchored = not self.redrawn
        if anchored not in self.expressions:
            self.expressions[anchored] = self.scanner.expressions(self.hopeless, anchored)
        return self.expressions[anchored]

    def _all_short(self, start: int, until: int) -> bool:
        """Whether all records are short enough to be tried whole, and not in windows."""
        while until - start > self.longest:
            end = self.buf.rfind(b"\n", start, start + self.longest) + 1
            if end == 0:
                return False
            start = end
        return True

    def _coloured_gate(self, block: memoryview, gate: Gate) -> list[tuple[int, int]]:
        """Colour codes may stand inside a literal: looks in the text without them, and translates the places."""
        found = gate.find(ANSI.sub(b"", block))
        if not found:
            return found
        places, shifts, removed = [], [], 0  # in the bare text, where codes were; bytes removed up to there
        for code in ANSI.finditer(block):
            start, end = code.span()
            places.append(start - removed)
            removed += end - start
            shifts.append(removed)
        return [(end + shifts[at - 1] if (at := bisect_left(places, end)) else end, literal) for end, literal in found]

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
            _Giant(self, self.base + start, self.lines.at(start)).piece(start, end, complete=True)
            return
        buf = self.buf
        odd = self.odd and (buf.find(b"\\", start, end) >= 0 or buf.find(b"\x1b", start, end) >= 0)
        record: Record | None = None
        rank: bytes | None = None
        done = self.hits.done
        for number in patterns:
            if number in done:
                continue
            matcher = self.scanner.matcher(number)
            if not odd and size <= matcher.window and not matcher.caret:
                if matcher.search(buf, start, end) is not None:
                    if rank is None:
                        rank = self._rank(start, end)
                    key, first = self.hits.count(number, rank)
                    if first:
                        self.hits.keep(key, self.lines.at(start), self.base + start, bytes(self.view[start:end]))
                    else:
                        self.last[key] = (start, end)
                        if self.hits.saturated(number):
                            done[number] = self.lines.at(start)
                    continue
                found = None
            else:
                if record is None:
                    record = Record(buf, start, end)
                found = record.match(matcher)
            if found is None:
                self._join(number, matcher, start, end)
                continue
            if rank is None:
                rank = self._rank(start, end)
            self.hits.add(number, rank, self.lines.at(start), self.base + start + found.shift, found.text)
            if self.hits.saturated(number):
                done[number] = self.lines.at(start)

    def _rank(self, start: int, end: int) -> bytes:
        return rank_prefix(self.buf, start, min(end, start + 160))

    # --- wrapped lines ---

    def _join(self, number: int, matcher: Matcher, start: int, end: int) -> None:
        """Tries the record with the next ones, then the one before with it."""
        tried = self.joins.get(number, 0)
        if tried >= _JOINED:
            self.misses[number] = self.misses.get(number, 0) + 1
            return
        if end - start > LOOK:
            return
        if self.joined_until.get(number, -1) > self.base + start:
            return  # part of a match that began on the line before
        lines = [(start, end), *following(self.buf, end, self.filled)]
        before = line_before(self.buf, start, self.base)
        for first in ([lines] if before is None else [lines, [before, *lines]]):
            text = join(matcher, [bytes(self.view[low:high]) for low, high in first])
            if text is not None:
                low, high = first[0][0], first[1][1]
                self.hits.add(number, self._rank(low, first[0][1]), self.lines.at(low), self.base + low, text)
                self.joined_until[number] = self.base + high
                return
        self.joins[number] = tried + lines[-1][1] - start

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

    def __init__(self, owner: Pass, start: int, line: int) -> None:
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
