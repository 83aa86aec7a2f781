"""What the incident analysis found, said as lines that log signatures can match.

Some failures have no text of their own: a rank that skips a collective prints the same time-out as a
dead network. What tells them apart is the comparison of ranks, which `incident` makes. Its results are
offered to signatures as lines of a virtual source, in this fixed vocabulary and order (documented for authors):

    faultbook-incident kind=<what> rank=<r|-> world=<n|-> rule=<rule> [exception=<Type>]
        [lost=<n> wait=<closed|timeout|mixed>] [said=<what>] [handled=alone] [doing=<phase>] [others=<phase>]
        [left=loop] [function=<same|other>] [group=sub] [frame=<function>] [waiting=<function>]
        [guilty_op=<collective>] [op=<collective>]
    faultbook-incident kind=gpu state=<ecc|lost|needs_reset|no_driver|remap_failed|remap_pending|slowed|unreadable>
        gpu=<bus id|-> count=<n>

kinds: own_fault (one rank raised, others only lost it), all_fault (the same exception on all ranks),
signal (one rank died by a signal), desync (ranks at different collectives), silent (one rank was not
there), hang (stopped from outside after long silence), stopped (ended from outside while running).
lost counts the ranks that only waited or lost a peer; wait says how that ended for them: connections closed (somebody
died), time-outs (somebody did not come), or both. doing and others are what the initiating rank and the waiting ones
stood in, by the names in their own code and by what the rank last announced: training, evaluation, checkpoint,
preprocessing, end (of the epoch or the run). said is what the initiating rank announced
after its last step: one of these, data_end (its data is used up) or early_stop. handled=alone: it alone printed that it
skipped or caught something. left=loop: the initiating rank has left the function in whose backward
pass the others wait. function says whether both stood in the same function of the user's code.
A line of kind gpu stands for one thing that a report of nvidia-smi says is wrong with a GPU, whether or not anything failed.
"""

from __future__ import annotations

import re

from . import lazy
from .exceptions import Frame, Raised
from .incident import Incident
from .model import Event

NAME = "incident"
PREFIX = "faultbook-incident"
DESYNC_RULES = frozenset({
    "flight_recorder_shows", "own_fingerprint_differs", "behind_in_counters", "behind_in_sub_group",
    "member_missing_in_group", "in_another_frame",
    "interrupted_elsewhere", "different_start", "busy_elsewhere", "step_differs", "raised_late", "silent_by_elimination",
    "busy_bar_at_timeout", "named_by_barrier", "handled_error_before", "still_busy_when_others_failed",
    "slow_in_its_own_work", "only_one_did_not_time_out", "never_joined_the_store", "absent_from_summary", "parameters_differ",
    "announced_a_save_before_the_wait", "waits_differ",
})  # fmt: skip
"""Rules that tell ranks apart which only waited for one another; the rest name a fault or an end from outside."""

SILENT_RULES = frozenset({
    "silent_by_elimination", "busy_bar_at_timeout", "busy_elsewhere", "still_busy_when_others_failed", "raised_late",
    "slow_in_its_own_work", "only_one_did_not_time_out", "never_joined_the_store", "absent_from_summary",
    "announced_a_save_before_the_wait",
})  # fmt: skip
"""Of these, the ones by which the initiating rank was late, or not there at all."""

_PHASES = (
    ("checkpoint", lazy.regex(r"checkpoint|\bckpt|state[_ ]?dict|(?:\b|_)sav(?:e|ing)(?:\b|_)", re.I)),
    ("evaluation", lazy.regex(r"\beval|_eval\b|\bvalid(?:at|\b|_)|_val\b|\brun_test\b|\btest_(?:epoch|loop)", re.I)),
    (
        "preprocessing",
        lazy.regex(r"tokeni[sz]|preprocess|prepare_data|(?:build|prepar\w*|download\w*|index\w*)[ _](?:the |test |train )?"
                   r"(?:data|set|corpus|shards?)|grouping texts|\bmap\b|examples/s", re.I),
    ),
    (
        "end",
        lazy.regex(r"\bfinish|\bfinali[sz]e|cleanup|tear_?down|destroy_process_group|epoch_end|exhausted|ran out of|no more"
                   r"|end of (?:data|shard|epoch)|epoch done|leaving the loop|early[ _]?stop", re.I),
    ),
    (
        "training",
        lazy.regex(r"\.backward\(|\btrain(?:ing)?_(?:step|batch|one)|optimizer\.step|\bforward\b"
                   r"|=\s*(?:self\.)?(?:\w*model|net)\("),
    ),
)  # fmt: skip
"""Names of a phase in code or in what a rank announces; the first that fits, innermost frame first."""
_SAID = (
    ("early_stop", lazy.regex(r"early[ _-]?stop|stopping (?:\w+ )?early|leaving the loop", re.I)),
    ("data_end", lazy.regex(r"exhausted|ran out of|no more|end of (?:data|shard|epoch)|epoch done", re.I)),
)
_SUBGROUP = lazy.regex(r"\bgroup ?= ?(?!None\b|dist\.group\.WORLD|group\.WORLD)")


