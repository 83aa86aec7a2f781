"""Metrics that experiment trackers keep on disk: TensorBoard event files, MLflow runs, offline runs of Weights & Biases.

MLflow writes text or SQLite, which the standard library reads. Event files go through TensorBoard's own reader (extra
`tracking`; it needs no TensorFlow). W&B's file is a log in LevelDB's framing that holds protocol buffers; the wandb
package shipped a reader for it once and does so no longer, and of a record we need three fields, so they are read here.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any

from . import lazy
from .metric_forms import Record, name_of
from .metric_names import Name
from .metric_state import Collector
from .model import Series, Source

MOST_POINTS = 2_000_000
"""Values of one source that are read."""
PATIENCE = 10.0
"""Seconds that a data base gets to answer: what is in it is as untrusted as a log."""
HINT = "needs {}: pip install 'faultbook[tracking]'"

_RUN = lazy.regex(r"/[0-9a-f]{32}/metrics(?:/(.+))?$")
_PRIVATE = lazy.regex(
    r"/[0-9a-f]{32}/(?:params|tags|inputs|outputs)$|/wandb/latest-run$|/(?:offline-)?run-\d{8}_\d{6}-[^/]+/(?:logs|tmp)$"
)
_PRIVATE_FILE = lazy.regex(
    r"/wandb/debug[^/]*\.log$|/(?:offline-)?run-\d{8}_\d{6}-[^/]+/files/(?:requirements\.txt|wandb-[^/]+\.json|conda-[^/]+)$"
)


class TrackingError(Exception):
    """What was kept cannot be read; one clear line."""


def format_of(path: str) -> str:
    """The tracker that keeps such a file (or, of MLflow, a run's folder of metrics); empty for all else."""
    base = os.path.basename(path).lower()
    if base.endswith((".gz", ".zst", ".zstd")):
        return ""  # the readers want the file itself
    if "tfevents" in base:
        return "tensorboard"
    if base.endswith(".wandb"):
        return "wandb"
    if base.endswith((".db", ".sqlite", ".sqlite3")):
        return "mlflow_db"
    return "mlflow" if _RUN.search(_absolute(path)) else ""


def obstacle(path: str) -> str:
    """Why such a file cannot be read here; empty when it can."""
    kind = format_of(path)
    if kind == "tensorboard":
        import importlib.util  # slow to import, and rarely needed

        return "" if importlib.util.find_spec("tensorboard") else HINT.format("tensorboard")
    if kind == "mlflow_db":
        try:
            with open(path, "rb") as file:
                if file.read(16) != b"SQLite format 3\0":
                    return "not a log: data base"
            return "" if _tables(path) else "not a log: data base"
        except (TrackingError, OSError) as error:
            return str(error)
    return ""


def private(path: str) -> bool:
    """A file or folder that a tracker keeps for itself: parameters, tags, its own logs."""
    path = _absolute(path)
    return bool(_PRIVATE.search(path) or _PRIVATE_FILE.search(path))


def read(source: Source) -> tuple[list[Series], str]:
    """The series of one source, and what must be said about how they were read."""
    assert source.path is not None
    reader = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow_folder, "mlflow_db": _mlflow_db}
    points = _Points(source)
    try:
        note = reader[format_of(source.path)](source.path, points)
    except TrackingError as error:
        note = str(error)
    except Exception as error:  # damaged, or too slow; what was read before stands
        note = f"read only in part: {type(error).__name__}: {str(error)[:80]}"
    if points.left_out:
        note = note or f"only the first {MOST_POINTS:,} values were read"
    return points.collector.finish(), note


class _Points:
    """Values by name, in the order in which they were recorded."""

    def __init__(self, source: Source) -> None:
        self.rank = source.rank
        self.collector = Collector(source.index)
        self.count = 0
        self.left_out = False

    def add(self, name: str, step: float, value: float, line: int) -> None:
        self.count += 1
        if self.count > MOST_POINTS:
            self.left_out = True
            return
        known = name_of(name)
        if known is not None and known.kind in ("metric", "plain"):
            self.collector.add(Record([(Name(name, known.kind, known.role), value)]), self.rank, 0, step, line)


def _absolute(path: str) -> str:
    return os.path.abspath(path).replace(os.sep, "/")


# --- TensorBoard ---


def _tensorboard(path: str, points: _Points) -> str:
    try:
        from tensorboard.backend.event_processing.event_file_loader import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            EventFileLoader,
        )
        from tensorboard.util.tensor_util import make_ndarray  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise TrackingError(HINT.format("tensorboard")) from None
    for number, event in enumerate(EventFileLoader(path).Load(), 1):
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "scalars" and value.HasField("tensor"):
                points.add(value.tag, float(event.step), float(make_ndarray(value.tensor).item()), number)
        if points.left_out:
            break
    return ""


# --- MLflow ---


def _mlflow_folder(path: str, points: _Points) -> str:
    """`<run>/metrics/<name>`: a line is `milliseconds value step` (no step in old ones); names may hold slashes."""
    one_file: list[tuple[str, list[str], list[str]]] = [(os.path.dirname(path), [], [os.path.basename(path)])]
    for folder, folders, files in os.walk(path) if os.path.isdir(path) else one_file:
        folders.sort()
        for file in sorted(files):
            full = os.path.join(folder, file)
            name = _RUN.split(_absolute(full))[1]
            with open(full, encoding="utf-8", errors="replace") as lines:
                for number, line in enumerate(lines, 1):
                    cells = line[:200].split()
                    try:
                        value = float(cells[1])
                        step = float(cells[2]) if len(cells) > 2 else float(number)
                    except (IndexError, ValueError):
                        continue
                    points.add(name, step, value, number)
                    if points.left_out:
                        return ""
    return ""


