"""Rules for the cases in which no rank raised an error of its own: who was missing, different or busy."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import median

from . import progress
from .evidence import Case
from .exceptions import Frame, Raised
from .flight_recorder import minority
from .model import Initiating

_WAITING = re.compile(
    r"\b(?:wait|all_reduce|all_gather\w*|all_to_all\w*|broadcast\w*|barrier|reduce_scatter\w*|recv|send|isend|irecv|gather"
    r"|scatter|backward|_run_backward|monitored_barrier|synchronize|allreduce|reduce)\b"
)
_SUBGROUP = re.compile(r"\bgroup ?= ?(?!None\b|dist\.group\.WORLD|group\.WORLD)")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?![\w.%]|\.\d)")
_NOT_COMPARED = re.compile(
    r"\b(?:local_rank|rank|pid|port|seed|cuda|gpu|device|host|node|shard|worker|fd|time|took|elapsed|tid|thread|uid)"
    r"[ =:#\-]{0,3}\d+|0x[0-9a-f]+|\d+\.\d+\S*|/\S+|\d\d:\d\d:\d\d\S*",
    re.IGNORECASE,
)
_NONFINITE = re.compile(r"\b(?:loss|grad[_ ]?norm|gnorm)\b['\" ]{0,2}[=:] ?'?-?(?:nan|inf)\b", re.IGNORECASE)
_BAR = re.compile(r"\[(?P<elapsed>(?:\d+:)?\d\d?:\d\d)<")


def rank(number: int, basis: str, confidence: str) -> Initiating:
    return Initiating("rank", number, None, basis, confidence)  # type: ignore[arg-type]


def lost(case: Case) -> dict[int, Raised]:
    """Ranks with a communication error: the waiting side."""
    return case.ranks_with("communication")


def silent_ranks(case: Case) -> tuple[int, ...]:
    """Ranks of the world without any error, where others have one."""
    spoke = {r.rank for r in case.raised if r.rank is not None}
    spoke |= {
        e.rank
        for e in case.of_kind("watchdog", "gloo_timeout", "peer_closed", "peer_reset", "store_wait")
        if e.rank is not None
    }
    return tuple(r for r in case.world if r not in spoke)


def first_nan_rank(case: Case) -> int | None:
    """The one rank whose own metrics were non-finite first; None if several were at once."""
    seen: dict[int, tuple[float | None, int]] = {}
    order = 0
    for record in case.records:
        if record.rank is not None and record.rank not in seen and _NONFINITE.search(record.body[:600]):
            step = progress.step_of(record.body)
            seen[record.rank] = (step[0] if step else None, order)
            order += 1
    if len(seen) == 1:
        return next(iter(seen)) if len({r.rank for r in case.records if r.rank is not None}) > 1 else None
    steps = sorted((s, r) for r, (s, _) in seen.items() if s is not None)
    return steps[0][1] if len(steps) > 1 and steps[0][0] < steps[1][0] else None


# -- counters -------------------------------------------------------------------------------


def flight_recorder_shows(case: Case) -> Initiating | None:
    """The first call, in the smallest group, on which the members differ."""
    found = case.flight
    if found is None or not _communication_failed(case):
        return None
    if len(found.suspects) == 1:
        confidence = "strong" if len(found.members) >= 3 or found.reason == "missing" else "weak"
        if found.reason == "late":
            confidence = "medium"
        return rank(found.suspects[0], f"flight recorder: {found.detail}", confidence)
    if found.reason in ("operation", "size") and len(found.members) == 2:
        return Initiating(
            "unknown",
            None,
            None,
            f"flight recorder: {found.detail}; with two members nothing tells which is wrong",
            "none",
        )
    return None


def _communication_failed(case: Case) -> bool:
    return (
        bool(lost(case))
        or bool(case.hung)
        or bool(case.of_kind("watchdog", "gloo_timeout", "peer_closed", "size_mismatch"))
    )


def own_fingerprint_differs(case: Case) -> Initiating | None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: only what each rank says about itself; the peer's part is often wrong."""
    own: dict[int, tuple[str, ...]] = {}
    for event in case.of_kind("fingerprint_mismatch"):
        number = event.detail["self_rank"]
        if event.rank is not None and event.rank != number:
            continue  # numbers inside a sub-group
        text = str(event.detail["self_text"])
        own.setdefault(
            number,
            tuple(
                m[0] if m else ""
                for m in (
                    re.search(r"OpType=\w+", text),
                    re.search(r"TensorShape=\[[^\]]*\]", text),
                    re.search(r"SequenceNumber=\d+", text),
                )
            ),
        )
    if len(own) >= 3:
        for take in (2, 3):
            odd = minority({r: k[:take] for r, k in own.items()})
            if len(odd) == 1:
                return rank(
                    odd[0],
                    f"rank {odd[0]} says it runs {' '.join(own[odd[0]])}, all others something else",
                    "medium",
                )
    events = case.of_kind("fingerprint_mismatch")
    peers = Counter(e.detail["peer_rank"] for e in events if e.detail["peer_rank"] not in own)
    if len(peers) == 1 and own:
        number = next(iter(peers))
        exceptional = {e.rank for e in events if e.rank is not None}
        if (
            len(own) >= 2
            or (number in {r.rank for r in case.raised})
            or len(exceptional) >= 2
            or len(case.world) > 2
        ):
            return rank(
                number,
                f"{len(own)} rank(s) met something else on rank {number} than they run themselves",
                "medium" if len(own) > 1 else "weak",
            )
    return None


