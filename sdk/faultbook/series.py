"""What detectors and curve rules share: choosing series, runs of records, robust statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .metric_names import fold
from .model import Series
from .robust import median
from .signatures import Predicate
from .values import dataclass


@dataclass(frozen=True, slots=True)
class Firing:
    """The first record at which a predicate holds."""

    index: int
    """Record number in its series, from 0."""
    step: float
    line: int
    rank: int | None
    value: float
    text: str
    """One sentence with the numbers."""
    series: str
    source: int


_PREFERRED = (
    "loss",
    "lm_loss",
    "train_loss",
    "training_loss",
    "total_loss",
    "grad_norm",
    "learning_rate",
    "lr",
)
"""Of several series of one role these are the main ones, in this order."""


class Group(list[Series]):
    """Series that many predicates are judged on; remembers which of them they chose."""

    __slots__ = ("chosen",)

    def __init__(self, series: Iterable[Series]) -> None:
        super().__init__(series)
        self.chosen: dict[tuple[str, ...], list[Series]] = {}


def select(predicate: Predicate, series: Sequence[Series]) -> list[Series]:
    """The series that the predicate names: the first present name, on every rank that has it."""
    if not isinstance(series, Group):
        return _chosen(predicate.series, series)
    found = series.chosen.get(predicate.series)
    if found is None:
        found = series.chosen[predicate.series] = _chosen(predicate.series, series)
    return found


def _chosen(names: Iterable[str], series: Sequence[Series]) -> list[Series]:
    for wanted in names:
        if wanted.startswith("role:"):
            found = [s for s in series if s.role == wanted[5:]]
            if found:
                best = min({s.name for s in found}, key=lambda n: _preference(n, found))
                return [s for s in found if s.name == best]
        else:
            folded = fold(wanted)
            found = [s for s in series if s.name == wanted] or [s for s in series if fold(s.name) == folded]
            if found:
                return found
    return []


def _preference(name: str, found: Sequence[Series]) -> tuple[int, int, str]:
    folded = fold(name)
    rank = _PREFERRED.index(folded) if folded in _PREFERRED else len(_PREFERRED)
    return rank, -max(len(s.values) for s in found if s.name == name), name


def fire(s: Series, index: int, text: str) -> Firing:
    return Firing(
        index=index,
        step=s.steps[index],
        line=s.lines[index],
        rank=s.rank,
        value=s.values[index],
        text=text,
        series=s.name,
        source=s.source,
    )


def show(value: float) -> str:
    """A number for a sentence: four significant digits, integers as they are."""
    if value != value or math.isinf(value):
        return str(value)
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


def where(s: Series, index: int) -> str:
    rank = f" on rank {s.rank}" if s.rank is not None else ""
    return f"at step {show(s.steps[index])}{rank}"


def first_run(flags: Iterable[bool], patience: int, start: int = 0) -> int | None:
    """Index at which `patience` consecutive flags begin, from `start` on."""
    length = 0
    for index, flag in enumerate(flags):
        if index < start:
            continue
        length = length + 1 if flag else 0
        if length >= max(1, patience):
            return index - length + 1
    return None


def earliest(firings: Iterable[Firing | None]) -> Firing | None:
    return min(
        (f for f in firings if f is not None),
        key=lambda f: (f.step, f.line, -1 if f.rank is None else f.rank),
        default=None,
    )


def smoothing(count: int) -> int:
    """Records that one value of `smooth` is the median of, in a series of `count`."""
    return 1 if count < 5 else min(21, max(3, count // 40))


def smooth(values: Sequence[float]) -> list[float]:
    """Median of each record and its predecessors: two of them, in long series up to twenty.

    Non-finite records are left out. Series of less than five records stay as they are.
    """
    if len(values) < 5:
        return list(values)
    before = smoothing(len(values)) - 1
    if all(map(math.isfinite, values)):
        return [median(values[max(0, index - before) : index + 1]) for index in range(len(values))]
    result = []
    for index in range(len(values)):
        window = [v for v in values[max(0, index - before) : index + 1] if math.isfinite(v)]
        result.append(median(window) if window else math.nan)
    return result


def robust_z(value: float, window: Sequence[float]) -> float:
    """0.6745 (x - median) / MAD, with a floor of MAD at 0.1 % of the median."""
    centre = median(window)
    spread = median(abs(v - centre) for v in window)
    return 0.6745 * (value - centre) / max(spread, 1e-3 * abs(centre), 1e-12)


def select_role(role: str, series: Sequence[Series]) -> Series | None:
    """The main series of a role: the best-named one, then the longest."""
    found = [s for s in series if s.role == role]
    if not found:
        return None
    return min(found, key=lambda s: (_preference(s.name, found), s.source, s.attempt))
