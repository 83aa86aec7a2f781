"""What one run of a reproduction left behind."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Symptom = Literal["completes", "raises", "hangs", "killed"]

DEADLINE = "TIMEOUT"
"""`signal` of a rank that the runner killed at its hard deadline."""
OUTPUT = "OUTPUT"
"""`signal` of a rank that the runner killed because its log outgrew the limit."""

# A rank whose own collective timeout ended its wait did hang, although it then raised.
_COLLECTIVE_TIMEOUTS = (
    "Timed out waiting",  # gloo send, recv, and the store
    "Connect timeout",  # gloo pair
    "Watchdog caught collective",  # nccl
    "wait timeout after",  # store
    "Socket Timeout",
    "timed out after",
)


@dataclass(frozen=True, slots=True)
class RankRecord:
    """One rank (one process) of a run."""

    rank: int
    ok: bool
    exception: str | None = None
    """`Type: message` of what ended `run(ctx)`."""
    signal: str | None = None
    """Real signal name (`SIGABRT`), `TIMEOUT` at the hard deadline, `OUTPUT` past the log limit."""
    exit_code: int | None = None
    seconds: float = 0.0
    results: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    phase: str = "run"
    """`setup` when it ended before `run(ctx)`: not a symptom of the entry."""
    log: str = ""
    stacks: str = ""
    """Python stacks at the hard deadline: where a hanging rank was."""

    @property
    def symptoms(self) -> frozenset[Symptom]:
        if self.ok:
            return frozenset({"completes"})
        if self.signal == DEADLINE:
            return frozenset({"hangs"})
        if self.signal is not None:
            return frozenset({"killed"})
        if self.exception and any(text in self.exception for text in _COLLECTIVE_TIMEOUTS):
            return frozenset({"raises", "hangs"})
        return frozenset({"raises"})

    def to_dict(self, *, log: bool = False) -> dict[str, Any]:
        data = asdict(self)
        if not log:
            del data["log"], data["stacks"]
        return data


@dataclass(frozen=True, slots=True)
class Outcome:
    """All ranks of one run."""

    ranks: list[RankRecord]
    log: str
    """Merged text: `[rankN]: ` before each line of a multi-rank run, plain for one rank."""
    seconds: float
    fixed: bool = False
    device: str = "cpu"
    variant: str = ""
    guilty: int = 0
    seed: int = 0
    directory: Path | None = None
    """`rank_N.log` (and `fr/`), when the caller asked to keep them."""
    threads_before_fork: int | None = None
    """Threads of the warm parent just before it forked; None for a fresh process."""

    @property
    def ok(self) -> bool:
        return all(rank.ok for rank in self.ranks)

    @property
    def symptoms(self) -> frozenset[Symptom]:
        """What was seen on any rank; `completes` only when every rank did."""
        if self.ok:
            return frozenset({"completes"})
        return frozenset[Symptom]().union(*(r.symptoms for r in self.ranks if not r.ok))

    @property
    def outcome(self) -> Symptom:
        """The one word for it: a death by signal outranks a hang, a hang outranks an exception."""
        order: tuple[Symptom, ...] = ("killed", "hangs", "raises")
        return next((s for s in order if s in self.symptoms), "completes")

    @property
    def setup_failed(self) -> bool:
        return any(not rank.ok and rank.phase == "setup" for rank in self.ranks)

    @property
    def results(self) -> dict[str, Any]:
        return self.ranks[0].results if self.ranks else {}

    @property
    def workload(self) -> dict[str, Any]:
        return self.ranks[0].workload if self.ranks else {}

    @property
    def workloads(self) -> list[dict[str, Any]]:
        return [rank.workload for rank in self.ranks]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, logs included: what `check(out)` is given in its sandboxed child."""
        return {
            "ranks": [rank.to_dict(log=True) for rank in self.ranks],
            "log": self.log,
            "seconds": self.seconds,
            "fixed": self.fixed,
            "device": self.device,
            "variant": self.variant,
            "guilty": self.guilty,
            "seed": self.seed,
        }


def outcome_from_dict(data: dict[str, Any]) -> Outcome:
    ranks = [RankRecord(**rank) for rank in data["ranks"]]
    return Outcome(**{**data, "ranks": ranks})


def merge(logs: list[str], order: list[tuple[int, int]]) -> str:
    """One text from one log per rank, in the order in which the server saw them grow.

    `order` holds (rank, characters seen so far); lines are never cut. A single rank
    stays plain. What grew between two looks of the server is ordered by rank.
    """
    if len(logs) == 1:
        return logs[0]
    done = [0] * len(logs)
    parts: list[str] = []

    def take(rank: int, end: int) -> None:
        for line in logs[rank][done[rank] : end].splitlines():
            parts.append(f"[rank{rank}]: {line}\n")
        done[rank] = end

    for rank, size in order:
        end = logs[rank].rfind("\n", done[rank], size) + 1
        if end > done[rank]:
            take(rank, end)
    for rank, log in enumerate(logs):
        take(rank, len(log))
    return "".join(parts)
