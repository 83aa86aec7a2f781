"""Questions that several rules ask of a case: who complained, who was heard, who moved on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from . import lazy, progress
from .evidence import Case
from .exceptions import Raised
from .model import Initiating

Confidence = Literal["strong", "medium", "weak", "none"]


_NONFINITE = lazy.regex(r"\b(?:loss|grad[_ ]?norm|gnorm)\b['\" ]{0,2}[=:] ?'?-?(?:nan|inf)\b", re.IGNORECASE)


def rank(number: int, basis: str, confidence: Confidence) -> Initiating:
    return Initiating("rank", number, None, basis, confidence)


def unknown(basis: str) -> Initiating:
    return Initiating("unknown", None, None, basis, "none")


def listed(ranks: Iterable[int]) -> str:
    return ", ".join(str(r) for r in sorted(ranks))


def lost(case: Case) -> dict[int, Raised]:
    """Ranks with a communication error: the waiting side."""
    return case.ranks_with("communication")


def silent_ranks(case: Case) -> tuple[int, ...]:
    """Ranks of the world without any error, where others have one."""
    spoke = {r.rank for r in case.raised if r.rank is not None}
    spoke |= {
        e.rank for e in case.of_kind("watchdog", "gloo_timeout", "peer_closed", "peer_reset", "store_wait") if e.rank is not None
    }
    return tuple(r for r in case.world if r not in spoke)


def first_nan_rank(case: Case) -> int | None:
    """The one rank whose own metrics were non-finite first; None if several were at once."""
    seen: dict[int, tuple[float | None, int]] = {}
    order = 0
    for record in case.records:
        if record.rank is not None and record.rank not in seen and _NONFINITE.search(record.body[:600]):
            step = progress.step_of(record.body)
            seen[record.rank] = (step[0] if step else None, order)
            order += 1
    if len(seen) == 1:
        return next(iter(seen)) if len({r.rank for r in case.records if r.rank is not None}) > 1 else None
    steps = sorted((s, r) for r, (s, _) in seen.items() if s is not None)
    return steps[0][1] if len(steps) > 1 and steps[0][0] < steps[1][0] else None


def communication_failed(case: Case) -> bool:
    return bool(lost(case)) or bool(case.hung) or bool(case.of_kind("watchdog", "gloo_timeout", "peer_closed", "size_mismatch"))


def heard(case: Case) -> set[int]:
    return {r.rank for r in case.records if r.rank is not None and not r.about}


def steps_after(case: Case, source: int, line: int, number: int | None) -> int:
    """How many different steps were logged after a line, by its rank (or in its own file)."""
    steps = set()
    for record, step in case.steps:
        if record.source == source and record.line > line and (number is None or record.rank == number or case.per_rank_files):
            steps.add(step)
    return len(steps)