def behind_in_counters(case: Case) -> Initiating | None:
    """NCCL watchdog tables of one group: another call than the majority, or fewer enqueued."""
    calls: dict[int, tuple[object, ...]] = {}
    enqueued: dict[int, int] = {}
    for event in case.of_kind("watchdog", "group_status"):
        number = event.rank if event.rank is not None else event.detail.get("printed_rank")
        if number is None or event.detail.get("group", 0) not in (0, "0"):
            continue
        if event.kind == "watchdog" and "seq" in event.detail:
            calls.setdefault(
                number, tuple(event.detail.get(k) for k in ("seq", "op", "numel_in", "numel_out"))
            )
        if "enqueued" in event.detail:
            enqueued.setdefault(number, event.detail["enqueued"])
    for table, what in (
        (enqueued, "enqueued fewer calls than all others"),
        (calls, "waits in another call than all others"),
    ):
        odd = minority(table) if len(table) >= 3 else ()
        if len(odd) == 1 and (
            table is calls or enqueued[odd[0]] < min(v for r, v in enqueued.items() if r != odd[0])
        ):
            complete = len(table) >= len(case.world)
            return rank(odd[0], f"rank {odd[0]} {what}", "strong" if complete else "weak")
    if len(calls) >= 2 and case.known.world_size:
        absent = [r for r in case.world if r not in calls]
        if (
            len(absent) == 1
            and absent[0] not in case.without_log
            and not case.known.folded
            and absent[0] in _heard(case)
        ):
            return rank(absent[0], f"all ranks but {absent[0]} report a watchdog timeout", "medium")
    return None


def _heard(case: Case) -> set[int]:
    return {r.rank for r in case.records if r.rank is not None and not r.about}


# -- handled, then desynchronised ------------------------------------------------------------


def handled_error_before(case: Case) -> Initiating | None:
    """One rank skipped or caught something, and then the others waited for it."""
    if not _communication_failed(case):
        return None
    suspects: dict[int, str] = {}
    for event in case.of_kind("handled", "cuda_oom"):
        if (
            event.rank is None
            or (event.kind == "cuda_oom"
            and any(r.source == event.source and r.first <= event.line <= r.last for r in case.raised))
        ):
            continue
        own = case.progress.ranks.get(event.rank)
        # Progress that all ranks made together afterwards clears it; the one step after it does not.
        later = steps_after(case, event.source, event.line, event.rank)
        if own is not None and later <= 1:
            suspects.setdefault(event.rank, event.text)
    if len(suspects) == 1:
        number, text = next(iter(suspects.items()))
        return rank(
            number,
            f"rank {number} alone handled an error locally just before the others waited for it: {text[-140:]}",
            "medium",
        )
    return None


def steps_after(case: Case, source: int, line: int, number: int | None) -> int:
    """How many different steps were logged after a line, by its rank (or in its own file)."""
    steps = set()
    for record in case.records:
        if record.source == source and record.line > line and (record.rank == number or case.per_rank_files):
            found = progress.step_of(record.body)
            if found:
                steps.add(found[0])
    return len(steps)


# -- frames -----------------------------------------------------------------------------------


def _frames(case: Case) -> dict[int, Frame]:
    found = {}
    for number, raised in lost(case).items():
        frame = raised.cause.user_frame
        if frame is not None:
            found[number] = frame
    for number, raised in case.ranks_with("interrupt").items():
        frame = raised.cause.user_frame
        if frame is not None and case.hung:
            found.setdefault(number, frame)
    return found


