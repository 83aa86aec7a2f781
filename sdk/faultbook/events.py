"""Hits and lines → `model.Event`: something that happened, read from one place."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .event_patterns import EVENT_PATTERNS, EventPattern
from .gates import choose_gate
from .model import Event, Hit, Line

__all__ = ["EVENT_PATTERNS", "EventPattern", "details", "event_at", "events_from_hits", "matches", "rank_list"]


Attribute = Callable[[Hit], Line]
"""How the integration tells whose line a hit is: the parsed line with its global rank."""


@functools.cache
def _compiled(index: int) -> tuple[re.Pattern[str], tuple[re.Pattern[str], ...]]:
    event = EVENT_PATTERNS[index]
    flags = re.ASCII | (re.IGNORECASE if event.pattern.ignore_case else 0)
    return (
        re.compile(event.pattern.pattern, flags),
        tuple(re.compile(f, re.ASCII) for f in event.fields),
    )


@functools.lru_cache(maxsize=1)
def _gate() -> tuple[tuple[str, int], ...]:
    return tuple((anchor.lower(), index) for index, event in enumerate(EVENT_PATTERNS) for anchor in event.pattern.anchors)


_TOO_LONG = 20_000
"""Lines beyond this are looked at in their first part only; the scan cuts its hits as well."""


def details(index: int, text: str) -> dict[str, Any] | None:
    """The captures of pattern `index` in this line, or None where it does not match."""
    main, fields = _compiled(index)
    match = main.search(text)
    if match is None:
        return None
    found: dict[str, Any] = {k: v for k, v in match.groupdict().items() if v is not None}
    for expression in fields:
        extra = expression.search(text)
        if extra is not None:
            for key, value in extra.groupdict().items():
                if value is not None:
                    found.setdefault(key, value)
    return {k: _whole(v) if re.fullmatch(r"-?[0-9]+", v) else v for k, v in found.items()}


def _whole(digits: str) -> int:
    """Their number; of absurdly many only how large at least, since the reader expects a number and may calculate."""
    return int(digits) if len(digits) <= 18 else (-1 if digits[0] == "-" else 1) * 10**18


def matches(text: str) -> list[tuple[int, dict[str, Any]]]:
    """Every event pattern that this line matches (for callers that read lines themselves)."""
    return _matches(text[:_TOO_LONG], _gate())


def _matches(text: str, anchors: Iterable[tuple[str, int]]) -> list[tuple[int, dict[str, Any]]]:
    lowered = text.lower()
    wanted = {index for anchor, index in anchors if anchor in lowered}
    found = ((index, details(index, text)) for index in sorted(wanted))
    return [(index, detail) for index, detail in found if detail is not None]


BATCH = 1 << 17
"""From this much text on, building a gate for all anchors at once pays."""
_BLOCK = 4 << 20


def matches_of(texts: Sequence[str]) -> Iterable[tuple[int, int, dict[str, Any]]]:
    """(position of the text, pattern, captures) for many lines: the same as `matches` on each."""
    if sum(map(len, texts)) < BATCH:
        all_lowered = "\n".join(texts).lower()
        present = [(anchor, index) for anchor, index in _gate() if anchor in all_lowered]
        for position, text in enumerate(texts if present else ()):
            for index, detail in _matches(text[:_TOO_LONG], present):
                yield position, index, detail
        return
    anchors = _gate()
    gate = choose_gate([anchor.encode() for anchor, _ in anchors])
    start = 0
    while start < len(texts):
        end, size = start, 0
        block = bytearray()
        ends: list[int] = []
        while end < len(texts) and size < _BLOCK:
            block += texts[end][:_TOO_LONG].encode("utf-8", "replace") + b"\n"
            size = len(block)
            ends.append(size)
            end += 1
        wanted: dict[int, list[int]] = {}
        for offset, literal in gate.find(block):
            known = wanted.setdefault(start + bisect.bisect_left(ends, offset), [])
            if anchors[literal][1] not in known:
                known.append(anchors[literal][1])
        for position in sorted(wanted):
            for index in sorted(wanted[position]):
                captured = details(index, texts[position][:_TOO_LONG])
                if captured is not None:
                    yield position, index, captured
        start = end


def event_at(index: int, detail: Mapping[str, Any], source: int, number: int, text: str, line: Line, attempt: int = 0) -> Event:
    """One event; its rank is the writer's, never a number found in the message."""
    pattern = EVENT_PATTERNS[index]
    return Event(
        role=pattern.role,
        kind=pattern.kind,
        source=source,
        line=number,
        text=text.strip()[:2000],
        rank=line.rank,
        local_rank=line.local_rank,
        node=line.host,
        attempt=attempt,
        time=line.time,
        clock=line.clock,
        detail=detail,
    )


def events_from_hits(
    hits: Iterable[Hit],
    attribute: Attribute,
    offset: int = 0,
    attempts: Mapping[int, Sequence[tuple[int, int]]] | None = None,
) -> list[Event]:
    """Events of the hits whose pattern index lies in `offset …  offset + len(EVENT_PATTERNS)`.

    `attempts`: per source, (first line, attempt) in ascending order, from `attempts.boundaries`.
    """
    found = []
    for hit in hits:
        index = hit.pattern - offset
        if 0 <= index < len(EVENT_PATTERNS):
            detail = details(index, hit.text)
            if detail is not None:
                attempt = attempt_at((attempts or {}).get(hit.source, ()), hit.line)
                found.append(event_at(index, detail, hit.source, hit.line, hit.text, attribute(hit), attempt))
    return sorted(found, key=lambda e: (e.source, e.line))


def attempt_at(boundaries: Sequence[tuple[int, int]], line: int) -> int:
    """The attempt that a line of a source belongs to."""
    current = 0
    for first, attempt in boundaries:
        if line >= first:
            current = attempt
    return current


def rank_list(value: object) -> tuple[int, ...]:
    """`0, 2-4` → (0, 2, 3, 4): lists as srun, monitoredBarrier and Horovod print them."""
    ranks: list[int] = []
    for part in re.split(r"[,\s\[\]]+", str(value)):
        span = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part)
        if span:
            first, last = int(span[1]), int(span[2] or span[1])
            ranks.extend(range(first, min(last, first + 100_000) + 1))
    return tuple(ranks)
