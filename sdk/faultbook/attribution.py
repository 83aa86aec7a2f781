"""Whose line is it? Records with a global rank, and the maps that give one.

`lines.parse` reads what one line says about itself. Here the lines of all sources are put
together: a banner that holds a pid and a rank, a tee prefix beside torch's own prefix, an
elastic summary, a directory `attempt_0/3/`. Numbers that stay unknown stay None.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from . import lazy, lines
from .model import Line, Source
from .sources import open_stream
from .values import dataclass, field, replace

Writer = tuple[int, "int | None", "int | None", "int | None", "str | None"]
"""(source, rank, local rank, task, host): who printed a line, as far as its prefix tells."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of one source, with the rank of the process that wrote it."""

    source: int
    line: int
    body: str
    parsed: Line
    rank: int | None = None
    attempt: int = 0
    text: str = ""
    """As it stands in the log, prefixes included."""
    about: bool = False
    """Written by a launcher, the scheduler or the kernel about a process: not that process's own words."""

    @property
    def time(self) -> float | None:
        return self.parsed.time


_ABOUT_FIELD = lazy.regex(r"\s*(?:time|host|rank|exitcode|error_file|traceback) *: ")
_ABOUT = lazy.regex(
    r"\(exitcode: |crashed with exit code|noticed that process rank"
    r"|srun: |slurmstepd|Killed process|oom-kill:|NVRM: Xid|exits with return code|Sending process \d|Process name: \[\["
    r"|Terminating process \d|Killing subprocess \d|death signal|will restart worker group"
)
_ABOUT_WORDS = (
    "(exitcode: ", "crashed with exit", "noticed that", "srun: ", "slurmstepd", "Killed process", "oom-kill:", "NVRM: Xid",
    "exits with return", "Sending process", "Process name:", "Terminating process", "Killing subprocess", "death signal",
    "will restart",
)  # fmt: skip
_FIELD = lazy.regex(
    r"\b(?P<key>world[_ ]?size|local[_ ]rank|global[_ ]rank|rank|pid|host(?:name)?|node)[ \"']{0,2}"
    r"[=:] ?[\"']?(?P<value>[\w.\-]{1,80})",
    re.IGNORECASE,
)
_MEMBER = lazy.regex(r"GLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/(?P<world>\d+)")
_JOINED = lazy.regex(r"\d+/(?P<world>\d+) clients joined")
_NRANKS = lazy.regex(r"\bnranks (?P<world>\d{1,6})\b")
_BODY_RANK = lazy.regex(
    r"(?:\brank[=:](?P<end>\d{1,6})\s*$|\| +rank[ =:](?P<bar>\d{1,6}) +\||^\W{0,3}(?:Process )?rank[ :]{1,2}(?P<head>\d{1,6})\b"
    r"|\bstep \d+ rank (?P<step>\d{1,6})\b|^world_size=\d+ rank=(?P<banner>\d{1,6})\b)",
    re.IGNORECASE,
)
_GROUPS = lazy.regex(r"groups?\W{0,4}(?P<groups>\[\[[\d, \[\]]+\]\])", re.IGNORECASE)
_GLUED_NEWS = lazy.regex(r"(?<=[^\s\w.\-])(?=(?:srun: |slurmstepd|mpirun noticed|KeyboardInterrupt\b))")


@dataclass(slots=True)
class Attribution:
    """Maps to global ranks, filled by `learn` and used by `rank_of`."""

    world_size: int | None = None
    pid_rank: dict[int, int] = field(default_factory=dict)
    local_rank: dict[tuple[str | None, int], int] = field(default_factory=dict)
    rank_node: dict[int, str] = field(default_factory=dict)
    tasks: set[int] = field(default_factory=set)
    task_is_rank: bool | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    """Member lists of sub-groups, where a line prints them."""
    folded: bool = False
    """Ray folds equal lines of other processes: silence proves nothing."""
    seen_ranks: set[int] = field(default_factory=set)
    node_of_source: dict[int, str] = field(default_factory=dict)

    @property
    def nodes(self) -> set[str]:
        return set(self.rank_node.values())

    def global_of_local(self, local: int, node: str | None) -> int | None:
        """A local rank as a global one: by the map of its node, or as it is on a single node."""
        if node is not None and (node, local) in self.local_rank:
            return self.local_rank[node, local]
        if len(self.nodes) > 1:
            return None
        candidates = {r for (_, number), r in self.local_rank.items() if number == local}
        return candidates.pop() if len(candidates) == 1 else (None if candidates else local)