def _place(frame: Frame) -> tuple[str, int, str]:
    return (frame.file.rsplit("/", 1)[-1], frame.line, frame.function)


def member_missing_in_group(case: Case) -> Initiating | None:
    """Follow the starved wait in the smallest group, not the minority of the world."""
    frames = _frames(case)
    waiting = {r for r, f in frames.items() if _SUBGROUP.search(f.code)}
    if not waiting or len(waiting) == len(frames):
        return None
    for group in sorted(case.known.groups, key=len):
        inside = waiting & set(group)
        absent = [m for m in group if m in frames and m not in waiting]
        if inside and len(absent) == 1 and len(inside) == len(group) - 1:
            return rank(
                absent[0],
                f"ranks {_listed(inside)} wait inside group {list(group)}; its member {absent[0]} went on without them",
                "medium",
            )
    if len(waiting) * 2 < len(frames) and not case.known.groups:
        return Initiating(
            "unknown",
            None,
            None,
            f"rank {_listed(waiting)} waits inside a sub-group whose members are not printed: "
            "the rank it waits for is among the others",
            "none",
        )
    return None


def in_another_frame(case: Case) -> Initiating | None:
    """One rank was in other code than all others when communication failed."""
    frames = _frames(case)
    if len(frames) < 3:
        return None
    places = {r: _place(f) for r, f in frames.items()}
    odd = minority(places)
    if not odd:
        within = {r: lost(case)[r].cause.collective or "" for r in frames if r in lost(case)}
        if len(set(places.values())) == 1 and len(within) >= 3:
            odd = minority(within)
            if len(odd) == 1:
                return rank(
                    odd[0],
                    f"rank {odd[0]} was in {within[odd[0]]}, all others in another collective of the same line",
                    "medium",
                )
        return None
    if len(odd) == 1:
        frame = frames[odd[0]]
        common = next(f for r, f in frames.items() if r not in odd)
        return rank(
            odd[0],
            f"rank {odd[0]} was at {frame.file.rsplit('/', 1)[-1]}:{frame.line} ({frame.function}), the others at "
            f"{common.file.rsplit('/', 1)[-1]}:{common.line} ({common.function})",
            "medium",
        )
    return None


def interrupted_elsewhere(case: Case) -> Initiating | None:
    """Ctrl-C after a hang: the one rank that was not waiting in a collective."""
    if not case.hung:
        return None
    stacks = case.ranks_with("interrupt")
    busy = {}
    for number, raised in stacks.items():
        innermost = raised.cause.frames[-6:]
        frame = raised.cause.user_frame
        in_collective = any(
            "distributed" in f.file or _WAITING.search(f.function) for f in innermost if not f.is_user
        )
        in_collective = in_collective or bool(frame and re.search(r"\bdist\.|\.backward\(", frame.code))
        if not in_collective:
            busy[number] = raised
    if len(busy) == 1 and len(stacks) >= 2:
        number, raised = next(iter(busy.items()))
        frame = raised.cause.user_frame
        where = (
            f"{frame.file.rsplit('/', 1)[-1]}:{frame.line} ({frame.function})" if frame else "its own code"
        )
        return rank(
            number,
            f"when the hung job was interrupted, rank {number} alone was not in a collective but at {where}",
            "medium",
        )
    return None


# -- start-up --------------------------------------------------------------------------------


def never_joined_the_store(case: Case) -> Initiating | None:
    """Rendezvous: one rank looked elsewhere, or never came."""
    joined = case.of_kind("store_clients", "store_barrier")
    connect: dict[int, set[tuple[object, object]]] = defaultdict(set)
    for event in case.of_kind("store_connect", "store_address"):
        if event.rank is not None and "remote" in event.detail:
            connect[event.rank].add((event.detail["remote"], event.detail["port"]))
    waiting = {
        e.rank
        for e in case.of_kind("store_wait", "store_clients", "store_barrier", "store_timeout")
        if e.rank is not None
    }
    only = [r for r in connect if r not in waiting]
    if len(only) == 1 and waiting:
        remote, port = next(iter(connect[only[0]]))
        return rank(
            only[0],
            f"rank {only[0]} tried to reach the store at {remote}:{port} while the others waited for it",
            "strong",
        )
    if len(connect) >= 2 and len(connect) == len(case.world) - 1:
        host = [r for r in case.world if r not in connect]
        if host and len({next(iter(a)) for a in connect.values()}) == 1 and host[0] not in case.without_log:
            return rank(
                host[0],
                f"all other ranks tried in vain to reach the store that rank {host[0]} should serve",
                "medium",
            )
    if len(connect) >= 3:
        targets = {r: min(map(str, a)) for r, a in connect.items()}
        odd = minority(targets)
        if len(odd) == 1:
            return rank(
                odd[0], f"rank {odd[0]} looked for the store at another address than the others", "medium"
            )
    if joined:
        event = joined[0]
        absent = [r for r in silent_ranks(case) if r not in case.without_log]
        if len(absent) == 1 and event.detail.get("joined") == (case.known.world_size or 0) - 1:
            return rank(
                absent[0],
                f"{event.detail['joined']} of {case.known.world_size} ranks joined; rank {absent[0]} printed no error",
                "medium",
            )
    return None


