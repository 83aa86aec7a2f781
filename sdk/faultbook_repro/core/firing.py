"""Whether a signature fires on a run's log: the engine's own parts, applied to one text.

No search over all signatures happens here: a claim about one entry is tested against
that entry's log alone. What the whole catalogue says about it is the confusion matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from faultbook import fact_lines
from faultbook import lines as line_parser
from faultbook.matching import Key, Observation, evaluate, key_of
from faultbook.model import Series
from faultbook.portable import compile_pattern
from faultbook.signatures import LogSignature, MetricSignature, Signature

from .metrics import metric_firing, series_of


@dataclass(frozen=True, slots=True)
class Firing:
    """What one signature found in one log."""

    fired: bool
    lines: tuple[int, ...] = ()
    """1-based lines of the evidence."""
    step: float | None = None
    """Metric signatures: the step at which it first held."""


def firings(signatures: Iterable[Signature], text: str, world_size: int = 1) -> dict[str, Firing]:
    """Signature id → what it found in `text`."""
    signatures = list(signatures)
    logs = [s for s in signatures if isinstance(s, LogSignature)]
    found = dict.fromkeys((s.id for s in signatures), Firing(False))
    for match in evaluate(logs, observe(logs, text), all_ranks=frozenset(range(world_size))):
        name = match.signature.id
        if not found[name].fired:
            found[name] = Firing(True, tuple(seen.line for seen in match.evidence))
    series: list[Series] | None = None
    for signature in signatures:
        if isinstance(signature, MetricSignature):
            if series is None:
                series = series_of(text)
            held, evidence, step = metric_firing(signature, series)
            found[signature.id] = Firing(held, evidence, step)
    return found


def observe(signatures: Iterable[LogSignature], text: str) -> dict[Key, list[Observation]]:
    """The lines of `text` that each pattern matches, with the rank their prefix names."""
    asked = [p for s in signatures for p in (*s.all, *s.any, *s.none)]
    patterns = {key_of(p): compile_pattern(p) for p in asked if not fact_lines.is_virtual(p)}
    seen: dict[Key, list[Observation]] = fact_lines.observe_text(asked, text)
    for number, line in enumerate(text.split("\n"), 1):
        data = line.encode("utf-8", "replace")
        for key, pattern in patterns.items():
            if pattern.search(data):
                parsed = line_parser.parse(line)
                seen.setdefault(key, []).append(
                    Observation(
                        source=0,
                        line=number,
                        text=line,
                        rank=parsed.rank,
                        host=parsed.host,
                        time=parsed.time,
                        clock=parsed.clock,
                    )
                )
    return seen
