"""The plain values that the stages of a diagnosis hand to one another.

`sources` → `scan` → `lines` → `metrics` → `incident` → `diagnosis` → `render`:
each stage reads values of this module and returns values of this module, so each
can be used and tested alone. Ranks are always *global* unless the name says else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .signatures import Role
from .values import dataclass, field, names

SourceKind = Literal[
    "log",              # free text
    "error_json",       # torchelastic error.json
    "flight_recorder",  # NCCL pickle or gloo JSON dump
    "metrics",          # trainer_state.json, CSV or JSONL of numbers
    "kernel",           # dmesg
    "scheduler",        # sacct, scontrol, kubectl
    "stacks",           # py-spy dump
    "gpu",              # nvidia-smi -q
]


@dataclass(frozen=True, slots=True)
class Source:
    """One input: a file, standard input, or text given by a caller."""

    index: int
    """Position in the list of sources; `Hit.source`, `Event.source` refer to it."""
    name: str
    """As shown to the user: the path as given, or relative to the directory given."""
    kind: SourceKind
    path: str | None = None
    data: bytes | None = None
    """Content, when there is no file to read again (text, stdin)."""
    rank: int | None = None
    """Global rank, when the file name says so (`rank_3.log`, `fr_trace_rank3.json`)."""
    local_rank: int | None = None
    """From `attempt_0/3/stderr.log`."""
    node: str | None = None
    attempt: int | None = None
    stream: Literal["stdout", "stderr", "mixed"] = "mixed"
    skipped: str = ""
    """Why this input could not be read (binary, permission…); empty when it was."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A physical line that a pattern may match (confirmed unless said otherwise)."""

    source: int
    line: int
    """1-based physical line number (`\\n` counts; a `\\r` redraw keeps its line's number)."""
    offset: int
    """Byte offset of the first byte of the text in the decompressed source."""
    text: str
    """The record, decoded with replacement, without line end, cut around the match to at most 8 KiB."""
    pattern: int
    """Index into the scanner's patterns."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """What one pass over one source found."""

    source: int
    hits: tuple[Hit, ...]
    lines: int
    size: int
    head: tuple[str, ...]
    """First records (at most 50), for launcher banners and format detection."""
    tail: tuple[tuple[int, str], ...]
    """(line number, text) of the last records (at most 200), for completion and progress."""
    counts: Mapping[int, int]
    """Pattern index → number of matching lines, beyond any cap; at least so many of one that was given up as saturated."""
    capped: tuple[int, ...] = ()
    """Patterns of which only the first hits (and the last) were kept."""
    ends_mid_line: bool = False
    marks: tuple[tuple[int, int], ...] = ()
    """(line number, byte offset of its first byte) at regular distances, to find lines of a large input again."""


@dataclass(frozen=True, slots=True)
class Line:
    """One log line with its stacked prefixes peeled (see `lines.parse`)."""

    body: str
    rank: int | None = None
    local_rank: int | None = None
    group_rank: int | None = None
    """Rank inside a process group that is not known to be the world group."""
    task: int | None = None
    """Slurm task: a global rank or a node index, decided by `lines.task_ranks`."""
    host: str | None = None
    pid: int | None = None
    device: int | None = None
    stream: str | None = None
    time: float | None = None
    """Seconds on the writer's own clock (epoch where a year is printed, else within the year)."""
    clock: str | None = None
    """Only times of equal clock may be compared: layout name + host."""
    level: str | None = None
    folded: int = 0
    """Ray's `[repeated Nx across cluster]`."""
    coordinates: Mapping[str, int] = field(default_factory=dict)
    """Parallel coordinates as printed: tp, dp, pp, ep."""


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one rank in one attempt."""

    name: str
    role: str | None
    """loss, eval_loss, grad_norm, lr, loss_scale, temperature, throughput, memory, kl,
    reward, entropy, accuracy, step_time, data_time… or None."""
    source: int
    rank: int | None
    attempt: int
    steps: tuple[float, ...]
    """Step of each record; the record's index where the log prints none."""
    values: tuple[float, ...]
    """Values as printed, nan and inf included."""
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, read from one place, with the role it can play."""

    role: Role
    kind: str
    """What: exception, oom, signal_exit, watchdog, peer_closed, sigterm_sent, preempted…"""
    source: int
    line: int
    text: str
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    attempt: int = 0
    time: float | None = None
    clock: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line that supports a finding."""

    file: str
    """Name of the input as given; `incident` for what the comparison of ranks shows."""
    line: int
    """1-based physical line."""
    rank: int | None
    """Global rank, where it is known."""
    text: str
    """The line, masked, without its end, cut where it is long."""
    signature: str
    """`slug#signature-id`, or the engine's own rule when empty."""


