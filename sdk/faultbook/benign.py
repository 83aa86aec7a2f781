"""Numbers that look like a failure and are none: each recogniser says why."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .curves import JUDGED
from .model import Series
from .series import select_role, show, where
from .values import dataclass

CHANCE_MARGIN = 0.02
"""How near to ln(classes) counts as chance level."""


@dataclass(frozen=True, slots=True)
class Benign:
    """Numbers that look like a failure and are none."""

    series: str
    rank: int | None
    lines: tuple[int, ...]
    reason: str


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
        f"The loss scale is searched downward from {show(max(s.values))} and settles at {show(s.values[-1])}"
        "; the steps skipped in this search are no fault.",
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
        "The learning rate is 0 while the scheduler has not stepped yet: warm-up, or first steps that the loss scaler skipped.",
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
    return Benign(s.name, s.rank, s.lines[:1], f"{s.name} is a counter and stays 0; its name is printed in every line.")


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
    level = next((c for c in (2, 10, 100, 1000) if abs(first - math.log(c)) < CHANCE_MARGIN * math.log(c)), None)
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