def lines_of(incident: Incident) -> list[str]:
    """At most a few lines; none when nothing failed."""
    told = incident.initiating
    if told is None and not incident.stopped and not incident.hung:
        return []
    rank = told.rank if told is not None else None
    own = [r for r in incident.exceptions if r.kind == "own"]
    lost = [r for r in incident.exceptions if r.kind == "communication"]
    kinds: list[str] = []
    detail: dict[str, str] = {}
    if incident.stopped:
        kinds.append("stopped")
    if incident.hung:
        kinds.append("hang")
    if told is not None and told.scope == "all":
        kinds.append("all_fault")
    if told is not None and told.scope == "rank":
        mine = [r for r in own if r.rank == rank]
        if mine and (lost or (incident.world_size or 0) > 1):
            kinds.append("own_fault")
            detail["exception"] = mine[0].cause.type
        elif "signal" in incident.rule or incident.rule == "one_odd_exit" or _died(incident):
            kinds.append("signal")
    if incident.rule in DESYNC_RULES or (lost and not own and told is not None and told.scope == "unknown"):
        # A rank that gloo aborted for the size of what it received says nothing more, but it did take part.
        met = rank is not None and any(e.kind == "size_mismatch" and e.rank == rank for e in incident.events)
        kinds.append("silent" if incident.rule in SILENT_RULES and not met else "desync")
    if told is not None:
        detail |= _details(incident, rank)
    extra = "".join(f" {key}={re.sub(r'[^A-Za-z0-9_.:<>-]', '_', value)[:80]}" for key, value in detail.items())
    world = incident.world_size or "-"
    return [
        f"{PREFIX} kind={kind} rank={'-' if rank is None else rank} world={world} rule={incident.rule or '-'}{extra}"
        for kind in kinds
    ]


def line_of_gpu(event: Event) -> str:
    """What nvidia-smi says is wrong with one GPU."""
    detail = event.detail
    return f"{PREFIX} kind=gpu state={detail['state']} gpu={detail['gpu'] or '-'} count={detail['count']}"


def _died(incident: Incident) -> bool:
    """The initiating rank left a dump of a fatal signal, or the kernel's word that it was killed."""
    if incident.rule == "kernel_killed_a_rank":
        return True
    rank = incident.initiating.rank if incident.initiating is not None else None
    return incident.rule == "own_fault" and any(r.kind == "fatal" and r.rank == rank for r in incident.exceptions)


def _details(incident: Incident, rank: int | None) -> dict[str, str]:
    """Where the initiating rank and the waiting ones stood."""
    found: dict[str, str] = {}
    guilty = next((r for r in incident.exceptions if r.rank == rank and rank is not None and r.cause.user_frame), None)
    others = [r for r in incident.exceptions if r.kind == "communication" and (rank is None or r.rank != rank)]
    if others:
        found["lost"] = str(len({r.rank for r in others}))
        found["wait"] = _wait(others)
    said = incident.phases.get(rank, "") if rank is not None else ""
    doing = phase_of(guilty) if guilty is not None and guilty.kind == "communication" else ""
    if said and (what := next((name for name, pattern in _SAID if pattern.search(said)), "") or _phase_in(said)):
        found["said"] = what
    if rank is not None and {e.rank for e in incident.events if e.kind == "handled"} == {rank}:
        found["handled"] = "alone"
    basis = incident.initiating.basis if incident.initiating is not None and _busy(incident) else ""
    doing = doing or _phase_in(said) or _phase_in(basis)
    if doing and rank is not None:
        found["doing"] = doing
    waiting = next((r for r in others if r.cause.user_frame), None)
    if waiting is not None and (phase := phase_of(waiting)):
        found["others"] = phase
    if guilty is not None and waiting is not None:
        if _left_loop(guilty, waiting):
            found["left"] = "loop"
        a, b = guilty.cause.user_frame, waiting.cause.user_frame
        assert a is not None and b is not None
        found["function"] = "same" if (a.file, a.function) == (b.file, b.function) else "other"
    if any(r.cause.user_frame and _SUBGROUP.search(r.cause.user_frame.code) for r in others):
        found["group"] = "sub"
    if guilty is not None and guilty.cause.user_frame:
        found["frame"] = guilty.cause.user_frame.function
    if waiting is not None and waiting.cause.user_frame:
        found["waiting"] = waiting.cause.user_frame.function
    if guilty is not None and guilty.cause.collective:
        found["guilty_op"] = guilty.cause.collective
    op = next((r.cause.collective for r in others if r.cause.collective), None)
    if op:
        found["op"] = op
    return found


def _busy(incident: Incident) -> bool:
    return incident.rule in ("busy_bar_at_timeout", "busy_elsewhere", "still_busy_when_others_failed")


def _wait(others: list[Raised]) -> str:
    timed_out = {("timed out" in r.cause.message.lower() or "timeout" in r.cause.message.lower()) for r in others}
    return "mixed" if len(timed_out) == 2 else "timeout" if timed_out == {True} else "closed"


def phase_of(raised: Raised) -> str:
    """What the rank stood in, by the names in its own code; empty if they say nothing."""
    for frame in reversed([f for f in raised.cause.frames if f.is_user]):
        if found := _phase_in(f"{frame.function} {frame.code}"):
            return found
    return ""


def _phase_in(text: str) -> str:
    return next((name for name, pattern in _PHASES if pattern.search(text)), "")


def _left_loop(guilty: Raised, waiting: Raised) -> bool:
    """The others wait in a backward pass inside a function that the initiating rank has left behind."""
    mine, theirs = _chain(guilty), _chain(waiting)
    if not theirs or ".backward(" not in theirs[-1].code:
        return False
    if any((f.file, f.function) == (theirs[-1].file, theirs[-1].function) for f in mine):
        return False
    common = [(a, b) for a, b in zip(mine, theirs, strict=False) if (a.file, a.function) == (b.file, b.function)]
    return bool(common) and common[-1][0].line > common[-1][1].line


def _chain(raised: Raised) -> list[Frame]:
    return [f for f in raised.cause.frames if f.is_user]