@dataclass(frozen=True, slots=True)
class Initiating:
    """Who started it, and how we know."""

    scope: Literal["rank", "node", "all", "outside", "unknown"]
    """all: every rank by itself. outside: not a rank of the job (a user, the scheduler, the store)."""
    rank: int | None
    """Global rank, for scope `rank`."""
    node: str | None
    """Host name as printed, where it is known."""
    basis: str
    """The observation that decided, in words."""
    confidence: Literal["strong", "medium", "weak", "none"]
    """none: unknown, and `basis` says what would decide."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One entry of the encyclopedia found in the logs."""

    entry: str
    """Slug."""
    title: str
    role: Literal["primary", "contributing", "collateral"]
    """primary: the initiating cause, not the loudest line. collateral: a consequence."""
    confidence: float
    """0..1, calibrated (`score` prints the reliability table)."""
    rank: int | None
    """Global rank on which it was found, where it is known."""
    evidence: tuple[Evidence, ...]
    """The lines that show it."""
    action: Mapping[str, str]
    """{"do": …, "when": …}"""
    fix: str
    """Summary of the fix; empty for entries that have none."""
    verify: str
    """command → what is seen when the fix works; empty where the entry has none."""
    url: str
    """The entry's page."""


Verdict = Literal["diagnosed", "unrecognised", "inconclusive", "stopped", "healthy"]
SCHEMA = "faultbook.diagnosis/1"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer. `to_dict()` is the `--json` output and the contract others build on."""

    verdict: Verdict
    """diagnosed: something failed and an entry names it. unrecognised: something failed, no entry does. inconclusive: the log
    ends, or is cut, without completion. stopped: ended from outside. healthy: completion or recent progress was seen."""
    summary: str
    """One sentence for a person."""
    diagnoses: tuple[Finding, ...] = ()
    """Primary first, then contributing and collateral ones."""
    initiating: Initiating | None = None
    """None where nothing failed."""
    collateral: tuple[Mapping[str, Any], ...] = ()
    """Folded storms: {"what", "count", "ranks", "first": {...}, "last": {...}}."""
    leads: tuple[Mapping[str, Any], ...] = ()
    """What might help, marked as no finding: {"text", "file", "line"}."""
    first_abnormal: Mapping[str, Any] | None = None
    """{"file", "line", "rank", "text"}"""
    not_examined: tuple[str, ...] = ()
    """Inputs and parts of inputs that were not read, each with its reason."""
    timeline: tuple[Mapping[str, Any], ...] = ()
    """{"rank", "time", "file", "line", "what"} in order, for people."""

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers, as `schema/diagnosis.schema.json` describes; nothing is left out."""
        return {"schema": SCHEMA, **_plain(self)}

    @property
    def exit_code(self) -> int:
        """1 diagnosed, 3 unrecognised or inconclusive, 4 stopped, 0 healthy."""
        codes = {"diagnosed": 1, "unrecognised": 3, "inconclusive": 3, "stopped": 4, "healthy": 0}
        return codes[self.verdict]


def _plain(value: Any) -> Any:
    if fields := names(value):
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value
