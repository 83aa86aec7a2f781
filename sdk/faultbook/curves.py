"""What curves say without any entry: generic findings, and why some odd numbers are harmless.

`curve_findings` decides only "something is abnormal here", with rules that ask for much:
they must stay silent on every healthy run. `benign` explains numbers that look like a
failure and are none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from .metric_names import fold
from .model import Series
from .series import select_role, show, where

CurveKind = Literal["nonfinite", "diverged", "scale_collapse", "loss_left_out", "nan_counter", "overfitting"]

LOSSES = frozenset({"loss", "loss_term", "eval_loss", "value_loss", "policy_loss", "gan_loss", "aux_loss"})
JUDGED = LOSSES | {"grad_norm", "perplexity", "eval_perplexity"}
"""Roles in which NaN means trouble."""
CHANCE_MARGIN = 0.02


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


@dataclass(frozen=True, slots=True)
class Benign:
    """Numbers that look like a failure and are none."""

    series: str
    rank: int | None
    lines: tuple[int, ...]
    reason: str


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
    before = (
        f"after {first} records, the last finite one {show(_last_finite(s, first))}"
        if first
        else "from its first record"
    )
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
    levels = _blocks(values, size)
    if len(levels) < 6:
        return None
    best_at = min(range(len(levels)), key=levels.__getitem__)
    tail = levels[-max(1, len(levels) // 4) :]
    # The best level must not be a single lucky block, nor the floor of a curve that is nearly 0.
    floor = max(
        levels[best_at], median(sorted(levels)[: max(2, len(levels) // 8)]), 0.02 * max(levels[:3]), 1e-3
    )
    ratio = min(median(tail), levels[-1]) / floor
    if best_at >= len(levels) - len(tail):
        return None
    rise = _norm_rise(s, series)
    if ratio < 3.0 and not (ratio >= 1.5 and rise >= 5.0):
        return None
    limit = floor * (1 + (ratio - 1) / 2)
    # The record at which the rise began for good: the last level below the limit.
    last_low = max(i for i, level in enumerate(levels) if level < limit)
    index = min(_index_of(s, (last_low + 1) * size), len(s.values) - 1)
    certain = ratio >= 5.0 or rise >= 5.0
    extra = f", with the gradient norm up {rise:.0f}×" if rise >= 5 else ""
    text = (
        f"{s.name} rises from {show(floor)} to {show(median(tail))} for good {where(s, index)}{extra}: "
        "it diverged."
    )
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

    A scale that is constant (bf16, static) is none; the search downward at the start is none,
    since it stops far above 1.
    """
    if s.role != "loss_scale" or len(s.values) < 4:
        return None
    top = max((v for v in s.values if math.isfinite(v)), default=0.0)
    first = len(s.values)
    while first > 0 and s.values[first - 1] <= 1.0:
        first -= 1
    count = len(s.values) - first
    if count < 2 or first == 0 or top < 64:
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
    train = select_role(
        "loss", [o for o in series if (o.source, o.rank, o.attempt) == (s.source, s.rank, s.attempt)]
    )
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
        same = [
            o
            for o in series
            if (o.source, o.rank, o.attempt) == (samples.source, samples.rank, samples.attempt)
        ]
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
                f"The loss is left out of the line {where(samples, first)} and of all {len(bare) - first} from "
                "there on, which Megatron does when it is NaN."
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
                text = (
                    f"{s.name} is {show(s.values[first])} {where(s, first)}, above 0 in {len(bad)} records."
                )
                found.append(_finding(s, "nan_counter", bad[0], text))
    return found


# Odd numbers that are harmless. -----------------------------------------------------------


def loss_scale_search(s: Series, series: Sequence[Series]) -> Benign | None:
    """The dynamic scale halves from 2^16..2^32 until gradients fit, and then holds."""
    if s.role != "loss_scale" or len(s.values) < 2:
        return None
    falls = [i for i in range(1, len(s.values)) if s.values[i] < s.values[i - 1]]
    if not falls or min(s.values) < 16:
        return None
    return Benign(
        s.name,
        s.rank,
        tuple(s.lines[i] for i in falls),
        f"The loss scale is searched downward from {show(max(s.values))} and settles at {show(s.values[-1])}; "
        "the steps skipped in this search are no fault.",
    )


