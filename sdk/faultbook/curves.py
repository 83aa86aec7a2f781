"""What curves say without any entry.

`curve_findings` decides only "something is abnormal here", with rules that ask for much:
they must stay silent on every healthy run. `benign` holds the counterpart, numbers that look
like a failure and are none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from .metric_names import fold
from .model import Series
from .robust import median
from .series import select_role, show, where
from .values import dataclass

CurveKind = Literal["nonfinite", "diverged", "scale_collapse", "loss_left_out", "nan_counter", "overfitting"]

LOSSES = frozenset({"loss", "loss_term", "eval_loss", "value_loss", "policy_loss", "gan_loss", "aux_loss"})
JUDGED = LOSSES | {"grad_norm", "perplexity", "eval_perplexity"}
"""Roles in which NaN means trouble."""


@dataclass(frozen=True, slots=True)
class CurveFinding:
    """Something abnormal in one series."""

    kind: CurveKind
    series: str
    source: int
    rank: int | None
    attempt: int
    line: int
    """Line of the first abnormal record."""
    step: float
    value: float
    text: str
    """One sentence with the numbers."""
    certain: bool = True
    """False where a healthy run of an unusual kind could look the same."""


def _finding(s: Series, kind: CurveKind, index: int, text: str, certain: bool = True) -> CurveFinding:
    return CurveFinding(
        kind,
        s.name,
        s.source,
        s.rank,
        s.attempt,
        s.lines[index],
        s.steps[index],
        s.values[index],
        text,
        certain,
    )


def curve_findings(series: Sequence[Series]) -> list[CurveFinding]:
    """Abnormal curves, the earliest first."""
    found: list[CurveFinding] = []
    for s in series:
        for rule in (_nonfinite, _diverged, _scale_collapse):
            finding = rule(s, series)
            if finding is not None:
                found.append(finding)
    found.extend(_left_out(series))
    found.extend(_nan_counters(series))
    return sorted(found, key=lambda f: (f.attempt, f.source, f.line, f.series))


def curve_leads(series: Sequence[Series]) -> list[CurveFinding]:
    """Curves worth a look, which healthy runs show as well: never a reason to call a run failed."""
    return [f for s in series if (f := _overfitting(s, series)) is not None]


def _nonfinite(s: Series, series: Sequence[Series]) -> CurveFinding | None:
    """Not finite for at least two records and until the end of the attempt.

    Single records are left alone: interval averages, skipped first steps, empty batches.
    Gradient norms need three, since skipped steps print them too, and values of an
    evaluation or a custom name must have been finite before.
    """
    if s.role not in JUDGED:
        return None
    first = len(s.values)
    while first > 0 and not math.isfinite(s.values[first - 1]):
        first -= 1
    count = len(s.values) - first
    needed = 2 if s.role in ("loss", "eval_loss", "perplexity", "eval_perplexity") else 3
    if count < needed or (s.role not in ("loss", "loss_term") and first == 0 and count < 5):
        return None
    before = f"after {first} records, the last finite one {show(_last_finite(s, first))}" if first else "from its first record"
    return _finding(
        s,
        "nonfinite",
        first,
        f"{s.name} is {show(s.values[first])} {where(s, first)}, {before}, and stays so.",
    )


def _last_finite(s: Series, end: int) -> float:
    return next((v for v in reversed(s.values[:end]) if math.isfinite(v)), math.nan)


def _blocks(values: Sequence[float], size: int) -> list[float]:
    """Medians of consecutive blocks."""
    return [median(values[i : i + size]) for i in range(0, len(values) - size + 1, size)]


def _diverged(s: Series, series: Sequence[Series]) -> CurveFinding | None:
    """A positive loss whose last quarter stands far above its best stretch.

    Certain from 3 × on (with the last tenth still there), or from 1.5 × when the gradient norm of the
    same run has risen 5 × too. Only for losses of known direction with at least 20 records.
    """
    if s.role != "loss":
        return None
    values = [v for v in s.values if math.isfinite(v)]
    if len(values) < 20 or min(values) <= 0:
        return None
    size = max(3, len(values) // 40)
    levels = _blocks(values[len(values) % size :], size)
    if len(levels) < 6:
        return None
    best_at = min(range(len(levels)), key=levels.__getitem__)
    tail = levels[-max(2, len(levels) // 4) :]
    # The best level must not be a single lucky block, nor the floor of a curve that is nearly 0.
    floor = max(levels[best_at], median(sorted(levels)[: max(2, len(levels) // 8)]), 0.02 * max(levels[:3]), 1e-3)
    ratio = min(median(tail), levels[-1], values[-1]) / floor
    if best_at >= len(levels) - len(tail) or levels[-1] < 0.5 * max(tail):
        return None  # still falling, or on the way back down from a spike
    rise = _norm_rise(s, series)
    if ratio < 3.0 and not (ratio >= 1.5 and rise >= 5.0):
        return None
    limit = floor * (1 + (ratio - 1) / 2)
    # The record at which the rise began for good: the last level below the limit.
    last_low = max(i for i, level in enumerate(levels) if level < limit)
    index = _index_of(s, len(values) % size + (last_low + 1) * size)
    certain = ratio >= 5.0 or rise >= 5.0
    extra = f", with the gradient norm up {rise:.0f}×" if rise >= 5 else ""
    text = f"{s.name} rises from {show(floor)} to {show(median(tail))} for good {where(s, index)}{extra}: it diverged."
    return _finding(s, "diverged", index, text, certain)


def _index_of(s: Series, count: int) -> int:
    """Index of the record with `count` finite ones before it."""
    for index, value in enumerate(s.values):
        if math.isfinite(value):
            if count == 0:
                return index
            count -= 1
    return len(s.values) - 1


def _norm_rise(s: Series, series: Sequence[Series]) -> float:
    """Last quarter of the gradient norm of the same run over its median before."""
    for other in series:
        if other.role == "grad_norm" and (other.source, other.rank, other.attempt) == (
            s.source,
            s.rank,
            s.attempt,
        ):
            values = [v if math.isfinite(v) else 1e9 for v in other.values]
            if len(values) >= 20:
                cut = len(values) * 3 // 4
                return median(values[cut:]) / max(median(values[:cut]), 1e-12)
    return 0.0


def _scale_collapse(s: Series, series: Sequence[Series]) -> CurveFinding | None:
    """A dynamic loss scale that fell to 1 or less and stayed there to the end.

    One below 0.001 needs no history: no scaler is set there by hand. A scale that is constant (bf16,
    static) is none; the search downward at the start is none, since it stops far above 1.
    """
    if s.role != "loss_scale" or len(s.values) < 3:
        return None
    top = max((v for v in s.values if math.isfinite(v)), default=0.0)
    first = len(s.values)
    while first > 0 and s.values[first - 1] <= 1.0:
        first -= 1
    count = len(s.values) - first
    denormal = len(s.values) >= 3 and all(0 < v < 1e-3 for v in s.values[-3:])
    if not denormal and (count < 2 or first == 0 or top < 64):
        return None
    low = show(min(s.values[first:]))
    text = f"{s.name} falls from {show(top)} to {low} {where(s, first)} and does not recover."
    return _finding(s, "scale_collapse", first, text)


def _overfitting(s: Series, series: Sequence[Series]) -> CurveFinding | None:
    """An evaluation loss that rose at least 20 % and ten records ago from its minimum, while training fell.

    Never certain: a changed evaluation set, or a wanted memorisation, look the same.
    """
    if s.role != "eval_loss" or len(s.values) < 15 or not all(math.isfinite(v) and v > 0 for v in s.values):
        return None
    best = min(range(len(s.values)), key=s.values.__getitem__)
    tail = s.values[-5:]
    if len(s.values) - best < 10 or min(tail) < 1.2 * s.values[best]:
        return None
    train = select_role("loss", [o for o in series if (o.source, o.rank, o.attempt) == (s.source, s.rank, s.attempt)])
    if train is None or len(train.values) < 10:
        return None
    quarter = max(2, len(train.values) // 4)
    if not median(train.values[-quarter:]) < 0.9 * median(train.values[:quarter]):
        return None
    text = (
        f"{s.name} is least {where(s, best)} ({show(s.values[best])}) and {show(median(tail))} at the end, "
        f"while {train.name} fell."
    )
    return _finding(s, "overfitting", best, text, certain=False)


def _left_out(series: Sequence[Series]) -> list[CurveFinding]:
    """Megatron leaves `lm loss` out of its line when the loss is NaN.

    Steps that the scaler skipped leave it out as well: they print `number of skipped iterations` > 0.
    """
    found: list[CurveFinding] = []
    for samples in series:
        if fold(samples.name) != "consumed_samples":
            continue
        same = [o for o in series if (o.source, o.rank, o.attempt) == (samples.source, samples.rank, samples.attempt)]
        losses = {line for o in same if o.role == "loss" for line in o.lines}
        skipped = {
            line
            for o in same
            if fold(o.name).startswith("number_of_skipped")
            for line, value in zip(o.lines, o.values, strict=True)
            if value > 0
        }
        bare = [line not in losses and line not in skipped for line in samples.lines]
        first = len(bare)
        while first > 0 and bare[first - 1]:
            first -= 1
        if len(bare) - first >= 2:
            text = (
                f"The loss is left out of the line {where(samples, first)} and of all {len(bare) - first} "
                "from there on, which Megatron does when it is NaN."
            )
            found.append(_finding(samples, "loss_left_out", first, text))
    return found


def _nan_counters(series: Sequence[Series]) -> list[CurveFinding]:
    """`number of nan iterations` above 0 in three records: steps are skipped because they are NaN."""
    found = []
    for s in series:
        if s.role == "counter" and "nan" in fold(s.name).split("_"):
            bad = [i for i, v in enumerate(s.values) if v > 0]
            if len(bad) >= 3:
                first = bad[0]
                text = f"{s.name} is {show(s.values[first])} {where(s, first)}, above 0 in {len(bad)} records."
                found.append(_finding(s, "nan_counter", bad[0], text))
    return found
