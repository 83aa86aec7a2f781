"""One attempt of one job as evidence: what each rank said, how it ended, what others said about it.

`gather` turns parsed records into a `Case`; the rules that read it are in `rules`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from . import elastic, events, exceptions, lazy, tracebacks
from . import progress as progress_of
from .attribution import Attribution, Record, by_writer
from .elastic import ErrorFile, Summary
from .exceptions import Raised, Text
from .flight_recorder import FlightRecorderFinding
from .model import Event, Source
from .values import dataclass, field, replace

_SIGNALS = {
    "Killed": -9,
    "Aborted": -6,
    "Segmentation fault": -11,
    "Bus error": -7,
    "Terminated": -15,
    "Floating point exception": -8,
    "Illegal instruction": -4,
    "Interrupt": -2,
    "Hangup": -1,
}
_COMPLAINING = frozenset({"WARNING", "ERROR", "CRITICAL", "FATAL"})
_COMPLAINT = lazy.regex(r"\W{0,3}(?:WARNING|ERROR|CRITICAL|FATAL)\b")
_SIGNAL_NAMES = {
    "SIGKILL": -9,
    "SIGABRT": -6,
    "SIGSEGV": -11,
    "SIGBUS": -7,
    "SIGTERM": -15,
    "SIGFPE": -8,
    "SIGILL": -4,
    "SIGINT": -2,
    "SIGHUP": -1,
}
_EXIT_CODE = lazy.regex(r"(?:exit code|return code) (\d{1,3})")
SIGNAL_WORDS = {
    -4: "SIGILL",
    -6: "SIGABRT",
    -7: "SIGBUS",
    -8: "SIGFPE",
    -9: "SIGKILL",
    -11: "SIGSEGV",
    -15: "SIGTERM",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """How one rank ended, as a launcher or scheduler reports it."""

    code: int
    source: int
    line: int
    by: str
    """summary, agent, srun, spawn, mpi…"""
    out_of_memory: bool = False

    @property
    def told_to_stop(self) -> bool:
        return self.code in (-15, 143, -2, 130)

    @property
    def by_signal(self) -> int | None:
        """The signal number, also where a shell reports 128 + n."""
        if self.code < 0:
            return -self.code
        return self.code - 128 if self.code in (132, 134, 135, 136, 137, 139) else None


Kinded = tuple[str, Raised]


@dataclass(slots=True)
class Case:
    """Everything known about one attempt."""

    attempt: int
    sources: Mapping[int, Source]
    known: Attribution
    records: Sequence[Record]
    raised: Sequence[Raised] = ()
    events: Sequence[Event] = ()
    summaries: Sequence[Summary] = ()
    exits: dict[int, Exit] = field(default_factory=dict)
    progress: progress_of.Progress = field(default_factory=progress_of.Progress)
    flight: FlightRecorderFinding | None = None
    error_files: Mapping[int, tuple[int, ErrorFile]] = field(default_factory=dict)
    """rank → (source, file)"""
    stop: progress_of.Stop | None = None
    hung: str = ""
    """Why the job counts as hung although it was ended from outside."""
    step_lines: list[tuple[Record, float]] | None = None
    """Records that report a step, with it; read when first asked for."""
    kinded: tuple[Sequence[Raised], tuple[list[Kinded], dict[int | None, list[Kinded]]]] | None = None
    """The exceptions that `_sorted` has sorted, and how."""

    @property
    def steps(self) -> list[tuple[Record, float]]:
        """Every record that reports a step."""
        if self.step_lines is None:
            found = ((r, progress_of.step_of(r.body)) for r in self.records)
            self.step_lines = [(r, step[0]) for r, step in found if step is not None]
        return self.step_lines

    @property
    def world(self) -> tuple[int, ...]:
        """All ranks, or those seen where nobody says how many there are."""
        size = self.known.world_size
        ranks = set(self.known.seen_ranks) | set(self.exits)
        if size and size <= 100_000:
            ranks |= set(range(size))
        return tuple(sorted(ranks))

    @property
    def per_rank_files(self) -> bool:
        return sum(s.kind == "log" and (s.rank is not None or s.local_rank is not None) for s in self.sources.values()) > 1

    @property
    def without_log(self) -> tuple[int, ...]:
        """Ranks whose own file was not handed in, where others' were."""
        if not self.per_rank_files:
            return ()
        have = {r.rank for r in self.records if r.rank is not None}
        for source in self.sources.values():
            if source.kind == "log":
                rank = source.rank
                if rank is None and source.local_rank is not None:
                    rank = self.known.global_of_local(
                        source.local_rank, source.node or self.known.node_of_source.get(source.index)
                    )
                if rank is not None:
                    have.add(rank)
        return tuple(r for r in self.world if r not in have)

    def of_kind(self, *kinds: str) -> list[Event]:
        return [e for e in self.events if e.kind in kinds]

    def raised_by(self, rank: int, *kinds: str) -> list[Raised]:
        return [r for kind, r in self._sorted()[1].get(rank, ()) if not kinds or kind in kinds]

    def ranks_with(self, *kinds: str) -> dict[int, Raised]:
        """rank → its first exception of these kinds."""
        found: dict[int, Raised] = {}
        for kind, raised in self._sorted()[0]:
            if raised.rank is not None and kind in kinds:
                found.setdefault(raised.rank, raised)
        return found

    def _sorted(self) -> tuple[list[Kinded], dict[int | None, list[Kinded]]]:
        """(kind, exception) in order, and by rank; made once, since rules ask for each of a thousand ranks."""
        if self.kinded is None or self.kinded[0] is not self.raised:
            every: list[Kinded] = [(raised.kind, raised) for raised in self.raised]
            index: dict[int | None, list[Kinded]] = defaultdict(list)
            for kind, raised in every:
                index[raised.rank].append((kind, raised))
            found = (every, dict(index))
            self.kinded = (self.raised, found)
            return found
        return self.kinded[1]


