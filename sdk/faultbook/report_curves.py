"""The metric series that a diagnosis rests on, and one picture of each (inline SVG, no script)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from . import curves, detectors
from .catalog import Catalog
from .masking import mask_secrets
from .model import Diagnosis, Series
from .render import _clean
from .series import show
from .signatures import MetricSignature
from .values import dataclass

MOST_CURVES = 8
MOST_RANKS = 16
POINTS = 400
"""Points drawn of one line; of more, the least and the greatest of each stretch are kept."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a test of a signature first held."""

    step: float
    value: float
    rank: int | None


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric on all ranks of one attempt."""

    name: str
    attempt: int
    lines: tuple[tuple[int | None, tuple[float, ...], tuple[float, ...]], ...]
    """(rank, steps, values)"""
    marks: tuple[Mark, ...]
    text: str
    """What the detector said, one sentence for each mark."""


def that_mattered(diagnosis: Diagnosis, series: Sequence[Series], catalog: Catalog) -> list[Curve]:
    """The series at which a metric signature of a finding fired; without an entry, those that bend abnormally."""
    firings: list[tuple[str, int, Mark, str]] = []
    for name in dict.fromkeys(e.signature for f in diagnosis.diagnoses for e in f.evidence):
        known = catalog.by_name.get(name)
        if known is not None and isinstance(known.signature, MetricSignature):
            match = detectors.evaluate_signature(known.signature, series)
            for f in match.firings if match is not None else ():
                assert match is not None
                firings.append((f.series, match.attempt, Mark(f.step, f.value, f.rank), f.text))
    if not firings and diagnosis.verdict not in ("healthy", "diagnosed"):
        for bend in curves.curve_findings(series):
            firings.append((bend.series, bend.attempt, Mark(bend.step, bend.value, bend.rank), bend.text))
    found = []
    for name, attempt in list(dict.fromkeys((n, a) for n, a, _, _ in firings))[:MOST_CURVES]:
        own = [s for s in series if (s.name, s.attempt) == (name, attempt)]
        own.sort(key=lambda s: (s.rank is not None, s.rank or 0))
        here = [(mark, text) for n, a, mark, text in firings if (n, a) == (name, attempt)]
        found.append(Curve(
            mask_secrets(name), attempt, tuple((s.rank, s.steps, s.values) for s in own[:MOST_RANKS]),
            tuple(dict.fromkeys(m for m, _ in here)), mask_secrets(" ".join(dict.fromkeys(t for _, t in here))),
        ))  # fmt: skip
    return found


WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 200, 64, 24, 14, 10


def svg(curve: Curve) -> str:
    """The curve as an SVG element; what is not finite is drawn as a tick at the upper edge."""
    points = [(x, y) for _, xs, ys in curve.lines for x, y in zip(xs, ys, strict=True) if math.isfinite(x)]
    finite = [y for _, y in points if math.isfinite(y)]
    if not points:
        return ""
    low_x, high_x = _span([x for x, _ in points])
    logarithmic = bool(finite) and min(finite) > 0 and max(finite) / min(finite) > 1e3
    scaled = [math.log10(y) for y in finite] if logarithmic else finite
    low_y, high_y = _span(scaled or [0.0])

    def at_x(x: float) -> float:
        return LEFT + (x - low_x) / (high_x - low_x) * (WIDTH - LEFT - RIGHT)

    def at_y(y: float) -> float:
        y = math.log10(y) if logarithmic else y
        return HEIGHT - BOTTOM - (y - low_y) / (high_y - low_y) * (HEIGHT - BOTTOM - TOP)

    out = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(_clean(_words(curve)), quote=True)}">',
        f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>',
    ]
    for value in (low_y, (low_y + high_y) / 2, high_y):
        y = HEIGHT - BOTTOM - (value - low_y) / (high_y - low_y) * (HEIGHT - BOTTOM - TOP)
        number = show(10**value if logarithmic and value < 300 else value)
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number}</text>')
    for value, anchor in ((low_x, "start"), (high_x, "end")):
        out.append(f'<text x="{at_x(value):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{show(value)}</text>')
    for color, (rank, xs, ys) in enumerate(curve.lines):
        drawn = _thinned([(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(x)])
        path, pen_down, odd = [], False, []
        for x, y in drawn:
            if math.isfinite(y):
                path.append(f"{'L' if pen_down else 'M'}{at_x(x):.1f} {at_y(y):.1f}")
                if not pen_down:
                    path.append("h0.01")  # a lone point is still seen
                pen_down = True
            else:
                pen_down = False
                odd.append(f"M{at_x(x):.1f} 2v8")
        label = "" if rank is None else f"<title>rank {rank}</title>"
        if path:
            out.append(f'<path class="line c{color % 8}" d="{"".join(path)}">{label}</path>')
        if odd:
            out.append(f'<path class="odd" d="{"".join(odd)}"><title>not finite</title></path>')
    for mark in curve.marks:
        if math.isfinite(mark.step):
            y = at_y(mark.value) if math.isfinite(mark.value) and (mark.value > 0 or not logarithmic) else 6.0
            out.append(f'<circle class="mark" cx="{at_x(mark.step):.1f}" cy="{y:.1f}" r="4"/>')
    out.append("</svg>")
    return "".join(out)


def _words(curve: Curve) -> str:
    return f"{curve.name} over steps. {curve.text}"


def _span(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    low, high = min(known), max(known)
    # Halves: the difference of two huge numbers of opposite sign is not finite.
    if not math.isfinite(high - low):
        low, high = low / 4, high / 4
    return (low - 0.5 * max(abs(low), 1e-12), high + 0.5 * max(abs(high), 1e-12)) if low == high else (low, high)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= POINTS:
        return list(points)
    size = math.ceil(len(points) / (POINTS // 2))
    kept = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        finite = [p for p in part if math.isfinite(p[1])]
        chosen = {part[0]} if not finite else {min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])}
        odd = next((p for p in part if not math.isfinite(p[1])), None)
        if odd is not None:
            chosen.add(odd)
        kept += [p for p in part if p in chosen]
    return kept
