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
from .sources import SourceError
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

    Files may grow, be rotated (renamed, or copied and truncated), and appear later, the paths themselves included; a last
    line without line end is looked at like any other, because the last line of a hung job has none. What was reported
    is reported again only if it is found in what a file holds anew. `idle`: end after so many seconds without new bytes
    (never, by default).
    """
    catalog = load_catalog()
    reported: dict[tuple[str, int | None], set[str]] = {}
    before: dict[str, _Seen] = {}
    changed_at = clock()
    while True:
        now = _state(paths)
        spent = 0.0
        if now != before:
            _forget(reported, _begun_anew(before, now))
            before, changed_at = now, clock()
            answer = _look(paths, now, catalog)
            spent = clock() - changed_at
            if answer is not None:
                news = [f for f in answer.diagnoses if (f.entry, f.rank) not in reported]
                failed = answer.verdict in ("unrecognised", "stopped") and (answer.verdict, None) not in reported
                if (news and answer.verdict == "diagnosed") or failed:
                    for finding in answer.diagnoses:
                        reported[finding.entry, finding.rank] = {e.file for e in finding.evidence}
                    where = answer.first_abnormal["file"] if answer.first_abnormal else ""
                    reported[answer.verdict, None] = {where} - {""}
                    yield replace(answer, diagnoses=tuple(news) or answer.diagnoses)
        if idle is not None and clock() - changed_at >= idle:
            return
        sleep(max(every, spent / BUSY_SHARE))


_Seen = tuple[tuple[int, int], int, int]
"""((device, inode), size, mtime): a rotated file has another inode, a truncated one a smaller size."""


def _look(paths: Sequence[str | os.PathLike[str]], now: dict[str, _Seen], catalog: Catalog) -> Diagnosis | None:
    """None while there is nothing to read yet: no such file, or none in the folder that is a log."""
    there = [p for p in paths if os.fspath(p) in now or os.path.isdir(p)]
    try:
        return diagnose(*there, catalog=catalog) if there else None
    except SourceError:  # it may become one, and a file may go between two looks
        return None


def _begun_anew(before: dict[str, _Seen], now: dict[str, _Seen]) -> set[str]:
    """Files whose former content is out of sight: truncated, or replaced while the old one is nowhere among the watched."""
    still = {key for key, _, _ in now.values()}
    found = set()
    for path, (key, size, _) in before.items():
        seen = now.get(path)
        truncated = seen is not None and seen[0] == key and seen[1] < size
        if truncated or ((seen is None or seen[0] != key) and key not in still):
            found.add(path)
    return found


def _forget(reported: dict[tuple[str, int | None], set[str]], anew: set[str]) -> None:
    """Findings all of whose evidence stood in such files may be reported again; evidence names files as they were given,
    or as they are called within a folder."""
    for key, files in list(reported.items()):
        if files and all(any(path == f or path.endswith(os.sep + f) for path in anew) for f in files):
            del reported[key]


def _state(paths: Sequence[str | os.PathLike[str]]) -> dict[str, _Seen]:
    found: dict[str, _Seen] = {}
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
            found[name] = ((seen.st_dev, seen.st_ino), seen.st_size, seen.st_mtime_ns)
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
