"""Parts of an input as text: its head and tail, lines around a place, all of a small one."""

from __future__ import annotations

import io
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from .model import Scanned, Source
from .streams import open_stream, seekable

HEAD_RECORDS, HEAD_BYTES = 50, 1 << 16
TAIL_RECORDS, TAIL_BYTES = 200, 1 << 17
_REDRAWS = 20
"""Of a physical line redrawn with `\\r`, only this many last records are shown."""
_CUT = 8192
_STEP = 1 << 16


def head_records(data: bytes, whole: bool) -> tuple[str, ...]:
    """The first records; `data` is the input's beginning, or all of it."""
    lines = data.split(b"\n", HEAD_RECORDS)
    if len(lines) > HEAD_RECORDS or (not whole and len(lines) > 1):
        lines.pop()  # the rest, or a line cut by the limit
    found = _texts(lines)
    return tuple(text for _, text in found[:HEAD_RECORDS])


def tail_records(data: bytes, lines: int, whole: bool, ends_mid_line: bool) -> tuple[tuple[int, str], ...]:
    """(line, text) of the last records; `data` is the input's end, `lines` its line count."""
    parts = data.rsplit(b"\n", TAIL_RECORDS + 1)
    if not ends_mid_line:
        parts.pop()  # what follows the last line end
    if (len(parts) > TAIL_RECORDS or not whole) and len(parts) > 1:
        parts.pop(0)  # the rest, or a line cut by the limit
    first = lines - len(parts) + 1
    return tuple((first + number, text) for number, text in _texts(parts)[-TAIL_RECORDS:])


def _texts(lines: list[bytes]) -> list[tuple[int, str]]:
    """(index of the line, text) of all records; decoded at once where no line is to be cut."""
    if max(map(len, lines), default=0) > _CUT:
        return [(number, text) for number, line in enumerate(lines) for text in _redraws(line)]
    found: list[tuple[int, str]] = []
    for number, text in enumerate(b"\n".join(lines).decode("utf-8", "replace").split("\n")):
        if "\r" in text:
            found += [(number, record) for record in text.split("\r")[-_REDRAWS:] if record]
        elif text:
            found.append((number, text))
    return found


def _redraws(line: bytes, most: int = _CUT, count: int = _REDRAWS) -> list[str]:
    """The last non-empty records of one physical line, each cut to `most` bytes."""
    return [_text(record, most) for record in line.rsplit(b"\r", count)[-count:] if record]


def _text(record: bytes, most: int = _CUT) -> str:
    return record[:most].decode("utf-8", "replace")


def records(source: Source) -> Iterator[tuple[int, int, str]]:
    """(line, offset, text) of every non-empty record, for small inputs: one object each."""
    with open_stream(source) as stream:
        offset = 0
        for number, line in _lines(stream, 1):
            start = 0
            for part in line.rstrip(b"\n").split(b"\r"):
                if part:
                    yield number, offset + start, _text(part)
                start += len(part) + 1
            offset += len(line)


def _lines(stream: BinaryIO, number: int) -> Iterator[tuple[int, bytes]]:
    """Numbered physical lines with their line ends; a very long one is cut into none: it is
    read whole only up to 16 MiB, the rest of it is left out."""
    longest = 1 << 24
    while line := stream.readline(longest):
        rest = line
        while len(rest) == longest and not rest.endswith(b"\n"):
            rest = stream.readline(longest)
            if not rest:
                break
        yield number, line
        number += 1


def windows(
    source: Source, wanted: Sequence[tuple[int, int]], scanned: Scanned | None = None, most: int = 0
) -> list[tuple[int, str]]:
    """(line, text) of all records in the given ranges of lines (both ends included, ranges
    may overlap), in order. With what a scan found, plain files are read only near these places.
    `most`: about how many bytes to return; long lines are cut to their share of it, and of redrawn
    ones only the last states are returned."""
    ranges = _merged(wanted)
    cut = _CUT
    if most:
        cut = min(_CUT, max(512, most // max(1, sum(last - first + 1 for first, last in ranges))))
    found: list[tuple[int, str]] = []
    if not ranges:
        return found
    with open_stream(source) as stream:
        seeks = seekable(source) and stream.seekable()  # not in UTF-16, which is decoded on the way
        anchors = sorted({(hit.line, hit.offset) for hit in scanned.hits}) if scanned and seeks else []
        marks = scanned.marks if scanned and seeks else ()
        start = stream.tell() if seeks else 0  # after a byte order mark
        line, position = 1, start
        for first, last in ranges:
            if seeks:
                line, position = _seek(stream, first, anchors, marks, start, (line, position))
            for number, text in _numbered(stream, line, first, last):
                found += ((number, record) for record in _redraws(text, cut, 3 if most else _REDRAWS))
            line = last + 1
            if seeks:
                position = stream.tell()
    return found


def _numbered(stream: BinaryIO, line: int, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    """Lines first..last of a stream that stands at the beginning of `line`."""
    if isinstance(stream, io.BufferedReader):
        line = _skip(stream, line, first)
    while line < first:
        text = stream.readline(_STEP)
        if not text:
            return
        line += text.endswith(b"\n")
    for number, text in _lines(stream, line):
        yield number, text.rstrip(b"\n")
        if number >= last:
            return


def _skip(stream: io.BufferedReader, line: int, first: int) -> int:
    """Passes whole blocks and not lines; the number of the line at which the stream then stands."""
    while line < first and (block := stream.peek(1)):
        ends = len(block) - len(block.replace(b"\n", b""))
        if ends < first - line:
            line += ends
            stream.read(len(block))
        else:
            at = -1
            while line < first:
                at = block.find(b"\n", at + 1)
                line += 1
            stream.read(at + 1)
    return line


def _merged(wanted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted((max(1, a), b) for a, b in wanted if b >= max(1, a)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _seek(
    stream: BinaryIO,
    first: int,
    anchors: list[tuple[int, int]],
    marks: Sequence[tuple[int, int]],
    start: int,
    known: tuple[int, int],
) -> tuple[int, int]:
    """Puts the stream at the beginning of a line at or before `first`: back from the nearest
    known place after it, or forward from the known place before it."""
    before = bisect_right(marks, first, key=lambda mark: mark[0]) - 1
    if before >= 0 and marks[before][0] > known[0]:
        known = (marks[before][0], start + marks[before][1])
    nearest = bisect_left(anchors, (first, 0))
    if nearest < len(anchors) and anchors[nearest][0] - first < first - known[0]:
        line, offset = anchors[nearest]
        return _back(stream, line, start + offset, first, start)
    stream.seek(known[1])
    return known


def _back(stream: BinaryIO, line: int, offset: int, first: int, start: int) -> tuple[int, int]:
    """From a place within `line` back to the beginning of line `first`."""
    needed = line - first + 1  # line ends to pass
    while offset > start:
        low = max(start, offset - _STEP)
        stream.seek(low)
        chunk = stream.read(offset - low)
        at = len(chunk)
        while needed and (at := chunk.rfind(b"\n", 0, at)) >= 0:
            needed -= 1
            if needed == 0:
                stream.seek(low + at + 1)
                return first, low + at + 1
        offset = low
    stream.seek(start)
    return 1, start
