"""Does one record match one pattern? Raw, or after undoing what collectors do to text.

Tried in this order, and the first that matches gives the text of the hit: the pieces of a
record in which line ends are written as `\\n` (JSON lines); the record without colour
codes; the record as it is. `join` undoes hard wraps. Long records are tried only in
windows around the pattern's literals, so that one trial takes bounded time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from . import lazy
from .portable import WINDOW, compile_pattern, has_anchor, window
from .signatures import Pattern
from .values import dataclass

Text = bytes | bytearray

ANSI = lazy.regex_bytes(rb"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\n\r]{0,256}(?:\x07|\x1b\\)?|[()][A-Z0-9]|[=>78cDEHM])")
_FRAME = lazy.regex_bytes(rb"^[ \t]*\xe2\x94[\x82\x83][ \t]?|[ \t]*\xe2\x94[\x82\x83][ \t]*$")
_NEW_RECORD = lazy.regex_bytes(
    rb"\s*(?:\[?(?:rank|default|trainer)\s?\d|\[?\d{4}-\d\d-\d\d|\[[EWIF] ?\d|[EWIFD]\d{4} \d\d:|Traceback \(most"
    rb"|\d{1,4}: |\{['\"]|(?:INFO|WARNING|ERROR|DEBUG)\b)"
)
NARROWEST = 40
"""Terminals are wider: a shorter line was not wrapped."""
LOOK = 4096
"""How far around a record its neighbours are looked at."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where a pattern matches: the text to show, and its distance from the record's start."""

    text: bytes
    shift: int


class Matcher:
    """One pattern, compiled when first needed (most patterns never are)."""

    __slots__ = ("caret", "dollar", "literals", "search", "window")

    def __init__(self, pattern: Pattern, literals: Sequence[bytes]) -> None:
        self.search = compile_pattern(pattern).search
        self.window = window(pattern.pattern, pattern.ignore_case)
        self.caret = has_anchor(pattern.pattern, "^")
        self.dollar = has_anchor(pattern.pattern, "$")
        self.literals = literals

    def span(self, text: Text, start: int, end: int, record_start: int, record_end: int) -> tuple[int, int] | None:
        """The first match inside text[start:end], a part of the record at the given place."""
        if self.caret:
            # `^` holds at the start of what is searched, so that must be the record's start;
            # one byte before a window keeps `^` false there and `\b` right
            base = start if start == record_start else start - 1
            match = self.search(memoryview(text)[base:end], start - base)
        else:
            base = 0
            match = self.search(text, start, end)
        if match is None or (self.dollar and end < record_end and match.end() + base == end):
            return None
        return match.start() + base, match.end() + base

    def find(self, text: Text, start: int, end: int) -> tuple[int, int, int, int] | None:
        """(match start, match end, text start, text end) of a match in the record text[start:end]."""
        if end - start <= self.window:
            span = self.span(text, start, end, start, end)
            return None if span is None else (*span, start, end)
        for low, high in self.windows(text, start, end):
            span = self.span(text, low, high, start, end)
            if span is not None:
                return (*span, start, end) if end - start <= WINDOW else (*span, low, high)
        return None

    def windows(self, text: Text, start: int, end: int) -> list[tuple[int, int]]:
        """Windows of a long record in which a literal stands; all of it without literals."""
        half = self.window // 2
        if not self.literals:
            return [(low, min(low + self.window, end)) for low in range(start, end, half)]
        lowered = bytes(memoryview(text)[start:end]).lower()
        numbers = set()
        for literal in self.literals:
            at = lowered.find(literal)
            while at >= 0:
                number = window_number(at + len(literal) - 1, self.window)
                numbers.add(number)
                # the next occurrence that belongs to another window
                following = (number + 1) * half + self.window // 4
                at = lowered.find(literal, max(at + 1, following - len(literal) + 1))
        return [(start + n * half, min(start + n * half + self.window, end)) for n in sorted(numbers)]


