"""Tests over metric series: one detector for each `Test` of the grammar.

Every detector answers with the first record at which its test holds, or None, and says in
its docstring when it is wrong although the numbers are right (`false positives`). All skip the
`warmup` first records of a series, need `patience` consecutive records, and use medians
where one odd record could decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from .benign import Benign, benign
from .curves import CurveFinding, curve_findings, curve_leads
from .model import Series
from .rank_detectors import missing, rank_differs, rank_ratio
from .robust import median
from .series import Firing, Group, earliest, fire, first_run, robust_z, select, show, smooth, smoothing, where
from .signatures import MetricSignature, Predicate
from .values import dataclass

__all__ = [
    "BETWEEN_RANKS",
    "DETECTORS",
    "Benign",
    "CurveFinding",
    "Detector",
    "Firing",
    "MetricMatch",
    "benign",
    "curve_findings",
    "curve_leads",
    "evaluate",
    "evaluate_signature",
]

BETWEEN_RANKS = frozenset({"rank_ratio", "rank_differs"})
SPIKE_WINDOW = 21
"""Records before the one that is judged; at least a third of them must exist."""


@dataclass(frozen=True, slots=True)
class MetricMatch:
    """A metric signature that holds."""

    signature: str
    rank: int | None
    attempt: int
    firings: tuple[Firing, ...]
    """In the order of the signature's predicates."""
    ranks: tuple[int | None, ...] = ()
    """Every rank on which it holds, the earliest first."""
    unknown: tuple[str, ...] = ()
    """Series of `none` predicates that the log does not hold: confidence is lower."""


Detector = Callable[[Predicate, Sequence[Series], int], "Firing | None"]


def _each(predicate: Predicate, series: Sequence[Series], find: Callable[[Series], tuple[int, str] | None]) -> Firing | None:
    firings = []
    for s in select(predicate, series):
        found = find(s)
        firings.append(fire(s, found[0], found[1]) if found is not None else None)
    return earliest(firings)


# The detectors. -----------------------------------------------------------------------------


