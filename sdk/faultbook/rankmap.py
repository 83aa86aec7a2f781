"""Which global rank a process, a local rank or a Slurm task is, learnt from lines that carry both.

Sources: the torchelastic summary, `[rankN]:` behind a tee prefix or with a pid, Ray's inner
ranks, NCCL communicator init, Composer and fairseq init, the DeepSpeed launcher's argv and
`global_rank_mapping`, Determined, Lightning. A key seen with two different ranks maps to
none: a wrong rank is worse than no rank.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Literal

from . import lazy
from .lines import MESSAGE, parse, strip_ansi
from .model import Line
from .values import dataclass, field

TaskMeaning = Literal["rank", "node"]

_NCCL_INIT = lazy.regex(r"comm 0x[0-9a-f]{1,16} rank (\d{1,6}) n[Rr]anks (\d{1,6})")
_DS_SPAWN = lazy.regex(r"process (\d{1,9}) spawned with command: .{0,2000}?--local_rank[= '\",]{1,5}(\d{1,4})")
_DS_MAP = lazy.regex(r"global_rank_mapping=defaultdict\([^,]{0,40}, (\{[^{}]{0,20000}\})\)")
_DS_NODE = lazy.regex(r"nnodes=(\d{1,6}), num_local_procs=(\d{1,4}), node_rank=(\d{1,6})")
_SUMMARY = lazy.regex(r"^\s{0,8}(time|host|rank|exitcode|error_file) {1,12}: (.{1,200})")
_SUMMARY_RANK = lazy.regex(r"(\d{1,6}) \(local_rank: (\d{1,4})\)")
_SUMMARY_PID = lazy.regex(r"-?\d{1,4} \(pid: (\d{1,9})\)")
_TASKS = lazy.regex(r"tasks? ([\d,\- ]{1,400}):")
_WORLD = lazy.regex(r"(?:world[_ ]size|WORLD_SIZE)[\"']?\s{0,3}[=:]\s{0,3}[\"']?(\d{1,6})\b|MEMBER: \d{1,6}/(\d{1,6})")


def task_list(text: str) -> tuple[int, ...]:
    """Tasks of an `srun: error: node-1: tasks 2,4-5,7: Killed` line."""
    match = _TASKS.search(text[:MESSAGE])
    tasks: list[int] = []
    for part in match[1].replace(" ", "").split(",") if match else ():
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            continue
        low, high = int(first), int(last or first)
        if high - low < 100_000:
            tasks.extend(range(low, high + 1))
    return tuple(tasks)


def task_ranks(lines: Iterable[Line]) -> TaskMeaning | None:
    """What a Slurm task is, from lines that carry a task and a global rank.

    "rank": every task equals its rank, seen on at least one task above 0. "node": some task
    carries another rank, or several ranks (one torchrun per node). None: nothing decides.
    """
    seen: dict[int, set[int]] = {}
    for line in lines:
        if line.task is not None and line.rank is not None:
            seen.setdefault(line.task, set()).add(line.rank)
    if any(len(ranks) > 1 or task not in ranks for task, ranks in seen.items()):
        return "node"
    return "rank" if any(task > 0 for task in seen) else None


@dataclass(frozen=True, slots=True)
class RankMap:
    """Lookup of global ranks; `resolve` answers None rather than guess."""

    process: Mapping[tuple[str | None, int], int] = field(default_factory=dict)
    """(host or None, pid) → rank. The entry without a host exists where the pid is unique."""
    local: Mapping[tuple[str | None, int], int] = field(default_factory=dict)
    """(host or None, local rank) → rank; without a host only where there is one node."""
    hosts: Mapping[int, str] = field(default_factory=dict)
    """Rank → host."""
    tasks: TaskMeaning | None = None
    world_size: int | None = None

    def resolve(self, line: Line) -> int | None:
        if line.rank is not None:
            return line.rank
        if line.pid is not None:
            for key in ((line.host, line.pid), (None, line.pid)):
                if key in self.process:
                    return self.process[key]
        if line.local_rank is not None:
            if (line.host, line.local_rank) in self.local:
                return self.local[line.host, line.local_rank]
            if (None, line.local_rank) in self.local:
                return self.local[None, line.local_rank]
        if line.task is not None and self.tasks == "rank":
            return line.task
        return None

    def node(self, line: Line) -> str | None:
        """The host of a line, from itself or from its rank."""
        if line.host is not None:
            return line.host
        rank = self.resolve(line)
        return self.hosts.get(rank) if rank is not None else None


class _Votes:
    """Key → rank, forgotten for good once two ranks were seen."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str | None, int], set[int]] = {}

    def add(self, host: str | None, number: int, rank: int) -> None:
        for key in {(host, number), (None, number)}:
            self.seen.setdefault(key, set()).add(rank)

    def settled(self) -> dict[tuple[str | None, int], int]:
        return {key: next(iter(ranks)) for key, ranks in self.seen.items() if len(ranks) == 1}


