"""One log line → what its stacked prefixes say, and the message that is left.

`parse` peels prefixes in a loop (`2: node-1.nolog [stderr] [rank18]:[E909 …`), after the
table in `prefixes`. Global rank, local rank, rank within a group, Slurm task, CUDA device
and node are different numbers and stay apart: a number that is not known to be a global
rank never becomes `Line.rank`. `rankmap` turns the others into global ranks where lines
carry both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from . import lazy
from .model import Line
from .prefixes import FACTS, HIGHEST, PREFIXES, Prefix

LOOK = 400
"""Prefixes are looked for in this many first characters; the message may have any length."""
MESSAGE = 4096
"""Facts in the message are looked for in this many characters."""
DEPTH = 12
"""Greatest number of stacked prefixes."""

_SGR = r"(?:\d|2[1-9]|3\d|4[0-9]|9[0-7]|10[0-7]|38;[25];[\d;]{1,12}|48;[25];[\d;]{1,12})"
_ANSI = lazy.regex(r"\x1b(?:\[[0-9;?]{0,24}[ -/]?[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78MDEc])")
_ANSI_LOST = lazy.regex(rf"(?<!\[)\[{_SGR}(?:;{_SGR}){{0,4}}m")
_LOST_MARK = lazy.regex(rf"\[(?:0|39|22)?m|\[{_SGR}m\(")
_RANK_INSIDE = lazy.regex(r"\[rank(\d{1,6})\]:")
_FOLDED = lazy.regex(r"\[repeated (\d{1,9})x across (?:cluster|all nodes)\]")
_COORDINATE = lazy.regex(r"(?<![A-Za-z])(DP|TP|PP|EP|CP|SP)_?(\d{1,5})")
_MONTHS = {m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)}
# Days before each month of a leap year, so that 29 February has a place of its own.
_DAYS_BEFORE = (0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
YEAR = 366 * 86400.0
"""Length of the year on year-less clocks."""
YEARLESS = frozenset({"glog", "month-day", "syslog"})
_LETTER_LEVEL = {
    "V": "DEBUG",
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "F": "FATAL",
    "C": "CRITICAL",
    "WARN": "WARNING",
}
# Words of JSON log records that hold the text, and those that hold the rank.
_JSON_TEXT = ("message", "log", "msg", "text")


def strip_ansi(text: str) -> str:
    """The text without terminal codes, also those that lost their ESC byte (`[36m(…)[0m`)."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "m" in text and "[" in text and _LOST_MARK.search(text):
        text = _ANSI_LOST.sub("", re.sub(r"\[m(?![\w])", "", text))
    return text


_MANY = 1500
"""From so many lines on, one expression for all rows of a first character pays for being compiled."""
_GROUP = lazy.regex(r"\(\?P<(\w+)>")


class _Head:
    """The rows that can begin with one character, in table order."""

    __slots__ = ("asked", "merged", "names", "rows")

    def __init__(self, rows: tuple[Prefix, ...]) -> None:
        self.rows = rows
        self.asked = 0
        self.merged: re.Pattern[str] | None = None
        self.names: tuple[tuple[tuple[str, str], ...], ...] = ()
        """For each row: its groups, and what they are called in the merged expression."""

    def match(self, text: str, position: int, first: bool) -> tuple[Prefix, Mapping[str, str], int] | None:
        """The first row that matches there, its groups that hold something, and its end; `first`: none matched before."""
        if self.merged is None:
            self.asked += 1
            if self.asked > _MANY:
                self._merge()
        if self.merged is not None:
            merged = self.merged.match(text, position)
            if merged is None:
                return None
            number = int((merged.lastgroup or "row0")[3:])
            row = self.rows[number]
            if first or row.name != "srun":
                return row, {n: value for n, inner in self.names[number] if (value := merged[inner])}, merged.end()
        for row in self.rows:
            if row.needs and row.needs not in text:
                continue
            match = row.regex.match(text, position)
            if match is not None and (first or row.name != "srun"):
                return row, {n: value for n, value in match.groupdict().items() if value}, match.end()
        return None

    def _merge(self) -> None:
        """The rows as alternatives of one expression: there, too, the first that matches wins."""
        parts = []
        for number, row in enumerate(self.rows):
            inner = _GROUP.sub(rf"(?P<\1_{number}>", row.regex.pattern)
            parts.append(f"(?P<row{number}>{f'(?i:{inner})' if row.regex.flags & re.IGNORECASE else inner})")
        self.names = tuple(
            tuple((name, f"{name}_{number}") for name in row.regex.groupindex) for number, row in enumerate(self.rows)
        )
        self.merged = re.compile("|".join(parts), re.ASCII)


def _by_head() -> dict[str, _Head]:
    """First character → the rows that can begin with it, in table order."""
    heads: dict[str, list[Prefix]] = {}
    for row in PREFIXES:
        for head in row.heads:
            chars = {
                "a": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_",
                "0": "0123456789",
            }.get(head, head)
            for char in chars:
                heads.setdefault(char, []).append(row)
    return {char: _Head(tuple(rows)) for char, rows in heads.items()}


_ROWS = _by_head()
_NEEDLES = lazy.regex("|".join(re.escape(n) for n in dict.fromkeys(f.needle for f in FACTS)))


def parse(text: str) -> Line:
    """Peels every prefix of one line. Never raises; unknown forms leave the fields empty."""
    text = strip_ansi(text)
    if text.startswith("{"):
        line = _parse_json(text)
        if line is not None:
            return line
    found: dict[str, Any] = {}
    end = _peel(text[:LOOK], found)
    body = text[end:] if end else text
    if "rank" not in found or found["trust"] < HIGHEST:
        inner = _RANK_INSIDE.search(text, 0, 160) if text.find("[rank", 0, 160) >= 0 else None
        if inner is not None:
            found["rank"], found["trust"] = int(inner[1]), HIGHEST
            if inner.start() >= end:
                # What stands before is a collector's own form; the record begins at the rank.
                rest = text[inner.end() :]
                at = _peel(rest[:LOOK], found)
                body = rest[at:] if at else rest.removeprefix(" ")
    _read_facts(body, found)
    folded = 0
    if "[repeated " in text:
        match = _FOLDED.search(text)
        if match is not None:
            folded = int(match[1])
            body = (body.replace(match[0], "", 1)).rstrip()
    if not found:
        return Line(body=body, folded=folded)
    host = found.get("host")
    clock = found.get("clock")
    return Line(
        body=body,
        rank=found.get("rank"),
        local_rank=found.get("local"),
        group_rank=found.get("group"),
        task=found.get("task"),
        host=host,
        pid=found.get("pid"),
        device=found.get("device"),
        stream=found.get("stream"),
        time=found.get("time"),
        clock=f"{clock}@{host}" if clock and host else clock,
        level=found.get("level"),
        folded=folded,
        coordinates=found.get("coordinates", {}),
    )


def _peel(text: str, found: dict[str, Any]) -> int:
    """Matches rows from the left as long as one matches; returns where the message begins."""
    end = position = 0
    size = len(text)
    for _ in range(DEPTH):
        while position < size and text[position] in " \t":
            position += 1
        if position >= size:
            break
        head = _ROWS.get(text[position])
        match = head.match(text, position, not end) if head is not None else None
        if match is None:
            break
        row, groups, end = match
        _apply(row, groups, found)
        position = end
    return end


def _apply(row: Prefix, groups: Mapping[str, str], found: dict[str, Any]) -> None:
    for key, value in groups.items():
        if key in ("rank", "rank2"):
            if row.trust > found.get("trust", 0):
                found["rank"], found["trust"] = int(value), row.trust
        elif key in ("local", "group", "task", "device"):
            found.setdefault(key, int(value))
        elif key == "pid":
            if len(value) <= 8:  # longer ones are thread ids (older torch, absl)
                found["pid"] = int(value)
        elif key == "host":
            found.setdefault("host", value)
        elif key == "file":
            name = [part for part in value.split(".") if any(c.isdigit() for c in part)]
            if name:
                found.setdefault("host", name[-1])
        elif key == "level":
            found["level"] = _LETTER_LEVEL.get(value, value)
        elif key in ("coords", "name"):
            coordinates = {k.lower(): int(v) for k, v in _COORDINATE.findall(value)}
            if coordinates:
                found["coordinates"] = coordinates
    if row.stream or "stream" in groups:
        found.setdefault("stream", row.stream or groups["stream"])
    if row.clock:
        _read_time(row.clock, groups, found)


def _read_time(layout: str, groups: Mapping[str, str], found: dict[str, Any]) -> None:
    """The innermost stamp wins: the outer one is the collector's, the inner one the process's own."""
    if layout in ("boot", "unix"):
        found["time"], found["clock"] = float(groups[layout]), layout
        return
    month = _MONTHS.get(groups.get("mon", ""), 0) or int(groups.get("M", 0))
    day, hour = int(groups.get("D", 0)), int(groups.get("h", 0))
    minute, second = int(groups.get("m", 0)), int(groups.get("s", 0))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return
    fraction = float("0." + groups.get("f", "0"))
    year = groups.get("Y")
    if year is None:
        days = _DAYS_BEFORE[month] + day - 1
        found["time"] = days * 86400 + hour * 3600 + minute * 60 + second + fraction
        found["clock"] = layout
        return
    time = _days(int(year), month, day) * 86400 + hour * 3600 + minute * 60 + second + fraction
    zone = groups.get("z")
    if zone and zone != "Z":
        sign = -1 if zone[0] == "-" else 1
        time -= sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    found["time"], found["clock"] = time, "utc" if zone else layout


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 (`calendar.timegm` would import dates and locales)."""
    past = year - 1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    before = _DAYS_BEFORE[month] - (month > 2 and not leap)
    return past * 365 + past // 4 - past // 100 + past // 400 + before + day - 719163


def _read_facts(body: str, found: dict[str, Any]) -> None:
    """What the message itself says about ranks, hosts and processes."""
    head = body if len(body) <= MESSAGE else body[:MESSAGE] + body[-MESSAGE:]
    if _NEEDLES.search(head) is None:
        return
    for fact in FACTS:
        if fact.needle not in head:
            continue
        match = fact.regex.search(head)
        if match is None:
            continue
        groups = match.groupdict()
        rank = groups.get("rank")
        if rank is not None and fact.trust > found.get("trust", 0):
            found["rank"], found["trust"] = int(rank), fact.trust
        for key in ("local", "task", "device"):
            if groups.get(key) is not None:
                found.setdefault(key, int(groups[key]))
        if groups.get("pid"):
            # A launcher or kernel line is about that process, not about its writer.
            found["pid"] = int(groups["pid"])
        if groups.get("host"):
            found.setdefault("host", groups["host"])
        if groups.get("process"):
            found["coordinates"] = {**found.get("coordinates", {}), "process": int(groups["process"])}
        if fact.stream:
            found.setdefault("stream", fact.stream)


def _parse_json(text: str) -> Line | None:
    """A JSON log record: its text field parsed as a line, its other fields added."""
    if len(text) > 65536 or '"' not in text or not any(f'"{key}"' in text for key in _JSON_TEXT):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    message = next((record[k] for k in _JSON_TEXT if isinstance(record.get(k), str)), None)
    if message is None:
        return None
    inner = parse(message.rstrip("\n")) if not message.startswith("{") else Line(body=message)
    time, clock = inner.time, inner.clock
    stamp = record.get("time", record.get("timestamp", record.get("asctime", record.get("ts"))))
    if time is None and isinstance(stamp, str):
        outer = parse(stamp + " .")
        time, clock = outer.time, outer.clock
    elif time is None and isinstance(stamp, (int, float)) and not isinstance(stamp, bool) and stamp > 1e9:
        time, clock = float(stamp) / (1000 if stamp > 1e11 else 1), "unix"

    def number(*keys: str) -> int | None:
        for key in keys:
            value = record.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000_000:
                return value
            if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 8:
                return int(value)
        return None

    def word(*keys: str) -> str | None:
        return next((record[k] for k in keys if isinstance(record.get(k), str) and record[k]), None)

    return Line(
        body=inner.body,
        rank=inner.rank if inner.rank is not None else number("rank", "global_rank"),
        local_rank=inner.local_rank if inner.local_rank is not None else number("local_rank"),
        group_rank=inner.group_rank,
        task=inner.task,
        host=inner.host or word("host", "hostname", "node", "pod"),
        pid=inner.pid if inner.pid is not None else number("pid", "process"),
        device=inner.device,
        stream=inner.stream or word("stream"),
        time=time,
        clock=clock,
        level=inner.level or word("level", "levelname", "severity"),
        folded=inner.folded,
        coordinates=inner.coordinates,
    )


def elapsed(earlier: Line, later: Line) -> float | None:
    """Seconds between two lines of one clock, over a change of year; None where not comparable."""
    if earlier.time is None or later.time is None or earlier.clock != later.clock:
        return None
    difference = later.time - earlier.time
    if (earlier.clock or "").partition("@")[0] in YEARLESS:
        if difference < -YEAR / 2:
            difference += YEAR
        elif difference > YEAR / 2:
            difference -= YEAR
    return difference


# Where one record was glued to the end of another that had no newline (a progress bar, mostly).
_GLUE = lazy.regex(
    r"(?<=[^\s\[(])(?=\[rank\d{1,6}\]:"
    r"|\[[IWEF] ?\d{0,4} ?[\w:. ]{0,24}?\w{1,40}\.(?:cpp|cc|hpp):\d"
    r"|Traceback \(most recent|[IWEF]\d{4} \d\d:\d\d:\d\d\."
    r"|\{'(?:loss|train_loss|eval_loss|train_runtime)':|\[2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d)"
    r"|(?<=[\]|%])(?=2\d{3}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|(?:WARNING|ERROR|INFO|CRITICAL)[: ]"
    r"|[A-Z][A-Za-z]{2,40}(?:Error|Warning|Exception)\b)"
)

# Each form that `_GLUE` knows holds one of these: most lines hold none, and are done.
_GLUE_HINT = lazy.regex(
    r"\[rank|pp:\d|\.cc:\d|Traceback|\{'|\[2\d\d\d|\][2A-Z]|\|[2A-Z]|%[2A-Z]|I\d{4} |W\d{4} |E\d{4} |F\d{4} "
)


def split_glued(text: str) -> list[str]:
    """The records of one physical line: split at `\\r` redraws and before known record heads.

    Matchers should run on the unsplit line too: a head inside quoted text also splits.
    """
    if "\r" not in text and len(text) < 24:
        return [text]
    records: list[str] = []
    for part in text.split("\r"):
        if not part:
            continue
        start = 0
        if len(part) < 65536 and _GLUE_HINT.search(part, 1):
            for match in _GLUE.finditer(part):
                if match.start() > start and not _is_prefix(part[start : match.start()]):
                    records.append(part[start : match.start()])
                    start = match.start()
        records.append(part[start:])
    return records


def _is_prefix(text: str) -> bool:
    """Whether the text is nothing but prefixes, so that what follows belongs to it."""
    if len(text) > LOOK:
        return False
    return not text[_peel(text, {}) :].strip()
