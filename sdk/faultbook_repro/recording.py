"""Writes what the runs printed into the entry's folder: logs/broken.log, logs/fixed.log."""

from __future__ import annotations

from pathlib import Path

from .core.judge import Pair

LIMIT = 200 * 1024
"""A recorded log is for reading; the schema allows 256 KiB."""


def record_logs(folder: Path, pairs: list[Pair]) -> list[Path]:
    """One file per half and variant; the first variant's carry no suffix."""
    written = []
    (folder / "logs").mkdir(exist_ok=True)
    for index, pair in enumerate(pairs):
        suffix = f"-{pair.variant}" if index else ""
        for name, half in (("broken", pair.broken), ("fixed", pair.fixed)):
            path = folder / "logs" / f"{name}{suffix}.log"
            path.write_text(shorten(half.outcome.log), encoding="utf-8")
            written.append(path)
    return written


def shorten(text: str, limit: int = LIMIT) -> str:
    """Head and tail of a log that is too long, cut at line ends, with the gap said."""
    if len(text.encode("utf-8", "replace")) <= limit:
        return text
    lines = text.splitlines(keepends=True)
    head: list[str] = []
    tail: list[str] = []
    room = limit // 2 - 100
    for line in lines:
        room -= len(line.encode("utf-8", "replace"))
        if room < 0:
            break
        head.append(line)
    room = limit // 2
    for line in reversed(lines[len(head) :]):
        room -= len(line.encode("utf-8", "replace"))
        if room < 0:
            break
        tail.append(line)
    gap = len(lines) - len(head) - len(tail)
    return "".join([*head, f"[… {gap} lines left out by the recorder …]\n", *reversed(tail)])
