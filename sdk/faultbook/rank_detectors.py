"""Detectors that compare series with one another: between ranks, and between fields of one line.

Each docstring states its false positives; see `detectors` for what all share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .metric_names import fold
from .model import Series
from .robust import median
from .series import Firing, earliest, fire, first_run, select, show, where
from .signatures import Predicate


def _aligned(found: Sequence[Series], warmup: int) -> list[tuple[float, list[tuple[Series, int]]]]:
    """Records of equal step on at least two ranks, in order of steps."""
    by_step: dict[float, dict[int | None, tuple[Series, int]]] = {}
    for s in found:
        for index in range(warmup, len(s.values)):
            by_step.setdefault(s.steps[index], {})[s.rank] = (s, index)
    return [(step, list(ranks.values())) for step, ranks in sorted(by_step.items()) if len(ranks) > 1]


def _odd_one(records: Sequence[tuple[Series, int]]) -> tuple[Series, int, float]:
    """The record farthest from the median of the others, and that median; non-finite is farthest."""
    best: tuple[float, Series, int, float] | None = None
    for s, index in records:
        others = [o.values[i] for o, i in records if o is not s and math.isfinite(o.values[i])]
        centre = median(others) if others else math.nan
        value = s.values[index]
        alone = 0.0 if centre != centre else abs(value - centre)
        distance = alone if math.isfinite(value) else math.inf
        if best is None or distance > best[0]:
            best = (distance, s, index, centre)
    assert best is not None
    return best[1], best[2], best[3]


def rank_ratio(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """One rank at `factor` (default 2) × the median of the other ranks, or 1/`factor`, for `patience` steps.

    With two ranks the greater one is named. False positives: unequal work by design (ends of a pipeline,
    experts, rank 0 that logs and saves); shared hosts.
    """
    factor = predicate.factor or 2.0
    run: list[tuple[Series, int, float]] = []
    for _, records in _aligned(select(predicate, series), warmup):
        worst: tuple[float, Series, int, float] | None = None
        for s, index in records:
            others = [o.values[i] for o, i in records if o is not s and math.isfinite(o.values[i])]
            value = s.values[index]
            centre = median(others) if others else 0.0
            if not math.isfinite(value) or value <= 0 or centre <= 0:
                continue
            ratio = max(value / centre, centre / value)
            if len(records) == 2 and value < centre:
                continue
            if worst is None or ratio > worst[0]:
                worst = (ratio, s, index, centre)
        held = worst is not None and worst[0] >= factor and (not run or run[-1][0] is worst[1])
        if not held or worst is None:
            run = [] if worst is None or worst[0] < factor else [(worst[1], worst[2], worst[3])]
        else:
            run.append((worst[1], worst[2], worst[3]))
        if len(run) >= max(1, predicate.patience):
            s, index, centre = run[0]
            return fire(
                s,
                index,
                (f"{s.name} is {show(s.values[index])} {where(s, index)}; the median of the other ranks is {show(centre)}."),
            )
    return None


def rank_differs(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """Values of ranks at one step differ by more than `tolerance` (relative, 1e-6) for `patience` steps.

    For numbers that must agree (a reduced loss, a parameter checksum, a global norm). False positives:
    per-rank losses, which differ by nature; sums in different order (give a tolerance).
    """
    tolerance = 1e-6 if predicate.tolerance is None else predicate.tolerance
    first: tuple[Series, int, float] | None = None
    length = 0
    for _, records in _aligned(select(predicate, series), warmup):
        values = [s.values[i] for s, i in records]
        finite = [v for v in values if math.isfinite(v)]
        differs = bool(finite) and len(finite) < len(values)
        if len(finite) > 1 and not differs:
            differs = max(finite) - min(finite) > tolerance * max(abs(median(finite)), 1e-12)
        length = length + 1 if differs else 0
        if length == 1:
            first = _odd_one(records)
        if differs and first is not None and length >= max(1, predicate.patience):
            s, index, centre = first
            firing = fire(
                s,
                index,
                (f"{s.name} is {show(s.values[index])} {where(s, index)} where the other ranks print {show(centre)}."),
            )
            if len({r.rank for r, _ in records}) == 2 and math.isfinite(s.values[index]):
                # Of two ranks that disagree neither is known to be the wrong one.
                return Firing(
                    firing.index,
                    firing.step,
                    firing.line,
                    None,
                    firing.value,
                    f"{s.name} differs between two ranks at step {show(firing.step)}: {show(values[0])} and {show(values[1])}.",
                    s.name,
                    s.source,
                )
            return firing
    return None


# A field that the framework leaves out instead of printing NaN → a field of the same line.
_SIBLINGS = {"lm_loss": ("consumed_samples", "number_of_nan_iterations", "grad_norm")}


def missing(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """A series that was printed with others stops, while they go on for `patience` records.

    Megatron leaves `lm loss` out of its line when it is NaN: for it, lines that never held it count too.
    False positives: evaluation fields (printed now and then); the last line cut off; a change of the
    logging configuration at a resume.
    """
    for wanted in predicate.series:
        if wanted.startswith("role:") or select(predicate, series):
            continue
        for sibling in _SIBLINGS.get(fold(wanted), ()):
            lines = [s for s in series if fold(s.name) == sibling and len(s.values) - warmup >= max(1, predicate.patience)]
            if lines:
                s = lines[0]
                return fire(s, warmup, f"{wanted} is left out of the line that prints {s.name} {where(s, warmup)}.")
    firings: list[Firing | None] = []
    for s in select(predicate, series):
        own = set(s.lines)
        if not own:
            continue
        for other in series:
            if other is s or (other.source, other.rank, other.attempt) != (s.source, s.rank, s.attempt):
                continue
            together = sum(line in own for line in other.lines)
            if together < max(2, len(own) // 2) and together < len(own):
                continue
            absent = first_run((line not in own for line in other.lines), predicate.patience, warmup)
            if absent is not None and other.lines[absent] > s.lines[0]:
                firings.append(
                    fire(
                        other,
                        absent,
                        (
                            f"{s.name} is missing {where(other, absent)}, where {other.name} is printed; "
                            f"its last value before was {show(_last_before(s, other.lines[absent]))}."
                        ),
                    )
                )
                break
    return earliest(firings)


def _last_before(s: Series, line: int) -> float:
    return next((v for v, n in zip(reversed(s.values), reversed(s.lines), strict=True) if n < line), math.nan)