# -- time and phase ---------------------------------------------------------------------------


def busy_bar_at_timeout(case: Case) -> Initiating | None:
    """A bar that has been running for about the timeout: the one busy rank is the one without a watchdog line."""
    timeouts = [
        e.detail["timeout_ms"] / 1000
        for e in case.of_kind("watchdog", "gloo_timeout", "store_wait")
        if "timeout_ms" in e.detail
    ]
    timeouts += [
        int(m[1]) / 1000
        for e in case.of_kind("store_timeout")
        if (m := re.search(r"timed out after (\d+)ms", e.text))
    ]
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
    if not _communication_failed(case):
        return None
    tables: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
    first: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for record in case.records:
        body = record.body
        if (
            record.rank is None
            or record.about
            or len(body) > 300
            or body.startswith((" ", "\t", "Traceback", "RuntimeError"))
        ):
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


def busy_elsewhere(case: Case) -> Initiating | None:
    """One rank announced a save, an evaluation or the end of its data, and the others then waited."""
    if not _communication_failed(case):
        return None
    said = {r: p for r, p in case.progress.ranks.items() if r is not None and p.phase}
    if len(said) == 1 and len(case.world) >= 2:
        number, own = next(iter(said.items()))
        if own.phase_line >= 0 and (own.steps or len(_heard(case)) > 1):
            return rank(number, f"the last thing rank {number} alone said was: {own.phase[:120]}", "medium")
    return None


def still_busy_when_others_failed(case: Case) -> Initiating | None:
    """One rank went on with its own work while, or after, the others' wait timed out."""
    waiting = lost(case)
    if len(waiting) < 2:
        return None
    timeouts = [e.detail["timeout_ms"] / 1000 for e in case.of_kind("gloo_timeout")]
    last = {
        r: (p.last_time, p.clock) for r, p in case.progress.ranks.items() if r is not None and p.last_time is not None
    }
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


def step_differs(case: Case) -> Initiating | None:
    """One rank stopped at another step than all others."""
    if not _communication_failed(case) and not case.hung:
        return None
    steps = {
        r: p.last_step for r, p in case.progress.ranks.items() if r is not None and p.last_step is not None
    }
    if len(steps) < 3:
        return None
    odd = minority(steps)
    if len(odd) == 1:
        common = Counter(steps.values()).most_common(1)[0][0]
        return rank(
            odd[0], f"rank {odd[0]} stopped at step {steps[odd[0]]:g}, all others at {common:g}", "weak"
        )
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


def _traceback_times(case: Case) -> dict[int, float]:
    starts = {
        (r.source, r.first): r.rank for r in case.raised if r.rank is not None and r.kind == "communication"
    }
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
        return Initiating(
            "unknown",
            None,
            None,
            "Ray folded equal lines of other ranks: silence proves nothing here",
            "none",
        )
    complaining = lost(case)
    silent = silent_ranks(case)
    if not complaining or not silent:
        return None
    missing = [r for r in silent if r in case.without_log]
    if missing:
        return Initiating(
            "unknown",
            None,
            None,
            f"no log for rank {_listed(missing)}, which may be the one that started it",
            "none",
        )
    if len(silent) != 1:
        return None
    number = silent[0]
    exit_ = case.exits.get(number)
    timed_out = any(e.rank in complaining for e in case.of_kind("gloo_timeout", "watchdog"))
    if exit_ is not None and exit_.told_to_stop and not timed_out:
        return None  # it may only have been stopped before it could complain
    heard = number in _heard(case) or case.per_rank_files
    return rank(
        number,
        f"all ranks but {number} waited for a peer or lost it; rank {number} stopped without a word",
        "medium" if heard and timed_out else "weak",
    )


def _listed(ranks: object) -> str:
    return ", ".join(str(r) for r in sorted(ranks))  # type: ignore[call-overload]


def values(table: Mapping[int, object]) -> set[object]:
    return set(table.values())
