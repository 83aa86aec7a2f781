"""Files that hold nothing but metrics: trainer_state.json, CSV, JSON lines."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from .metric_forms import PRIORITY, Record, name_of
from .metric_names import Name, fold, role_of
from .metric_state import Collector, Counter
from .model import Series


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
    collector, counter = Collector(source), Counter()
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
    import csv  # slow to import, and rarely needed

    head = text[:4096]
    delimiter = max(",\t;", key=head.count)
    collector, counter = Collector(source), Counter()
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


def _add_row(collector: Collector, counter: Counter, pairs: Sequence[tuple[str, Any]], line: int, rank: int | None) -> None:
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