_PIECE = 1 << 20


def read_text(source: Source) -> Iterator[tuple[int, str]]:
    """(line number, text) of a whole source; a line longer than 1 MiB comes in pieces of one number."""
    number = 1
    with open_stream(source) as stream:
        while True:
            raw = stream.readline(_PIECE)
            if not raw:
                return
            yield number, raw.decode("utf-8", "replace").rstrip("\r\n")
            if raw.endswith(b"\n"):
                number += 1


def parse_all(sources: Iterable[Source], texts: Mapping[int, Iterable[tuple[int, str]]]) -> list[Record]:
    """Parsed records of all sources, glued lines split, ranks not yet resolved."""
    found = []
    for source in sources:
        for number, text in texts.get(source.index, ()):
            if text.startswith("{") and "\\n" in text and (parts := _of_json(text)):
                found += [Record(source.index, number, p.body, p, None, source.attempt or 0, p.body) for p in parts]
                continue
            for piece in lines.split_glued(text):
                for part in _GLUED_NEWS.split(piece) if _may_be_glued(piece) else (piece,):
                    line = lines.parse(part)
                    about = _is_about(line.body[:400]) or line.stream in ("kernel", "scheduler")
                    if about:
                        line = _prefix_only(part, line)
                    found.append(Record(source.index, number, line.body, line, None, source.attempt or 0, part, about))
    return found


def _of_json(text: str) -> list[Line]:
    """The lines of a message that a JSON record holds (a whole traceback, mostly); the record says whose they are."""
    outer = lines.parse(text)
    if "\n" not in outer.body or outer.body == text:
        return []
    found = []
    for body in outer.body.split("\n"):
        own = lines.parse(body)
        rank = own.rank if own.rank is not None else outer.rank
        local = own.local_rank if own.local_rank is not None else outer.local_rank
        found.append(replace(outer, body=own.body, rank=rank, local_rank=local))
    return found


def _may_be_glued(text: str) -> bool:
    return len(text) < 20_000 and (
        "srun: " in text or "slurmstepd" in text or "mpirun noticed" in text or "KeyboardInterrupt" in text
    )


def _is_about(head: str) -> bool:
    """Whether a launcher, the scheduler or the kernel speaks about a process. Most lines hold none of the words."""
    if _ABOUT_FIELD.match(head):
        return True
    for word in _ABOUT_WORDS:
        if word in head:
            return _ABOUT.search(head) is not None
    return False


def _prefix_only(text: str, line: Line) -> Line:
    """The line as its prefix describes the writer, without facts taken from the message."""
    prefix = text[: len(text) - len(line.body)] if text.endswith(line.body) else ""
    writer = lines.parse(prefix + "x") if prefix else Line(body="")
    return Line(
        body=line.body,
        rank=writer.rank,
        local_rank=writer.local_rank,
        task=writer.task,
        host=writer.host or line.host,
        pid=writer.pid,
        stream=line.stream,
        time=line.time,
        clock=line.clock,
        level=line.level,
    )