def zero_rate_at_start(s: Series, series: Sequence[Series]) -> Benign | None:
    """A learning rate of 0 in the first records, above 0 later."""
    if s.role != "lr":
        return None
    zeros = [i for i in range(min(10, len(s.values))) if s.values[i] == 0.0]
    if not zeros or zeros[0] != 0 or not any(v > 0 for v in s.values):
        return None
    return Benign(
        s.name,
        s.rank,
        tuple(s.lines[i] for i in zeros),
        "The learning rate is 0 while the scheduler has not stepped yet: warm-up, or first steps that the "
        "loss scaler skipped.",
    )


def first_norm_nan(s: Series, series: Sequence[Series]) -> Benign | None:
    """Only the first logged gradient norm is NaN."""
    if s.role != "grad_norm" or len(s.values) < 2 or math.isfinite(s.values[0]):
        return None
    if not all(math.isfinite(v) for v in s.values[1:]):
        return None
    return Benign(
        s.name,
        s.rank,
        (s.lines[0],),
        "Only the first logged gradient norm is not finite: the loss scaler skipped the first steps.",
    )


def single_nonfinite(s: Series, series: Sequence[Series]) -> Benign | None:
    """One non-finite record between finite ones: a bad step that was survived."""
    bad = [i for i, v in enumerate(s.values) if not math.isfinite(v)]
    if s.role not in JUDGED or len(bad) != 1 or bad[0] in (0, len(s.values) - 1):
        return None
    return Benign(
        s.name,
        s.rank,
        (s.lines[bad[0]],),
        f"One record {where(s, bad[0])} is not finite and the next ones are: a single bad step, survived.",
    )


def nan_counter_zero(s: Series, series: Sequence[Series]) -> Benign | None:
    """`number of nan iterations: 0`: the word is always printed."""
    if s.role != "counter" or not s.values or any(v != 0 for v in s.values):
        return None
    return Benign(
        s.name, s.rank, s.lines[:1], f"{s.name} is a counter and stays 0; its name is printed in every line."
    )


def zero_loss_with_gradient(s: Series, series: Sequence[Series]) -> Benign | None:
    """GRPO prints about β × KL as its loss: 0 at the start, while gradients and reward spread are above 0."""
    if s.role != "loss" or not any(v == 0.0 for v in s.values):
        return None
    same = [o for o in series if (o.source, o.rank, o.attempt) == (s.source, s.rank, s.attempt)]
    norm, spread = select_role("grad_norm", same), select_role("reward_std", same)
    if norm is None or spread is None:
        return None
    lines = tuple(line for line, v in zip(s.lines, s.values, strict=True) if v == 0.0)
    alive = {n for n, v in zip(norm.lines, norm.values, strict=True) if v > 0} & {
        n for n, v in zip(spread.lines, spread.values, strict=True) if v > 0
    }
    if not lines or not set(lines) <= alive:
        return None
    return Benign(
        s.name,
        s.rank,
        lines,
        "A loss of 0 with a gradient norm and a reward spread above 0 is normal in GRPO: the printed loss is "
        "about β × KL, which starts at 0.",
    )


def chance_level_start(s: Series, series: Sequence[Series]) -> Benign | None:
    """The first record at ln 2 (or ln of a usual number of classes), later ones below."""
    if s.role not in ("loss", "loss_term") or len(s.values) < 3:
        return None
    first = s.values[0]
    level = next(
        (c for c in (2, 10, 100, 1000) if abs(first - math.log(c)) < CHANCE_MARGIN * math.log(c)), None
    )
    if level is None or not s.values[-1] < 0.95 * first:
        return None
    return Benign(
        s.name,
        s.rank,
        (s.lines[0],),
        f"The first value {show(first)} is ln {level}, chance level: the right start.",
    )


RECOGNISERS: tuple[Callable[[Series, Sequence[Series]], Benign | None], ...] = (
    loss_scale_search,
    zero_rate_at_start,
    first_norm_nan,
    single_nonfinite,
    nan_counter_zero,
    zero_loss_with_gradient,
    chance_level_start,
)


def benign(series: Sequence[Series]) -> list[Benign]:
    """Every recogniser over every series, in order of lines."""
    found = [b for s in series for recognise in RECOGNISERS if (b := recognise(s, series)) is not None]
    return sorted(found, key=lambda b: (b.lines[0] if b.lines else 0, b.series))