def nonfinite(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """NaN or infinity for `patience` records.

    False positives: the first logged gradient norm under AMP (skipped steps poison its average);
    interval averages that one bad step made NaN; darknet's `Region` lines over no object.
    """

    def find(s: Series) -> tuple[int, str] | None:
        index = first_run((not math.isfinite(v) for v in s.values), predicate.patience, warmup)
        if index is None:
            return None
        before = [v for v in s.values[:index] if math.isfinite(v)]
        seen = f"after {len(before)} finite records (last {show(before[-1])})" if before else "from the first record on"
        return index, f"{s.name} is {show(s.values[index])} {where(s, index)}, {seen}."

    return _each(predicate, series, find)


def above(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """Greater than `value` for `patience` records (infinity counts, NaN does not).

    False positives: sums instead of means (losses above 1e3 are legal); other units than the author's.
    """
    return _threshold(predicate, series, warmup, lambda v, limit: v > limit, "above")


def below(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """Less than `value` for `patience` records.

    False positives: values rounded to 0 by the print format; other units than the author's.
    """
    return _threshold(predicate, series, warmup, lambda v, limit: v < limit, "below")


def _threshold(
    predicate: Predicate,
    series: Sequence[Series],
    warmup: int,
    test: Callable[[float, float], bool],
    word: str,
) -> Firing | None:
    limit = predicate.value
    if limit is None:
        return None

    def find(s: Series) -> tuple[int, str] | None:
        index = first_run((test(v, limit) for v in s.values), predicate.patience, warmup)
        if index is None:
            return None
        return index, f"{s.name} is {show(s.values[index])} {where(s, index)}, {word} {show(limit)}."

    return _each(predicate, series, find)


def rises(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """At least `factor` (default 2) × the running minimum, of short medians, for `patience` records.

    A rise of less than 5 % of the way fallen before does not count: near 0 every curve has large ratios. Nor does a
    level that one in ten of the last 50 records before the rise reached: such a series is noisy, not risen.
    False positives: warm-up, cyclic schedules and restarts of the learning rate, a curriculum or a change
    of the data; values near 0, where a ratio means little (minima ≤ 0 are never judged).
    """
    factor = predicate.factor or 2.0
    return _extreme(predicate, series, warmup, factor, upward=True)


def falls(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """At most 1/`factor` (default 2) of the running maximum, of short medians, for `patience` records.

    False positives: losses and learning rates fall by design: name a series that should not;
    a loss scale searching downward at the start.
    """
    factor = predicate.factor or 2.0
    return _extreme(predicate, series, warmup, factor, upward=False)


NOISE_WINDOW = 50


def _usual(before: Sequence[float]) -> float:
    """What nine of ten records stay below; no bound where there are too few to tell."""
    finite = sorted(v for v in before if math.isfinite(v))
    return finite[len(finite) * 9 // 10] if len(finite) >= 10 else -math.inf


def _extreme(predicate: Predicate, series: Sequence[Series], warmup: int, factor: float, *, upward: bool) -> Firing | None:
    def find(s: Series) -> tuple[int, str] | None:
        values = s.values[warmup:]
        level, full = smooth(values), smoothing(len(values))
        extreme, at, length, top, usual = math.nan, 0, 0, -math.inf, -math.inf
        for index, value in enumerate(level):
            held = False
            if extreme == extreme and extreme > 0 and value == value:
                held = value >= extreme * factor if upward else value <= extreme / factor
                if upward and held:
                    held = value - extreme >= 0.05 * (top - extreme)
                    if held and length == 0:
                        usual = _usual(values[max(0, index - NOISE_WINDOW) : index])
                    held = held and value > usual
            length = length + 1 if held else 0
            if length >= max(1, predicate.patience):
                first = index - length + 1 + warmup
                verb, word = ("rises to", "minimum") if upward else ("falls to", "maximum")
                return first, (
                    f"{s.name} {verb} {show(s.values[first])} {where(s, first)}, {factor:g}× from its "
                    f"{word} of {show(extreme)} at step {show(s.steps[at + warmup])}."
                )
            top = max(top, value) if value == value else top
            better = value < extreme if upward else value > extreme
            # The first medians are of few records: in a noisy series the smallest of them is chance.
            if value == value and index + 1 >= full and (extreme != extreme or better):
                extreme, at = value, index
        return None

    return _each(predicate, series, find)


def spike(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """Robust z-score over the last 21 records above `z` (default 6), and `factor` × their median if given.

    False positives: restarts of the schedule, a hard batch, short runs (fewer than 8 records are never
    judged), nearly constant series (guarded by a floor of the spread; give `factor` as well).
    """
    limit = predicate.z or 6.0

    def find(s: Series) -> tuple[int, str] | None:
        length = 0
        for index in range(max(warmup, 0), len(s.values)):
            window = [v for v in s.values[max(warmup, index - SPIKE_WINDOW - length) : index - length] if math.isfinite(v)]
            value = s.values[index]
            held = False
            if len(window) >= SPIKE_WINDOW // 3 + 1 and value == value:
                centre = median(window)
                held = (math.isinf(value) and value > 0) or robust_z(value, window) > limit
                held = held and (predicate.factor is None or value >= predicate.factor * centre)
            length = length + 1 if held else 0
            if length >= max(1, predicate.patience):
                first = index - length + 1
                return first, (
                    f"{s.name} jumps to {show(s.values[first])} {where(s, first)}; the median of the "
                    f"{len(window)} records before is {show(median(window))}."
                )
        return None

    return _each(predicate, series, find)


def plateau(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """Range of the last `records` (default 10) within `tolerance` (default 0.5 %) of their median.

    False positives: convergence; a constant true value (learning rate, loss scale); few printed digits.
    """
    size = max(2, predicate.records or 10)
    tolerance = 0.005 if predicate.tolerance is None else predicate.tolerance

    def flat(values: Sequence[float]) -> bool:
        if not all(math.isfinite(v) for v in values):
            return False
        return max(values) - min(values) <= tolerance * max(abs(median(values)), 1e-12)

    def find(s: Series) -> tuple[int, str] | None:
        ends = range(warmup + size, len(s.values) + 1)
        run = first_run((flat(s.values[end - size : end]) for end in ends), predicate.patience)
        if run is None:
            return None
        index = warmup + run
        window = s.values[index : index + size]
        return index, (
            f"{s.name} stays between {show(min(window))} and {show(max(window))} for {size} records from "
            f"step {show(s.steps[index])}{'' if s.rank is None else f' on rank {s.rank}'} on."
        )

    return _each(predicate, series, find)


def equals(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """Within `tolerance` (default 1 %) of `value`, or of ln(`ln_of`), for `patience` records.

    False positives: the first records of a sound run (chance level is the right start: give a warm-up);
    a curve that only passes through the value (give patience).
    """
    target = math.log(predicate.ln_of) if predicate.ln_of else predicate.value
    if target is None:
        return None
    tolerance = 0.01 if predicate.tolerance is None else predicate.tolerance
    margin = tolerance * abs(target) if target else tolerance

    def find(s: Series) -> tuple[int, str] | None:
        index = first_run((abs(v - target) <= margin for v in s.values), predicate.patience, warmup)
        if index is None:
            return None
        meaning = f"ln({predicate.ln_of}) = {show(target)}" if predicate.ln_of else show(target)
        return index, f"{s.name} is {show(s.values[index])} {where(s, index)}, which is {meaning}."

    return _each(predicate, series, find)


def zero(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """0 (or within ± `tolerance`) for `patience` records.

    False positives: GRPO losses (about β × KL, 0 at the start); learning rates before the first scheduler
    step; values that the print format rounds to 0.
    """
    margin = predicate.tolerance or 0.0

    def find(s: Series) -> tuple[int, str] | None:
        index = first_run((abs(v) <= margin for v in s.values), predicate.patience, warmup)
        if index is None:
            return None
        length = 0
        while index + length < len(s.values) and abs(s.values[index + length]) <= margin:
            length += 1
        return index, f"{s.name} is 0 for {length} records from {where(s, index)[3:]} on."

    return _each(predicate, series, find)


def grows(predicate: Predicate, series: Sequence[Series], warmup: int) -> Firing | None:
    """Straight growth over `records` (default 10): R² ≥ 0.95, few falls, total ≥ `factor` (default 1.05) ×.

    False positives: caches that fill, allocators that settle, sequence lengths or batch sizes that grow by
    design; cumulative counters.
    """
    size = max(4, predicate.records or 10)
    factor = predicate.factor or 1.05

    def straight(values: Sequence[float]) -> bool:
        if not all(math.isfinite(v) for v in values) or values[0] < 0 or values[-1] < values[0] * factor:
            return False
        if values[-1] <= values[0] or sum(b < a for a, b in pairwise(values)) > len(values) // 10:
            return False
        n = len(values)
        mean_x, mean_y = (n - 1) / 2, sum(values) / n
        xx = sum((i - mean_x) ** 2 for i in range(n))
        yy = sum((v - mean_y) ** 2 for v in values)
        xy = sum((i - mean_x) * (v - mean_y) for i, v in enumerate(values))
        return yy > 0 and xy * xy / (xx * yy) >= 0.95

    def find(s: Series) -> tuple[int, str] | None:
        ends = range(warmup + size, len(s.values) + 1)
        run = first_run((straight(s.values[end - size : end]) for end in ends), predicate.patience)
        if run is None:
            return None
        index = warmup + run
        return index, (
            f"{s.name} grows steadily from {show(s.values[index])} to {show(s.values[index + size - 1])} in "
            f"{size} records from {where(s, index)[3:]} on."
        )

    return _each(predicate, series, find)


DETECTORS: dict[str, Detector] = {
    "nonfinite": nonfinite,
    "above": above,
    "below": below,
    "rises": rises,
    "falls": falls,
    "spike": spike,
    "plateau": plateau,
    "equals": equals,
    "zero": zero,
    "grows": grows,
    "rank_ratio": rank_ratio,
    "rank_differs": rank_differs,
    "missing": missing,
}


def evaluate(predicate: Predicate, series: Sequence[Series], warmup: int = 0) -> Firing | None:
    """The first record at which the predicate holds, over the series of one or of all ranks."""
    return DETECTORS[predicate.test](predicate, series, warmup)


@dataclass(frozen=True, slots=True)
class Attempt:
    """All series of one attempt, and the same by rank; without a rank by file: they belong to whoever printed it."""

    number: int
    everyone: Group
    ranks: tuple[Group, ...]


def by_attempt(series: Sequence[Series]) -> list[Attempt]:
    """The last attempt first."""
    attempts: dict[int, list[Series]] = {}
    for s in series:
        attempts.setdefault(s.attempt, []).append(s)
    found = []
    for number, here in sorted(attempts.items(), reverse=True):
        owners: dict[tuple[int | None, int], list[Series]] = {}
        for s in here:
            owners.setdefault((s.rank, s.source if s.rank is None else -1), []).append(s)
        ranks = tuple(Group(owners[key]) for key in sorted(owners, key=lambda k: (k[0] is None, k)))
        found.append(Attempt(number, Group(here), ranks))
    return found


def evaluate_signature(sig: MetricSignature, series: Sequence[Series]) -> MetricMatch | None:
    """Whether the signature holds on some rank and attempt: the latest attempt in which it does.

    Predicates between ranks see all ranks of the attempt, the others one rank at a time.
    """
    return evaluate_attempts(sig, by_attempt(series))


def evaluate_attempts(sig: MetricSignature, attempts: Sequence[Attempt]) -> MetricMatch | None:
    """The same for series that many signatures are judged on."""
    for one in attempts:
        attempt, here = one.number, one.everyone
        between = [p for p in (*sig.all, *sig.any, *sig.none) if p.test in BETWEEN_RANKS]
        whole = between and len(between) == len(sig.all) + len(sig.any) + len(sig.none)
        groups = (here,) if whole else one.ranks
        matches = [m for group in groups if (m := _holds(sig, group, here, attempt)) is not None]
        if matches:
            matches.sort(key=lambda m: (m.firings[-1].step, m.firings[-1].line, -1 if m.rank is None else m.rank))
            first = matches[0]
            return MetricMatch(
                first.signature,
                first.rank,
                attempt,
                first.firings,
                tuple(m.rank for m in matches),
                first.unknown,
            )
    return None


def _holds(sig: MetricSignature, group: Sequence[Series], everyone: Sequence[Series], attempt: int) -> MetricMatch | None:
    def run(predicate: Predicate) -> Firing | None:
        return evaluate(predicate, everyone if predicate.test in BETWEEN_RANKS else group, sig.warmup)

    firings: list[Firing] = []
    for predicate in sig.all:
        firing = run(predicate)
        if firing is None:
            return None
        if sig.ordered and firings and _before(firing, firings[-1]):
            return None
        firings.append(firing)
    if sig.any:
        some = [f for p in sig.any if (f := run(p)) is not None]
        if not some:
            return None
        firings.extend(some)
    unknown: list[str] = []
    for predicate in sig.none:
        if run(predicate) is not None:
            return None
        if predicate.test != "missing" and not select(predicate, group):
            unknown.append(predicate.series[0])
    if not firings:
        return None
    ranks = {f.rank for f in firings}
    rank = next(iter(ranks)) if len(ranks) == 1 else firings[-1].rank
    return MetricMatch(sig.id, rank, attempt, tuple(firings), (rank,), tuple(unknown))


def _before(later: Firing, earlier: Firing) -> bool:
    """Whether the second predicate held before the first: by line within a file, else by step."""
    if later.source == earlier.source:
        return later.line < earlier.line
    return later.step < earlier.step
