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
from typing import Any

from .lines import parse
from .metric_forms import Record, Table, name_of, read_line, step_of
from .metric_names import Name, fold, role_of
from .model import Line, Series

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
    r"Setting OMP_NUM_THREADS environment variable|Starting elastic_operator with launch configs|WORLD INFO DICT"
    r"|\*{5} Running training \*{5}|\[after dataloaders are built\]|will restart worker group|restart_count=[1-9]"
    r"|\bResuming (?:training )?from checkpoint|Loaded checkpoint .{0,200}(?:epoch|iteration)"
)
MAX_SERIES = 4000
"""More names than this in one source are not metrics; further ones are left out."""

Resolver = Callable[[Line], "int | None"]


def may_be_metric(text: str) -> bool:
    return _HINT.search(text) is not None


def has_table(lines: Iterable[str]) -> bool:
    """Whether some line is the header of a table of metrics, so that all lines must be read."""
    table = Table()
    return any(table.header(line) for line in lines)


class _Counter:
    """Where one rank stands: turns counters of any kind into steps that only grow within an attempt."""

    __slots__ = ("attempt", "epoch", "last", "offset", "records", "step")

    def __init__(self) -> None:
        self.attempt = 0
        self.records = 0
        self.last: dict[tuple[str, float | None], tuple[float, float, float, float | None, int]] = {}
        """counter → (first, last, interval, epoch, records) of this attempt."""
        self.offset: dict[tuple[str, float | None], float] = {}
        self.epoch: float | None = None
        self.step: float | None = None

    def restart(self) -> None:
        if self.records:
            self.attempt += 1
            self.records = 0
            self.last.clear()
            self.offset.clear()
            self.epoch = self.step = None

    def move(self, record: Record) -> float | None:
        """The step of the record on the axis of this rank; may open a new attempt."""
        if record.step is None:
            return self.step
        key = (record.counter if record.kind != "epoch" else "epoch", record.total)
        epoch = record.epoch if record.epoch is not None else self.epoch
        value = record.step
        seen = self.last.get(key)
        if seen is not None and value < seen[1]:
            first, last, interval, before, count = seen
            moved_on = epoch is not None and before is not None and epoch > before
            complete = record.total is not None and last >= 0.9 * record.total
            if record.kind != "epoch" and (
                moved_on or (record.epoch is None and (complete or record.kind == "batch"))
            ):
                self.offset[key] = self.offset.get(key, 0.0) + (record.total or last)
                seen = None
            elif last - value > 4 * max(interval, 1.0 if record.kind != "epoch" else 0.0) or (
                value <= first and count >= 3 and last > first
            ):
                self.restart()
                seen = None
            else:
                self.last[key] = (first, last, interval, epoch, count)
                return value + self.offset.get(key, 0.0)
        if seen is None:
            self.last[key] = (value, value, 0.0, epoch, 1)
        else:
            first, last, interval, _, count = seen
            gap = value - last
            if gap > 0:
                interval = gap if interval == 0 else min(interval * 1.5, gap) if gap > interval else gap
            self.last[key] = (first, value, interval, epoch, count + 1)
        if record.epoch is not None:
            self.epoch = record.epoch
        self.step = value + self.offset.get(key, 0.0)
        return self.step


class _Collector:
    """Series under construction."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.data: dict[
            tuple[str, int | None, int], tuple[Name, list[float | None], list[float], list[int]]
        ] = {}

    def add(
        self,
        name: Name,
        rank: int | None,
        attempt: int,
        step: float | None,
        value: float,
        line: int,
        redraw: bool,
    ) -> None:
        key = (name.text, rank, attempt)
        entry = self.data.get(key)
        if entry is None:
            if len(self.data) >= MAX_SERIES:
                return
            entry = self.data[key] = (name, [], [], [])
        _, steps, values, lines = entry
        if redraw and steps and steps[-1] == step:
            values[-1], lines[-1] = value, line
            return
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
    collector = _Collector(source)
    counters: dict[int | None, _Counter] = {}
    table = Table()
    starts = sorted(attempt_starts)
    passed = 0
    for number, text in lines:
        while passed < len(starts) and number >= starts[passed]:
            passed += 1
            for state in counters.values():
                state.restart()
        for part in text.split("\r") if "\r" in text else (text,):
            if part:
                _read_part(part, number, collector, counters, table, default_rank, resolve, first_attempt)
    return collector.finish()


def _read_part(
    text: str,
    number: int,
    collector: _Collector,
    counters: dict[int | None, _Counter],
    table: Table,
    default_rank: int | None,
    resolve: Resolver | None,
    first_attempt: int,
) -> None:
    if len(text) > 65536:
        text = text[:65536]
    hint = _HINT.search(text) is not None
    if not hint and not table.names:
        return
    rank, body = default_rank, text
    if text[0] not in "{ie":
        line = parse(text)
        body = line.body
        found = resolve(line) if resolve is not None else line.rank
        rank = found if found is not None else default_rank
    record = table.row(body) if table.names else None
    if record is None:
        if not hint:
            return
        record = read_line(body)
    if record is None:
        if BANNER.search(text):
            for state in counters.values():
                state.restart()
        else:
            table.header(body)
        return
    if rank is None and record.rank is not None and record.step is not None:
        rank = record.rank
    counter = counters.get(rank)
    if counter is None:
        counter = counters[rank] = _Counter()
        counter.attempt = max((c.attempt for c in counters.values()), default=0)
    step = counter.move(record)
    if not record.pairs:
        return
    counter.records += 1
    attempt = first_attempt + counter.attempt
    for name, value in record.pairs:
        collector.add(name, rank, attempt, step, value, number, record.bar)


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
            from_priority = {"step": 4, "batch": 3, "episode": 2, "epoch": 1}
            if name.kind == "epoch":
                record.epoch = value
            if from_priority[name.kind] > from_priority.get(record.kind or "", 0):
                record.step, record.kind, record.counter = value, name.kind, fold(key)
        else:
            role = role_of(key)
            record.pairs.append((Name(key, "metric", role), value))
    step = counter.move(record)
    counter.records += 1
    for name, value in record.pairs:
        collector.add(name, rank, counter.attempt, step, value, line, False)


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
