"""Rules on time and phase: who was busy, late, at another step, or silent while the others waited."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from . import lazy, progress
from .case_facts import communication_failed, heard, listed, lost, rank, silent_ranks, unknown
from .evidence import Case
from .exceptions import Raised
from .flight_recorder import minority
from .model import Initiating
from .robust import median

_NUMBER = lazy.regex(r"(?<![\w.])\d[\d,]*(?![\w.%]|\.\d)")


_NOT_COMPARED = lazy.regex(
    r"\b(?:local_rank|rank|pid|port|seed|cuda|gpu|device|host|node|shard|worker|fd|time|took|elapsed|tid|thread|uid)"
    r"[ =:#\-]{0,3}\d+|0x[0-9a-f]+|\d+\.\d+\S*|/\S+|\d\d:\d\d:\d\d\S*",
    re.IGNORECASE,
)


_OWN_TIME = lazy.regex(
    r"\b(?P<name>(?:data|load|fetch|io|read|batch_gen|forward|preprocess)[_ ]?time)[=: ]{1,3}"
    r"(?P<value>\d{1,7}(?:\.\d{1,6})?) ?s\b"
)
_BAR = lazy.regex(r"\[(?P<elapsed>(?:\d+:)?\d\d?:\d\d)<")


def busy_bar_at_timeout(case: Case) -> Initiating | None:
    """A bar that has been running for about the timeout: the one busy rank is the one without a watchdog line."""
    timeouts = [
        e.detail["timeout_ms"] / 1000 for e in case.of_kind("watchdog", "gloo_timeout", "store_wait") if "timeout_ms" in e.detail
    ]
    timeouts += [int(m[1]) / 1000 for e in case.of_kind("store_timeout") if (m := re.search(r"timed out after (\d+)ms", e.text))]
    victims = {
        e.rank if e.rank is not None else e.detail.get("printed_rank")
        for e in case.of_kind("watchdog", "store_timeout", "gloo_timeout")
    } - {None}
    if not timeouts or not victims:
        return None
    limit = max(timeouts)
    for record in case.records:
        match = _BAR.search(record.text[:2000])
        seconds = progress.elapsed_seconds(match["elapsed"]) if match else None
        if seconds is not None and 0.9 * limit <= seconds <= 1.1 * limit and limit >= 60:
            size = case.known.world_size or max(v for v in victims if v is not None) + 1
            absent = [r for r in range(size) if r not in victims]
            owner = record.rank if record.rank is not None and record.rank not in victims else None
            if owner is None and len(absent) == 1:
                owner = absent[0]
            if owner is None and 0 not in victims:
                owner = 0
            if owner is not None:
                return rank(
                    owner,
                    f"rank {owner} was still busy ({record.body.strip()[:60]}…) for the whole timeout",
                    "strong",
                )
    return None


def different_start(case: Case) -> Initiating | None:
    """One rank printed another number than all others in a line that all printed (its model, its data, its tokens)."""
    if not communication_failed(case):
        return None
    tables: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
    first: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for record in case.records:
        body = record.body
        if record.rank is None or record.about or len(body) > 300 or body.startswith((" ", "\t", "Traceback", "RuntimeError")):
            continue
        if re.search(r"\bloss\b|grad_norm|lr=|it/s", body):
            continue
        plain = _NOT_COMPARED.sub("", body)
        numbers = tuple(_NUMBER.findall(plain))
        if numbers:
            key = _NUMBER.sub("#", plain).strip()
            tables[key][record.rank] = numbers
            first[key].setdefault(record.rank, numbers)
    for table in (first, tables):
        for key, values in table.items():
            if len(values) >= 3 and len(values) >= len(case.world) - 1:
                odd = minority(values)
                if len(odd) == 1 and len(set(values.values())) == 2:
                    return rank(
                        odd[0],
                        f"rank {odd[0]} alone printed {' '.join(values[odd[0]])} where the others agree ({key[:80]})",
                        "medium",
                    )
    return None


def still_busy_when_others_failed(case: Case) -> Initiating | None:
    """One rank went on with its own work while, or after, the others' wait timed out."""
    waiting = lost(case)
    if len(waiting) < 2:
        return None
    timeouts = [e.detail["timeout_ms"] / 1000 for e in case.of_kind("gloo_timeout")]
    last = {r: (p.last_time, p.clock) for r, p in case.progress.ranks.items() if r is not None and p.last_time is not None}
    if timeouts and len(last) >= 2 and len(last) >= len(case.world) - 1:
        ordered = sorted((time, r) for r, (time, _) in last.items() if time is not None)
        (before, _), (latest, number) = ordered[-2], ordered[-1]
        one_clock = len({(clock or "").split("@")[0] for _, clock in last.values()}) == 1
        if one_clock and latest - before > max(1.0, 0.5 * min(timeouts)):
            return rank(
                number,
                f"rank {number} was still working {latest - before:.1f} s after the last words of all others, "
                f"who waited {min(timeouts):g} s at most",
                "medium",
            )
    return _working_after_tracebacks(case, waiting)


