"""Was the job ended from outside, and was it still moving then?"""

from __future__ import annotations

from . import lines, progress, rules_desync, rules_fault
from .attribution import Record
from .evidence import Case
from .model import Event
from .values import replace

HANG_STEPS = 10.0
"""Silence of this many step times before an end from outside means that the job hung."""


HANG_SECONDS = 2.0
"""…but never less than this."""
WITHOUT_STEPS = 600.0
"""The same where no step time is known."""


_ORDERED = ("preempted", "time_limit", "run_limit", "node_failed", "evicted")
"""Ends that a scheduler decides by itself, whatever the job does."""


def judge_stop(case: Case) -> None:
    """Fills `case.stop` and `case.hung`: was it ended from outside, and was it still moving then?"""
    event = progress.stopped_by(case.events)
    if event is not None and _is_teardown(case, event):
        event = None
    interrupts = case.ranks_with("interrupt")
    anonymous = [r for r in case.raised if r.rank is None and r.kind == "interrupt"]
    caught = case.of_kind("interrupt_caught")
    if event is None and caught and not rules_fault.own_faults(case) and not interrupts:
        event = replace(caught[0], kind="user_interrupt")
    if event is None and (interrupts or anonymous) and not rules_fault.own_faults(case):
        sample = next(iter(interrupts.values()), anonymous[0] if anonymous else None)
        if sample is not None and not _lost_before_interrupt(case):
            event = Event("confirmation", "user_interrupt", sample.source, sample.first, "KeyboardInterrupt")
    if event is None and not case.raised:  # the line alone: an excerpt that begins inside the traceback of the Ctrl-C
        event = next(iter(case.of_kind("user_interrupt")), None)
    if event is None:
        return
    case.stop = progress.Stop(_why(event), event, _silence_before(case, event))
    case.hung = _hang_before(case)


def _is_teardown(case: Case, event: Event) -> bool:
    """Whether the launcher or scheduler only cleaned up after a failure that came first."""
    own = rules_fault.own_faults(case).values()
    before = [r for r in own if r.source == event.source and r.first < event.line]
    if event.kind in _ORDERED:
        return bool(before)
    elsewhere = [r for r in own if r.source != event.source]
    if before or elsewhere:
        return True
    earlier = [e for e in case.exits.values() if not e.told_to_stop and (e.source != event.source or e.line < event.line)]
    interrupted = event.kind == "agent_signal" and event.detail.get("signal") == 2
    if earlier and not interrupted:
        return True
    lost = [
        r
        for r in case.raised
        if r.rank is not None and r.kind in ("communication", "fatal") and (r.source != event.source or r.first < event.line)
    ]
    if event.kind in ("agent_signal", "signal_received"):
        # One agent: nobody else could have sent the signal on. With several nodes, srun does.
        timed_out = [e for e in case.of_kind("gloo_timeout") if e.source == event.source and e.line < event.line]
        return bool(timed_out) or (bool(lost) and len(case.known.nodes) > 1)
    return bool(lost)


def _lost_before_interrupt(case: Case) -> bool:
    """Ranks that lost a peer although others were interrupted: fewer than those are teardown of the Ctrl-C."""
    lost = set(case.ranks_with("communication"))
    return len(lost) > len(case.ranks_with("interrupt"))


def _why(event: Event) -> str:
    if event.kind == "user_interrupt" or (event.kind == "agent_signal" and event.detail.get("signal") == 2):
        return "the user (Ctrl-C)"
    if event.kind == "agent_signal" and event.detail.get("signal") == 1:
        return "the end of the login session (SIGHUP)"
    return progress.STOPS.get(event.kind, event.kind)


def _silence_before(case: Case, event: Event) -> float | None:
    """Seconds between the last words of any rank and the stop, on one clock."""
    at = _time_of(case, event)
    if at is None:
        return None
    gaps = [
        gap
        for r in case.records
        if r.time is not None
        and r.rank is not None
        and not r.about
        and not _is_shutdown(r)
        and (gap := _seconds_between(r.time, r.parsed.clock, *at)) is not None
        and gap >= -1
    ]
    return max(0.0, min(gaps)) if gaps else None


def _is_shutdown(record: Record) -> bool:
    return "KeyboardInterrupt" in record.body or "Traceback" in record.body or record.body.startswith("  ")


def _time_of(case: Case, event: Event) -> tuple[float, str | None] | None:
    when = event.detail.get("when")
    if when:
        line = lines.parse(str(when).replace("T", " ") + " .")
        if line.time is not None:
            return line.time, line.clock
    if event.time is not None:
        return event.time, event.clock
    return None


def _seconds_between(earlier: float, clock: str | None, later: float, other: str | None) -> float | None:
    """Seconds between two stamps; a year-less stamp of torch or syslog is local time as well."""
    one, two = (clock or "").split("@")[0], (other or "").split("@")[0]
    if one == two:
        return later - earlier
    if one == "local" and two in lines.YEARLESS:
        return later - _within_year(earlier)
    if two == "local" and one in lines.YEARLESS:
        return _within_year(later) - earlier
    return None


def _within_year(time: float) -> float:
    """Seconds since New Year as `lines` counts them on year-less clocks (leap days included)."""
    import datetime  # slow to import, and rarely needed

    moment = datetime.datetime.fromtimestamp(time, datetime.timezone.utc)
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    return (moment.replace(year=2024) - start).total_seconds()


def _hang_before(case: Case) -> str:
    """Why a job that was ended from outside had hung before; empty if it was moving."""
    stop = case.stop
    if stop is None:
        return ""
    steps = [p.step_seconds for p in case.progress.ranks.values() if p.step_seconds]
    if stop.silent_for is not None and (steps or stop.silent_for > WITHOUT_STEPS):
        limit = max(HANG_SECONDS, HANG_STEPS * min(steps)) if steps else WITHOUT_STEPS
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
    return "all ranks but one were inside a collective when it was interrupted" if elsewhere is not None else ""
