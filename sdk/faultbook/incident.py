"""From the logs of a job to who started the failure, what followed, and what would decide if unknown.

`from_sources` is the one entry; `build` is the same for callers that already hold parsed
records. The decision itself is the ordered list in `rules`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import attempts, attribution, elastic, evidence, flight_recorder, progress, rules, rules_desync
from .attribution import Attribution, Record
from .elastic import ErrorFile
from .evidence import Case
from .exceptions import Text
from .flight_recorder import Dump, FlightRecorderFinding
from .model import Event, Initiating, Source
from .sources import SourceError, open_stream

Texts = Callable[[Source], Iterable[tuple[int, str]]]
"""(line number, text) of a source."""

HANG_STEPS = 10.0
"""Silence of this many step times before an end from outside means that the job hung."""
HANG_SECONDS = 2.0
"""…but never less than this."""


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


def from_sources(sources: Sequence[Source], texts: Texts | None = None) -> Incident:
    """The incident that these sources describe. `texts` reads a source's lines (default: the scanner's reader)."""
    reader = texts or attribution.read_text
    by_index = {s.index: s for s in sources}
    records: list[Record] = []
    error_files: dict[int, ErrorFile] = {}
    dumps: list[Dump] = []
    notes: list[str] = []
    for source in sources:
        if source.skipped:
            notes.append(f"{source.name} was not read: {source.skipped}")
        elif source.kind == "error_json":
            file = elastic.read_error_file("\n".join(text for _, text in reader(source)))
            if file is not None:
                error_files[source.index] = file
        elif source.kind == "flight_recorder":
            try:
                dumps.append(flight_recorder.load(content(source), source.rank))
            except (flight_recorder.DumpError, SourceError, OSError) as error:
                notes.append(f"{source.name}: {error}")
        elif source.kind in ("log", "kernel", "scheduler"):
            records.extend(attribution.parse_all([source], {source.index: reader(source)}))
    return build(records, by_index, error_files, dumps, notes)


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
    """The incident of parsed records: attempts apart, then the rules on the first that failed."""
    known = attribution.learn(records, sources)
    _learn_from_summaries(records, known)
    resolved = attribution.resolve(records, known, sources)
    divided, _ = attempts.assign(resolved)
    error_files = error_files or {}
    numbers = sorted({r.attempt for r in divided} | {sources[i].attempt or 0 for i in error_files}) or [0]
    cases = []
    for number in numbers:
        own = [r for r in divided if r.attempt == number]
        files = {i: f for i, f in error_files.items() if (sources[i].attempt or 0) == number}
        case = evidence.gather(own, sources, known, number, files)
        cases.append(case)
    finding = flight_recorder.analyse(dumps, known.world_size, known.groups) if dumps else None
    for case in cases:
        case.flight = finding if case is cases[-1] else None
        _judge_stop(case)
    return _decide(cases, known, finding, dumps, notes)


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
                if failure.local_rank is not None:
                    known.local_rank.setdefault((failure.host, failure.local_rank), failure.rank)
                if failure.host:
                    known.rank_node.setdefault(failure.rank, failure.host)


def _judge_stop(case: Case) -> None:
    """Was it ended from outside, and was it still moving then?"""
    event = progress.stopped_by(case.events)
    interrupts = case.ranks_with("interrupt")
    anonymous = [r for r in case.raised if r.rank is None and r.kind == "interrupt"]
    failing = rules.own_faults(case)
    if event is not None and event.kind in ("agent_signal", "cancelled"):
        # srun and torchrun pass SIGTERM on when a rank has failed: then it is teardown.
        early = [
            r
            for r in case.raised
            if r.rank is not None
            and r.kind in ("own", "communication", "fatal")
            and (r.source != event.source or r.first < event.line)
        ]
        died = [
            e
            for e in case.exits.values()
            if not e.told_to_stop and (e.source != event.source or e.line < event.line)
        ]
        if failing or early or (died and event.detail.get("signal") != 2):
            event = None
    elif event is not None and failing and event.kind != "preempted" and event.kind != "node_failed":
        event = None
    if event is None and (interrupts or anonymous) and not failing:
        sample = next(iter(interrupts.values()), anonymous[0] if anonymous else None)
        if sample is not None and not case.ranks_with("communication"):
            event = Event("confirmation", "user_interrupt", sample.source, sample.first, "KeyboardInterrupt")
    if event is None:
        return
    why = (
        "the user (Ctrl-C)"
        if event.kind == "user_interrupt"
        or (event.kind == "agent_signal" and event.detail.get("signal") == 2)
        else progress.STOPS.get(event.kind, event.kind)
    )
    if event.kind == "agent_signal" and event.detail.get("signal") == 1:
        why = "the end of the login session (SIGHUP)"
    case.stop = progress.Stop(why, event, _silence_before(case, event))
    case.hung = _hang_before(case)


def _silence_before(case: Case, event: Event) -> float | None:
    """Seconds between the last words of any rank and the stop, on one clock."""
    at = _time_of(case, event)
    if at is None:
        return None
    time, clock = at
    last = [
        r.time
        for r in case.records
        if r.time is not None
        and r.rank is not None
        and not r.about
        and _same_clock(r.parsed.clock, clock)
        and not _is_shutdown(r)
        and r.time <= time + 1
    ]
    return time - max(last) if last else None


def _is_shutdown(record: Record) -> bool:
    return "KeyboardInterrupt" in record.body or "Traceback" in record.body or record.body.startswith("  ")


def _time_of(case: Case, event: Event) -> tuple[float, str | None] | None:
    from . import lines

    when = event.detail.get("when")
    if when:
        line = lines.parse(str(when).replace("T", " ") + " .")
        if line.time is not None:
            return line.time, line.clock
    if event.time is not None:
        return event.time, event.clock
    return None


def _same_clock(one: str | None, other: str | None) -> bool:
    return (one or "").split("@")[0] == (other or "").split("@")[0]


def _hang_before(case: Case) -> str:
    """Why a job that was ended from outside had hung before; empty if it was moving."""
    stop = case.stop
    if stop is None:
        return ""
    steps = [p.step_seconds for p in case.progress.ranks.values() if p.step_seconds]
    if stop.silent_for is not None:
        usual = min(steps) if steps else None
        limit = max(HANG_SECONDS, HANG_STEPS * usual) if usual is not None else 600.0
        if stop.silent_for > limit:
            return f"silent for {stop.silent_for:.0f} s before it was stopped by {stop.why}"
        return ""
    return _stuck_when_interrupted(case)


def _stuck_when_interrupted(case: Case) -> str:
    """Without a clock: all ranks but one inside a collective when interrupted."""
    stacks = case.ranks_with("interrupt")
    if len(stacks) < 3:
        return ""
    case.hung = "?"
    elsewhere = rules_desync.interrupted_elsewhere(case)
    case.hung = ""
    return (
        "all ranks but one were inside a collective when it was interrupted" if elsewhere is not None else ""
    )


def _failed(case: Case) -> bool:
    """Whether anything went wrong in this attempt that was not handled."""
    if case.stop is not None:
        return True
    bad = [
        r
        for r in case.raised
        if r.kind
        in ("own", "communication", "fatal", "pair", "interrupt", "launcher", "launcher_fault", "cut")
    ]
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
        "cpp_terminate",
        "nccl_error",
        "store_gone",
        "store_timeout",
        "gloo_timeout",
        "peer_closed",
        "peer_reset",
        "watchdog_stuck",
        "actor_died",
    )
    return bool(bad or died or loud) or _fault_without_progress(case)


def _fault_without_progress(case: Case) -> bool:
    """A line of a fault that was not handled and after which nothing moved."""
    handled = {(e.source, e.line) for e in case.of_kind("handled")}
    return any(
        e.kind in rules.FAULT_LINES
        and (e.source, e.line) not in handled
        and not rules_desync.steps_after(case, e.source, e.line, e.rank)
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
        undecided = undecided or (case, answer or rules.unknown(_why_unknown(case)), rule)
    else:
        assert undecided is not None
        case, answer, rule = undecided
    if case.attempt and len(cases) > 1:
        reasons.append(f"decided in attempt {case.attempt}")
    if case.hung:
        reasons.append(case.hung)
    if finding is not None and finding.no_dump:
        reasons.append(f"no flight recorder dump of rank {rules.listed(finding.no_dump)}")
    return _incident(case, answer, rule, cases, reasons, finding)


def _why_unknown(case: Case) -> str:
    """The reason why no rule answered."""
    if case.hung:
        return f"the job hung ({case.hung}); nothing in the log tells which rank"
    if case.without_log:
        return f"no log for rank {rules.listed(case.without_log)}, and the others only waited or lost a peer"
    waiting = rules_desync.lost(case)
    if len(case.world) == 2 and len(waiting) == 2:
        return "two ranks waited in different calls and nothing counts the calls: either may have skipped one"
    if waiting:
        return "only timeouts and lost connections: no rank stands out"
    return "no event in these logs says where it started"


def _next_evidence(case: Case, answer: Initiating | None) -> tuple[str, ...]:
    if answer is None or answer.confidence not in ("none", "weak"):
        return ()
    found = []
    if case.without_log:
        found.append(f"the log of rank {rules.listed(case.without_log)}")
    found.append("the stderr files of the ranks that are silent")
    found.append("dmesg and the scheduler's accounting on the node")
    if case.flight is None and rules_desync.lost(case):
        found.append(
            "TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1: the flight recorder counts the calls of each rank"
        )
    if case.hung or rules_desync.lost(case):
        found.append("py-spy dump of every rank before the job is killed")
    if not case.per_rank_files:
        found.append("torchrun --redirects 3 --log-dir logs: one file per rank")
    return tuple(found)


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
        initiating=_with_node(answer, case),
        rule=rule,
        alternatives=_alternatives(case, answer),
        collateral=_collateral(case),
        first_abnormal=_first_abnormal(case, answer),
        timeline=_timeline(case),
        world_size=case.known.world_size,
        missing_ranks=case.without_log,
        reasons=tuple(dict.fromkeys(reasons)),
        next_evidence=_next_evidence(case, answer),
        completed=case.progress.completed,
        progressed=any(p.steps for p in case.progress.ranks.values()),
        stopped=stopped,
        hung=case.hung,
        attempt=case.attempt,
        attempts=len(cases),
        exceptions=tuple(case.raised),
        events=tuple(case.events),
        ranks=case.world,
    )


def _with_node(answer: Initiating | None, case: Case) -> Initiating | None:
    if answer is not None and answer.rank is not None and answer.node is None:
        node = case.known.rank_node.get(answer.rank)
        return replace(answer, node=node) if node else answer
    return answer


def _alternatives(case: Case, answer: Initiating | None) -> tuple[Initiating, ...]:
    """What other rules would have said, where it differs: support and contradiction."""
    if answer is None:
        return ()
    found: list[Initiating] = []
    for rule in rules.RULES:
        other = rule(case)
        if other is None or other.scope == "unknown":
            continue
        if (other.scope, other.rank) != (answer.scope, answer.rank) and all(
            (other.scope, other.rank) != (f.scope, f.rank) for f in found
        ):
            found.append(_with_node(other, case) or other)
    return tuple(found[:5])


def _name(case: Case, source: int) -> str:
    known = case.sources.get(source)
    return known.name if known else str(source)


def _collateral(case: Case) -> tuple[Mapping[str, Any], ...]:
    """Storms folded: what, how often, on which ranks, first and last."""
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in case.events:
        if event.role in ("cascade", "teardown"):
            groups[event.kind].append(event)

    def spot(event: Event) -> dict[str, Any]:
        return {
            "file": _name(case, event.source),
            "line": event.line,
            "rank": event.rank,
            "text": event.text[:300],
        }

    return tuple(
        {
            "what": kind,
            "role": own[0].role,
            "count": len(own),
            "ranks": sorted({e.rank for e in own if e.rank is not None}),
            "first": spot(own[0]),
            "last": spot(own[-1]),
        }
        for kind, own in sorted(groups.items(), key=lambda item: (item[1][0].source, item[1][0].line))
    )


def _first_abnormal(case: Case, answer: Initiating | None) -> Mapping[str, Any] | None:
    """The first line that is not normal: of the initiating rank where there is one."""
    spots: list[tuple[bool, float, int, int, int | None, str]] = []
    for raised in case.raised:
        if raised.origin == "log" and raised.kind not in ("launcher",):
            text = f"{raised.cause.type}: {raised.cause.message}".split("\n")[0][:300]
            spots.append(
                (
                    raised.rank != (answer.rank if answer else None),
                    0.0,
                    raised.source,
                    raised.first,
                    raised.rank,
                    text,
                )
            )
    for event in case.events:
        if event.role in ("root", "cascade", "confirmation") and event.kind != "typically_caused":
            spots.append(
                (
                    event.rank != (answer.rank if answer else None),
                    0.0,
                    event.source,
                    event.line,
                    event.rank,
                    event.text[:300],
                )
            )
    if not spots:
        return None
    *_, source, line, number, text = min(spots, key=lambda s: (s[0], s[2], s[3]))
    return {"file": _name(case, source), "line": line, "rank": number, "text": text}


def _timeline(case: Case) -> tuple[Mapping[str, Any], ...]:
    """What happened in order, for people: last progress, errors, ends."""
    rows: list[tuple[int, int, dict[str, Any]]] = []
    for number, own in case.progress.ranks.items():
        if own.last_step_line >= 0:
            source = next(
                (r.source for r in case.records if r.rank == number and r.line == own.last_step_line), 0
            )
            rows.append(
                (
                    source,
                    own.last_step_line,
                    {
                        "rank": number,
                        "time": own.last_step_time,
                        "what": f"last progress: step {own.last_step:g}",
                    },
                )
            )
    for raised in case.raised:
        if raised.origin == "log":
            rows.append(
                (
                    raised.source,
                    raised.first,
                    {
                        "rank": raised.rank,
                        "time": raised.time,
                        "what": f"{raised.cause.type.rsplit('.', 1)[-1]}: {raised.cause.message.strip().splitlines()[0] if raised.cause.message.strip() else ''}"[
                            :160
                        ],
                    },
                )
            )
    for number, exit_ in case.exits.items():
        rows.append(
            (
                exit_.source,
                exit_.line,
                {"rank": number, "time": None, "what": f"ended with code {exit_.code} ({exit_.by})"},
            )
        )
    if case.stop is not None:
        rows.append(
            (
                case.stop.event.source,
                case.stop.event.line,
                {"rank": None, "time": case.stop.event.time, "what": f"stopped by {case.stop.why}"},
            )
        )
    rows.sort(key=lambda r: (r[0], r[1]))
    return tuple({**row, "file": _name(case, source), "line": line} for source, line, row in rows[:200])