def _working_after_tracebacks(case: Case, waiting: Mapping[int, Raised]) -> Initiating | None:
    """In one merged log: ordinary lines of one rank after two others had failed, and before its own error."""
    if case.per_rank_files or not case.of_kind("gloo_timeout"):
        return None
    busy: dict[int, str] = {}
    for record in case.records:
        number = record.rank
        if number is None or record.about or number in busy:
            continue
        own = [r.first for r in case.raised if r.rank == number and r.source == record.source]
        if own and record.line >= min(own):
            continue
        ended = [r for r in waiting.values() if r.rank != number and r.source == record.source and r.last < record.line]
        said = progress.step_of(record.body) is not None or progress.phase_of(record.body)
        if len(ended) >= 2 and said and not record.body.startswith((" ", "\t")):
            busy[number] = record.body.strip()[:80]
    if len(busy) != 1:
        return None
    number, text = next(iter(busy.items()))
    return rank(number, f"rank {number} was still working ({text}) when others had already timed out", "medium")


def busy_elsewhere(case: Case) -> Initiating | None:
    """One rank announced a save, an evaluation or the end of its data, and the others then waited."""
    if not communication_failed(case):
        return None
    said = {r: p for r, p in case.progress.ranks.items() if r is not None and p.phase}
    if len(said) == 1 and len(case.world) >= 2:
        number, own = next(iter(said.items()))
        # Where only rank 0 logs, its last words are those of every rank.
        others_speak = any(p.steps or p.phase for r, p in case.progress.ranks.items() if r is not None and r != number)
        if own.phase_line >= 0 and (others_speak or number in silent_ranks(case)):
            return rank(number, f"the last thing rank {number} alone said was: {own.phase[:120]}", "medium")
    return None


def slow_in_its_own_work(case: Case) -> Initiating | None:
    """One rank's data or compute time far above all others'; step time is useless, collectives equalise it."""
    if not case.of_kind("gloo_timeout", "watchdog"):
        return None
    last: dict[str, dict[int, float]] = defaultdict(dict)
    for record in case.records:
        if record.rank is not None and "time" in record.body[:600]:
            for match in _OWN_TIME.finditer(record.body[:600]):
                last[match["name"]][record.rank] = float(match["value"])
    for name, times in last.items():
        if len(times) >= 3 and len(times) >= len(case.world) - 1:
            (slowest, number), (second, _) = sorted(((t, r) for r, t in times.items()), reverse=True)[:2]
            if slowest >= 1.0 and slowest >= 5 * max(second, 0.01):
                return rank(number, f"{name} of rank {number} was {slowest:g} s, of all others at most {second:g} s", "medium")
    return None


