"""Decides which log signatures hold, from confirmed lines that already know their rank and attempt.

Metric signatures are decided by `detectors.evaluate_signature`; this module is about lines.
Lines are grouped by (attempt, rank). A line whose rank is unknown is visible to every rank of its
attempt, because launchers, kernels and schedulers print about ranks without naming them, but a
group made of such lines alone never names a rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from . import lazy
from .portable import compile_pattern
from .signatures import Comparison, LogSignature, Pattern, Ranks
from .values import dataclass, field

Key = tuple[str, bool]
"""A pattern's identity for the scan: text and case flag; equal patterns are scanned once."""

MAX_STARTS = 60
"""Chains tried per group; beyond that more of the same lines change nothing."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A confirmed line with what is known about where it came from."""

    source: int
    line: int
    text: str
    rank: int | None = None
    host: str | None = None
    attempt: int = 0
    time: float | None = None
    clock: str | None = None


@dataclass(frozen=True, slots=True)
class LogMatch:
    """A signature that holds for one rank (or for unnamed lines) of one attempt."""

    signature: LogSignature
    rank: int | None
    attempt: int
    evidence: tuple[Observation, ...]
    captures: Mapping[str, str] = field(default_factory=dict)
    certain: bool = True
    """False when a `none` could not be decided because the log is cut, folded or capped."""


def key_of(pattern: Pattern) -> Key:
    return (pattern.pattern, pattern.ignore_case)


def evaluate(
    signatures: Iterable[LogSignature],
    observations: Mapping[Key, Sequence[Observation]],
    *,
    all_ranks: frozenset[int] = frozenset(),
    incomplete: Callable[[int | None], bool] = lambda rank: False,
) -> list[LogMatch]:
    """All matches of all signatures.

    `observations` holds the confirmed lines of each pattern, `all_ranks` the ranks known to exist
    (for the quantifier `all`), `incomplete(rank)` says whether that rank's log is cut or missing.
    """
    matches: list[LogMatch] = []
    for signature in signatures:
        # Cheap way out: most signatures have not a single line.
        if not any(observations.get(key_of(p)) for p in (*signature.all, *signature.any)):
            continue
        found = _by_group(signature, observations, incomplete)
        if signature.ranks is not None:
            found = _quantified(signature.ranks, found, all_ranks)
        matches.extend(found)
    return matches


def _by_group(
    signature: LogSignature,
    observations: Mapping[Key, Sequence[Observation]],
    incomplete: Callable[[int | None], bool],
) -> list[LogMatch]:
    attempts: dict[int, set[int | None]] = defaultdict(set)
    for pattern in (*signature.all, *signature.any):
        for seen in observations.get(key_of(pattern), ()):
            attempts[seen.attempt].add(seen.rank)
    found: list[LogMatch] = []
    for attempt in sorted(attempts):
        ranks = sorted(r for r in attempts[attempt] if r is not None)
        for rank in [None, *ranks]:
            match = _in_group(signature, observations, attempt, rank)
            if match is None:
                continue
            evidence, captures = match
            if rank is not None and not any(seen.rank == rank for seen in evidence):
                continue  # nothing of this rank's own took part
            none_certain = not (signature.none and incomplete(rank))
            found.append(LogMatch(signature, rank, attempt, evidence, captures, none_certain))
            if rank is None:
                # Lines that name no rank already satisfy it; ranks would only repeat them.
                continue
    return found


def _in_group(
    signature: LogSignature,
    observations: Mapping[Key, Sequence[Observation]],
    attempt: int,
    rank: int | None,
) -> tuple[tuple[Observation, ...], dict[str, str]] | None:
    def lines_of(pattern: Pattern) -> list[Observation]:
        return [
            seen
            for seen in observations.get(key_of(pattern), ())
            if seen.attempt == attempt and (seen.rank is None or seen.rank == rank)
        ]

    if any(lines_of(p) for p in signature.none):
        return None
    required = [lines_of(p) for p in signature.all]
    for pattern, lines in zip(signature.all, required, strict=True):
        if len(lines) < pattern.at_least:
            return None
    optional = [(p, lines_of(p)) for p in signature.any]
    optional = [(p, lines) for p, lines in optional if len(lines) >= p.at_least]
    if signature.any and not optional:
        return None
    if not required:
        required = [[seen for _, lines in optional for seen in lines]]
        patterns: list[tuple[Pattern, ...]] = [tuple(p for p, _ in optional)]
    else:
        patterns = [(p,) for p in signature.all]
        if optional:
            required.append([seen for _, lines in optional for seen in lines])
            patterns.append(tuple(p for p, _ in optional))
    for start in required[0][:MAX_STARTS]:
        chain = _chain(start, required, signature)
        if chain is None:
            continue
        captures: dict[str, str] = {}
        for seen, options in zip(chain, patterns, strict=True):
            captures.update(_captures(seen.text, options))
        if all(compare(c, captures) for c in signature.where):
            return _with_repeats(chain, required, signature), captures
    return None