def learn(records: Sequence[Record], sources: Mapping[int, Source]) -> Attribution:
    """Everything the records say about which number is which rank."""
    known = Attribution()
    worlds: Counter[int] = Counter()
    together: dict[int, set[int]] = defaultdict(set)
    for record in records:
        line, body = record.parsed, record.body
        if line.folded:
            known.folded = True
        if record.about:
            continue
        source = sources.get(record.source)
        rank = line.rank
        if line.task is not None:
            known.tasks.add(line.task)
        fields: dict[str, str] = {}
        lowered = body[:400].lower()
        if "rank" in lowered or "world" in lowered:
            for match in _FIELD.finditer(body[:400]):
                fields.setdefault(match["key"].lower().replace(" ", "_"), match["value"])
            member = _MEMBER.search(body)
            if member:
                worlds[int(member["world"])] += 1
                fields.setdefault("rank", member["rank"])
        if "group" in lowered and not known.groups:
            known.groups = _read_groups(body)
        for expression in (_JOINED, _NRANKS):
            if "joined" in lowered or "nranks" in lowered:
                found = expression.search(body)
                if found:
                    worlds[int(found["world"])] += 1
        world = _number(fields.get("world_size") or fields.get("worldsize"))
        if world:
            worlds[world] += 1
        said = _number(fields.get("global_rank") or fields.get("rank"))
        local = _number(fields.get("local_rank"))
        if rank is None and said is not None and len(fields) >= 2:
            rank = said
        if rank is None and source is not None and source.rank is not None:
            rank = source.rank
        host = fields.get("host") or fields.get("hostname") or line.host
        if rank is None:
            continue
        known.seen_ranks.add(rank)
        if line.task is not None:
            together[line.task].add(rank)
        for number in {local, line.local_rank, source.local_rank if source else None} - {None}:
            if number is not None:
                known.local_rank.setdefault((host, number), rank)
        if host:
            known.rank_node.setdefault(rank, host)
            if source is not None and source.local_rank is not None:
                known.node_of_source.setdefault(source.index, host)
        pid = _number(fields.get("pid")) or line.pid
        if pid and len(fields) >= 2:
            known.pid_rank[pid] = rank
    if worlds:
        known.world_size = worlds.most_common(1)[0][0]
    if together:
        known.task_is_rank = all(ranks == {task} for task, ranks in together.items())
    elif known.tasks:
        known.task_is_rank = known.world_size in (None, len(known.tasks)) or len(known.tasks) > 1
    return known


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 9 else None


def _read_groups(body: str) -> tuple[tuple[int, ...], ...]:
    match = _GROUPS.search(body[:20_000])
    if not match:
        return ()
    return tuple(
        tuple(int(n) for n in re.findall(r"\d{1,6}", members)) for members in re.findall(r"\[([\d, ]+)\]", match["groups"])
    )


def rank_of(record: Record, known: Attribution, source: Source | None) -> int | None:
    """The global rank of the writer of a record."""
    line = record.parsed
    not_own = record.about and line.rank is None and (line.task is None or line.stream == "scheduler")
    if not_own and (source is None or source.rank is None):
        return None
    if line.rank is not None and (source is None or source.rank is None or f"[rank{line.rank}]" in record.text[:200]):
        return line.rank
    if source is not None and source.rank is not None:
        return source.rank
    if line.pid is not None and line.pid in known.pid_rank and not record.about:
        return known.pid_rank[line.pid]
    local = line.local_rank if line.local_rank is not None else (source.local_rank if source else None)
    node = line.host or (source.node if source else None)
    if node is None and source is not None:
        node = known.node_of_source.get(source.index)
    if local is not None:
        return known.global_of_local(local, node)
    if line.task is not None and known.task_is_rank and not record.about:
        return line.task
    if record.about or "rank" not in record.body[:400].lower():
        return None
    match = _BODY_RANK.search(record.body[:400])
    if match:
        return int(next(g for g in match.groups() if g is not None))
    return None


def resolve(records: Sequence[Record], known: Attribution, sources: Mapping[int, Source]) -> list[Record]:
    """The same records with their global ranks filled in."""
    found = []
    for record in records:
        rank = rank_of(record, known, sources.get(record.source))
        found.append(replace(record, rank=rank) if rank is not None else record)
        if rank is not None and not record.about:
            known.seen_ranks.add(rank)
    return found


def by_writer(records: Iterable[Record]) -> dict[Writer, list[Record]]:
    """Records of one writer together, so that a traceback is not cut by another rank's lines."""
    groups: dict[Writer, list[Record]] = defaultdict(list)
    for record in records:
        line = record.parsed
        prefixed = line.rank is not None or line.local_rank is not None or line.task is not None
        key = (
            record.source,
            record.rank if prefixed else None,
            line.local_rank if record.rank is None else None,
            line.task if record.rank is None else None,
            line.host if record.rank is None and not record.about else None,
        )
        groups[key].append(record)
    return dict(groups)
