"""Rules for components that know: barriers, Horovod, JAX, launchers and their exit codes."""

from __future__ import annotations

from collections import Counter

from . import events as event_table
from . import flight_recorder
from .case_facts import Confidence, rank, unknown
from .evidence import SIGNAL_WORDS, Case
from .model import Event, Initiating
from .rules_fault import aborted_by_gloo, signature


def named_by_barrier(case: Case) -> Initiating | None:
    """monitoredBarrier says who did not come; its numbers count inside the group that waited."""
    found: list[tuple[int, int, str]] = []
    untranslated: Event | None = None
    for event in case.of_kind("barrier_failed"):
        missing = event_table.rank_list(event.detail["missing"])
        inner, outer = event.detail.get("printed_rank"), event.rank
        if outer is None or inner is None or inner == outer:
            members = case.world
            found.extend((len(members) or 1_000_000, m, f"rank {m} did not reach the monitored barrier") for m in missing)
            continue
        group = next((g for g in case.known.groups if inner < len(g) and g[inner] == outer), None)
        translated = flight_recorder.global_ranks(missing, group) if group else None
        if translated is None or group is None:
            untranslated = event
        else:
            found.extend(
                (
                    len(group),
                    m,
                    f"rank {m} (no. {n} of group {list(group)}) did not reach the group's barrier",
                )
                for m, n in zip(translated, missing, strict=True)
            )
    if found:
        smallest = min(size for size, *_ in found)
        named = {m: basis for size, m, basis in found if size == smallest}
        if untranslated is not None and smallest >= len(case.world):
            named = {}
        if len(named) == 1:
            number, basis = next(iter(named.items()))
            return rank(number, basis, "strong")
    if untranslated is not None:
        return unknown(
            f"member no. {untranslated.detail['missing']} of the group that rank {untranslated.rank} belongs to "
            "did not reach the barrier; the group's member list is not in the log"
        )
    return None


def named_by_component(case: Case) -> Initiating | None:
    """Horovod, JAX, Megatron, NCCL: components that know whom they wait for."""
    for event in case.of_kind("local_nan"):
        number = event.detail.get("named", event.rank)
        if number is not None:
            return rank(number, f"rank {number} found a non-finite value before gradients were mixed", "strong")
    for event in case.of_kind("jax_task_error", "jax_heartbeat"):
        return rank(event.detail["task"], f"task {event.detail['task']} stopped sending heartbeats", "strong")
    for event in case.of_kind("horovod_missing"):
        missing = event_table.rank_list(event.detail["missing"])
        if len(missing) == 1:
            return rank(missing[0], f"Horovod waits for rank {missing[0]}", "strong")
    ready = {event_table.rank_list(e.detail["ready"]) for e in case.of_kind("horovod_ready")}
    for ranks in sorted(ready, key=len, reverse=True):
        size = case.known.world_size or max(max(ranks) + 1, len(ranks) + 1)
        missing = tuple(sorted(set(range(size)) - set(ranks)))
        if len(missing) == 1:
            return rank(missing[0], f"Horovod: all ranks but {missing[0]} are ready", "strong")
    if ready:
        return unknown("Horovod waits for several ranks")
    return None


def one_odd_exit(case: Case) -> Initiating | None:
    """One rank ended in a way that the others' errors do not explain."""
    killed_by_launcher = {e.detail["pid"] for e in case.of_kind("sigkill_sent")}
    stopped = {r for p, r in case.known.pid_rank.items() if p in killed_by_launcher}
    lost = case.ranks_with("communication")
    odd: dict[int, int] = {}
    for number, exit_ in case.exits.items():
        if exit_.told_to_stop or number in stopped or exit_.code == 0:
            continue
        signal = exit_.by_signal
        if signal == 6 and (number in lost or aborted_by_gloo(case, number)):
            continue
        if signal is None and (number in lost or case.raised_by(number, "cut")):
            continue
        odd[number] = exit_.code
    by_signal = {r: c for r, c in odd.items() if c < 0 or c > 128}
    if by_signal and len(by_signal) < len(odd):
        plain = {r for r in odd if r not in by_signal}
        if all(case.raised_by(r) for r in plain) or len(by_signal) == 1:
            odd = by_signal
    if len(odd) != 1:
        return None
    number, code = next(iter(odd.items()))
    if code > 0 and number in case.without_log and case.of_kind("gloo_timeout", "watchdog"):
        return None  # the others timed out; this one may just have been the first to, which its log would say
    others = [e for r, e in case.exits.items() if r != number]
    how = SIGNAL_WORDS.get(code if code < 0 else 128 - code, f"exit code {code}")
    if code == -6 and case.of_kind("watchdog", "watchdog_exception") and not others:
        return rank(number, f"the launcher reports {how} for rank {number} alone", "medium")
    # An exit code 1 without a traceback may be anything; it is telling where all others were only told to stop.
    confidence: Confidence = "strong" if code < 0 or all(e.told_to_stop for e in others) else "medium"
    return rank(number, f"rank {number} ended with {how}; the others only lost it or were told to stop", confidence)


def absent_from_summary(case: Case) -> Initiating | None:
    """The launcher lists every rank as failed but one: that one had left with exit code 0."""
    listed_ranks = {f.rank for s in case.summaries for f in s.failures if f.rank is not None}
    absent = [r for r in case.world if r not in listed_ranks]
    hosts = {f.host for s in case.summaries for f in s.failures}
    complete = case.known.world_size == len(case.world) and len(hosts) >= max(1, len(case.known.nodes))
    if len(absent) != 1 or len(listed_ranks) < 2 or not complete or case.raised_by(absent[0]):
        return None
    return rank(absent[0], f"all ranks but {absent[0]} failed: rank {absent[0]} had already left without an error", "medium")


def launcher_failed(case: Case) -> Initiating | None:
    """The launcher itself raised before any rank printed a word."""
    if any(r.rank is not None for r in case.raised) or case.exits:
        return None
    for raised in case.raised:
        if raised.kind == "launcher_fault":
            return Initiating(
                "outside",
                None,
                raised.node,
                f"the launcher failed before any rank started: {raised.headline}",
                "medium",
            )
    return None


def nobody_named(case: Case) -> Initiating | None:
    """An error that no rank can be given: one process, or lines without any prefix."""
    anonymous = [r for r in case.raised if r.rank is None and r.kind in ("own", "fatal")]
    if not anonymous or case.ranks_with("communication"):
        return None
    if len(case.world) <= 1:
        only = case.world[0] if case.world else None
        return rank(only, f"the only process raised {anonymous[0].headline}", "strong") if only is not None else None
    signatures = Counter(signature(r) for r in anonymous)
    ((_, most),) = signatures.most_common(1)
    if len(signatures) == 1 and most >= 2:
        return Initiating("all", None, None, f"{most} processes raised the same error: {anonymous[0].headline}", "medium")
    return unknown(f"{anonymous[0].headline}: no line says which rank raised it")


def last_word_of_launcher(case: Case) -> Initiating | None:
    """Weakest: the rank whose entry alone is not a SIGTERM, without anything else to go by."""
    for summary in case.summaries:
        left = [f for f in summary.failures if not f.told_to_stop and f.rank is not None]
        if len(left) == 1 and len(summary.failures) > 1 and left[0].rank not in case.ranks_with("communication"):
            number = left[0].rank
            assert number is not None
            if number in case.without_log:
                return unknown(f"no log for rank {number}, which the launcher did not have to stop")
            return rank(number, f"only rank {number} was not told to stop by the launcher", "weak")
    return None