def _connect(path: str) -> Any:
    """Read-only, with a limit on time: a view in a foreign data base can be an endless query."""
    try:
        import sqlite3
    except ImportError:
        raise TrackingError("needs a Python with sqlite3") from None
    try:
        connection = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=2)
        connection.execute("PRAGMA trusted_schema=OFF")
    except sqlite3.Error as error:
        raise TrackingError(f"cannot be read: {error}") from None
    deadline = time.monotonic() + PATIENCE
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    return connection


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(_absolute(path))


def _tables(path: str) -> bool:
    """Whether the tables of MLflow's tracking store are there (tables, not views)."""
    with contextlib.closing(_connect(path)) as connection:
        try:
            rows = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('metrics', 'runs')"
            ).fetchall()
        except Exception as error:  # sqlite3.Error, and what a damaged schema makes of it
            raise TrackingError(f"cannot be read: {str(error)[:100]}") from None
    return len(rows) == 2


def _mlflow_db(path: str, points: _Points) -> str:
    """The run that was started last: a store collects the runs of months."""
    with contextlib.closing(_connect(path)) as connection:
        runs = connection.execute(
            "SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time DESC, run_uuid LIMIT 2"
        ).fetchall()
        if not runs:
            return "MLflow's store holds no run"
        rows = connection.execute(
            'SELECT "key", value, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, step, "key"', (runs[0][0],)
        )
        for number, (name, value, step, is_nan) in enumerate(rows, 1):
            # NaN is a flag there, and infinity the greatest number.
            shown = float("nan") if is_nan else float("inf") * (1 if value > 0 else -1) if abs(value) > 1.7e308 else float(value)
            points.add(str(name), float(step), shown, number)
            if points.left_out:
                break
    return f"of several runs only the last one started, {str(runs[0][1])[:80]}, was read" if len(runs) > 1 else ""


# --- Weights & Biases ---

_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
_HISTORY, _ITEM, _STEP = 2, 1, 2
"""Field numbers of Record and HistoryRecord in wandb_internal.proto; they never change in a protocol buffer."""


def _wandb(path: str, points: _Points) -> str:
    number = 0
    with open(path, "rb") as file:
        if file.read(4) != b":W&B":
            raise TrackingError("not a run of W&B")
        file.seek(0)
        for record in _leveldb_records(file):
            number += 1
            for field, value in _fields(record):
                if field == _HISTORY and isinstance(value, bytes):
                    _history(value, points, number)
            if points.left_out:
                break
    return ""


def _history(data: bytes, points: _Points, line: int) -> None:
    """One call of `run.log`."""
    pairs: list[tuple[str, Any]] = []
    step: float | None = None
    for field, value in _fields(data):
        if field == _STEP and isinstance(value, bytes):
            step = next((float(v) for f, v in _fields(value) if f == 1 and isinstance(v, int)), 0.0)
        elif field == _ITEM and isinstance(value, bytes):
            keys: list[str] = []
            said = b""
            for inner, text in _fields(value):
                if inner in (1, 2) and isinstance(text, bytes):
                    keys.append(text.decode("utf-8", "replace"))
                elif inner == 16 and isinstance(text, bytes):
                    said = text
            pairs.append(("/".join(keys), said))
    numbers: list[tuple[str, float]] = []
    for name, said in pairs:
        try:
            logged = json.loads(said)
        except (ValueError, RecursionError):
            continue
        if logged in ("NaN", "Infinity", "-Infinity") or (isinstance(logged, (int, float)) and not isinstance(logged, bool)):
            with contextlib.suppress(OverflowError):  # an integer of absurd length
                numbers.append((name, float(logged)))
    own = next((number for name, number in numbers if name == "_step"), None)
    step = own if own is not None else step if step is not None else float(line)
    for name, number in numbers:
        if not name.startswith("_"):
            points.add(name, step, number, line)


def _leveldb_records(file: Any) -> Iterator[bytes]:
    """Records of a log in LevelDB's framing: blocks of 32 KiB, a record in one piece (1) or in several (2, 3…, 4)."""
    position = 7  # W&B's own header
    parts: list[bytes] = []
    while True:
        left = _BLOCK - position % _BLOCK
        if left < _HEADER.size:
            position += left
            continue
        file.seek(position)
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return
        _, length, kind = _HEADER.unpack(head)
        data = file.read(length)
        if kind not in (1, 2, 3, 4) or len(data) < length:
            return  # the end of what was written; a run that is killed leaves half a record
        position += _HEADER.size + length
        parts = [data] if kind in (1, 2) else [*parts, data]
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


def _fields(data: bytes) -> Iterable[tuple[int, int | bytes]]:
    """(number, value) of a protocol buffer's fields; fixed-width values as bytes. Ends where it makes no sense."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            if at <= end:
                yield tag >> 3, value
            continue
        size = 8 if wire == 1 else 4 if wire == 5 else -1
        if wire == 2:
            size, at = _varint(data, at)
        if size < 0 or at + size > end:
            return
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, position behind it); behind the end where it is cut or too long."""
    result = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
    return 0, len(data) + 1