def step_differs(case: Case) -> Initiating | None:
    """One rank stopped at another step than all others."""
    if not communication_failed(case) and not case.hung:
        return None
    steps = {r: p.last_step for r, p in case.progress.ranks.items() if r is not None and p.last_step is not None}
    waiting = lost(case)
    if len(steps) < 3 or not (case.hung or all(r in waiting for r in steps)):
        return None  # a log that ends without an error may be cut
    odd = minority(steps)
    if len(odd) == 1:
        common = Counter(steps.values()).most_common(1)[0][0]
        return rank(odd[0], f"rank {odd[0]} stopped at step {steps[odd[0]]:g}, all others at {common:g}", "weak")
    return None


def raised_late(case: Case) -> Initiating | None:
    """One rank noticed only seconds after all others: it came late to the call they had waited in."""
    stamps = {r: f.timestamp for r, (_, f) in case.error_files.items() if f.timestamp is not None}
    times: dict[int, float] = {r: float(t) for r, t in stamps.items()}
    if len(times) < 3:
        times = _traceback_times(case)
    timeouts = [e.detail["timeout_ms"] / 1000 for e in case.of_kind("gloo_timeout")]
    if len(times) < 3 or len(times) < len(case.world) - 1 or not timeouts:
        return None
    ordered = sorted((t, r) for r, t in times.items())
    (before, _), (last, number) = ordered[-2], ordered[-1]
    if last - before >= max(2.0, 0.4 * median(timeouts)) and before - ordered[0][0] <= 1.5:
        return rank(
            number,
            f"rank {number} noticed {last - before:.1f} s after all others: it came late to the call they waited in",
            "weak",
        )
    return None


def only_one_did_not_time_out(case: Case) -> Initiating | None:
    """All in the same line, all but one waited the full time: that one came when the others had gone.

    A latecomer finds closed connections and never waits itself. In recorded runs this held in
    9 of 9 cases with equal frames; with different frames it says nothing.
    """
    waiting = lost(case)
    places = {(f.file, f.line) for e in waiting.values() if (f := e.cause.user_frame) is not None}
    if len(waiting) < 3 or set(waiting) != set(case.world) or len(places) != 1:
        return None
    early = [r for r, e in waiting.items() if "imed out waiting" not in e.cause.message]
    if len(early) != 1:
        return None
    return rank(
        early[0],
        f"all ranks wait in one line and all but {early[0]} waited the full time: rank {early[0]} came after they had gone",
        "weak",
    )


def _traceback_times(case: Case) -> dict[int, float]:
    starts = {(r.source, r.first): r.rank for r in case.raised if r.rank is not None and r.kind == "communication"}
    found: dict[int, float] = {}
    clocks = set()
    for record in case.records:
        number = starts.get((record.source, record.line))
        if number is not None and record.time is not None:
            found.setdefault(number, record.time)
            clocks.add(record.parsed.clock)
    return found if len(clocks) == 1 else {}


def silent_by_elimination(case: Case) -> Initiating | None:
    """All ranks but one report that they waited or lost a peer; that one printed nothing."""
    if case.known.folded:
        return unknown("Ray folded equal lines of other ranks: silence proves nothing here")
    complaining = lost(case)
    silent = silent_ranks(case)
    if not complaining or not silent:
        return None
    missing = [r for r in silent if r in case.without_log]
    if missing:
        return unknown(f"no log for rank {listed(missing)}, which may be the one that started it")
    if len(silent) != 1 or len(complaining) < 2:
        return None
    if any(r.kind == "cut" for r in case.raised):
        return unknown("the log ends within a traceback: what the silent rank printed may be in the part cut off")
    number = silent[0]
    exit_ = case.exits.get(number)
    timed_out = any(e.rank in complaining for e in case.of_kind("gloo_timeout", "watchdog"))
    if exit_ is not None and exit_.told_to_stop and not timed_out:
        return None  # it may only have been stopped before it could complain
    own_log = number in heard(case) or case.per_rank_files
    return rank(
        number,
        f"all ranks but {number} waited for a peer or lost it; rank {number} stopped without a word",
        "medium" if own_log and timed_out else "weak",
    )
