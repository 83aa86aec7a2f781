"""Metric curves of the failing and the fixed run as small inline SVG plots, from the proof record.

Accepted per half and series: `[v, v, …]`, `[[step, v], …]` or `{"steps": […], "values": […]}`;
values may be numbers or the words nan, inf and -inf (JSON has no other way to say them).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from . import markup

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 340, 150, 46, 18, 10, 10
Point = tuple[float, float]


def figures(records: Sequence[tuple[str, Mapping[str, Any]]], most: int = 6) -> list[str]:
    """One block with a plot per series that the failing run recorded."""
    plots: list[str] = []
    for variant, curves in records:
        broken, fixed = curves.get("broken") or {}, curves.get("fixed") or {}
        for name in broken:
            points = _points(broken[name]), _points(fixed.get(name))
            if len(points[0]) >= 2 and len(plots) < most:
                plots.append(_figure(f"{name} ({variant})" if variant else str(name), *points))
    if not plots:
        return []
    return [f'<div class="fb-plots">{"".join(plots)}</div>']


def _points(series: Any) -> list[Point]:
    if isinstance(series, Mapping):
        pairs: list[Any] = list(zip(series.get("steps") or (), series.get("values") or (), strict=False))
    elif isinstance(series, (list, tuple)):
        pairs = [p if isinstance(p, (list, tuple)) and len(p) == 2 else (i, p) for i, p in enumerate(series)]
    else:
        return []
    out = []
    for step, value in pairs:
        try:
            out.append((float(step), float(value)))
        except (TypeError, ValueError):
            continue
    return out


def _figure(name: str, broken: list[Point], fixed: list[Point]) -> str:
    finite = [p for p in broken + fixed if math.isfinite(p[1]) and math.isfinite(p[0])]
    if not finite:
        return ""
    xs, ys = [p[0] for p in finite], [p[1] for p in finite]
    # Six decades in one plot would flatten everything; a log scale keeps both runs readable.
    log = min(ys) > 0 and max(ys) / min(ys) > 1000
    scale = math.log10 if log else float
    low, high = scale(min(ys)), scale(max(ys))
    span = (high - low) or 1.0
    first, last = min(xs), max(p[0] for p in broken + fixed if math.isfinite(p[0]))
    width = (last - first) or 1.0

    def x(step: float) -> float:
        return LEFT + (step - first) / width * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - scale(value)) / span * (HEIGHT - TOP - BOTTOM)

    def path(points: list[Point], css: str) -> str:
        runs, pen = [], "M"
        for step, value in _thin(points):
            if not math.isfinite(value) or (log and value <= 0):
                pen = "M"
                continue
            runs.append(f"{pen}{x(step):.1f} {y(value):.1f}")
            pen = "L"
        return f'<path class="{css}" d="{"".join(runs)}"/>' if runs else ""

    bad = next((p for p in broken if not math.isfinite(p[1])), None)
    mark = ""
    if bad is not None:
        at = x(bad[0])
        flip = ' text-anchor="end"' if at > WIDTH * 0.6 else ""
        mark = (
            f'<line class="fb-plot__bad" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text class="fb-plot__badtext" x="{at + (-4 if flip else 4):.1f}" y="{TOP + 9}"{flip}>'
            f"{'NaN' if math.isnan(bad[1]) else 'infinite'} at {bad[0]:g}</text>"
        )
    label = markup.text(name)
    end_broken, end_fixed = _last(broken), _last(fixed)
    say = f"{label}: failing run ends at {end_broken}" + (f", fixed run at {end_fixed}" if fixed else "")
    return (
        f'<figure class="fb-plot"><figcaption><code>{label}</code>{" (log scale)" if log else ""}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{say}">'
        f'<path class="fb-plot__axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 5}" y="{TOP + 8}" text-anchor="end">{max(ys):.3g}</text>'
        f'<text x="{LEFT - 5}" y="{HEIGHT - BOTTOM}" text-anchor="end">{min(ys):.3g}</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 4}">step {first:g}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{last:g}</text>'
        f"{path(fixed, 'fb-plot__fixed')}{path(broken, 'fb-plot__broken')}{mark}</svg>"
        f'<p class="fb-plot__key"><span class="fb-key--broken">fails: {end_broken}</span>'
        + (f'<span class="fb-key--fixed">fixed: {end_fixed}</span>' if fixed else "")
        + "</p></figure>"
    )


def _last(points: list[Point]) -> str:
    return f"{points[-1][1]:.3g}" if points else "none"


def _thin(points: list[Point], most: int = 160) -> list[Point]:
    """At most `most` points, both ends and every non-finite one kept."""
    if len(points) <= most:
        return points
    every = len(points) / most
    keep = {int(i * every) for i in range(most)} | {len(points) - 1}
    return [p for i, p in enumerate(points) if i in keep or not math.isfinite(p[1])]