def _chain(
    start: Observation, required: list[list[Observation]], signature: LogSignature
) -> list[Observation] | None:
    """One line per pattern that keeps order and distance, beginning with `start`; nearest lines first."""
    chain = [start]
    for lines in required[1:]:
        here = [seen for seen in lines if _near(start, seen, signature)]
        if signature.ordered:
            here = [seen for seen in here if _after(chain[-1], seen)]
        if not here:
            return None
        chain.append(min(here, key=lambda seen: (seen.source != start.source, abs(seen.line - start.line))))
    return chain


def _near(a: Observation, b: Observation, signature: LogSignature) -> bool:
    within = signature.within
    if within is None:
        return True
    if within.lines is not None and (a.source != b.source or abs(a.line - b.line) > within.lines):
        return False
    if within.seconds is not None:
        if a.time is None or b.time is None or a.clock != b.clock:
            return False
        return abs(a.time - b.time) <= within.seconds
    return True


def _after(a: Observation, b: Observation) -> bool:
    if a.source == b.source:
        return b.line >= a.line
    if a.time is not None and b.time is not None and a.clock == b.clock:
        return b.time >= a.time
    return True  # two files without a common clock: order unknown, not refuted


def _with_repeats(
    chain: list[Observation], required: list[list[Observation]], signature: LogSignature
) -> tuple[Observation, ...]:
    """The chain, and for counted patterns the last of the counted lines, as evidence."""
    evidence = list(dict.fromkeys(chain))
    for pattern, lines in zip(signature.all, required, strict=False):
        if pattern.at_least > 1 and lines[-1] not in evidence:
            evidence.append(lines[-1])
    return tuple(evidence)


def _captures(text: str, patterns: Sequence[Pattern]) -> dict[str, str]:
    for pattern in patterns:
        found = compile_pattern(pattern).search(text.encode("utf-8", "replace"))
        if found:
            return {k: v.decode("utf-8", "replace") for k, v in found.groupdict().items() if v is not None}
    return {}


def _quantified(ranks: Ranks, found: list[LogMatch], all_ranks: frozenset[int]) -> list[LogMatch]:
    """Keeps an attempt's matches only if the set of ranks that match fulfils the quantifier."""
    kept: list[LogMatch] = []
    for attempt in sorted({m.attempt for m in found}):
        here = [m for m in found if m.attempt == attempt]
        named = {m.rank for m in here if m.rank is not None}
        if ranks.quantifier == "exactly_one":
            holds = len(named) == 1 or (not named and len(here) == 1)
        elif ranks.quantifier == "at_least":
            holds = len(named) >= (ranks.count or 1)
        elif ranks.quantifier == "all":
            holds = bool(named) and named >= all_ranks
        else:
            hosts = {seen.host for m in here for seen in m.evidence if seen.rank is not None}
            holds = len(named) > 1 and len(hosts) == 1 and None not in hosts
        if holds:
            kept.extend(here)
    return kept


_UNITS = {
    "": 1.0, "b": 1.0, "bytes": 1.0,
    "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "k": 1024.0, "m": 1024.0**2, "g": 1024.0**3, "t": 1024.0**4,
    "kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3, "tib": 1024.0**4,
}  # fmt: skip
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6,
            "m": 60.0, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0}  # fmt: skip
_QUANTITY = lazy.regex(r"\s*([-+]?[0-9][0-9,]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z]*)")


def quantity(text: str, type: str) -> float | None:
    """`"3.05 GiB"` → bytes, `"600000 ms"` → seconds, `"1,024"` → 1024.0; None when it is none."""
    found = _QUANTITY.match(text)
    if not found:
        return None
    number = float(found[1].replace(",", ""))
    if type == "number":
        return number
    factor = (_UNITS if type == "bytes" else _SECONDS).get(found[2].lower())
    return None if factor is None else number * factor


def compare(comparison: Comparison, captures: Mapping[str, str]) -> bool:
    """Whether it holds; a missing or unreadable side never does."""
    left = captures.get(comparison.left)
    right = captures.get(comparison.right, comparison.right) if isinstance(comparison.right, str) else comparison.right
    if left is None:
        return False
    if comparison.type == "text":
        return {"==": left == str(right), "!=": left != str(right)}.get(comparison.op, False)
    a = quantity(left, comparison.type)
    b = quantity(right, comparison.type) if isinstance(right, str) else float(right)
    if a is None or b is None:
        return False
    b *= comparison.factor
    ops = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}
    return ops[comparison.op]
