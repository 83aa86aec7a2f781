"""While a run goes on: `watch` follows its logs, `Monitor` is fed with its numbers."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import detectors, metric_names
from .catalog import Catalog, load_catalog
from .diagnosis import diagnose
from .model import Diagnosis, Series
from .signatures import MetricSignature
from .values import dataclass, replace

BUSY_SHARE = 0.2
"""Looking may take at most this share of the time, however large the logs have grown."""


def watch(
    paths: Sequence[str | os.PathLike[str]],
    *,
    every: float = 5.0,
    idle: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Diagnosis]:
    """Yields a diagnosis whenever there is a finding (or a verdict of failure) that was not reported before.

    Files may grow, be rotated or replaced, and appear later in a watched folder; a last line without line end
    is looked at like any other, because the last line of a hung job has none. `idle`: end after so many
    seconds without new bytes (never, by default).
    """
    catalog = load_catalog()
    reported: set[tuple[str, int | None]] = set()
    before: dict[str, tuple[int, int, int]] = {}
    changed_at = clock()
    while True:
        now = _state(paths)
        if now != before:
            before, changed_at = now, clock()
            started = clock()
            answer = diagnose(*paths, catalog=catalog)
            spent = clock() - started
            news = [f for f in answer.diagnoses if (f.entry, f.rank) not in reported]
            failed = answer.verdict in ("unrecognised", "stopped") and (answer.verdict, None) not in reported
            if (news and answer.verdict == "diagnosed") or failed:
                reported |= {(f.entry, f.rank) for f in answer.diagnoses}
                reported.add((answer.verdict, None))
                yield replace(answer, diagnoses=tuple(news) or answer.diagnoses)
        else:
            spent = 0.0
        if idle is not None and clock() - changed_at >= idle:
            return
        sleep(max(every, spent / BUSY_SHARE))


def _state(paths: Sequence[str | os.PathLike[str]]) -> dict[str, tuple[int, int, int]]:
    """Path → (inode, size, mtime): a rotated file has another inode, a truncated one another size."""
    found: dict[str, tuple[int, int, int]] = {}
    for path in paths:
        path = os.fspath(path)
        names = [path]
        if os.path.isdir(path):
            names = [os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files]
        for name in names:
            try:
                seen = os.stat(name)
            except OSError:
                continue
            found[name] = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
    return found


@dataclass(frozen=True, slots=True)
class Alert:
    """A metric signature that began to hold."""

    entry: str
    title: str
    signature: str
    step: float
    text: str


class Monitor:
    """Fed with a run's numbers, says when they begin to look like a known failure.

    >>> monitor = Monitor()
    >>> for alert in monitor.update(step, loss=loss, grad_norm=norm): ...   # doctest: +SKIP

    Keeps at most `history` records a series; looks at the signatures every `every` records. It never raises
    for what it is fed: what is no number is left out.
    """

    def __init__(self, catalog: Catalog | None = None, *, every: int = 10, history: int = 5000, rank: int | None = None) -> None:
        self._catalog = catalog or load_catalog()
        self._signatures = [s for s in self._catalog.signatures if isinstance(s.signature, MetricSignature)]
        self._every = max(1, every)
        self._history = history
        self._rank = rank
        self._records: dict[str, tuple[list[float], list[float]]] = {}
        self._count = 0
        self._told: set[str] = set()

    def update(self, step: float, **metrics: Any) -> list[Alert]:
        """Adds one record; returns what is newly found (mostly nothing). Numbers, or anything with `float()`."""
        bad = False
        for name, value in metrics.items():
            try:
                number = float(value)
            except (TypeError, ValueError, RuntimeError):
                continue
            bad = bad or not math.isfinite(number)
            steps, values = self._records.setdefault(name, ([], []))
            steps.append(float(step))
            values.append(number)
            if len(values) > self._history:
                del steps[0], values[0]
        self._count += 1
        return self.check() if bad or self._count % self._every == 0 else []

    def check(self) -> list[Alert]:
        """Looks at all signatures now."""
        series = []
        for name, (steps, values) in self._records.items():
            lines = tuple(range(1, len(values) + 1))
            series.append(Series(name, metric_names.role_of(name), 0, self._rank, 0, tuple(steps), tuple(values), lines))
        alerts = []
        for item in self._signatures:
            signature = item.signature
            if item.name in self._told or not isinstance(signature, MetricSignature) or signature.role != "root":
                continue
            match = detectors.evaluate_signature(signature, series)
            if match is not None:
                self._told.add(item.name)
                last = match.firings[-1]
                text = " ".join(f.text for f in match.firings)
                alerts.append(Alert(item.entry, self._catalog.entries[item.entry]["title"], signature.id, last.step, text))
        return alerts
