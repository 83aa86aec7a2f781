"""Which line is a place in a buffer on? Counted as a scan goes, in pieces that stay in the processor's cache."""

from __future__ import annotations

import sys

MARK = 1 << 18
"""Distance of the places whose line number is kept."""
_PIECE = 1 << 14
_SLOW_COUNT = sys.version_info < (3, 13)


def count_ends(buf: bytearray, view: memoryview, start: int, until: int) -> int:
    """Line ends in a part of the buffer. Before Python 3.13 `count` looks at one byte at a time; deleting them, which
    leaps from one to the next, is three times as fast on lines of usual length (in small pieces: the copies of large
    ones would be new pages of memory each time)."""
    if not _SLOW_COUNT:
        return buf.count(b"\n", start, until)
    found = 0
    while until - start > _PIECE // 4:
        end = min(start + _PIECE, until)
        if buf.count(b"\n", start, start + 1024) > 1024 // 64:
            found += buf.count(b"\n", start, end)
        else:
            found += end - start - len(bytes(view[start:end]).replace(b"\n", b""))
        start = end
    return found + buf.count(b"\n", start, until)


class LineNumbers:
    """Line ends before a place that moves forward. `base` is the offset in the input of the buffer's first byte."""

    def __init__(self, buf: bytearray, view: memoryview) -> None:
        self.buf, self.view = buf, view
        self.base = 0
        self.counted = 0
        self.ends = 0
        """Line ends before `counted`."""
        self.marks: list[tuple[int, int]] = []
        """(line, offset in the input of its beginning), about every `MARK` bytes."""
        self._next_mark = MARK

    def moved(self, by: int) -> None:
        """The buffer lost that many bytes at its beginning, all of which must have been counted."""
        self.counted -= by
        self.base += by

    def count(self, until: int) -> None:
        """Counts up to a place in the buffer; does nothing for a place before `counted`."""
        while self.base + until > self._next_mark:
            end = self.buf.find(b"\n", max(self.counted, self._next_mark - self.base), until) + 1
            if end == 0:
                break
            self.ends += count_ends(self.buf, self.view, self.counted, end)
            self.counted = end
            self.marks.append((self.ends + 1, self.base + end))
            self._next_mark = self.base + end + MARK
        if until > self.counted:
            self.ends += count_ends(self.buf, self.view, self.counted, until)
            self.counted = until

    def at(self, place: int) -> int:
        """The number of the line that a place in the buffer is on."""
        self.count(place)
        return self.ends + 1 - (self.buf.count(b"\n", place, self.counted) if place < self.counted else 0)
