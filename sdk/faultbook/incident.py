"""From the logs of a job to who started the failure, what followed, and what would decide if unknown.

`from_sources` is the one entry; `build` is the same for callers that already hold parsed
records. The decision itself is the ordered list in `rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import (
    attempts,
    attribution,
    elastic,
    evidence,
    flight_recorder,
    gpu_state,
    incident_view,
    reading,
    rules,
    rules_fault,
    rules_hints,
    stacks,
)
from .attribution import Attribution, Record
from .case_facts import listed, lost, steps_after, unknown
from .elastic import ErrorFile
from .evidence import Case
from .exceptions import Raised, Text
from .flight_recorder import Dump, FlightRecorderFinding
from .model import Event, Initiating, Source
from .sources import SourceError, open_stream
from .stops import judge_stop
from .values import dataclass, field, replace

Texts = Callable[[Source], Iterable[tuple[int, str]]]
"""(line number, text) of a source."""


@dataclass(frozen=True, slots=True)
class Incident:
    """What happened to a job."""

    initiating: Initiating | None
    """None: nothing failed, or the run came to its planned end."""
    rule: str = ""
    """The rule of `rules` that decided."""
    alternatives: tuple[Initiating, ...] = ()
    collateral: tuple[Mapping[str, Any], ...] = ()
    first_abnormal: Mapping[str, Any] | None = None
    timeline: tuple[Mapping[str, Any], ...] = ()
    world_size: int | None = None
    missing_ranks: tuple[int, ...] = ()
    """Ranks whose own log was not handed in."""
    reasons: tuple[str, ...] = ()
    """Why unknown, what contradicts, what was left out."""
    next_evidence: tuple[str, ...] = ()
    """What would decide, cheapest first; only where the answer is unknown or weak."""
    completed: bool = False
    progressed: bool = False
    """Progress was printed (and nothing failed, if `initiating` is None)."""
    stopped: str = ""
    """What ended the run from outside, while it was moving."""
    hung: str = ""
    attempt: int = 0
    """The attempt in which it started."""
    attempts: int = 1
    exceptions: tuple[Any, ...] = ()
    """`exceptions.Raised` of the deciding attempt, for the diagnosis to read."""
    events: tuple[Event, ...] = ()
    ranks: tuple[int, ...] = ()
    phases: Mapping[int, str] = field(default_factory=dict)
    """What each rank announced after its last step (a save, an evaluation, the end of its data), if it did."""


def from_sources(sources: Sequence[Source], texts: Texts | None = None) -> Incident:
    """The incident that these sources describe. `texts` reads a source's lines (default: the scanner's reader)."""
    found, _ = with_records(sources, texts)
    return found


def with_records(
    sources: Sequence[Source], texts: Texts | None = None, stalled: float | None = None
) -> tuple[Incident, list[Record]]:
    """The same, and the parsed lines with their ranks and attempts, for stages that need them too.

    `stalled`: seconds for which the job has printed nothing, when whoever asks has watched it.
    """
    reader = texts or reading.texts
    by_index = {s.index: s for s in sources}
    records: list[Record] = []
    error_files: dict[int, ErrorFile] = {}
    dumps: list[Dump] = []
    notes: list[str] = []
    standing: list[Raised] = []
    gpus: list[Event] = []
    for source in sources:
        if source.skipped:
            continue
        if source.kind == "error_json":
            file = elastic.read_error_file("\n".join(text for _, text in reader(source)))
            if file is not None:
                error_files[source.index] = file
        elif source.kind == "flight_recorder":
            try:
                dumps.append(flight_recorder.load(content(source), source.rank))
            except (flight_recorder.DumpError, SourceError, OSError) as error:
                notes.append(f"{source.name}: {error}")
        elif source.kind == "stacks":
            standing += stacks.read(reader(source), source.index, source.rank)
        elif source.kind == "gpu":
            gpus += gpu_state.read(reader(source), source)
        elif source.kind in ("log", "kernel", "scheduler"):
            records.extend(attribution.parse_all([source], {source.index: reader(source)}))
    known, divided = attribute(records, by_index)
    return judge(divided, known, by_index, error_files, dumps, notes, standing, stalled, gpus), divided


def content(source: Source) -> bytes:
    """The bytes of a source that is no text."""
    with open_stream(source) as stream:
        return stream.read(flight_recorder.MAX_DUMP + 1)


def build(
    records: Sequence[Record],
    sources: Mapping[int, Source],
    error_files: Mapping[int, ErrorFile] | None = None,
    dumps: Sequence[Dump] = (),
    notes: Sequence[str] = (),
) -> Incident:
    """The incident of parsed records."""
    known, divided = attribute(records, sources)
    return judge(divided, known, sources, error_files, dumps, notes)


def attribute(records: Sequence[Record], sources: Mapping[int, Source]) -> tuple[Attribution, list[Record]]:
    """What the records say about ranks, and the records with rank and attempt filled in."""
    known = attribution.learn(records, sources)
    _learn_from_summaries(records, known)
    divided, _ = attempts.assign(attribution.resolve(records, known, sources))
    return known, divided


def judge(
    divided: Sequence[Record],
    known: Attribution,
    sources: Mapping[int, Source],
    error_files: Mapping[int, ErrorFile] | None = None,
    dumps: Sequence[Dump] = (),
    notes: Sequence[str] = (),
    standing: Sequence[Raised] = (),
    stalled: float | None = None,
    gpus: Sequence[Event] = (),
) -> Incident:
    """Attempts apart, then the rules on the first that failed."""
    error_files = error_files or {}
    numbers = sorted({r.attempt for r in divided} | {sources[i].attempt or 0 for i in error_files}) or [0]
    cases = []
    for number in numbers:
        own = [r for r in divided if r.attempt == number]
        files = {i: f for i, f in error_files.items() if (sources[i].attempt or 0) == number}
        case = evidence.gather(own, sources, known, number, files)
        cases.append(case)
    if gpus:  # the node as it is now, that is, after the last attempt
        cases[-1].events = [*cases[-1].events, *gpus]
    finding = flight_recorder.analyse(dumps, known.world_size, known.groups) if dumps else None
    for case in cases:
        case.flight = finding if case is cases[-1] else None
        judge_stop(case)
    if standing or stalled is not None:
        _stands_still(cases[-1], standing, stalled)
    return _decide(cases, known, finding, dumps, notes)


def _stands_still(case: Case, standing: Sequence[Raised], stalled: float | None) -> None:
    """Somebody watched the job stall, or took stacks of it: it hangs, unless it has failed or come to its end."""
    case.raised = [*case.raised, *(replace(r, rank=case.known.pid_rank.get(r.process or -1, r.rank)) for r in standing)]
    case.known.seen_ranks.update(r.rank for r in standing if r.rank is not None)
    if stalled is not None or not (_failed(case) or case.progress.completed):
        case.hung = case.hung or (
            f"no output for {stalled:.0f} s" if stalled is not None else "stacks of its running processes were taken"
        )


def _learn_from_summaries(records: Sequence[Record], known: Attribution) -> None:
    """Elastic blocks hold pid, rank and host together: read them before ranks are resolved."""
    for (source, *_), own in attribution.by_writer(records).items():
        if not any("exitcode" in r.body for r in own):
            continue
        blocks = elastic.read_summaries([Text(r.line, r.body) for r in own], source)
        known.pid_rank.update(elastic.pid_ranks(blocks))
        for block in blocks:
            for failure in block.failures:
                if failure.rank is None:
                    continue
                known.seen_ranks.add(failure.rank)
                # Banner and summary may name one machine differently; the first name stays.
                node = known.rank_node.get(failure.rank, failure.host)
                if failure.local_rank is not None:
                    known.local_rank.setdefault((node, failure.local_rank), failure.rank)
                if node:
                    known.rank_node.setdefault(failure.rank, node)


def _failed(case: Case) -> bool:
    """Whether anything went wrong in this attempt that was not handled."""
    if case.stop is not None or case.hung:
        return True
    quiet = ("own", "communication", "cut")
    bad = [r for r in case.raised if r.kind != "stack" and not (r.kind in quiet and rules_fault.caught_and_logged(case, r))]
    died = [e for e in case.exits.values() if e.code != 0]
    loud = case.of_kind(
        "watchdog",
        "host_oom_kill",
        "barrier_failed",
        "horovod_missing",
        "horovod_ready",
        "jax_task_error",
        "xid",
        "mpi_exit",
        "composer_crash",
        "deepspeed_exit",
        "agent_failed",
        "fatal_error",
        "store_clients",
        "store_connect",
        "local_nan",
        "fingerprint_mismatch",
        "watchdog_exception",
        "ecc",
        "device_assert",
        "oom_kill_step",
        "oom_killed_pod",
        "cpp_terminate",
        "nccl_error",
        "store_gone",
        "store_timeout",
        "gloo_timeout",
        "peer_closed",
        "peer_reset",
        "watchdog_stuck",
        "killed_line",
        "actor_died",
    )
    lost = any(e.detail["state"] == "lost" for e in case.of_kind(gpu_state.KIND))
    return bool(bad or died or loud or lost) or _fault_without_progress(case)


def _fault_without_progress(case: Case) -> bool:
    """A line of a fault that was not handled and after which nothing moved."""
    handled = {(e.source, e.line) for e in case.of_kind("handled")}
    return any(
        (e.kind in rules_fault.FAULT_LINES or rules_hints.is_resource_warning(e))
        and (e.source, e.line) not in handled
        and not steps_after(case, e.source, e.line, e.rank)
        for e in case.events
    )


def _recovered(case: Case) -> bool:
    """The run came to its planned end and nothing uncaught remains."""
    if not case.progress.completed or case.stop is not None:
        return False
    if any(e.code not in (0,) for e in case.exits.values()):
        return False
    if case.of_kind("watchdog", "sigterm_sent", "spawn_terminated", "host_oom_kill"):
        return False
    return not any(r.uncaught or r.kind in ("launcher", "fatal") for r in case.raised)


def _decide(
    cases: Sequence[Case],
    known: Attribution,
    finding: FlightRecorderFinding | None,
    dumps: Sequence[Dump],
    notes: Sequence[str],
) -> Incident:
    last = cases[-1]
    reasons = list(notes)
    broken = [c for c in cases if _failed(c) and not _recovered(c)]
    if broken and len(cases) > 1 and (last not in broken) and last.progress.completed:
        reasons.append(f"attempt {broken[0].attempt} failed; attempt {last.attempt} completed")
        broken = []
    if not broken:
        return _incident(last, None, "", cases, reasons, finding)
    answer: Initiating | None = None
    rule = ""
    case = broken[0]
    undecided: tuple[Case, Initiating, str] | None = None
    for case in broken:
        answer, rule = rules.decide(case)
        if answer is not None and answer.scope != "unknown":
            break
        undecided = undecided or (case, answer or unknown(_why_unknown(case)), rule)
    else:
        assert undecided is not None
        case, answer, rule = undecided
    if case.attempt and len(cases) > 1:
        reasons.append(f"decided in attempt {case.attempt}")
    if case.hung:
        reasons.append(case.hung)
    if finding is not None and finding.no_dump:
        reasons.append(f"no flight recorder dump of rank {listed(finding.no_dump)}")
    return _incident(case, answer, rule, cases, reasons, finding)


def _why_unknown(case: Case) -> str:
    """The reason why no rule answered."""
    if case.hung:
        return f"the job hung ({case.hung}); nothing in the log tells which rank"
    if case.without_log:
        return f"no log for rank {listed(case.without_log)}, and the others only waited or lost a peer"
    waiting = lost(case)
    if len(case.world) == 2 and len(waiting) == 2:
        return "two ranks waited in different calls and nothing counts the calls: either may have skipped one"
    if waiting:
        return "only timeouts and lost connections: no rank stands out"
    return "no event in these logs says where it started"


def _incident(
    case: Case,
    answer: Initiating | None,
    rule: str,
    cases: Sequence[Case],
    reasons: Sequence[str],
    finding: FlightRecorderFinding | None,
) -> Incident:
    stopped = case.stop.why if case.stop is not None and not case.hung else ""
    return Incident(
        initiating=incident_view.with_node(answer, case),
        rule=rule,
        alternatives=incident_view.alternatives(case, answer),
        collateral=incident_view.collateral(case),
        first_abnormal=incident_view.first_abnormal(case, answer),
        timeline=incident_view.timeline(case),
        world_size=case.known.world_size,
        missing_ranks=case.without_log,
        reasons=tuple(dict.fromkeys(reasons)),
        next_evidence=incident_view.next_evidence(case, answer),
        completed=case.progress.completed,
        progressed=any(p.steps for p in case.progress.ranks.values()),
        stopped=stopped,
        hung=case.hung,
        attempt=case.attempt,
        attempts=len(cases),
        exceptions=tuple(case.raised),
        events=tuple(case.events),
        ranks=case.world,
        phases={r: p.phase for r, p in case.progress.ranks.items() if r is not None and p.phase},
    )
