"""Reading the same form of line again without parsing it again.

A log prints one form thousands of times with other digits. With every digit replaced by 0
such lines are equal, and how a line is read depends on its digits in very few places, so what
was learnt from the first one is a plan: which slices of the line are its values. A line read by
its plan gives what the full reader gives (a property test compares the two).
"""

from __future__ import annotations

import re

from . import lazy
from .metric_forms import Record, number
from .metric_names import Name
from .values import dataclass

_ZEROS = {digit: "0" for digit in range(ord("1"), ord("9") + 1)}
MAX_PLANS = 4096
MAX_LINE = 1000
TRIAL = 400
"""After this many plans, learning goes on only while plans are used more often than made."""

Slice = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the numbers of a line are."""

    values: tuple[tuple[int, int, Name, float], ...] = ()
    """(start, end, name, multiplier)."""
    step: Slice | None = None
    total: Slice | None = None
    epoch: Slice | None = None
    rank: Slice | None = None
    inner_rank: Slice | None = None
    kind: str | None = None
    counter: str = ""
    bar: bool = False
    nothing: bool = False
    """Such a line reports no metric."""


class Plans:
    """Skeleton → plan; bounded, since logs are untrusted."""

    __slots__ = ("plans", "used")

    def __init__(self) -> None:
        self.plans: dict[str, Plan | None] = {}
        self.used = 0

    def key(self, text: str) -> str | None:
        if len(text) > MAX_LINE or (not text.isascii() and len(text) > 400):
            return None
        return text.translate(_ZEROS)

    def find(self, key: str) -> Plan | None:
        plan = self.plans.get(key)
        if plan is not None:
            self.used += 1
        return plan

    def learn(self, key: str, text: str, body: str, record: Record | None, rank: int | None) -> None:
        """Remembers how lines of this skeleton are read; lines that no plan can read are left alone."""
        size = len(self.plans)
        if size >= MAX_PLANS or (size >= TRIAL and self.used < size) or not text.endswith(body):
            return
        start = len(text) - len(body)
        at = _rank_slice(text, rank, start) if rank is not None else None
        if rank is not None and at is None:
            return
        if record is None:
            self.plans[key] = Plan(nothing=True)
            return
        if record.special:
            return
        values = tuple(
            (start + a, start + b, name, factor) for (name, _), (a, b, factor) in zip(record.pairs, record.marks, strict=True)
        )
        self.plans[key] = Plan(
            values=values,
            step=_shift(record.step_at, start),
            total=_shift(record.total_at, start),
            epoch=_shift(record.epoch_at, start),
            rank=at,
            inner_rank=_shift(record.rank_at, start),
            kind=record.kind,
            counter=record.counter,
            bar=record.bar,
        )


def _shift(at: Slice | None, start: int) -> Slice | None:
    return (at[0] + start, at[1] + start) if at is not None else None


_RANK_LABEL = lazy.regex(r"(?:rank[ :=\[]{0,3}|\[\d{1,9},)(\d{1,6})", re.IGNORECASE)


def _rank_slice(text: str, rank: int, end: int) -> Slice | None:
    """Where the prefix prints the rank; None unless there is exactly one such place."""
    found = [m for m in _RANK_LABEL.finditer(text, 0, end)]
    if len(found) != 1 or int(found[0][1]) != rank:
        return None
    return found[0].start(1), found[0].end(1)


def follow(plan: Plan, text: str) -> tuple[Record, int | None] | None:
    """The record and the prefix's rank; None where the digits call for the full reader."""
    record = Record(kind=plan.kind, counter=plan.counter, bar=plan.bar)
    pairs = record.pairs
    try:
        for start, end, name, factor in plan.values:
            digits = text[start:end]
            value = float(digits.replace(",", "")) if "," in digits else float(digits)
            pairs.append((name, value * factor if factor != 1.0 else value))
        if plan.step is not None:
            step = number(text[plan.step[0] : plan.step[1]])
            if step is None or step != step or abs(step) > 1e15:
                return None
            record.step = step
        if plan.total is not None:
            record.total = float(text[plan.total[0] : plan.total[1]])
            if record.counter == "fraction" and record.step is not None and record.step > record.total:
                return None
        if plan.epoch is not None:
            record.epoch = number(text[plan.epoch[0] : plan.epoch[1]])
        if plan.inner_rank is not None:
            record.rank = int(text[plan.inner_rank[0] : plan.inner_rank[1]])
        rank = int(text[plan.rank[0] : plan.rank[1]]) if plan.rank is not None else None
    except ValueError:
        return None
    return record, rank
