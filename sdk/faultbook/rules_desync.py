"""Rules on collectives: which rank was missing from a call, in another one, or in other code."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from . import lazy
from .case_facts import Confidence, communication_failed, listed, lost, rank, silent_ranks, steps_after, unknown
from .evidence import Case
from .exceptions import Frame, Part, Raised
from .flight_recorder import minority
from .model import Initiating

_WAITING = lazy.regex(
    r"^(?:wait|all_reduce|all_gather\w*|all_to_all\w*|broadcast\w*|barrier|reduce_scatter\w*|i?recv|i?send|gather|scatter"
    r"|_engine_run_backward|monitored_barrier|allreduce|reduce)$"
)
_COLLECTIVE_CODE = lazy.regex(r"\bdist\.\w+\(|\.backward\(")


_RENDEZVOUS = lazy.regex(r"DistStoreError|wait timeout after|clients joined|client socket has|store based barrier")
_POINT_TO_POINT = lazy.regex(r"\b(?:i?send|i?recv|batch_isend_irecv)\w*\(")
_SUBGROUP = lazy.regex(r"\bgroup ?= ?(?!None\b|dist\.group\.WORLD|group\.WORLD)")


def flight_recorder_shows(case: Case) -> Initiating | None:
    """The first call, in the smallest group, on which the members differ."""
    found = case.flight
    if found is None or not communication_failed(case):
        return None
    # A rank without a dump may be missing from the same call, for a better reason.
    unheard = [r for r in found.no_dump if found.members not in case.known.groups or r in found.members]
    if unheard and found.reason == "missing":
        return unknown(f"flight recorder: {found.detail}; but no dump of rank {listed(unheard)}, which may have started it")
    if len(found.suspects) == 1:
        confidence: Confidence = "strong" if len(found.members) >= 3 or found.reason == "missing" else "weak"
        if found.reason == "late":
            confidence = "medium"
        return rank(found.suspects[0], f"flight recorder: {found.detail}", confidence)
    if found.reason in ("operation", "size") and len(found.members) == 2:
        return unknown(f"flight recorder: {found.detail}; with two members nothing tells which is wrong")
    return None


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
        if len(own) >= 2 or (number in {r.rank for r in case.raised}) or len(exceptional) >= 2 or len(case.world) > 2:
            return rank(
                number,
                f"{len(own)} rank(s) met something else on rank {number} than they run themselves",
                "medium" if len(own) > 1 else "weak",
            )
    return None


def handled_error_before(case: Case) -> Initiating | None:
    """One rank skipped or caught something, and then the others waited for it."""
    if not communication_failed(case):
        return None
    suspects: dict[int, str] = {}
    for event in case.of_kind("handled", "cuda_oom"):
        if event.rank is None or (
            event.kind == "cuda_oom" and any(r.source == event.source and r.first <= event.line <= r.last for r in case.raised)
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


def _in_collective(case: Case) -> dict[int, Raised]:
    """Ranks that failed inside a collective; at rendezvous frames show a role, not a divergence."""
    return {r: e for r, e in lost(case).items() if not _RENDEZVOUS.search(f"{e.cause.type}: {e.cause.message}")}


def _frames(case: Case) -> dict[int, Frame]:
    found = {}
    for number, raised in _in_collective(case).items():
        frame = raised.cause.user_frame
        if frame is not None:
            found[number] = frame
    for number, raised in case.ranks_with("interrupt").items():
        frame = raised.cause.user_frame
        if frame is not None and case.hung:
            found.setdefault(number, frame)
    for number, raised in case.ranks_with("fatal").items():
        # A rank that gloo aborted raises nothing; its faulthandler dump shows where it was.
        own = [f for f in raised.cause.frames if f.is_user]
        if own and raised.fatal == "Aborted":
            found.setdefault(number, own[-1])
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
                f"ranks {listed(inside)} wait inside group {list(group)}; its member {absent[0]} went on without them",
                "medium",
            )
    if len(waiting) * 2 < len(frames) and not case.known.groups:
        return unknown(
            f"rank {listed(waiting)} waits inside a sub-group whose members are not printed: "
            "the rank it waits for is among the others"
        )
    return None


def in_another_frame(case: Case) -> Initiating | None:
    """One rank was in other code than all others when communication failed."""
    frames = _frames(case)
    if len(frames) < 3 or any(_POINT_TO_POINT.search(f.code) for f in frames.values()):
        return None  # pipeline stages wait in different code by design
    places = {r: _place(f) for r, f in frames.items()}
    odd = minority(places)
    if not odd:
        within = {r: e.cause.collective or "" for r, e in _in_collective(case).items() if r in frames}
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


def _waits(part: Part) -> bool:
    """Whether a stack ends inside a collective, or in a backward pass that runs some."""
    frames = part.frames
    last = max((n for n, f in enumerate(frames) if f.is_user), default=-1)
    if last >= 0 and _COLLECTIVE_CODE.search(frames[last].code):
        return True
    return any("torch/distributed/" in f.file or _WAITING.search(f.function) for f in frames[last + 1 :])


def interrupted_elsewhere(case: Case) -> Initiating | None:
    """Stacks of a hang, or Ctrl-C after one: the one rank that was not waiting in a collective."""
    if not case.hung:
        return None
    stacks = case.ranks_with("stack") or case.ranks_with("interrupt")
    busy = {}
    for number, raised in stacks.items():
        in_collective = any(_waits(part) for part in raised.parts)
        if not in_collective:
            busy[number] = raised
    if len(busy) == 1 and len(stacks) >= 2:
        number, raised = next(iter(busy.items()))
        frame = raised.cause.user_frame
        when = "in the stacks of the hanging job" if raised.kind == "stack" else "when the hung job was interrupted"
        where = f"{frame.file.rsplit('/', 1)[-1]}:{frame.line} ({frame.function})" if frame else "its own code"
        return rank(
            number,
            f"{when}, rank {number} alone was not in a collective but at {where}",
            "medium",
        )
    return None


def never_joined_the_store(case: Case) -> Initiating | None:
    """Rendezvous: one rank looked elsewhere, or never came."""
    joined = case.of_kind("store_clients", "store_barrier")
    connect: dict[int, set[tuple[object, object]]] = defaultdict(set)
    for event in case.of_kind("store_connect", "store_address"):
        if event.rank is not None and "remote" in event.detail:
            connect[event.rank].add((event.detail["remote"], event.detail["port"]))
    waiting = {
        e.rank for e in case.of_kind("store_wait", "store_clients", "store_barrier", "store_timeout") if e.rank is not None
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
            return rank(odd[0], f"rank {odd[0]} looked for the store at another address than the others", "medium")
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
