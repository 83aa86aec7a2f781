"""What an incident shows people beside its answer: folded storms, the first abnormal line, a timeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from . import rules
from .case_facts import listed, lost
from .evidence import Case
from .model import Event, Initiating
from .values import replace


def next_evidence(case: Case, answer: Initiating | None) -> tuple[str, ...]:
    if answer is None or answer.confidence not in ("none", "weak"):
        return ()
    found = []
    if case.without_log:
        found.append(f"the log of rank {listed(case.without_log)}")
    found.append("the stderr files of the ranks that are silent")
    found.append("dmesg and the scheduler's accounting on the node")
    if case.flight is None and lost(case):
        found.append(
            "TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1: the flight recorder counts the calls of each rank"
        )
    if case.hung or lost(case):
        found.append("py-spy dump of every rank before the job is killed")
    if not case.per_rank_files:
        found.append("torchrun --redirects 3 --log-dir logs: one file per rank")
    return tuple(found)


def with_node(answer: Initiating | None, case: Case) -> Initiating | None:
    if answer is not None and answer.rank is not None and answer.node is None:
        node = case.known.rank_node.get(answer.rank)
        return replace(answer, node=node) if node else answer
    return answer


def alternatives(case: Case, answer: Initiating | None) -> tuple[Initiating, ...]:
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
            found.append(with_node(other, case) or other)
    return tuple(found[:5])


def _name(case: Case, source: int) -> str:
    known = case.sources.get(source)
    return known.name if known else str(source)


def collateral(case: Case) -> tuple[Mapping[str, Any], ...]:
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


def first_abnormal(case: Case, answer: Initiating | None) -> Mapping[str, Any] | None:
    """The first line that is not normal: of the initiating rank where there is one."""
    guilty = answer.rank if answer else None
    # Ordered by where it begins; a traceback is shown by the line that names its exception.
    spots: list[tuple[bool, int, int, int, int | None, str]] = []
    for raised in case.raised:
        if raised.origin == "log" and raised.kind not in ("launcher",):
            shown = raised.cause.header or raised.first
            text = raised.headline or "Traceback (most recent call last): and nothing after it"
            spots.append((raised.rank != guilty, raised.source, raised.first, shown, raised.rank, text))
    for event in case.events:
        if event.role in ("root", "cascade", "confirmation") and event.kind != "typically_caused":
            spots.append((event.rank != guilty, event.source, event.line, event.line, event.rank, event.text[:300]))
    if not spots:
        return None
    _, source, _, line, number, text = min(spots, key=lambda s: s[:3])
    return {"file": _name(case, source), "line": line, "rank": number, "text": text}


def timeline(case: Case) -> tuple[Mapping[str, Any], ...]:
    """What happened in order, for people: last progress, errors, ends."""
    rows: list[tuple[int, int, dict[str, Any]]] = []
    wanted = {(number, own.last_step_line) for number, own in case.progress.ranks.items()}
    homes: dict[tuple[int | None, int], int] = {}
    for record in case.records:
        if (record.rank, record.line) in wanted:
            homes.setdefault((record.rank, record.line), record.source)
    for number, own in case.progress.ranks.items():
        if own.last_step_line >= 0:
            source = homes.get((number, own.last_step_line), 0)
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
                        "what": raised.headline,
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
