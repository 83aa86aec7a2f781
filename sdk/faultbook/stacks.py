"""Stacks of running processes, as py-spy and faulthandler print them: where each rank is, without an exception.

py-spy: `Process 17752: python train.py` / `Python v3.11.7` / `Thread 17752 (idle): "MainThread"` /
`    all_reduce (path.py:3252)`.
faulthandler: `Thread 0x00007f… (most recent call first):` / `  File "path.py", line 3252 in all_reduce`.
Both list the innermost frame first; the main thread is the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import lazy
from .exceptions import Frame, Part, Raised

_PROCESS = lazy.regex(r"^(?:Process (?P<spy>\d{1,9}):|pid (?P<pid>\d{1,9}) rank (?P<rank>\d{1,6})\b)")
_THREAD = lazy.regex(r'^(?:Thread (?:0x)?[0-9a-fA-F]+ \(|Current thread 0x)(?P<rest>.{0,200})')
_SPY_FRAME = lazy.regex(r"^\s+(?P<function>\S.{0,200}) \((?P<file>.{1,400}):(?P<line>\d{1,9})\)\s*$")
_FRAME = lazy.regex(r'^\s+File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9}) in (?P<function>.{1,200})$')


def read(lines: Iterable[tuple[int, str]], source: int, rank: int | None = None) -> list[Raised]:
    """One `Raised` of kind "stack" a process; `rank` where the file's name says it, else what the dump itself says."""
    found: list[Raised] = []
    threads: list[tuple[bool, int, list[Frame]]] = []
    own = rank
    pid: int | None = None

    def finish() -> None:
        nonlocal threads
        chosen = _main(threads)
        if chosen is not None:
            first, frames = chosen
            part = Part("Stack", "", tuple(reversed(frames)), first, first + len(frames))
            found.append(Raised((part,), source, own, process=pid if own is None else None, origin="stacks", cause=part))
        threads = []

    for number, text in lines:
        if head := _PROCESS.match(text):
            finish()
            own = int(head["rank"]) if head["rank"] else rank
            pid = int(head["spy"] or head["pid"])
        elif thread := _THREAD.match(text):
            threads.append(("MainThread" in thread["rest"], number, []))
        elif threads and (frame := _FRAME.match(text) or _SPY_FRAME.match(text)):
            threads[-1][2].append(Frame(frame["file"], int(frame["line"]), frame["function"]))
    finish()
    return found


def _main(threads: Sequence[tuple[bool, int, list[Frame]]]) -> tuple[int, list[Frame]] | None:
    """The main thread: named so by py-spy; faulthandler lists it last."""
    full = [t for t in threads if t[2]]
    if not full:
        return None
    _, first, frames = next((t for t in full if t[0]), full[-1])
    return first, frames
