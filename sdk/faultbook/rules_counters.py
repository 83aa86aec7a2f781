"""Rules on the NCCL watchdog's counters: who waits in another call, who enqueued fewer, who is missing from a group.

The world's table is safe only when no smaller group has an unmatched call: a member of a sub-group that
went on without the others is ahead there and, in the world's table, looks like everybody else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from .case_facts import heard, listed, rank, unknown
from .evidence import Case
from .flight_recorder import minority
from .model import Initiating

Tables = dict[str | None, tuple[dict[int, tuple[object, ...]], dict[int, int]]]
"""group → (rank → the call it waits in, rank → calls it has enqueued); the world is group None."""


def _group(detail: Mapping[str, Any]) -> str | None:
    """The group of a line; empty where it is one of several that cannot be told apart.

    `PG ID` counts the groups of one process: only the GUID means the same group everywhere.
    """
    if "guid" in detail:
        return None if str(detail["guid"]) == "0" else str(detail["guid"])
    return None if str(detail.get("group", 0)) == "0" else ""


def _tables(case: Case) -> Tables:
    found: Tables = defaultdict(lambda: ({}, {}))
    for event in case.of_kind("watchdog", "group_status"):
        detail = event.detail
        group = _group(detail)
        if group == "":
            continue
        number = event.rank
        if number is None and group is None:
            number = detail.get("printed_rank")  # inside a sub-group this is the group's own numbering
        if number is None:
            continue
        calls, enqueued = found[group]
        if event.kind == "watchdog" and "seq" in detail:
            calls.setdefault(number, tuple(detail.get(k) for k in ("seq", "op", "numel_in", "numel_out")))
        if "enqueued" in detail:
            enqueued.setdefault(number, detail["enqueued"])
    return found


def behind_in_sub_group(case: Case) -> Initiating | None:
    """In the smallest group with waiting members: the one that never issued the call the others wait in."""
    tables = {g: t for g, t in _tables(case).items() if g is not None and t[0]}
    for group, (calls, enqueued) in sorted(tables.items(), key=lambda item: (len(item[1][0].keys() | item[1][1]), item[0] or "")):
        waits = min(int(str(c[0])) for c in calls.values())
        behind = [r for r, n in enqueued.items() if n < waits and r not in calls]
        if len(behind) == 1:
            return rank(
                behind[0],
                f"rank {behind[0]} has enqueued {enqueued[behind[0]]} calls of group {group}, "
                f"rank {listed(calls)} waits there in call {waits}",
                "medium",
            )
        members = next((set(m) for m in case.known.groups if set(calls) <= set(m)), set())
        absent = members - set(calls)
        if len(absent) == 1 and len(calls) == len(members) - 1 and absent <= heard(case):
            number = absent.pop()
            return rank(
                number,
                f"rank {listed(calls)} waits in call {waits} of its group {sorted(members)}; member {number} does not",
                "medium",
            )
    return None


def behind_in_counters(case: Case) -> Initiating | None:
    """NCCL watchdog tables of the world: another call than the majority, or fewer enqueued."""
    calls, enqueued = _tables(case).get(None, ({}, {}))
    for table, what in (
        (enqueued, "enqueued fewer calls than all others"),
        (calls, "waits in another call than all others"),
    ):
        odd = minority(table) if len(table) >= 3 else ()
        if len(odd) == 1 and (table is calls or enqueued[odd[0]] < min(v for r, v in enqueued.items() if r != odd[0])):
            complete = len(table) >= len(case.world)
            return rank(odd[0], f"rank {odd[0]} {what}", "strong" if complete else "weak")
    if len(calls) >= 2 and case.known.world_size:
        absent = [r for r in case.world if r not in calls]
        if len(absent) == 1 and absent[0] not in case.without_log and not case.known.folded and absent[0] in heard(case):
            return rank(absent[0], f"all ranks but {absent[0]} report a watchdog timeout", "medium")
    return None


def waits_differ(case: Case) -> Initiating | None:
    """Ranks that gave up on different calls of the group of all went apart before; which of them was right, two cannot say."""
    waits: dict[int, int] = {}
    for event in case.of_kind("group_status"):
        detail = event.detail
        if "timed_out" in detail and _group(detail) is None and ("guid" in detail or "group" in detail):
            number = event.rank if event.rank is not None else detail.get("group_rank")
            if number is not None:
                waits.setdefault(int(number), int(detail["timed_out"]))
    if len(set(waits.values())) < 2:
        return None
    said = ", ".join(f"rank {r} in call {n}" for r, n in sorted(waits.items())[:8])
    return unknown(f"the waits that timed out are different calls of one group: {said}")