def gather(
    records: Sequence[Record],
    sources: Mapping[int, Source],
    known: Attribution,
    attempt: int,
    error_files: Mapping[int, ErrorFile] | None = None,
) -> Case:
    """The evidence of one attempt; `error_files` by source index."""
    case = Case(attempt, sources, known, records)
    raised: list[Raised] = []
    summaries: list[Summary] = []
    for (source, rank, local, _, host), own in by_writer(records).items():
        texts = [Text(r.line, r.body, "[rank" in r.text[:160], r.parsed.level is not None) for r in own]
        blocks = elastic.read_summaries(texts, source)
        summaries.extend(replace(b, attempt=attempt) for b in blocks)
        covered = [(b.first, b.last) for b in blocks]
        outside = [t for t in texts if not any(a <= t.line <= z for a, z in covered)] if covered else texts
        ranks = {r.line: (r.rank, "[rank" in r.text[:160]) for r in own}
        before = {b.line: _complains(a) for a, b in itertools.pairwise(own)}
        for found in tracebacks.read(outside):
            at, hooked = ranks.get(found.first, (rank, False))
            logged = not hooked and before.get(found.first, False)
            if found.process is not None:
                at = known.global_of_local(found.process, host)
            raised.append(
                replace(
                    found,
                    source=source,
                    rank=at,
                    local_rank=local,
                    node=host,
                    attempt=attempt,
                    uncaught=hooked,
                    logged=logged,
                )
            )
    case.summaries = summaries
    for summary in summaries:
        for failure in summary.failures:
            if failure.rank is not None:
                known.seen_ranks.add(failure.rank)
                if failure.raised is not None:
                    raised.append(replace(failure.raised, source=summary.source, rank=failure.rank, attempt=attempt))
    case.error_files = _error_files(error_files or {}, sources, known)
    for rank, (source, file) in case.error_files.items():
        if file.raised is not None:
            raised.append(replace(file.raised, source=source, rank=rank, attempt=attempt))
    case.events = [_at_its_node(e, sources) for e in read_events(records)]
    case.exits = _exits(case)
    case.raised = _without_repeats(raised)
    case.progress = progress_of.of_records(records)
    return case


def _at_its_node(event: Event, sources: Mapping[int, Source]) -> Event:
    """A kernel's or an orchestrator's file is of one node, which its lines do not repeat."""
    source = sources[event.source]
    about = event.node is None and source.node is not None and source.kind in ("kernel", "scheduler")
    return replace(event, node=source.node) if about else event


def _complains(record: Record) -> bool:
    """A warning or error of a logger: what stands above a traceback that somebody caught."""
    return record.parsed.level in _COMPLAINING or bool(_COMPLAINT.match(record.body))


