"""Rules for what needs no comparison of ranks: an end from outside, and a rank's own fault."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from . import flight_recorder, gpu_state, lazy
from .case_facts import first_nan_rank, rank, silent_ranks, steps_after, unknown
from .evidence import Case, hosts_of
from .exceptions import Raised, last_name
from .model import Event, Initiating

_NAN = lazy.regex(r"\b(?:nan|non-?finite|not finite|infinite|inf)\b", re.IGNORECASE)


_LOCAL_NAN = lazy.regex(
    r"local grad|before (?:data-parallel|gradients|all-?reduce)|rank \d+.{0,40}(?:nan|non-finite)",
    re.IGNORECASE,
)


_PARAMETERS = lazy.regex(r"Rank (\d+) has (\d+) params?, while rank (\d+) has inconsistent (\d+)")


def kernel_killed_a_rank(case: Case) -> Initiating | None:
    """The kernel's OOM killer names a pid; launchers and banners say whose it is."""
    killed = case.of_kind("host_oom_kill")
    for event in killed:
        owner = case.known.pid_rank.get(event.detail.get("pid", -1))
        if owner is not None:
            return rank(
                owner,
                f"the kernel's OOM killer ended pid {event.detail['pid']}, which is rank {owner}",
                "strong",
            )
    own = own_faults(case)
    for number, raised in own.items():
        if any(str(event.detail.get("pid", "?")) in raised.cause.message for event in killed):
            return rank(number, f"the kernel's OOM killer ended a worker process of rank {number}", "strong")
    oom = [r for r, e in case.exits.items() if e.out_of_memory]
    if len(oom) == 1:
        return rank(oom[0], f"the scheduler reports Out Of Memory for task {oom[0]}", "strong")
    if len(own) == 1:
        return None  # a fault that names its rank beats a kill that nothing joins to the job
    if killed or case.of_kind("oom_kill_step", "oom_killed_pod"):
        by_kill = [r for r, e in case.exits.items() if e.by_signal == 9]
        if len(by_kill) == 1:
            return rank(by_kill[0], f"rank {by_kill[0]} ended by SIGKILL and the node reports an OOM kill", "strong")
        event = (killed or case.of_kind("oom_kill_step", "oom_killed_pod"))[0]
        silent = silent_ranks(case)
        if len(silent) == 1 and case.raised:
            return rank(
                silent[0],
                f"the node reports an OOM kill and only rank {silent[0]} stopped without a word",
                "medium",
            )
        return Initiating("node", None, event.node, "an OOM kill on this node; no pid or task joins it to a rank", "medium")
    return None


def gpu_fell_off(case: Case) -> Initiating | None:
    """An Xid of the hardware kind: the GPU, and a rank only where a pid joins it."""
    for event in case.of_kind("xid"):
        if event.detail["xid"] in (
            48,
            63,
            64,
            74,
            79,
            94,
            95,
            119,
            120,
            140,
            144,
            145,
            146,
            147,
            148,
            149,
            150,
        ):
            owner = case.known.pid_rank.get(event.detail.get("pid", -1))
            if owner is not None:
                return rank(owner, f"Xid {event.detail['xid']} on the GPU of rank {owner} (by pid)", "strong")
            faulty = case.ranks_with("own")
            if len(faulty) == 1:
                only = next(iter(faulty))
                return rank(
                    only,
                    f"Xid {event.detail['xid']} in the kernel log and a fault on rank {only} alone",
                    "medium",
                )
            return Initiating("node", None, event.node, f"Xid {event.detail['xid']} on GPU {event.detail['pci']}", "strong")
    return defective_gpu(case, ("lost",))


def defective_gpu(case: Case, states: tuple[str, ...] = gpu_state.DEFECTS) -> Initiating | None:
    """nvidia-smi calls a GPU lost or defective. A GPU may have been so for weeks: but for one that is gone, this
    decides only where nothing better does."""
    for event in case.of_kind(gpu_state.KIND):
        if event.detail["state"] not in states:
            continue
        owners = {case.known.pid_rank[p] for p in event.detail["pids"] if p in case.known.pid_rank}
        owners = owners or set(case.ranks_with("own"))
        if len(owners) == 1:
            only = next(iter(owners))
            why = f"nvidia-smi: {event.text[:120]}; that GPU's process, or the only rank with a fault, is rank {only}"
            return rank(only, why, "medium")
        return Initiating("node", None, event.node, f"nvidia-smi: {event.text[:160]}", "medium")
    return None


