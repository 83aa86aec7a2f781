"""Metric curves of the failing and the fixed run as small inline SVG plots, from the proof record.

A record holds, per half, a list of `{"name", "rank", "steps", "values"}`; values may be numbers or
the words nan, inf and -inf (JSON has no other way to say them).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from . import markup
from .catalogue import Run

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 340, 150, 50, 18, 10, 10
PER_VARIANT = 3
Line = list[tuple[float, float]]


def figures(runs: Sequence[Run], wanted: Collection[str]) -> list[str]:
    """A block of plots: the series that signatures look at first. Ranks share a plot."""
    plots: list[str] = []
    for run in runs:
        broken, fixed = _series(run.broken), _series(run.fixed)
        names = [n for n in broken if n in wanted] + [n for n in broken if n == "loss" and n not in wanted]
        if len(runs) == 1 or not plots:
            names += [n for n in broken if n not in names and len(broken[n]) == 1]
        for name in names[:PER_VARIANT]:
            plots.append(_figure(f"{name} ({run.variant})" if run.variant else name, broken[name], fixed.get(name, [])))
    drawn = "".join(plots)
    return [f'<div class="fb-plots">{drawn}</div>'] if drawn else []


def _series(half: Mapping[str, Any]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for curve in half.get("curves") or ():
        points: Line = []
        for step, value in zip(curve.get("steps") or (), curve.get("values") or (), strict=False):
            try:
                points.append((float(step), float(value)))
            except (TypeError, ValueError):
                continue
        if len(points) >= 2:
            found.setdefault(str(curve.get("name", "")), []).append(points)
    return found


def _figure(name: str, broken: list[Line], fixed: list[Line]) -> str:
    everything = [p for line in broken + fixed for p in line if math.isfinite(p[0])]
    finite = [p[1] for p in everything if math.isfinite(p[1])]
    if not finite:
        return ""
    least, most = min(finite), max(finite)
    above_zero = [v for v in finite if v > 0]
    # Several decades in one plot would flatten everything; a log scale keeps both runs readable.
    log = least >= 0 and bool(above_zero) and most / min(above_zero) > 1000
    floor = max(min(above_zero), most * 1e-9) if log else least

    def scale(value: float) -> float:
        return math.log10(max(value, floor)) if log else value

    low, high = scale(floor), scale(most)
    span = (high - low) or 1.0
    first, last = min(p[0] for p in everything), max(p[0] for p in everything)
    width = (last - first) or 1.0

    def x(step: float) -> float:
        return LEFT + (step - first) / width * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - scale(value)) / span * (HEIGHT - TOP - BOTTOM)

    def path(points: Line, css: str) -> str:
        runs, pen = [], "M"
        for step, value in _thin(points):
            if not math.isfinite(value):
                pen = "M"
                continue
            runs.append(f"{pen}{x(step):.1f} {y(value):.1f}")
            pen = "L"
        return f'<path class="{css}" d="{"".join(runs)}"/>' if runs else ""

    bad = next((p for line in broken for p in line if not math.isfinite(p[1])), None)
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
        f'<text x="{LEFT - 5}" y="{TOP + 8}" text-anchor="end">{most:.3g}</text>'
        f'<text x="{LEFT - 5}" y="{HEIGHT - BOTTOM}" text-anchor="end">{floor:.3g}</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 4}">step {first:g}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{last:g}</text>'
        + "".join(path(line, "fb-plot__fixed") for line in fixed)
        + "".join(path(line, "fb-plot__broken") for line in broken)
        + f"{mark}</svg>"
        f'<p class="fb-plot__key"><span class="fb-key--broken">fails: {end_broken}</span>'
        + (f'<span class="fb-key--fixed">fixed: {end_fixed}</span>' if fixed else "")
        + "</p></figure>"
    )


def _last(lines: list[Line]) -> str:
    return ", ".join(dict.fromkeys(f"{line[-1][1]:.3g}" for line in lines)) or "none"


def _thin(points: Line, most: int = 160) -> Line:
    """At most `most` points, both ends and every non-finite one kept."""
    if len(points) <= most:
        return points
    every = len(points) / most
    keep = {int(i * every) for i in range(most)} | {len(points) - 1}
    return [p for i, p in enumerate(points) if i in keep or not math.isfinite(p[1])]
