"""The weakest rules: single lines that mostly come from the origin. They decide only where nothing better is there."""

from __future__ import annotations

import re

from . import lazy
from .case_facts import rank
from .evidence import Case
from .model import Event, Initiating

RESOURCE = lazy.regex(r"shared memory segment|/dev/shm/|CUDA IPC handle|peer access is not supported")
"""What an NCCL WARN complains of that is the process's own: not a socket, a peer or a completion."""
_NCCL_DEVICE = lazy.regex(r"(?:^|[\s\]])[\w.\-]{1,80}:\d{1,8}:\d{1,8} \[(\d{1,3})\]")
_DEVICE_FAULT = lazy.regex(
    r"CUDA error: (?:device-side assert|an illegal (?:memory|instruction)|misaligned|uncorrectable|unspecified)"
)
_SAVE = lazy.regex(r"checkpoint|\bckpt|\bsav(?:e|ing)\b", re.I)


def is_resource_warning(event: Event) -> bool:
    return event.kind == "nccl_warn" and bool(RESOURCE.search(str(event.detail.get("message", ""))))


def cuda_fault_in_watchdog(case: Case) -> Initiating | None:
    """A watchdog that ended by a CUDA fault of its own device: in the world's group its number is the rank."""
    found = {}
    for event in case.of_kind("watchdog_exception"):
        number = event.rank if event.rank is not None else event.detail.get("group_rank", event.detail.get("printed_rank"))
        if number is not None and _DEVICE_FAULT.search(str(event.detail.get("message", ""))):
            sure = event.rank is not None or event.detail.get("group", 0) in (0, "0")
            found[number] = (event, sure)
    if len(found) != 1:
        return None
    number, (event, sure) = next(iter(found.items()))
    return rank(number, f"rank {number} alone reports {event.detail['message'][:80]}", "medium" if sure else "weak")


def announced_a_save_before_the_wait(case: Case) -> Initiating | None:
    """The last ordinary line, which no rank signed, announces a save; then others' watchdogs. Rank 0 saves."""
    own = case.progress.ranks.get(None)
    waiting = [e for e in case.of_kind("watchdog") if e.rank is not None]
    if own is None or not own.phase or not _SAVE.search(own.phase) or not waiting or any(e.rank == 0 for e in waiting):
        return None
    if any(p.steps or p.phase for r, p in case.progress.ranks.items() if r is not None):
        return None
    first = min(waiting, key=lambda e: (e.source, e.line))
    if first.source != own.phase_source or first.line < own.phase_line:
        return None
    return rank(0, f"the last thing said before the others' time-out, by the rank that logs: {own.phase[:100]}", "weak")


def first_nccl_warning(case: Case) -> Initiating | None:
    """Of one host's NCCL warnings, the first that is about the process's own resources: mostly the origin."""
    warnings = case.of_kind("nccl_warn")
    if not warnings or len({e.node for e in warnings}) > 1 or len({e.source for e in warnings}) > 1:
        return None
    first = min(warnings, key=lambda e: e.line)
    if not is_resource_warning(first):
        return None
    device = _NCCL_DEVICE.search(first.text)
    number = first.rank
    if number is None and device is not None:
        number = case.known.global_of_local(int(device[1]), first.node)
    if number is None:
        return None
    device_name = device[1] if device else number
    return rank(number, f"the first NCCL warning is of device {device_name}: {first.detail['message'][:100]}", "weak")
