"""Metric series of a run's log, and whether a metric signature holds on them.

Both are the engine's own; this is only the shape in which the runner wants them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from faultbook.detectors import evaluate_signature
from faultbook.metrics import read_series
from faultbook.model import Series
from faultbook.signatures import MetricSignature

MAX_POINTS = 200
MAX_SERIES = 12


def series_of(text: str) -> list[Series]:
    return read_series(enumerate(text.split("\n"), 1))


def metric_firing(
    signature: MetricSignature, series: Sequence[Series]
) -> tuple[bool, tuple[int, ...], float | None]:
    """(holds, lines of the evidence, step at which it first held)"""
    match = evaluate_signature(signature, series)
    if match is None:
        return False, (), None
    lines = tuple(dict.fromkeys(f.line for f in match.firings))
    return True, lines, max((f.step for f in match.firings), default=None)


def thinned_curves(text: str) -> list[dict[str, Any]]:
    """Small curves for a plot: at most 200 points of a series, extremes kept, not finite as text."""
    curves = []
    for series in series_of(text)[:MAX_SERIES]:
        if len(series.values) < 3:
            continue
        chosen = thin(series.values, MAX_POINTS)
        curves.append(
            {
                "name": series.name,
                "rank": series.rank,
                "steps": [series.steps[i] for i in chosen],
                "values": [_number(series.values[i]) for i in chosen],
            }
        )
    return curves


def thin(values: Sequence[float], most: int) -> list[int]:
    """Indices of at most `most` points: first, last, and the lowest and highest of equal slices."""
    if len(values) <= most:
        return list(range(len(values)))
    slices = (most - 2) // 2
    chosen = {0, len(values) - 1}
    for number in range(slices):
        start, end = number * len(values) // slices, (number + 1) * len(values) // slices
        part = range(start, end)
        chosen.add(min(part, key=lambda i: _order(values[i])))
        chosen.add(max(part, key=lambda i: _order(values[i])))
    return sorted(chosen)


def _order(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _number(value: float) -> float | str:
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)
