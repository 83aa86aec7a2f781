"""Python exceptions out of logs as values, and what each says: an own fault, or the loss of others.

`tracebacks` reads them from the records of one writer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from . import lazy
from .values import dataclass

Kind = Literal["own", "communication", "interrupt", "launcher", "launcher_fault", "pair", "fatal", "cut", "stack"]
"""own: this process did something wrong. communication: it only lost, or waited for, others.
interrupt: someone pressed Ctrl-C. launcher: a launcher repeating what a child did.
launcher_fault: the launcher itself failed. pair: a check of another rank's state.
fatal: a faulthandler dump (signal). cut: a traceback without its last line, which says nothing.
stack: no exception, where a running process was."""


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str
    code: str = ""

    @property
    def is_user(self) -> bool:
        """Code of the person whose run died, as far as the path tells."""
        return not _LIBRARY.search(self.file)


@dataclass(frozen=True, slots=True)
class Part:
    """One traceback of a chain."""

    type: str
    message: str
    frames: tuple[Frame, ...]
    """Outermost first."""
    first: int
    last: int
    nested: bool = False
    """It is what the part before it wraps (a worker's original traceback), so nearer the cause."""
    header: int = 0
    """The line with the exception's name; 0 where the traceback was cut before it."""

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame of user code; the innermost of all where there is none."""
        own = [f for f in self.frames if f.is_user]
        return own[-1] if own else (self.frames[-1] if self.frames else None)

    @property
    def collective(self) -> str | None:
        """The collective the process was in, from the library's own frames."""
        for frame in reversed(self.frames):
            if frame.file.endswith("distributed_c10d.py"):
                return frame.function
        return None


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception that left a trace, with everything it was chained to."""

    parts: tuple[Part, ...]
    source: int = -1
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    attempt: int = 0
    process: int | None = None
    """Index given by `-- Process 2 terminated with the following error` (torch.multiprocessing)."""
    uncaught: bool = False
    """Printed by the interpreter's exception hook under torch's `[rankN]:` prefix."""
    logged: bool = False
    """Directly below a record of a logger (`logger.exception`): somebody caught it."""
    fatal: str = ""
    """faulthandler: what killed the process (`Segmentation fault`, `Aborted`)."""
    origin: Literal["log", "error_json", "summary", "stacks"] = "log"
    time: float | None = None
    cause: Part = Part("", "", (), 0, 0)
    """The part nearest to the cause: the first of a chain, or what that one wraps."""

    @property
    def first(self) -> int:
        return self.parts[0].first

    @property
    def last(self) -> int:
        return self.parts[-1].last

    @property
    def final(self) -> Part:
        return self.parts[-1]

    @property
    def kind(self) -> Kind:
        return classify(self)

    @property
    def headline(self) -> str:
        """`ValueError: bad record 9`, in one short line."""
        first = self.cause.message.strip().split("\n")[0]
        name = last_name(self.cause.type)
        return f"{name}: {first}"[:160] if first else name


class Text(NamedTuple):
    """What the reader needs of a record: line number and text without prefix, indentation kept."""

    line: int
    body: str
    hooked: bool = False
    """Printed under torch's `[rankN]:` prefix: there a bare exception line is one, also without its traceback."""
    record: bool = False
    """A log record of its own (it had a level or a time): it ends the message of an exception."""


_LIBRARY = lazy.regex(
    r"(?:site-packages|dist-packages|/lib/python\d|\\lib\\|<frozen|<string>|<__array|/torch/|/bin/(?:torchrun|accelerate"
    r"|deepspeed|horovodrun)|^\.\./|lightning/pytorch|transformers/trainer"
    # py-spy shortens the paths of installed packages and of the standard library
    r"|^(?:torch|transformers|accelerate|deepspeed|megatron/core|threading\.py|selectors\.py|queue\.py|multiprocessing)\b)",
    re.I,
)


_LAUNCHER_FILE = lazy.regex(
    r"(?:/bin/(?:torchrun|accelerate|deepspeed|composer|horovodrun|colossalai)$"
    r"|torch/distributed/(?:run|launch)\.py$|torch/distributed/launcher/)"
)


_LAUNCHER_TYPES = frozenset(
    {
        "ChildFailedError",
        "CalledProcessError",
        "ProcessRaisedException",
        "ProcessExitedException",
        "SignalException",
    }
)


_COMMUNICATION = lazy.regex(
    r"(?:gloo/transport|Connection closed by peer|Connection reset by peer|Broken pipe|[Tt]imed out waiting \d+ ?ms"
    r"|ncclRemoteError|ncclSystemError|ncclInternalError|NCCL (?:error|communicator|Error)|collective operation timeout"
    r"|monitoredBarrier|Detected mismatch between collectives|wait timeout after \d+|clients joined"
    r"|client socket has (?:timed out|failed)|recvValue failed|sendBytes failed|Socket Timeout|connectFullMesh"
    r"|failed to recv, got 0 bytes|Timed out after \d+ seconds waiting for clients|Timed out initializing process group"
    r"|Application timeout caused pair closure|Horovod has been shut down|ActorDiedError|EngineDeadError"
    r"|The actor died unexpectedly|Engine core initialization failed|worker_count=)"
)


_CUT_PLACE = lazy.regex(r"\[/[^\s\]]*$")
"""`[/__w/pytorch/pyt`: a gloo message in a log that ends there."""
_COMMUNICATION_TYPES = frozenset(
    {
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
        "RendezvousConnectionError",
        "RendezvousTimeoutError",
        "ActorDiedError",
        "EngineDeadError",
        "HorovodInternalError",
    }
)


_CONNECTION_TYPES = frozenset({"ConnectionResetError", "BrokenPipeError", "ConnectionAbortedError", "EOFError"})


_WEB = lazy.regex(r"(?:urllib3|requests|aiohttp|botocore|httpx|huggingface_hub|fsspec|gcsfs|s3fs)")


_PAIR = lazy.regex(r"(?:params\[\d+\] in this process|inconsistent \d+ params|Duplicate GPU detected)")


_OWN_IN_COMMUNICATION = lazy.regex(r"(?:EADDRINUSE|[Aa]ddress already in use|out of memory|peer access is not supported)")


_QUEUE_TYPES = frozenset({"Empty", "StopIteration", "TimeoutError", "CancelledError"})
"""First parts of a chain that are how a library polls, never a cause."""


def last_name(type_name: str) -> str:
    """`torch.distributed.DistBackendError` → `DistBackendError`; `RayTaskError(X)` → `RayTaskError`."""
    return type_name.split("(")[0].rsplit(".", 1)[-1]


def is_communication(type_name: str, message: str, frames: Sequence[Frame] = ()) -> bool:
    """Whether the exception only says that other ranks were lost or waited for."""
    if _OWN_IN_COMMUNICATION.search(message):
        return False
    name = last_name(type_name)
    if name in _COMMUNICATION_TYPES:
        return True
    if any(_WEB.search(f.file) for f in frames):
        return False
    if name in _CONNECTION_TYPES:
        return any("distributed" in f.file or "multiprocessing" in f.file for f in frames)
    return bool(_COMMUNICATION.search(message)) or bool(_CUT_PLACE.match(message))


def classify(raised: Raised) -> Kind:
    if raised.origin == "stacks":
        return "stack"
    if raised.fatal:
        return "fatal"
    if not raised.cause.type:
        return "cut"
    name = last_name(raised.final.type)
    outermost = raised.parts[0].frames[0].file if raised.parts[0].frames else ""
    if name in _LAUNCHER_TYPES and raised.process is None:
        return "launcher"
    cause = raised.cause
    if last_name(cause.type) == "KeyboardInterrupt" or name == "KeyboardInterrupt":
        return "interrupt"
    if _LAUNCHER_FILE.search(outermost):
        return "launcher_fault"
    if _PAIR.search(cause.message):
        return "pair"
    return "communication" if is_communication(cause.type, cause.message, cause.frames) else "own"


def cause_of(parts: Sequence[Part]) -> Part:
    """The first of a chain is nearest to the cause; a wrapper's content is nearer than the wrapper."""
    index = 0
    while index + 1 < len(parts) and (
        parts[index + 1].nested or last_name(parts[index].type) in _QUEUE_TYPES or not parts[index].type
    ):
        index += 1
    return parts[index]