def stopped_from_outside(case: Case) -> Initiating | None:
    """Preemption, time limit, cancellation, Ctrl-C: the answer while the run was still moving."""
    stop = case.stop
    if stop is None or case.hung:
        return None
    # The host of a node-failure line is a survivor that prints it; only the launcher names the lost one.
    failed = stop.event.kind == "node_failed"
    node = stop.event.detail.get("lost_node") if failed else stop.event.node
    return Initiating(
        "outside",
        None,
        str(node) if node else None,
        f"the run was stopped by {stop.why} while it was making progress",
        "strong",
    )


def own_faults(case: Case) -> dict[int, Raised]:
    """rank → its first fault of its own that is not teardown."""
    found: dict[int, Raised] = {}
    lost_at: dict[tuple[int, int], int] = {}
    for raised in case.raised:
        if raised.rank is not None and raised.kind == "communication":
            lost_at.setdefault((raised.rank, raised.source), raised.first)
    for raised in case.raised:
        if raised.rank is None or raised.rank in found or not _is_own(case, raised):
            continue
        if lost_at.get((raised.rank, raised.source), raised.first) < raised.first:
            continue  # after this rank had already lost the others: finally, atexit, a save on exit
        if _after_the_end(case, raised) or caught_and_logged(case, raised):
            continue
        found[raised.rank] = raised
    return found


def _is_own(case: Case, raised: Raised) -> bool:
    if raised.kind == "own":
        return True
    if raised.kind != "fatal" or raised.rank is None:
        return False
    # An abort without Python frames is gloo's or the runtime's own teardown of a victim.
    if not any(f.is_user for f in raised.cause.frames):
        return False
    if raised.fatal == "Aborted" and (case.raised_by(raised.rank, "communication") or aborted_by_gloo(case, raised.rank, raised)):
        return False
    exit_ = case.exits.get(raised.rank)
    return exit_ is None or not exit_.told_to_stop


def aborted_by_gloo(case: Case, number: int, raised: Raised | None = None) -> bool:
    """gloo aborts the receiver of more bytes than it asked for: one of a pair, not the guilty one.

    An abort without an active exception is how a victim's threads end. Lines without a rank
    count only where nothing else tells, or just before the dump of this very abort.
    """
    for event in case.of_kind("size_mismatch", "cpp_terminate"):
        if event.kind == "cpp_terminate" and event.detail.get("how") != "without an active":
            continue
        if raised is not None and event.source == raised.source and 0 <= raised.first - event.line <= 12:
            return True
        if event.rank == number or (raised is None and event.rank is None):
            return True
    return False


def _after_the_end(case: Case, raised: Raised) -> bool:
    """Printed after the launcher had begun to stop everyone, by a rank that was told to stop."""
    ends = [e.line for e in case.of_kind("sigterm_sent", "spawn_terminated") if e.source == raised.source]
    if not ends or raised.first < min(ends) or raised.rank is None:
        return False
    exit_ = case.exits.get(raised.rank)
    return exit_ is not None and exit_.told_to_stop


def caught_and_logged(case: Case, raised: Raised) -> bool:
    """A traceback that somebody caught: its rank went on.

    Progress after a traceback alone proves little (buffered output comes late), so a logger must have
    printed it, or torch's own hook must have printed others, or the run must have completed.
    """
    if raised.uncaught or raised.origin != "log" or raised.fatal or raised.process is not None:
        return False
    known = raised.logged or any(r.uncaught for r in case.raised) or case.progress.completed
    return known and steps_after(case, raised.source, raised.last, raised.rank) >= 2


def own_fault(case: Case) -> Initiating | None:
    """A rank's own exception or crash beats every timeout, closed connection and SIGTERM elsewhere."""
    faults = own_faults(case)
    if not faults:
        return None
    if len(faults) == 1:
        number, raised = next(iter(faults.items()))
        return rank(number, f"rank {number} alone raised an error of its own: {raised.headline}", "strong")
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, raised in faults.items():
        groups[signature(raised)].append(number)
    if len(groups) == 1:
        return _same_everywhere(case, faults)
    earliest = _earliest(case, faults)
    if earliest is not None:
        return rank(
            earliest,
            f"several ranks failed in different ways; rank {earliest} first: {faults[earliest].headline}",
            "medium",
        )
    sizes = sorted(groups.values(), key=len)
    if len(faults) >= 3 and len(sizes[-1]) >= len(faults) - 1 and len(faults) == len(case.world):
        return Initiating("all", None, None, "nearly all ranks raised the same error", "medium")
    return unknown(
        "ranks " + ", ".join(map(str, sorted(faults))) + " raised different errors of their own and no clock orders them"
    )


