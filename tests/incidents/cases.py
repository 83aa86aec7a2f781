"""The incidents: what goes wrong, on which rank, how it is run, what is handed in, and what a reader can tell from it.

Labels are written here, from what the program was told to do; generate.py keeps a run only if the process
exit states and the program's own notes show that exactly this happened.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

ENDS = {
    "SIGINT": ("user-interrupt",),
    "SIGTERM": ("agent-received-sigterm",),
    "SIGHUP": ("launcher-sighup-session-closed", "agent-received-sigterm"),
    "slurm:TIME LIMIT": ("slurm-time-limit", "agent-received-sigterm"),
    "slurm:PREEMPTION": ("slurm-preemption", "agent-received-sigterm"),
}
"""Entries that name an end from outside."""
LOST = ("rank-raises-others-hang",)
DESYNC = ("collective-desync",)
SKIP = ("collective-skipped-by-one-rank", "rank-local-control-flow", "collective-desync")
SHAPE = ("collective-shape-mismatch", "collective-op-mismatch")
SLOW = ("job-hang-no-error", "straggler-rank", "collective-desync", "dataloader-hang")


@dataclass(frozen=True)
class Kind:
    """A way to fail."""

    family: str
    """What must have happened, see `truth.judge`: own | signal | desync | late | all | finite | healthy | outside
    | hang | port."""
    exact: tuple[str, ...] = ()
    expect: str = ""
    """own, all: the exception's type; signal: the exit status."""
    guilty: int | None = None
    """Where only one rank can be (rank 0 saves, evaluates, prepares)."""
    note: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    """What train.py needs."""


