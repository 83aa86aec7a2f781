"""Of inputs too large to parse every line: which lines are read a second time.

A bounded number of lines for all inputs together: both ends of each, the surroundings of hits (patterns that hit
seldom first), and evenly spaced blocks for the metrics in between. The choice depends on line numbers and hits only,
so the same bytes give the same answer however they were read. Hits further away come in as the one line that hit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

from . import excerpts
from .hits import rank_prefix
from .model import Hit, Scanned, Source
from .signatures import Pattern

LINES = 2000
"""Lines read of all inputs together."""
LEAST = 56
"""Lines read of each input, even where there are very many."""
AROUND = 60
"""Lines read before and after a hit."""
BLOCK = 20
"""Lines of one evenly spaced sample."""
TEXT = 24 << 20
"""Characters kept of all inputs together: longer lines are cut first."""
ANOMALIES = Pattern(
    pattern=r"[:=] ?'?-?(?:nan|inf)\b",
    ignore_case=True,
    literals=tuple(f"{sign}{blank}{quote}{value}" for sign in ":=" for blank in ("", " ") for quote in ("", "'")
                   for value in ("nan", "inf", "-inf")),
)  # fmt: skip
"""Values that are not finite: such lines are never left to the samples."""
TRACEBACKS = Pattern(pattern=r"Traceback \(most recent call last\)", literals=("traceback (most recent call last",))
HINTS = (ANOMALIES, TRACEBACKS)
"""Patterns beside those of events that say where a large input is worth reading."""


def texts(sources: Mapping[int, Source], scanned: Mapping[int, Scanned]) -> dict[int, list[tuple[int, str]]]:
    """(line number, text) of the lines to read, by source."""
    found = {}
    total = sum(share for share in shares(scanned).values()) or 1
    for index, share in shares(scanned).items():
        one = scanned[index]
        wanted, alone = choose(one, share)
        lines = excerpts.windows(sources[index], wanted, one, most=TEXT * share // total)
        if alone:
            have = {line for line, _ in lines}
            lines = sorted([*lines, *((h.line, h.text) for h in alone if h.line not in have)], key=lambda line: line[0])
        found[index] = lines
    return found


def shares(scanned: Mapping[int, Scanned]) -> dict[int, int]:
    """How many lines of each input are read: short ones whole, the rest divided among the long ones."""
    left, found = LINES, {}
    waiting = sorted(scanned.values(), key=lambda one: (one.lines, one.source))
    for position, one in enumerate(waiting):
        share = max(LEAST, left // (len(waiting) - position))
        found[one.source] = min(share, one.lines)
        left = max(0, left - found[one.source])
    return dict(sorted(found.items()))


def choose(scanned: Scanned, share: int) -> tuple[list[tuple[int, int]], list[Hit]]:
    """Ranges of lines, and hits of which only their own line is read."""
    lines = scanned.lines
    if lines <= share:
        return [(1, lines)], []
    head = share // 5
    tail = share * 3 // 10 if share >= 4 * LEAST else share * 5 // 8  # of a short share, most for how it ended
    wanted = [(1, head), (lines - tail + 1, lines)]
    blocks = share // 5 // BLOCK
    for number in range(blocks):
        start = head + 1 + (lines - head - tail) * number // blocks
        wanted.append((start, start + BLOCK - 1))
    alone: list[Hit] = []
    left = share - head - tail - blocks * BLOCK
    centres: list[int] = []
    seen: set[int] = set()
    for hit in _by_worth(scanned):
        if hit.line in seen or hit.line <= head or hit.line > lines - tail:
            continue
        seen.add(hit.line)
        at = bisect_left(centres, hit.line)
        if any(abs(c - hit.line) <= AROUND // 2 for c in centres[max(0, at - 1) : at + 1]):
            continue
        if left >= AROUND:
            centres.insert(at, hit.line)
            wanted.append((max(1, hit.line - AROUND), hit.line + AROUND))
            left -= 2 * AROUND
        elif left > 0:
            alone.append(hit)
            left -= 1
    return wanted, alone


def _by_worth(scanned: Scanned) -> list[Hit]:
    """What each rank printed first of each pattern, then its second of each; seldom patterns first."""
    met: Counter[tuple[int, bytes]] = Counter()
    ranked = []
    for hit in scanned.hits:
        start = hit.text[:160].encode("utf-8", "replace")
        key = (hit.pattern, rank_prefix(start, 0, len(start)))
        met[key] += 1
        ranked.append((met[key], scanned.counts.get(hit.pattern, 0), hit.line, hit.offset, hit.pattern, hit))
    return [place[-1] for place in sorted(ranked, key=lambda place: place[:-1])]


def note(scanned: Mapping[int, Scanned], texts: Mapping[int, Sequence[tuple[int, str]]]) -> str:
    """What was not looked at, for the reader of the diagnosis."""
    size = sum(one.size for one in scanned.values()) / 1e6
    lines = sum(one.lines for one in scanned.values())
    read = sum(len({line for line, _ in own}) for own in texts.values())
    return (
        f"{size:.0f} MB of logs: every line was searched for all signatures, but ranks, times and metrics were read from "
        f"{read:,} of {lines:,} lines only: at both ends, around hits and non-finite values, and in evenly spaced samples"
    )
