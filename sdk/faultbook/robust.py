"""The median, without `statistics`: that module imports fractions, decimals and random numbers with it."""

from __future__ import annotations

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """As `statistics.median`; raises ValueError without values."""
    ordered = sorted(values)
    size = len(ordered)
    if not size:
        raise ValueError("no median of nothing")
    middle = size // 2
    return ordered[middle] if size % 2 else (ordered[middle - 1] + ordered[middle]) / 2