OWN = "the rank raised its own exception on its own data; the others only lost it"
KINDS: dict[str, Kind] = {
    "label-range": Kind("own", ("label-out-of-range", *LOST), "IndexError", note=OWN),
    "token-range": Kind("own", ("embedding-index-out-of-range", *LOST), "IndexError", note=OWN),
    "unequal-lengths": Kind("own", ("collate-unequal-tensor-sizes", *LOST), "RuntimeError", note=OWN),
    "missing-field": Kind("own", LOST, "KeyError", note=OWN),
    "bad-json": Kind("own", LOST, "JSONDecodeError", note=OWN),
    "not-utf8": Kind("own", LOST, "UnicodeDecodeError", note=OWN),
    "missing-shard": Kind("own", ("input-file-missing", *LOST), "FileNotFoundError", note=OWN),
    "host-alloc": Kind("own", ("host-memory-exhausted", *LOST), "RuntimeError", note=OWN),
    "local-finite-check": Kind("own", LOST, "FloatingPointError", note=OWN + "; checked before gradients are mixed"),
    "disk-full": Kind("own", ("checkpoint-disk-full", *LOST), "OSError", 0, OWN, {"use": ["save"]}),
    "import-error": Kind("own", LOST, "ImportError", note=OWN),
    "sigkill": Kind("signal", ("gloo-peer-closed", "host-oom-killed", *LOST), "-9", note="killed; who sent it is not shown"),
    "sigsegv": Kind("signal", ("worker-sigsegv", "gloo-peer-closed", *LOST), "-11"),
    "sigabrt": Kind("signal", ("worker-sigabrt", "gloo-peer-closed", *LOST), "-6"),
    "sigbus": Kind("signal", ("worker-sigbus-shm", "gloo-peer-closed", *LOST), "-7"),
    "exit-code": Kind("signal", ("gloo-peer-closed", *LOST), "7", note="native code ended the process with status 7"),
    "skip-collective": Kind("desync", SKIP, note="no positive labels: the rank skipped an all_gather", set={"use": ["metrics"]}),
    # A rank that is already in the next call may have skipped this one or swapped the two: no log of a hang tells.
    "wrong-order": Kind("desync", ("collective-op-mismatch", *SKIP), note="another order of calls", set={"use": ["stats"]}),
    "size-mismatch": Kind(
        "desync", (*SHAPE, *DESYNC), note="a shorter tensor in an all_reduce", set={"use": ["histogram"]}
    ),
    "rank0-eval": Kind(
        "desync", ("rank0-only-collective", *SKIP), guilty=0, note="it alone evaluates, by an all_reduce"
    ),
    "rank0-state-dict": Kind(
        "desync",
        ("fsdp-state-dict-rank0-only", "rank0-only-collective", *DESYNC),
        guilty=0,
        note="rank 0 alone gathers the sharded parameters",
        set={"use": ["fsdp", "save"]},
    ),
    "uneven": Kind("desync", ("ddp-uneven-inputs", *SKIP), note="its shard is shorter: it left the loop"),
    "early-stop": Kind("desync", ("ddp-uneven-inputs", *SKIP), note="it stopped early by its own loss"),
    "local-skip": Kind("desync", SKIP, note="it skipped a batch, so from then on its calls are one ahead"),
    "handled": Kind("desync", ("cuda-oom", *SKIP), note="it caught a (simulated) CUDA OOM and skipped the batch"),
    "fsdp-divergent-init": Kind(
        "desync",
        ("fsdp-divergent-parameter-init-hang", *DESYNC),
        note="it built one block more",
        set={"use": ["fsdp"], "steps": 4},
    ),
    "parameters-differ": Kind("desync", note="it built one block more; DDP compares with rank 0"),
    "moe-empty": Kind(
        "desync",
        ("moe-empty-expert-skips-collective", "moe-collective-desync", "moe-pipeline-stage-asymmetry-hang", *SKIP),
        note="no tokens for its experts: it skipped the all_to_all of its group",
        set={"use": ["experts"]},
    ),
    "slow-save": Kind(
        "late", ("checkpoint-save-exceeds-timeout", *SLOW), guilty=0, note="its save outlasted the timeout", set={"use": ["save"]}
    ),
    "slow-preprocess": Kind("late", ("rank0-preprocessing-timeout", *SLOW), guilty=0, note="it prepares data for too long"),
    "stall": Kind("late", SLOW, note="its read outlasted the timeout"),
    "wrong-port": Kind(
        "late",
        ("tcpstore-client-timeout", "rendezvous-connection-failed", "store-barrier-timeout"),
        note="it looked for the store at another port",
    ),
    "all-state-dict": Kind("all", ("state-dict-key-mismatch", "state-dict-architecture-mismatch"), "RuntimeError"),
    "all-missing-config": Kind("all", ("input-file-missing",), "FileNotFoundError"),
    "all-keyerror": Kind("all", (), "KeyError", set={"as": "missing-field", "everywhere": True, "at": 1}),
    "finite-check": Kind("finite", ("loss-nan",), "FloatingPointError", note="found only after gradients were mixed"),
    "healthy": Kind("healthy"),
    "healthy-retry": Kind("healthy", note="one rank logged a caught exception and went on"),
    "healthy-early-stop": Kind("healthy", note="all ranks stop together", set={"as": "early-stop", "everywhere": True}),
    "healthy-skip": Kind("healthy", note="all ranks skip the batch together", set={"everywhere": True, "said": True}),
    "stopped": Kind("outside", set={"steps": 900, "step_time": 0.1}),
    "hang": Kind("hang", SLOW, note="its storage does not answer; then somebody ended the job", set={"timeout": 200}),
    "port-in-use": Kind("port", ("address-already-in-use",)),
    "restart-same": Kind("own", ("label-out-of-range", *LOST), "IndexError", note=OWN, set={"as": "label-range"}),
    "restart-other": Kind(
        "own", ("label-out-of-range", *LOST), "IndexError", note="attempt 0 by that rank; attempt 1 failed for another reason",
        set={"as": "restart-other", "last_attempt": 0},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Incident:
    """One row of the table below."""

    id: str
    kind: str
    layout: str
    """runner: files | tasks | srun | mpirun | plain; torchrun: tee | redirect | none | merged-nodes."""
    world: int = 4
    style: str = "kv"
    dumps: bool = False
    scope: str = "rank"
    alt: tuple[str, ...] = ()
    verdict: str = "diagnosed"
    verdict_alt: tuple[str, ...] = ()
    nodes: int = 1
    restarts: int = 0
    stop: str = ""
    """torchrun only: signal to the agent, after `stop_after` seconds; `slurm:REASON` adds a scheduler's line."""
    detail: bool = False
    drop: str = ""
    """`guilty`: its file is not handed in. `cut`: the text ends early."""
    set: dict[str, Any] = field(default_factory=dict)

    @property
    def torchrun(self) -> bool:
        return self.layout in ("tee", "redirect", "none", "merged-nodes")

    @property
    def guilty(self) -> int:
        """Permuted by the id; fixed where only one rank can be."""
        fixed = KINDS[self.kind].guilty
        return random.Random(f"faultbook {self.id}").randrange(self.world) if fixed is None else fixed

    def case(self) -> dict[str, Any]:
        """What train.py is told."""
        given = KINDS[self.kind].set | self.set
        return {
            "kind": given.get("as", self.kind),
            "guilty": self.guilty,
            "style": self.style,
            "timeout": 8 if self.torchrun else 4,
            **({"steps": 3, "at": 2, "save_every": 2} if self.dumps else {}),
            **given,
        }


def _table() -> list[Incident]:
    rows: list[Incident] = []

    def add(kind: str, layout: str, **how: Any) -> None:
        rows.append(Incident(f"n{len(rows) + 1:03d}", kind, layout, **how))

    hf, bare, pipe = {"style": "hf"}, {"style": "bare"}, {"style": "pipe"}
    # Own exceptions.
    add("label-range", "files", **bare)
    add("label-range", "tee", set={"record": True})
    add("token-range", "srun")
    add("unequal-lengths", "plain")
    add("unequal-lengths", "redirect", set={"record": True})
    add("missing-field", "tasks", verdict_alt=("unrecognised",))
    add("bad-json", "mpirun", verdict_alt=("unrecognised",), **bare)
    add("not-utf8", "tee", verdict_alt=("unrecognised",), **hf)
    add("missing-shard", "redirect", world=2, set={"record": True})
    add("missing-shard", "srun", world=6, **bare)
    add("host-alloc", "files", dumps=True)
    add("local-finite-check", "plain", verdict_alt=("unrecognised",), **pipe)
    add("disk-full", "none", **hf)
    add("disk-full", "files")
    add("import-error", "tee", verdict_alt=("unrecognised",))
    add("token-range", "tee", nodes=2)
    add("bad-json", "merged-nodes", nodes=2, verdict_alt=("unrecognised",))
    add("missing-field", "redirect", detail=True, verdict_alt=("unrecognised",))
    # Deaths without an exception.
    add("sigkill", "srun")
    add("sigkill", "redirect", set={"kernel": True, "record": True}, alt=("outside",))
    add("sigkill", "files", alt=("unknown",), verdict_alt=("unrecognised", "inconclusive"))
    add("sigkill", "tee", nodes=2)
    add("sigsegv", "tee", **hf)
    add("sigsegv", "files", set={"faulthandler": True}, dumps=True)
    add("sigabrt", "redirect", set={"record": True})
    add("sigbus", "none", **bare)
    add("exit-code", "srun", **bare)
    add("exit-code", "redirect", verdict_alt=("unrecognised",))
    # Ranks apart.
    add("skip-collective", "files")
    add("skip-collective", "srun", world=6, **bare)
    add("skip-collective", "plain", dumps=True, **hf)
    add("skip-collective", "tee", alt=("unknown",), detail=True, set={"record": True})
    add("wrong-order", "srun")
    add("wrong-order", "files", dumps=True)
    add("wrong-order", "redirect")
    add("size-mismatch", "files", dumps=True)
    add("size-mismatch", "srun", dumps=True, **bare)
    add("rank0-eval", "files", world=6)
    add("rank0-eval", "mpirun", set={"said": False})
    add("rank0-eval", "tee", **hf)
    add("rank0-state-dict", "srun")
    add("rank0-state-dict", "files", dumps=True, set={"said": False})
    add("uneven", "files", **bare)
    add("uneven", "tee")
    add("uneven", "srun", world=3, set={"said": True})
    add("early-stop", "plain", **pipe)
    add("local-skip", "files", dumps=True)
    add("local-skip", "srun", set={"said": True})
    add("handled", "tasks")
    add("handled", "tee", alt=("unknown",))
    add("fsdp-divergent-init", "files")
    add("fsdp-divergent-init", "srun", dumps=True, **hf)
    add("parameters-differ", "files", alt=("unknown",), verdict="unrecognised", verdict_alt=("diagnosed",), **bare)
    add("moe-empty", "files", dumps=True)
    add("moe-empty", "srun", world=6, dumps=True, **bare)
    add("moe-empty", "tasks", world=8, set={"group_size": 4})
    # Late.
    add("slow-save", "files")
    add("slow-save", "redirect", set={"record": True})
    add("slow-save", "srun", **bare)
    add("slow-preprocess", "files")
    add("slow-preprocess", "tee", **bare)
    add("stall", "files", set={"said": True})
    add("stall", "files", dumps=True)
    add("stall", "redirect", alt=("unknown",))
    add("wrong-port", "tee")
    # The same everywhere.
    add("all-state-dict", "files", scope="all", **bare)
    add("all-missing-config", "srun", scope="all")
    add("all-keyerror", "tee", scope="all", verdict="unrecognised", verdict_alt=("diagnosed",))
    # Nobody can tell.
    add("skip-collective", "plain", world=2, scope="unknown", verdict_alt=("inconclusive", "unrecognised"))
    add("wrong-order", "srun", world=2, scope="unknown", verdict_alt=("inconclusive", "unrecognised"), **bare)
    add("missing-field", "files", scope="unknown", alt=("rank",), drop="guilty", verdict="inconclusive",
        verdict_alt=("diagnosed", "unrecognised"))  # fmt: skip
    add("sigkill", "tasks", scope="unknown", alt=("rank",), drop="guilty", verdict="inconclusive",
        verdict_alt=("diagnosed", "unrecognised"), **bare)  # fmt: skip
    add("stall", "plain", world=2, scope="unknown", verdict_alt=("inconclusive", "unrecognised"), **hf)
    add("finite-check", "srun", scope="unknown", verdict_alt=("unrecognised",))
    add("finite-check", "tee", scope="unknown", verdict_alt=("unrecognised",), **hf)
    add("hang", "tee", scope="unknown", alt=("rank",), stop="SIGTERM", verdict_alt=("inconclusive", "stopped"))
    # Nothing failed.
    add("healthy", "tee", scope="none", verdict="healthy")
    add("healthy", "files", scope="none", verdict="healthy", **bare)
    add("healthy-retry", "redirect", scope="none", verdict="healthy")
    add("healthy-early-stop", "srun", scope="none", verdict="healthy")
    add("healthy-skip", "plain", scope="none", verdict="healthy", **pipe)
    add("healthy", "files", scope="none", drop="cut", verdict="healthy", verdict_alt=("inconclusive",))
    # Ended from outside, moving or hanging.
    add("stopped", "tee", scope="outside", stop="SIGINT", verdict="stopped")
    add("stopped", "none", scope="outside", stop="SIGTERM", verdict="stopped", **hf)
    add("stopped", "redirect", scope="outside", stop="SIGHUP", verdict="stopped")
    add("stopped", "none", scope="outside", stop="slurm:TIME LIMIT", verdict="stopped")
    add("stopped", "tee", scope="outside", stop="slurm:PREEMPTION", verdict="stopped")
    add("hang", "redirect", stop="SIGINT", verdict_alt=("unrecognised",))
    add("hang", "tee", stop="SIGINT", world=3, verdict_alt=("unrecognised",), **hf)
    # The launcher, and more than one attempt.
    add("port-in-use", "tee", scope="outside", alt=("all", "unknown"))
    add("restart-same", "redirect", restarts=1)
    add("restart-other", "redirect", restarts=1, verdict_alt=("unrecognised",), set={"record": True})
    add("restart-same", "tee", restarts=1, **hf)
    # Harder to read: little is logged, no prefix, no dump.
    add("stall", "plain", alt=("unknown",), **hf)
    add("local-skip", "plain", **hf)
    add("uneven", "srun", world=8, **bare)
    add("handled", "plain", dumps=True, **hf)
    add("moe-empty", "srun", set={"say_groups": False}, scope="unknown", alt=("rank",), **bare)
    add("fsdp-divergent-init", "plain", **pipe)
    add("wrong-order", "plain", **hf)
    add("size-mismatch", "plain", alt=("unknown",), **bare)
    add("rank0-state-dict", "plain", set={"said": False}, **hf)
    add("slow-save", "mpirun", set={"said": False}, alt=("unknown",), **bare)
    add("early-stop", "tasks", world=3)
    add("skip-collective", "files", world=8, **hf)
    return rows


INCIDENTS: tuple[Incident, ...] = tuple(_table())
