"""Flight recorder dumps: gloo JSON and NCCL pickles, and what they say about a desync.

Loading never executes anything: the pickle form is read by `plain_pickle`, which knows plain values only. The
analysis follows measured facts about gloo dumps: `state` and `last_completed_collective` mean nothing there, all ranks
often have the same highest id, and the smallest group with a difference is the one to read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from . import plain_pickle
from .values import dataclass

MAX_DUMP = 256 << 20
_MOST_MEMBERS = 4_000_000
"""Members of all groups together."""
_MOST_TENSORS, _MOST_DIMENSIONS, _MOST_FRAMES = 512, 16, 400
"""Of one call; a file from a stranger may hold one long list a thousand times over in a few bytes."""
_EQUAL = ("all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter")


class DumpError(ValueError):
    """The bytes are no flight recorder dump that can be read safely; one clear line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One collective call that a rank recorded."""

    group: str
    seq: int
    op: str
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    state: str
    created_ns: int
    timeout_ms: int
    record: int
    frame: str = ""


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank's dump."""

    rank: int | None
    entries: tuple[Entry, ...]
    groups: Mapping[str, tuple[int, ...]]
    """Group → members, where the dump lists them."""
    gloo: bool


Reason = Literal["missing", "operation", "size", "late", "transport"]


@dataclass(frozen=True, slots=True)
class FlightRecorderFinding:
    """What the dumps show at the first call on which the members of a group differ."""

    reason: Reason
    group: str
    members: tuple[int, ...]
    """Global ranks of that group, as far as known."""
    seq: int
    suspects: tuple[int, ...]
    """Global ranks; more than one where nothing tells the members apart."""
    detail: str
    no_dump: tuple[int, ...] = ()
    """Ranks of the world without a dump: dead, or too stuck to write one; not guilty by that."""


