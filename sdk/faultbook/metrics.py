"""Metric lines → series of (step, value) by name, rank and attempt.

Attempts: a new one begins (a) at a line number that the caller gives, (b) at a launcher's
or trainer's banner once records were read, (c) when the step counter falls back by more
than four logging intervals or to where the attempt began. A counter that restarts
because its epoch moved on, or because it had reached its printed total, is the same attempt.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .lines import parse
from .metric_forms import PRIORITY, Record, Table, name_of, read_line, step_of
from .metric_names import Name, fold, role_of
from .model import Line, Series
from .skeletons import Plans, follow

__all__ = [
    "METRIC_HINTS",
    "has_table",
    "may_be_metric",
    "read_series",
    "role_of",
    "series_from_file",
    "step_of",
]

METRIC_HINTS: tuple[str, ...] = (
    "loss",
    "grad",
    "norm",
    "reward",
    "accuracy",
    "acc:",
    "acc=",
    "perplexity",
    "ppl",
    "learning",
    "entropy",
    "scale",
    "tokens/s",
    "tok/s",
    "it/s",
    "s/it",
    "samples/s",
    "samplespersec",
    "throughput",
    "usage",
    "iteration",
    "iter",
    "step",
    "epoch",
    " kl",
    "/kl",
    "mfu",
    "mem",
    " avg",
)
"""Lower-case literals: every line that holds a metric holds one of them (rows of tables do
not: see `has_table`). For a coarse filter before `read_series`, which judges each line itself."""

_HINT = re.compile("|".join(re.escape(h) for h in METRIC_HINTS), re.IGNORECASE)
BANNER = re.compile(
    r"Setting OMP_NUM_THREADS environment variable|Starting elastic_operator with launch configs"
    r"|WORLD INFO DICT|\*{5} Running training \*{5}|will restart worker group|restart_count=[1-9]"
    r"|\bResuming (?:training )?from checkpoint|Loaded checkpoint .{0,200}(?:epoch|iteration)"
)
MAX_RECORD = 65536
"""Characters of a record that are looked at."""
MAX_SERIES = 4000
"""More names than this in one source are not metrics; further ones are left out."""

Resolver = Callable[[Line], "int | None"]


def may_be_metric(text: str) -> bool:
    return _HINT.search(text) is not None


def has_table(lines: Iterable[str]) -> bool:
    """Whether some line is the header of a table of metrics, so that all lines must be read."""
    table = Table()
    return any(table.header(line) for line in lines)


@dataclass(slots=True)
class _Seen:
    """One counter (its name and total) within an attempt."""

    first: float
    last: float
    interval: float = 0.0
    epoch: float | None = None
    records: int = 1
    line: int = 0
    offset: float = 0.0
    """Steps of finished rounds of a counter that restarts with each epoch."""


class _Counter:
    """Where one rank stands: turns counters of any kind into steps that only grow within an attempt."""

    __slots__ = ("attempt", "epoch", "records", "seen", "step")

    def __init__(self) -> None:
        self.attempt = 0
        self.records = 0
        self.seen: dict[tuple[str, float | None], _Seen] = {}
        self.epoch: float | None = None
        self.step: float | None = None

    def restart(self) -> None:
        if self.records:
            self.attempt += 1
            self.records = 0
            self.seen.clear()
            self.epoch = self.step = None

    def move(self, record: Record, line: int) -> float | None:
        """The step of the record on the axis of this rank; may open a new attempt."""
        value = record.step
        if value is None:
            return self.step
        key = (record.counter if record.kind != "epoch" else "epoch", record.total)
        epoch = record.epoch if record.epoch is not None else self.epoch
        seen = self.seen.get(key)
        if seen is not None and value <= seen.last:
            if self._new_round(record, seen, epoch, line):
                seen.offset += record.total or seen.last
                seen.first, seen.last, seen.records = value, value, 0
            elif value < seen.last:
                fallen = seen.last - value > 4 * max(seen.interval, 0.0 if record.kind == "epoch" else 1.0)
                if fallen or (value <= seen.first and seen.records >= 3 and seen.last > seen.first):
                    self.restart()
                    seen = None
                else:
                    # Two loops that count in turn, or ranks that print into one file.
                    return value + seen.offset
        if seen is None:
            seen = self.seen[key] = _Seen(value, value, line=line, epoch=epoch)
        else:
            gap = value - seen.last
            if gap > 0:
                seen.interval = min(gap, seen.interval * 1.5) if seen.interval else gap
            seen.last, seen.epoch, seen.line = value, epoch, line
            seen.records += 1
        if record.epoch is not None:
            self.epoch = record.epoch
        self.step = value + seen.offset
        return self.step

    @staticmethod
    def _new_round(record: Record, seen: _Seen, epoch: float | None, line: int) -> bool:
        """Whether a counter that did not grow restarted within the same attempt."""
        if record.kind == "epoch":
            return False
        if epoch is not None and seen.epoch is not None and epoch > seen.epoch:
            return record.step != seen.last or record.kind == "batch"
        if record.epoch is not None or epoch is not None:
            return False
        if record.step == seen.last:
            return record.bar and record.step == record.total and line != seen.line
        complete = record.total is not None and seen.last >= 0.9 * record.total
        return complete or record.kind == "batch"


class _Collector:
    """Series under construction."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.data: dict[
            tuple[str, int | None, int], tuple[Name, list[float | None], list[float], list[int]]
        ] = {}

    def add(self, record: Record, rank: int | None, attempt: int, step: float | None, line: int) -> None:
        data, redraw = self.data, record.bar
        for name, value in record.pairs:
            key = (name.text, rank, attempt)
            entry = data.get(key)
            if entry is None:
                if len(data) >= MAX_SERIES:
                    continue
                entry = data[key] = (name, [], [], [])
            _, steps, values, lines = entry
            if redraw and steps and steps[-1] == step:
                values[-1], lines[-1] = value, line
            else:
                steps.append(step)
                values.append(value)
                lines.append(line)

    def finish(self) -> list[Series]:
        result = []
        for (text, rank, attempt), (name, steps, values, lines) in self.data.items():
            if len(values) == 1 and steps[0] is None and name.role in ("lr", "temperature", None):
                continue  # a setting that was printed once
            result.append(
                Series(
                    name=text,
                    role=name.role,
                    source=self.source,
                    rank=rank,
                    attempt=attempt,
                    steps=_axis(steps),
                    values=tuple(values),
                    lines=tuple(lines),
                )
            )
        return result


