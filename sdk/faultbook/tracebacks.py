"""The reader of tracebacks: a small state machine over one writer's lines.

Interleaved ranks must be told apart before (`attribution.by_writer`). Understands chains,
exception groups, rich boxes, faulthandler dumps, wrappers that carry another traceback, and
tracebacks that were squeezed into one line with escaped newlines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from . import lazy
from .exceptions import Frame, Part, Raised, Text, cause_of, last_name
from .values import replace

_START = lazy.regex(r"(?:^|[^\w])(?P<original>Original )?(?:Exception Group )?Traceback \(most recent call last\)")


_FRAME = lazy.regex(r'^\s*(?:File|at) "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9})(?:,? in (?P<function>[^\s,]{1,300}))?')


_RICH_FRAME = lazy.regex(r"^\s*│\s+(?P<file>[^\s:│][^:│]{0,500}):(?P<line>\d{1,9}) in (?P<function>[^\s│]{1,200})")


_RICH_EDGE = lazy.regex(r"^\s*[╭╰│]")


_GROUP_EDGE = lazy.regex(r"^\s*(?:\| ?|\+-?\+?-{3,}[ \d]*-*|\+ )")


_HEADER = lazy.regex(r"^(?P<type>[A-Za-z_][\w.<>]{0,200}(?:\([A-Za-z_]\w*\))?)(?::(?:\s|$)(?P<message>.*))?$", re.S)


_ERROR_NAME = lazy.regex(
    r"(?:Error|Exception|Interrupt|Exit|Warning|Iteration|Failed|Failure|Group|Timeout|Empty|Full|Abort\w*"
    r"|Fault|Died)(?:\([A-Za-z_]\w*\))?$"
)


_CHAIN = lazy.regex(
    r"(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception)"
)


_PROCESS = lazy.regex(r"-- Process (?P<process>\d{1,6}) terminated with the following error")


_FATAL = lazy.regex(r"Fatal Python error: (?P<what>[A-Z][\w ]{0,60})")


_FATAL_FRAME = lazy.regex(r'^\s*File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9}) in (?P<function>\S{1,300})')


_FATAL_THREAD = lazy.regex(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*most recent call first")


_RECORD_HEAD = lazy.regex(
    r"^(?:\[?\d{4}-\d\d-\d\d[ T_]|[VIWEC]\d{3,4} \d\d:|\[[VIWEC]\d{3,4} |(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)\b"
    r"|srun: |slurmstepd"
    r"|={8,}|-{20,}|\{'|\{\"|terminate called|Fatal Python|Exception raised from|frame #)"
)


_WRAPPERS = frozenset({"BackendCompilerFailed", "ExceptionGroup", "BaseExceptionGroup", "RayTaskError", "TrainingFailedError"})


_MESSAGE_LINES = 12


def unescaped(text: Text) -> Iterator[Text]:
    """A traceback that was written into one line (JSON, wandb, kubectl), as its lines again."""
    line, body = text.line, text.body
    if "\\n" in body and "Traceback (most recent call last)" in body:
        plain = body.replace("\\r", "").replace("\\n", "\n").replace('\\"', '"').replace("\\t", "\t").replace("\\'", "'")
        for piece in plain.split("\n"):
            yield Text(line, piece, text.hooked)
    else:
        yield text


class _Reader:
    """A small state machine over one writer's lines."""

    def __init__(self) -> None:
        self.done: list[tuple[tuple[Part, ...], int | None, str]] = []
        self._parts: list[Part] = []
        self._process: int | None = None
        self._reset()

    def _reset(self) -> None:
        self._frames: list[Frame] = []
        self._first = 0
        self._last = 0
        self._state: Literal["idle", "frames", "message", "fatal"] = "idle"
        self._type = ""
        self._header = 0
        self._message: list[str] = []
        self._nested = False
        self._chained = False
        self._fatal = ""
        self._fatal_seen_user = False

    def _end_part(self) -> None:
        if self._frames or self._type:
            message = "\n".join(self._message).rstrip()
            frames = tuple(self._frames)
            self._parts.append(Part(self._type, message, frames, self._first, self._last, self._nested, self._header))
        self._frames, self._type, self._header, self._message = [], "", 0, []
        self._nested = False

    def end(self) -> None:
        if self._state == "fatal":
            part = Part(
                f"Fatal Python error: {self._fatal}",
                "",
                tuple(reversed(self._frames)),
                self._first,
                self._last,
                header=self._first,
            )
            self.done.append(((part,), None, self._fatal))
            self._reset()
            self._parts, self._process = [], None
            return
        self._end_part()
        parts = tuple(p for p in self._parts if p.type or p.frames)
        if parts:
            self.done.append((parts, self._process, ""))
        self._parts, self._process = [], None
        self._reset()

    def feed(self, text: Text) -> None:
        line, body = text.line, text.body
        fatal = _FATAL.search(body) if "Fatal Python error" in body else None
        if fatal:
            self.end()
            self._state, self._fatal, self._first, self._last = "fatal", fatal["what"].strip(), line, line
            return
        if self._state == "fatal":
            self._feed_fatal(line, body)
            return
        process = _PROCESS.search(body) if "-- Process" in body else None
        if process:
            self.end()
            self._process = int(process["process"])
            return
        start = _START.search(body) if "Traceback (most recent" in body else None
        if start:
            self._start(line, nested=bool(start["original"]))
            return
        if self._state == "idle":
            if "above exception" in body and _CHAIN.search(body) and self._parts:
                self._chained = True
            elif text.hooked:
                self._bare(line, body)
            return
        body = _GROUP_EDGE.sub("", body, count=1) if _GROUP_EDGE.match(body) and not _FRAME.match(body) else body
        if "above exception" in body and _CHAIN.search(body):
            self._end_part()
            self._state, self._chained = "idle", True
        elif self._state == "frames":
            self._feed_frames(line, body)
        else:
            self._feed_message(line, body, text.record)

    def _bare(self, line: int, body: str) -> None:
        header = _HEADER.match(body.rstrip())
        if header and header["message"] and _ERROR_NAME.search(header["type"]):
            if last_name(header["type"]).endswith("Warning"):
                return  # c10d prints its warnings with the rank in front; without a traceback nothing was raised
            self.end()
            self._type, self._message, self._state = header["type"], [header["message"][:4000]], "message"
            self._first = self._last = self._header = line

    def _start(self, line: int, nested: bool) -> None:
        wrapper = bool(self._type) and last_name(self._type) in _WRAPPERS
        if self._state == "frames" and not self._type and not self._chained:
            self.end()  # the one before never finished: cut, or another writer's
        elif nested or wrapper:
            self._end_part()
            nested = True
        elif self._chained:
            self._end_part()
        else:
            process = self._process if not self._parts and not self._type else None
            self.end()
            self._process = process
        self._state, self._first, self._last, self._chained = "frames", line, line, False
        self._nested = nested

    def _feed_frames(self, line: int, body: str) -> None:
        frame = _FRAME.match(body) or _RICH_FRAME.match(body)
        if frame:
            if len(self._frames) < 400:
                self._frames.append(Frame(frame["file"].strip(), int(frame["line"]), frame["function"] or "<module>"))
            self._last = line
            return
        if _RICH_EDGE.match(body) or not body.strip():
            return
        if body[0].isspace():
            code = body.strip()
            if self._frames and not self._frames[-1].code and not re.fullmatch(r"[\^~ .]+", code):
                self._frames[-1] = replace(self._frames[-1], code=code[:300])
            return
        header = _HEADER.match(body.rstrip())
        if header and (
            _ERROR_NAME.search(header["type"])
            or header["message"] is not None
            or "." in header["type"]
            or header["type"][0].isupper()
        ):
            self._type, self._message = header["type"], [(header["message"] or "")[:4000]]
            self._state, self._last, self._header = "message", line, line

    def _feed_message(self, line: int, body: str, record: bool) -> None:
        name = last_name(self._type)
        frame = _FRAME.match(body)
        if frame and name in _WRAPPERS:  # RayTaskError: the remote frames follow the header
            self._end_part()
            self._state, self._nested, self._first = "frames", True, line
            self._feed_frames(line, body)
            return
        header = _HEADER.match(body.rstrip())
        if name in _WRAPPERS and header and _ERROR_NAME.search(header["type"]):
            frames = list(self._frames)
            self._end_part()
            self._frames, self._nested, self._first = frames, True, line
            self._type, self._message = header["type"], [(header["message"] or "")[:4000]]
            self._state, self._last, self._header = "message", line, line
            return
        if record or _RECORD_HEAD.match(body) or len(self._message) >= _MESSAGE_LINES:
            self._end_part()
            self._state = "idle"
            return
        if body.strip():
            self._message.append(body.rstrip()[:1000])
            self._last = line

    def _feed_fatal(self, line: int, body: str) -> None:
        frame = _FATAL_FRAME.match(body)
        if frame:
            if not self._fatal_seen_user and len(self._frames) < 100:
                self._frames.append(Frame(frame["file"], int(frame["line"]), frame["function"]))
            self._last = line
        elif _FATAL_THREAD.match(body):
            # The current thread is printed first or last; one with user frames is the one that matters.
            if self._frames and any(f.is_user for f in self._frames):
                self._fatal_seen_user = True
            elif self._frames:
                self._frames = []
            self._last = line
        elif body.strip() and not body.lstrip().startswith(("Extension modules", "<no Python frame>", "Python runtime state")):
            self.end()
            self.feed(Text(line, body))


def read(texts: Iterable[Text]) -> list[Raised]:
    """All exceptions in one writer's lines, in order."""
    reader = _Reader()
    for text in texts:
        for piece in unescaped(text):
            reader.feed(piece)
    reader.end()
    return [Raised(parts=parts, process=process, fatal=fatal, cause=cause_of(parts)) for parts, process, fatal in reader.done]


def from_callstack(callstack: str, message: str = "") -> Raised | None:
    """The exception of a `py_callstack` string or an elastic summary."""
    found = read(Text(n, body) for n, body in enumerate(callstack.splitlines(), 1))
    if found:
        return found[-1]
    header = _HEADER.match(message.strip().split("\n")[0])
    if header and _ERROR_NAME.search(header["type"]):
        part = Part(header["type"], header["message"] or "", (), 1, 1)
        return Raised(parts=(part,), cause=part)
    return None