def load(data: bytes, rank: int | None = None) -> Dump:
    """Reads one dump; `rank` is what the file name says."""
    if len(data) > MAX_DUMP:
        raise DumpError("flight recorder dump is larger than 256 MiB")
    raw: Any
    if data[:1] in (b"{", b"[") or data.lstrip()[:1] == b"{":
        try:
            raw = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise DumpError(f"flight recorder dump is no valid JSON: {str(error)[:120]}") from None
    else:
        try:
            raw = plain_pickle.loads(data)
        except plain_pickle.PickleError as error:
            raise DumpError(f"flight recorder pickle cannot be read safely: {str(error)[:120]}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("entries"), (list, tuple)):
        raise DumpError("no entries: not a flight recorder dump")
    entries = []
    for position, item in enumerate(raw["entries"]):
        if isinstance(item, dict) and not item.get("is_p2p"):
            entry = _entry(item, position)
            if entry is not None:
                entries.append(entry)
    if rank is None and isinstance(raw.get("rank"), int):
        rank = raw["rank"]
    gloo = any(_text(e.get("profiling_name")).startswith("gloo:") for e in raw["entries"] if isinstance(e, dict))
    return Dump(rank, tuple(entries), _members(raw.get("pg_config")), gloo)


def _entry(item: Mapping[str, Any], position: int) -> Entry | None:
    seq = item.get("collective_seq_id", item.get("seq_id"))
    if not isinstance(seq, int):
        return None
    group = item.get("process_group", item.get("pg_id", 0))
    name = _text(group[0]) if isinstance(group, (list, tuple)) and group else _text(group)
    frames, dtypes = item.get("frames"), item.get("input_dtypes")
    frame = ""
    if isinstance(frames, (list, tuple)):
        for candidate in frames[:_MOST_FRAMES]:
            if isinstance(candidate, dict) and "site-packages" not in _text(candidate.get("filename")):
                frame = f"{_text(candidate.get('filename'))}:{_text(candidate.get('line'))}"
                break
    return Entry(
        group=name,
        seq=seq,
        op=(_text(item.get("profiling_name")) or "?").split(":")[-1].lower(),
        input_sizes=_sizes(item.get("input_sizes")),
        output_sizes=_sizes(item.get("output_sizes")),
        dtypes=tuple(map(_text, dtypes[:_MOST_TENSORS])) if isinstance(dtypes, (list, tuple)) else (),
        state=_text(item.get("state")),
        created_ns=_int(item.get("time_created_ns")),
        timeout_ms=_int(item.get("timeout_ms")),
        record=_int(item.get("record_id"), position),
        frame=frame,
    )


def _text(value: Any) -> str:
    """Text or a number as text; nothing else, because a container may hold itself many times over."""
    return str(value)[:1000] if isinstance(value, (str, int, float)) else ""


def _int(value: Any, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(
        tuple(n for n in shape[:_MOST_DIMENSIONS] if isinstance(n, int)) if isinstance(shape, (list, tuple)) else ()
        for shape in value[:_MOST_TENSORS]
    )


def _members(config: Any) -> dict[str, tuple[int, ...]]:
    """`pg_config`: names to members; gloo prints an empty name and the list as text."""
    found: dict[str, tuple[int, ...]] = {}
    if not isinstance(config, dict):
        return found
    total = 0
    for key, value in config.items():
        ranks = value.get("ranks") if isinstance(value, dict) else None
        if isinstance(ranks, str):
            numbers = tuple(int(n) for n in re.findall(r"\d{1,7}", ranks))
        elif isinstance(ranks, (list, tuple)):
            numbers = tuple(n for n in ranks if isinstance(n, int))
        else:
            continue
        total += len(numbers)
        if total > _MOST_MEMBERS:
            break
        if numbers:
            # The one unnamed group is the world.
            name = str(key) or "0"
            found[name] = numbers
    return found


def analyse(
    dumps: Iterable[Dump], world_size: int | None = None, groups: Sequence[Sequence[int]] = ()
) -> FlightRecorderFinding | None:
    """The first difference between the members of a group, smallest group first."""
    by_rank = {d.rank: d for d in dumps if d.rank is not None}
    if len(by_rank) < 2:
        return None
    members = _all_members(by_rank, groups)
    world = world_size or max((len(m) for m in members.values()), default=len(by_rank))
    no_dump = tuple(r for r in range(world) if r not in by_rank) if world <= 1_000_000 else ()
    late: FlightRecorderFinding | None = None
    transport: FlightRecorderFinding | None = None
    for group in sorted(members, key=lambda g: (len(members[g]), g)):
        present = {r: {e.seq: e for e in by_rank[r].entries if e.group == group} for r in members[group] if r in by_rank}
        present = {r: calls for r, calls in present.items() if calls or len(members[group]) > 1}
        if len(present) < 2:
            continue
        found = _first_difference(group, members[group], present, no_dump)
        if found is not None:
            return found
        late = late or _latecomer(group, members[group], present, no_dump)
        transport = transport or _never_finished(group, members[group], present, by_rank, no_dump)
    return late or transport


def _all_members(by_rank: Mapping[int, Dump], groups: Sequence[Sequence[int]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for rank, dump in by_rank.items():
        for entry in dump.entries:
            found.setdefault(entry.group, set()).add(rank)
    for dump in by_rank.values():
        for name, listed in dump.groups.items():
            if name in found:
                found[name] |= set(listed)
    for name, ranks in found.items():
        for printed in groups:  # a printed member list completes a group one of whose members recorded nothing
            if ranks and ranks < set(printed) and len(printed) < len(by_rank):
                found[name] = set(printed)
    return {name: tuple(sorted(ranks)) for name, ranks in found.items()}


def _first_difference(
    group: str, members: tuple[int, ...], present: Mapping[int, Mapping[int, Entry]], no_dump: tuple[int, ...]
) -> FlightRecorderFinding | None:
    start = max((min(calls) for calls in present.values() if calls), default=0)
    end = max((max(calls) for calls in present.values() if calls), default=-1)
    # The buffer is a ring: ids below the highest first one may be overwritten, not missing.
    for seq in range(start, end + 1):
        entries = {r: calls[seq] for r, calls in present.items() if seq in calls}
        missing = tuple(r for r, calls in present.items() if seq not in calls and (not calls or max(calls) < seq))
        if missing:
            if len(missing) * 2 < len(present) or (len(present) == 2 and len(missing) == 1):
                waiting = next(iter(entries.values()))
                return FlightRecorderFinding(
                    "missing",
                    group,
                    members,
                    seq,
                    missing,
                    f"call {seq} of group {group} ({waiting.op}) was entered by ranks {_listed(entries)}"
                    f" but not by {_listed(missing)}",
                    no_dump,
                )
            if entries:
                # Most stopped earlier: those that went on are the odd ones.
                return FlightRecorderFinding(
                    "missing",
                    group,
                    members,
                    seq,
                    tuple(entries) if len(entries) * 2 < len(present) else (),
                    f"call {seq} of group {group} was entered only by ranks {_listed(entries)}",
                    no_dump,
                )
        for reason, keys in (
            ("operation", {r: e.op for r, e in entries.items()}),
            ("size", {r: _comparable(e) for r, e in entries.items()}),
        ):
            if len(set(keys.values())) > 1:
                suspects = minority(keys)
                shown = "; ".join(
                    f"rank {r}: {entries[r].op} {list(map(list, entries[r].input_sizes))}"
                    for r in (suspects or tuple(entries))[:4]
                )
                return FlightRecorderFinding(
                    "operation" if reason == "operation" else "size",
                    group,
                    members,
                    seq,
                    suspects or tuple(entries),
                    f"call {seq} of group {group} differs: {shown}",
                    no_dump,
                )
    return None


def _comparable(entry: Entry) -> tuple[Any, ...]:
    """Sizes where all members must agree; nothing where they may differ on a healthy step."""
    if entry.op.startswith(_EQUAL) or entry.op.strip("_").startswith(_EQUAL):
        return (entry.input_sizes, entry.dtypes)
    if "broadcast" in entry.op or entry.op in ("reduce",):
        return (entry.input_sizes or entry.output_sizes,)
    return ()


def minority(keys: Mapping[int, Any]) -> tuple[int, ...]:
    """The members of the smaller part, if one part is the clear majority."""
    counts = Counter(keys.values())
    (common, most), *_ = counts.most_common(1)
    if most * 2 <= len(keys):
        return ()
    return tuple(r for r, key in keys.items() if key != common)


def _latecomer(
    group: str, members: tuple[int, ...], present: Mapping[int, Mapping[int, Entry]], no_dump: tuple[int, ...]
) -> FlightRecorderFinding | None:
    """All made the same calls, but one entered the last one after most of the timeout (one clock only)."""
    common = set.intersection(*(set(calls) for calls in present.values()))
    if not common:
        return None
    seq = max(common)
    entered = sorted((calls[seq].created_ns, r) for r, calls in present.items())
    timeout_ms = max(calls[seq].timeout_ms for calls in present.values())
    if len(entered) < 2 or not timeout_ms or min(t for t, _ in entered) <= 0:
        return None
    (second, _), (last, rank) = entered[-2], entered[-1]
    if last - second >= 0.5 * timeout_ms * 1e6 and second - entered[0][0] < 0.25 * timeout_ms * 1e6:
        return FlightRecorderFinding(
            "late",
            group,
            members,
            seq,
            (rank,),
            f"rank {rank} entered call {seq} of group {group} {(last - second) / 1e9:.1f} s after all others"
            f" (timeout {timeout_ms / 1000:g} s)",
            no_dump,
        )
    return None


def _never_finished(
    group: str,
    members: tuple[int, ...],
    present: Mapping[int, Mapping[int, Entry]],
    by_rank: Mapping[int, Dump],
    no_dump: tuple[int, ...],
) -> FlightRecorderFinding | None:
    """NCCL only: every member entered the call and none completed it."""
    if any(by_rank[r].gloo for r in present):
        return None
    stuck: dict[int, int] = {}
    for rank, calls in present.items():
        open_ = [s for s, e in calls.items() if e.state != "completed"]
        if not open_:
            return None
        stuck[rank] = min(open_)
    if len(set(stuck.values())) == 1 and set(present) == set(members):
        seq = next(iter(stuck.values()))
        return FlightRecorderFinding(
            "transport",
            group,
            members,
            seq,
            (),
            f"all members entered call {seq} of group {group} and none completed it: transport, GPU or kernel",
            no_dump,
        )
    return None


def _listed(ranks: Iterable[int]) -> str:
    numbers = sorted(ranks)
    return ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")


def global_ranks(inner: Sequence[int], members: Sequence[int]) -> tuple[int, ...] | None:
    """Group-local numbers as global ranks; None where the member list does not reach that far."""
    if any(n >= len(members) for n in inner):
        return None
    return tuple(members[n] for n in inner)