def _axis(steps: Sequence[float | None]) -> tuple[float, ...]:
    """Steps as printed, or record numbers where none are or many records share one."""
    known = [s for s in steps if s is not None]
    if len(known) < len(steps) or len(set(known)) * 2 <= len(known):
        return tuple(float(i) for i in range(len(steps)))
    return tuple(known)


def read_series(
    lines: Iterable[tuple[int, str]],
    source: int = 0,
    default_rank: int | None = None,
    *,
    resolve: Resolver | None = None,
    attempt_starts: Sequence[int] = (),
    first_attempt: int = 0,
) -> list[Series]:
    """Reads the series of one source from its lines, or from those that `METRIC_HINTS` admit.

    `default_rank` is the rank of lines that name none; `resolve` turns a parsed line into
    a global rank (`RankMap.resolve`); `attempt_starts` are line numbers at which the caller
    knows that a new attempt begins.
    """
    reader = _Reader(source, default_rank, resolve, first_attempt)
    starts = sorted(attempt_starts)
    passed = 0
    for number, text in lines:
        if passed < len(starts):
            while passed < len(starts) and number >= starts[passed]:
                passed += 1
                reader.restart()
        if "\r" in text:
            for part in text.split("\r"):
                if part:
                    reader.read(part, number)
        elif text:
            reader.read(text, number)
    return reader.collector.finish()