def _same_everywhere(case: Case, faults: Mapping[int, Raised]) -> Initiating:
    sample = next(iter(faults.values()))
    if _NAN.search(sample.cause.message) and not _LOCAL_NAN.search(sample.cause.message):
        first = first_nan_rank(case)
        if first is not None:
            return rank(
                first,
                f"rank {first} alone logged a non-finite value before the check failed everywhere",
                "medium",
            )
        return unknown("a finite-check fired on every rank after gradients were mixed: the origin is not in this log")
    nodes = hosts_of(case)
    if len(nodes) > 1:
        for node, members in nodes.items():
            if set(faults) == members and len(members) > 1:
                return Initiating(
                    "node",
                    None,
                    node,
                    f"the same error on all ranks of {node} and nowhere else: {sample.headline}",
                    "medium",
                )
    lost = set(case.ranks_with("communication")) - set(faults)
    if lost and len(faults) * 2 < len(case.world):
        return unknown(
            "ranks " + ", ".join(map(str, sorted(faults))) + f" raised the same error ({sample.headline}), others did not"
        )
    return Initiating("all", None, None, f"the same error on {len(faults)} ranks: {sample.headline}", "strong")


def signature(raised: Raised) -> tuple[str, ...]:
    where = raised.cause.user_frame
    place = f"{where.file.rsplit('/', 1)[-1]}:{where.function}" if where else ""
    if not where:
        place = re.sub(r"[\d.]+", "#", raised.cause.message)[:60]
    return (last_name(raised.cause.type), place)


def _earliest(case: Case, faults: Mapping[int, Raised]) -> int | None:
    """The first of several different faults, where one clock orders them by a second or more."""
    stamps = {r: case.error_files[r][1].timestamp for r in faults if r in case.error_files}
    times = {r: float(t) for r, t in stamps.items() if t is not None}
    if len(times) < len(faults):
        times = {}
        clocks = set()
        for record in case.records:
            for number, raised in faults.items():
                if record.source == raised.source and record.line == raised.first and record.time is not None:
                    times[number] = record.time
                    clocks.add(record.parsed.clock)
        if len(times) < len(faults) or len(clocks) != 1:
            return None
    ordered = sorted((t, r) for r, t in times.items())
    return ordered[0][1] if ordered[1][0] - ordered[0][0] >= 1.0 else None


FAULT_LINES = {
    "cuda_oom": "CUDA out of memory",
    "ecc": "an uncorrectable ECC error",
    "device_assert": "a device-side assert",
    "disk_full": "a full disk",
    "write_failed": "a failed write",
    "host_alloc": "a failed host allocation",
    "bus_error": "a bus error",
    "segfault": "a segmentation fault",
    "cuda_error": "a CUDA error",
}


def fault_line(case: Case) -> Initiating | None:
    """A fault that stands in a single line, without a traceback: one rank only, and it did not go on."""
    found: dict[int, Event] = {}
    handled = {(e.source, e.line) for e in case.of_kind("handled")}
    first_end = {e.source: e.line for e in reversed(case.of_kind("watchdog", "sigterm_sent"))}
    for event in case.events:
        if event.kind not in FAULT_LINES or event.rank is None or (event.source, event.line) in handled:
            continue
        if event.line > first_end.get(event.source, event.line) or steps_after(case, event.source, event.line, event.rank) > 0:
            continue
        if any(r.source == event.source and r.first <= event.line for r in case.raised_by(event.rank, "communication")):
            continue  # part of, or after, this rank's loss of the others
        found.setdefault(event.rank, event)
    if len(found) != 1 or (set(found) < {0} and len(case.world) <= 1):
        return None
    number, event = next(iter(found.items()))
    return rank(number, f"rank {number} alone reports {FAULT_LINES[event.kind]}", "strong")


def parameters_differ(case: Case) -> Initiating | None:
    """DDP's start-up check compares with rank 0: it names a pair, and only a majority tells which is odd."""
    counts: dict[int, int] = {}
    complaining: set[int] = set()
    for raised in case.raised:
        if raised.kind == "pair" and raised.rank is not None:
            complaining.add(raised.rank)
        for own, own_count, other, other_count in _PARAMETERS.findall(raised.cause.message):
            counts[int(own)], counts[int(other)] = int(own_count), int(other_count)
    odd = flight_recorder.minority(counts) if len(counts) >= 3 else ()
    if len(odd) == 1:
        return rank(odd[0], f"rank {odd[0]} has another number of parameters than all others", "medium")
    if complaining and len(case.world) >= 3:
        if len(complaining) == 1 and 0 not in complaining:
            only = next(iter(complaining))
            return rank(only, f"only rank {only} differs from rank 0 in its parameters", "medium")
        if complaining == set(case.world) - {0}:
            return rank(0, "all other ranks differ from rank 0 in their parameters", "medium")
    return unknown("a check compared two ranks' parameters and does not tell which is odd") if complaining else None