def window_number(position: int, size: int) -> int:
    """Which window of a long record a literal that ends at `position` (from the record's start)
    is tried in. Windows overlap by half, so a quarter of one stands on each side of it; they
    lie at fixed places, so each byte is tried twice at most, however often the literal occurs."""
    return max(0, (position - size // 4) // (size // 2))


@dataclass(slots=True)
class Record:
    """One candidate record and its plain readings, made once for all of its patterns."""

    text: Text
    start: int
    end: int
    pieces: Sequence[bytes] = ()
    plain: bytes | None = None
    """Without colour codes; None when there are none."""

    def __post_init__(self) -> None:
        if self.text.find(b"\x1b", self.start, self.end) >= 0:
            self.plain = ANSI.sub(b"", bytes(self.text[self.start:self.end]))
        if self.text.find(b"\\n", self.start, self.end) >= 0 or self.text.find(b"\\u001b", self.start, self.end) >= 0:
            self.pieces = unescaped(bytes(self.text[self.start:self.end]) if self.plain is None else self.plain)

    def match(self, matcher: Matcher) -> Found | None:
        for piece in self.pieces:
            place = matcher.find(piece, 0, len(piece))
            if place is not None:
                return Found(piece[place[2]:place[3]], 0)
        if self.plain is not None:
            place = matcher.find(self.plain, 0, len(self.plain))
            if place is not None:
                return Found(self.plain[place[2]:place[3]], 0)
        place = matcher.find(self.text, self.start, self.end)
        if place is not None:
            return Found(bytes(self.text[place[2]:place[3]]), place[2] - self.start)
        return None


_ESCAPE = lazy.regex_bytes(rb'\\(?:u001[bB]|u00([2-7][0-9A-Fa-f])|([\\"/t]))')


def _plain_escape(match: re.Match[bytes]) -> bytes:
    if match.group(1):
        return bytes([int(match.group(1), 16)])
    return {b"t": b"\t", None: b"\x1b"}.get(match.group(2), match.group(2))


def unescaped(record: bytes) -> list[bytes]:
    r"""The lines of a record in which they are separated by `\n`, with `\"`, `\t`, `\u001b` undone."""
    lines = re.split(rb"(?<!\\)(?:\\r)?\\n|\\\\n(?=\s|\[|Traceback)", record)
    return [ANSI.sub(b"", _ESCAPE.sub(_plain_escape, line)) for line in lines if line]


def unframed(line: bytes) -> bytes:
    """Without colour codes, the frame of a rich box, and trailing blanks."""
    if b"\x1b" in line:
        line = ANSI.sub(b"", line)
    return (_FRAME.sub(b"", line) if b"\xe2\x94" in line else line).rstrip()


def join(matcher: Matcher, lines: Sequence[bytes]) -> bytes | None:
    """The text of a match that begins in the first line and ends in a later one, where a
    terminal may have wrapped the text: with or without the blank that stood there."""
    first = lines[0]
    if len(lines) < 2 or len(first) < NARROWEST or _NEW_RECORD.match(lines[1]) or not lines[1].strip():
        return None
    used = 2
    while used < len(lines) and len(lines[used - 1]) == len(first) and not _NEW_RECORD.match(lines[used]):
        used += 1  # more of them only while the lines keep exactly the terminal's width
    bare = [unframed(line) for line in lines[:used]]
    kept = [ANSI.sub(b"", line) for line in lines[:used]]  # blanks at the wrap stay where they were
    for glue, parts in ((b"", bare), (b" ", bare), (b"", kept)):
        text = glue.join(parts)
        place = matcher.find(text, 0, len(text))
        if place is not None and place[0] < len(parts[0]) < place[1]:
            return text[place[2]:place[3]]
    return None


def joined_readings(lines: Iterable[bytes]) -> list[tuple[bytes, list[int]]]:
    """A whole text without its line ends, then with blanks for them, each with the offsets
    of the places where line ends stood: for literals that a wrap broke in two."""
    plain = [unframed(line) for line in lines]
    readings = []
    for glue in (b"", b" "):
        offset, places = 0, []
        for part in plain:
            offset += len(part)
            places.append(offset)
            offset += len(glue)
        readings.append((glue.join(plain), places))
    return readings


def following(buf: Text, end: int, filled: int) -> list[tuple[int, int]]:
    """The next physical lines after the record that ends at `end`: up to four, while near."""
    found: list[tuple[int, int]] = []
    near = end + LOOK
    limit = min(near, filled)
    while len(found) < 4:
        if buf[end:end + 2] == b"\r\n":
            end += 1
        if end >= limit or buf[end] != 10:
            break
        start, end = end + 1, buf.find(b"\n", end + 1, limit)
        if end < 0:
            if near <= filled:
                break  # it may be longer than what is in sight
            end = limit  # the input's last line
        stop = end - 1 if end > start and buf[end - 1] == 13 else end
        if buf.find(b"\r", start, stop) >= 0:
            break
        found.append((start, stop))
        end = stop
    return found


def line_before(buf: Text, start: int, base: int) -> tuple[int, int] | None:
    """The physical line before the record that begins at `start`, if near and no redraw."""
    if start == 0 or buf[start - 1] != 10:
        return None
    end = start - 2 if start > 1 and buf[start - 2] == 13 else start - 1
    low = max(0, start - LOOK)
    begin = buf.rfind(b"\n", low, end) + 1
    if begin == 0 and (low > 0 or base > 0):
        return None
    return None if buf.find(b"\r", begin, end) >= 0 else (begin, end)