class _Reader:
    """One pass over the lines of one source."""

    def __init__(self, source: int, default_rank: int | None, resolve: Resolver | None, first: int) -> None:
        self.collector = _Collector(source)
        self.counters: dict[int | None, _Counter] = {}
        self.table = Table()
        self.plans = Plans()
        self.default_rank, self.resolve, self.first = default_rank, resolve, first

    def restart(self) -> None:
        for counter in self.counters.values():
            counter.restart()

    def read(self, text: str, line: int) -> None:
        """Reads one physical record (a line, or one redraw of it)."""
        if self.table.names:
            self._read_fully(text, line, None)
            return
        key = self.plans.key(text)
        plan = self.plans.find(key) if key is not None else None
        if plan is None:
            self._read_fully(text, line, key)
        elif not plan.nothing:
            followed = follow(plan, text)
            if followed is None:
                self._read_fully(text, line, None)
            else:
                self._take(followed[0], followed[1], line)

    def _read_fully(self, text: str, line: int, key: str | None) -> None:
        text = text[:MAX_RECORD]
        hint = _HINT.search(text) is not None
        if not hint and not self.table.names:
            return
        rank, body, fixed = None, text, True
        if text[0] not in "{ie":
            parsed = parse(text)
            rank, body = parsed.rank, parsed.body
            if rank is None and self.resolve is not None:
                rank = self.resolve(parsed)
                fixed = parsed.pid is None and parsed.local_rank is None and parsed.task is None
        record = self.table.row(body) if self.table.names else None
        if record is not None:
            key = None
        elif hint:
            record = read_line(body)
        if record is None:
            if BANNER.search(text):
                self.restart()
                return
            if hint and self.table.header(body):
                return
        if key is not None and fixed and hint:
            self.plans.learn(key, text, body, record, rank)
        if record is not None:
            self._take(record, rank, line)

    def _take(self, record: Record, rank: int | None, line: int) -> None:
        if rank is None:
            rank = self.default_rank
            if rank is None and record.rank is not None and record.step is not None:
                rank = record.rank
        counter = self.counters.get(rank)
        if counter is None:
            counter = _Counter()
            counter.attempt = max((c.attempt for c in self.counters.values()), default=0)
            self.counters[rank] = counter
        step = counter.move(record, line)
        if record.pairs:
            counter.records += 1
            self.collector.add(record, rank, self.first + counter.attempt, step, line)


# Files that hold nothing but metrics. ----------------------------------------------------


def series_from_file(data: bytes | str, kind: str, source: int = 0, rank: int | None = None) -> list[Series]:
    """Series of a metrics file: `trainer_state` (JSON with `log_history`), `csv`, `jsonl`, or `auto`."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if kind == "auto":
        head = text.lstrip()[:1]
        kind = "csv" if head not in "{[" else "trainer_state" if '"log_history"' in text else "jsonl"
    if kind == "csv":
        return _from_csv(text, source, rank)
    records: list[tuple[int, Any]] = []
    if kind == "trainer_state":
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError):
            return []
        history = whole.get("log_history") if isinstance(whole, dict) else whole
        marks = [n for n, line in enumerate(text.splitlines(), 1) if line.strip() == "{"][1:]
        if isinstance(history, list):
            records = [(marks[i] if i < len(marks) else i + 1, row) for i, row in enumerate(history)]
    else:
        for index, line in enumerate(text.splitlines(), 1):
            try:
                records.append((index, json.loads(line)))
            except (ValueError, RecursionError):
                continue
    collector, counter = _Collector(source), _Counter()
    for index, row in records:
        if isinstance(row, dict):
            _add_row(collector, counter, [(str(k), v) for k, v in _flat(row)], index, rank)
    return collector.finish()


def _flat(row: dict[str, Any], prefix: str = "", depth: int = 0) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in row.items():
        if isinstance(value, dict) and depth < 3:
            pairs.extend(_flat(value, f"{prefix}{key}/", depth + 1))
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs


def _from_csv(text: str, source: int, rank: int | None) -> list[Series]:
    head = text[:4096]
    delimiter = max(",\t;", key=head.count)
    collector, counter = _Collector(source), _Counter()
    names: list[str] = []
    try:
        for index, row in enumerate(csv.reader(io.StringIO(text), delimiter=delimiter), 1):
            if not names:
                names = [cell.strip() for cell in row]
            else:
                _add_row(collector, counter, list(zip(names, row, strict=False)), index, rank)
    except csv.Error:
        pass  # what was read so far stands
    return collector.finish()


def _add_row(
    collector: _Collector, counter: _Counter, pairs: Sequence[tuple[str, Any]], line: int, rank: int | None
) -> None:
    record = Record()
    for key, raw in pairs:
        name = name_of(key)
        value = _plain_number(raw)
        if name is None or value is None:
            continue
        if name.kind in ("step", "batch", "epoch", "episode"):
            if name.kind == "epoch":
                record.epoch = value
            if PRIORITY[name.kind] > PRIORITY[record.kind]:
                record.step, record.kind, record.counter = value, name.kind, fold(key)
        else:
            role = role_of(key)
            record.pairs.append((Name(key, "metric", role), value))
    step = counter.move(record, line)
    counter.records += 1
    collector.add(record, rank, counter.attempt, step, line)


def _plain_number(raw: Any) -> float | None:
    if isinstance(raw, bool) or raw is None:
        return None
    if isinstance(raw, (int, float)):
        try:
            return float(raw)
        except OverflowError:
            return None
    if isinstance(raw, str):
        try:
            return float(raw.strip())
        except ValueError:
            return None
    return None
