"""What torchelastic leaves behind: error files and summary blocks.

There is one block per node and attempt, and they disagree: nothing here decides who was
guilty. Exit codes, pids, ranks and hosts stand together only here, so the maps from pid
and local rank to global rank come from these blocks first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from . import lazy
from .exceptions import Raised, Text
from .tracebacks import from_callstack
from .values import dataclass, replace

MAX_ERROR_FILE = 4 << 20


@dataclass(frozen=True, slots=True)
class ErrorFile:
    """One error.json, whoever wrote it."""

    message: str
    callstack: str
    timestamp: int | None
    raised: Raised | None


@dataclass(frozen=True, slots=True)
class Failure:
    """One process in a summary block."""

    rank: int | None
    local_rank: int | None
    host: str | None
    exitcode: int | None
    pid: int | None
    signal: str | None
    time: str | None
    error_file: str | None
    raised: Raised | None
    root: bool
    """Listed under `Root Cause (first observed failure)`."""
    line: int

    @property
    def told_to_stop(self) -> bool:
        """Ended by the launcher's own SIGTERM: a victim, whatever its traceback says."""
        return self.exitcode in (-15, 143)


@dataclass(frozen=True, slots=True)
class Summary:
    """One `… FAILED` block."""

    failures: tuple[Failure, ...]
    source: int
    first: int
    last: int
    attempt: int = 0

    @property
    def root(self) -> Failure | None:
        return next((f for f in self.failures if f.root), None)


def read_error_file(text: str) -> ErrorFile | None:
    """error.json of torchelastic (any version) and of writers that put plain strings there."""
    if len(text) > MAX_ERROR_FILE:
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    inner = data.get("message", data)
    message, callstack, stamp = "", "", data.get("timestamp")
    if isinstance(inner, str):
        message = inner
    elif isinstance(inner, dict):
        said = inner.get("message", "")
        message = said if isinstance(said, str) else json.dumps(said)[:4000]
        extra = inner.get("extraInfo")
        if isinstance(extra, dict):
            stack = extra.get("py_callstack", "")
            callstack = stack if isinstance(stack, str) else ""
            stamp = extra.get("timestamp", stamp)
        stamp = inner.get("timestamp", stamp)
    stack = data.get("py_callstack") or data.get("traceback")
    if not callstack and isinstance(stack, str):
        callstack = stack
    if not callstack and "Traceback (most recent call last)" in message:
        callstack = message
    timestamp = (
        int(float(stamp))
        if isinstance(stamp, (int, float)) or (isinstance(stamp, str) and re.fullmatch(r"\d{1,12}(\.\d{0,9})?", stamp))
        else None
    )
    if not message and not callstack:
        return None
    raised = from_callstack(callstack, message)
    return ErrorFile(message, callstack, timestamp, replace(raised, origin="error_json") if raised else None)


_HEAD = lazy.regex(r"^={10,}\s*$")
_FAILED = lazy.regex(r"^(?P<name>.{0,300}) FAILED\s*$")
_ROOT = lazy.regex(r"^Root Cause \(first observed failure\):")
_ITEM = lazy.regex(r"^\[(?P<index>\d{1,6})\]:\s*$")
_FIELD = lazy.regex(r"^  (?P<key>time|host|rank|exitcode|error_file|traceback) *: ?(?P<value>.*)$")
_RANK = lazy.regex(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,5})\)")
_EXIT = lazy.regex(r"(?P<code>-?\d{1,5}) \(pid: (?P<pid>\d{1,9})\)(?:\s*\((?P<signal>\w+)\))?")


def read_summaries(texts: Sequence[Text], source: int) -> list[Summary]:
    """Every summary block in one writer's lines."""
    found: list[Summary] = []
    position = 0
    while position < len(texts):
        if _FAILED.match(texts[position].body) or texts[position].body.startswith("Failures:"):
            block, position = _read_block(texts, position, source)
            if block is not None:
                found.append(block)
        else:
            position += 1
    return found


def _read_block(texts: Sequence[Text], start: int, source: int) -> tuple[Summary | None, int]:
    failures: list[Failure] = []
    root = False
    current: dict[str, str] = {}
    stack: list[str] = []
    first_line = item_line = texts[start].line
    in_stack = False
    position = start + 1

    def finish() -> None:
        if current:
            failures.append(_failure(current, stack, root_of_item, item_line))

    root_of_item = False
    while position < len(texts):
        line, body = texts[position].line, texts[position].body
        field = _FIELD.match(body)
        if _HEAD.match(body):
            if failures or current:
                position += 1
                break
        elif _ROOT.match(body):
            root, in_stack = True, False
        elif _ITEM.match(body):
            finish()
            current, stack, in_stack = {}, [], False
            root_of_item, item_line = root, line
        elif field and not (in_stack and body.startswith("    ")):
            current.setdefault(field["key"], field["value"])
            in_stack = field["key"] == "traceback"
            if in_stack:
                stack = [field["value"]]
        elif in_stack and (body.startswith("  ") or not body.strip()):
            stack.append(body[2:])
        elif body.startswith(("Failures:", "----")) or not body.strip() or body.strip() == "(no other failures)":
            in_stack = False
        elif _FAILED.match(body) or (not in_stack and position - start > 4 and not current):
            break
        elif not body.startswith(" ") and (failures or current):
            break  # the closing line was cut off
        position += 1
    finish()
    if not failures:
        return None, position
    return Summary(tuple(failures), source, first_line, texts[min(position, len(texts)) - 1].line), position


def _failure(fields: dict[str, str], stack: Iterable[str], root: bool, line: int) -> Failure:
    rank = _RANK.search(fields.get("rank", ""))
    exit_ = _EXIT.search(fields.get("exitcode", ""))
    text = "\n".join(stack)
    raised = from_callstack(text) if "Traceback (most recent call last)" in text else None
    error_file = fields.get("error_file", "").strip()
    return Failure(
        rank=int(rank["rank"]) if rank else None,
        local_rank=int(rank["local"]) if rank else None,
        host=fields.get("host", "").strip() or None,
        exitcode=int(exit_["code"]) if exit_ else None,
        pid=int(exit_["pid"]) if exit_ else None,
        signal=exit_["signal"] if exit_ else None,
        time=fields.get("time", "").strip() or None,
        error_file=error_file if error_file and error_file != "<N/A>" else None,
        raised=replace(raised, origin="summary") if raised else None,
        root=root,
        line=line,
    )


def pid_ranks(summaries: Iterable[Summary]) -> dict[int, int]:
    """pid → global rank, from all blocks."""
    return {f.pid: f.rank for s in summaries for f in s.failures if f.pid is not None and f.rank is not None}