def read_events(records: Iterable[Record]) -> list[Event]:
    """All events in these records, in order."""
    own = list(records)
    found = []
    for position, index, detail in events.matches_of([r.text for r in own]):
        record = own[position]
        line = replace(record.parsed, rank=record.rank)
        found.append(events.event_at(index, detail, record.source, record.line, record.text, line, record.attempt))
    return found


def _error_files(
    files: Mapping[int, ErrorFile], sources: Mapping[int, Source], known: Attribution
) -> dict[int, tuple[int, ErrorFile]]:
    found = {}
    for index, file in files.items():
        source = sources[index]
        rank = source.rank
        if rank is None and source.local_rank is not None:
            rank = known.global_of_local(source.local_rank, source.node or known.node_of_source.get(index))
        if rank is not None:
            found[rank] = (index, file)
            known.seen_ranks.add(rank)
    return found


def _exits(case: Case) -> dict[int, Exit]:
    """How each rank ended; a summary block beats an agent's line beats a scheduler's."""
    found: dict[int, Exit] = {}

    def add(rank: int | None, code: int, source: int, line: int, by: str, oom: bool = False) -> None:
        if rank is None:
            return
        known = found.get(rank)
        if known is None or (known.told_to_stop and not Exit(code, source, line, by).told_to_stop):
            found[rank] = Exit(code, source, line, by, oom)

    for summary in case.summaries:
        for failure in summary.failures:
            if failure.exitcode is not None:
                add(failure.rank, failure.exitcode, summary.source, failure.line, "summary")
    for event in case.events:
        detail = event.detail
        if event.kind == "agent_failed":
            rank = case.known.pid_rank.get(detail["pid"])
            if rank is None:
                rank = case.known.global_of_local(detail["local_rank"], event.node)
            add(rank, detail["exitcode"], event.source, event.line, "agent")
        elif event.kind == "srun_task" and case.known.task_is_rank is not False:
            what = str(detail["what"]).strip()
            code = next((c for word, c in _SIGNALS.items() if what.startswith(word)), None)
            exit_code = _EXIT_CODE.search(what)
            oom = what.startswith("Out Of Memory")
            if code is None and exit_code:
                code = int(exit_code[1])
            if oom:
                code = -9
            if code is not None:
                for task in events.rank_list(detail["tasks"]):
                    add(task, code, event.source, event.line, "srun", oom)
        elif event.kind == "spawn_exit":
            code = detail.get("exitcode")
            if code is None:
                code = _SIGNAL_NAMES.get(str(detail.get("signal")))
            if isinstance(code, int):
                add(
                    case.known.global_of_local(detail["process"], event.node),
                    code,
                    event.source,
                    event.line,
                    "spawn",
                )
        elif event.kind == "mpi_exit":
            add(detail["named"], -detail["signal"], event.source, event.line, "mpi")
        elif event.kind == "composer_crash":
            add(detail["named"], detail["exitcode"], event.source, event.line, "composer")
        elif event.kind == "deepspeed_exit" and "local_rank" in detail:
            add(
                case.known.global_of_local(detail["local_rank"], event.node),
                detail["exitcode"],
                event.source,
                event.line,
                "deepspeed",
            )
    return found


def _without_repeats(raised: Sequence[Raised]) -> list[Raised]:
    """The same exception told by the log, the summary and error.json counts once (the log's copy)."""
    order = {"log": 0, "error_json": 1, "summary": 2}
    kept: dict[tuple[object, ...], Raised] = {}
    for found in sorted(raised, key=lambda r: order[r.origin]):
        where = found.cause.user_frame
        key: tuple[object, ...] = (
            found.rank,
            exceptions.last_name(found.cause.type),
            found.cause.message[:120].strip(),
            (where.file, where.line) if where else None,
        )
        if found.rank is None:
            key = (*key, found.source, found.first)
        kept.setdefault(key, found)
    return sorted(kept.values(), key=lambda r: (r.source, r.first))


def hosts_of(case: Case) -> dict[str, set[int]]:
    """Node → its ranks."""
    found: dict[str, set[int]] = defaultdict(set)
    for rank, node in case.known.rank_node.items():
        found[node].add(rank)
    for summary in case.summaries:
        for failure in summary.failures:
            if failure.host and failure.rank is not None:
                found[case.known.rank_node.get(failure.rank, failure.host)].add(failure.rank)
    return dict(found)
