"""What the incident analysis found, said as lines that log signatures can match.

Some failures have no text of their own: a rank that skips a collective prints the same time-out as a
dead network. What tells them apart is the comparison of ranks, which `incident` makes. Its results are
offered to signatures as lines of a virtual source, in this fixed vocabulary (documented for authors):

    faultbook-incident kind=<what> rank=<r|-> world=<n> rule=<rule> [exception=<Type>] [signal=<SIG>]
                       [frame=<function>] [waiting=<function>] [op=<collective>] [phase=<…>]

kinds: own_fault (one rank raised, others only lost it), all_fault (the same exception on all ranks),
signal (one rank died by a signal), desync (ranks at different collectives), silent (one rank was not
there), hang (stopped from outside after long silence), stopped (ended from outside while running).
"""

from __future__ import annotations

import re

from .incident import Incident

NAME = "incident"
PREFIX = "faultbook-incident"
DESYNC_RULES = frozenset({
    "flight_recorder_shows", "own_fingerprint_differs", "behind_in_counters", "member_missing_in_group", "in_another_frame",
    "interrupted_elsewhere", "different_start", "busy_elsewhere", "step_differs", "raised_late", "silent_by_elimination",
    "busy_bar_at_timeout", "named_by_barrier",
})  # fmt: skip

SILENT_RULES = frozenset({"silent_by_elimination", "busy_bar_at_timeout", "busy_elsewhere"})


def lines_of(incident: Incident) -> list[str]:
    """At most a few lines; none when nothing failed."""
    told = incident.initiating
    if told is None and not incident.stopped and not incident.hung:
        return []
    rank = told.rank if told is not None else None
    own = [r for r in incident.exceptions if r.kind == "own"]
    lost = [r for r in incident.exceptions if r.kind == "communication"]
    guilty = [r for r in incident.exceptions if r.rank == rank and rank is not None]
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
        elif "signal" in incident.rule or incident.rule == "one_odd_exit":
            kinds.append("signal")
    if incident.rule in DESYNC_RULES or (lost and not own and told is not None and told.scope == "unknown"):
        kinds.append("silent" if incident.rule in SILENT_RULES else "desync")
    at = next((r.cause.user_frame for r in guilty if r.cause.user_frame), None)
    if at is not None:
        detail["frame"] = at.function
    waiting = next((r.cause.user_frame for r in lost if r.rank != rank and r.cause.user_frame), None)
    if waiting is not None:
        detail["waiting"] = waiting.function
    op = next((r.cause.collective for r in lost if r.rank != rank and r.cause.collective), None)
    if op:
        detail["op"] = op
    extra = "".join(f" {key}={re.sub(r'[^A-Za-z0-9_.:<>-]', '_', value)[:80]}" for key, value in detail.items())
    world = incident.world_size or "-"
    return [
        f"{PREFIX} kind={kind} rank={'-' if rank is None else rank} world={world} rule={incident.rule or '-'}{extra}"
        for kind in kinds
    ]