def rank_map(texts: Iterable[str]) -> RankMap:
    """Builds the map from the lines of one attempt (all of them, or those around hits)."""
    process, local = _Votes(), _Votes()
    hosts: dict[int, set[str]] = {}
    parsed: list[Line] = []
    nccl: list[tuple[str | None, int, int, int]] = []
    worlds: set[int] = set()
    block: dict[str, str] = {}
    nodes: set[str] = set()
    for text in texts:
        line = parse(text)
        body = line.body[:MESSAGE]
        if line.task is not None and line.rank is not None:
            parsed.append(line)
        if line.host is not None:
            nodes.add(line.host)
        match = _SUMMARY.match(body)
        if match is not None:
            if match[1] == "time":
                block.clear()
            block[match[1]] = match[2].strip()
            _read_block(block, process, local, hosts, nodes)
            continue
        if line.rank is not None and line.stream not in ("scheduler", "kernel"):
            if line.pid is not None:
                process.add(line.host, line.pid, line.rank)
            if line.local_rank is not None:
                local.add(line.host, line.local_rank, line.rank)
            if line.host is not None:
                hosts.setdefault(line.rank, set()).add(line.host)
        if "rank" in body or "WORLD_SIZE" in body or "MEMBER" in body:
            _read_body(line, strip_ansi(text)[:MESSAGE], process, local, nccl, worlds)
    world = max(worlds, default=None)
    for host, pid, rank in _trusted_nccl(nccl, world):
        process.add(host, pid, rank)
        if host is not None:
            hosts.setdefault(rank, set()).add(host)
    settled_local = local.settled()
    if len(nodes) > 1:
        # On several nodes a local rank alone says nothing, even if only one pairing was printed.
        settled_local = {k: v for k, v in settled_local.items() if k[0] is not None}
    return RankMap(
        process=process.settled(),
        local=settled_local,
        hosts={rank: next(iter(names)) for rank, names in hosts.items() if len(names) == 1},
        tasks=task_ranks(parsed),
        world_size=world,
    )


def _read_block(block: Mapping[str, str], process: _Votes, local: _Votes, hosts: dict[int, set[str]], nodes: set[str]) -> None:
    """One failure of a torchelastic summary, as far as it has been read."""
    match = _SUMMARY_RANK.match(block.get("rank", ""))
    host = block.get("host")
    if host:
        nodes.add(host)
    if match is None:
        return
    rank = int(match[1])
    local.add(host, int(match[2]), rank)
    if host:
        hosts.setdefault(rank, set()).add(host)
    pid = _SUMMARY_PID.match(block.get("exitcode", ""))
    if pid is not None:
        process.add(host, int(pid[1]), rank)


def _read_body(
    line: Line,
    body: str,
    process: _Votes,
    local: _Votes,
    nccl: list[tuple[str | None, int, int, int]],
    worlds: set[int],
) -> None:
    """Mappings that the message itself states."""
    worlds.update(int(found[1] or found[2]) for found in _WORLD.finditer(body))
    match = _NCCL_INIT.search(body)
    if match is not None and line.pid is not None:
        nccl.append((line.host, line.pid, int(match[1]), int(match[2])))
        return
    match = _DS_MAP.search(body)
    if match is not None:
        try:
            mapping = ast.literal_eval(match[1])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            mapping = {}
        single = len(mapping) == 1
        for host, ranks in mapping.items() if isinstance(mapping, dict) else ():
            for index, rank in enumerate(ranks if isinstance(ranks, list) else ()):
                if isinstance(rank, int):
                    local.add(None if single else str(host), index, rank)
        return
    match = _DS_SPAWN.search(body)
    if match is not None:
        local_rank = int(match[2])
        ranks = local.seen.get((line.host, local_rank)) or set()
        if len(ranks) == 1:
            process.add(line.host, int(match[1]), next(iter(ranks)))
        return
    match = _DS_NODE.search(body)
    if match is not None:
        size, node = int(match[2]), int(match[3])
        for index in range(min(size, 64)):
            local.add(line.host, index, node * size + index)


def _trusted_nccl(inits: list[tuple[str | None, int, int, int]], world: int | None) -> list[tuple[str | None, int, int]]:
    """NCCL ranks are ranks of a communicator: only the one as large as the world counts.

    Where the world size is not printed, the largest communicator is taken if its ranks
    belong to one process each.
    """
    size = world or max((n for *_, n in inits), default=0)
    chosen = {(host, pid, rank) for host, pid, rank, n in inits if n == size}
    owners: dict[int, set[tuple[str | None, int]]] = {}
    for host, pid, rank in chosen:
        owners.setdefault(rank, set()).add((host, pid))
    if any(len(processes) > 1 for processes in owners.values()):
        return []
    if world is None and len({(h, p) for h, p, *_ in inits}) > size:
        return []
    return sorted(chosen, key=lambda item: (item[0] or "", item[1], item[2]))
