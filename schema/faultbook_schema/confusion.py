"""Every signature against every log of the knowledge: does it fire where it should, and nowhere else?

A signature of role root or confirmation names a cause. It may fire on the broken log
of its own entry, of an entry below it (an ancestor hub is a coarser name for the same
failure), of the hub above it (whose example is one of its causes), and of an entry
related to it in words; anywhere else it would name the wrong failure. Cascade,
teardown, advice and noise never name a cause: they may accompany any failure, but no
healthy run, noise excepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from faultbook.signatures import LogSignature, Signature

from .compiler import with_literals
from .firing import Firing, LogText, Prepared, firings, prepare
from .links import Raw, ancestors
from .loader import Knowledge, LoadedEntry
from .problems import Problem
from .yaml_nodes import Loc

NAMES_A_CAUSE = ("root", "confirmation")

Engine = Callable[[Prepared, LogText], dict[str, Firing]]
"""(signatures by name, log) → those that hold."""


@dataclass(frozen=True, slots=True)
class Tested:
    """A signature with its place."""

    owner: LoadedEntry
    index: int
    signature: Signature

    @property
    def name(self) -> str:
        return f"{self.owner.slug}#{self.signature.id}"

    @property
    def loc(self) -> Loc:
        return ("signatures", self.index)


@dataclass(frozen=True, slots=True)
class Log:
    """One log file of an entry, and what fires on it."""

    owner: LoadedEntry
    name: str
    fired: Mapping[str, Firing]

    @property
    def half(self) -> str:
        return self.name.split("-")[0].split(".")[0]

    @property
    def path(self) -> str:
        return self.owner.path.removesuffix("entry.yaml") + f"logs/{self.name}"


def with_literals_of(knowledge: Knowledge) -> Iterator[Tested]:
    """Every signature with the literals of its patterns."""
    for item in knowledge.entries.values():
        assert item.entry is not None
        for index, signature in enumerate(item.entry.signatures):
            yield Tested(item, index, with_literals(signature))


def matrix(
    knowledge: Knowledge, engine: Engine = firings, only: Collection[str] | None = None
) -> tuple[dict[str, Tested], list[Log]]:
    """All signatures by name, and what fires on each log.

    With `only`, the rows and columns of those entries: their signatures on every log, and every
    signature on their logs.
    """
    tested: dict[str, Tested] = {}
    for one in with_literals_of(knowledge):
        tested.setdefault(one.name, one)
    every = prepare({name: t.signature for name, t in tested.items()})
    some = every if only is None else prepare({n: t.signature for n, t in tested.items() if t.owner.slug in only})
    logs = [
        Log(item, name, engine(every if only is None or item.slug in only else some, LogText(text, name, _world(item))))
        for item in knowledge.entries.values()
        for name, text in sorted(item.logs.items())
    ]
    return tested, logs


def _world(item: LoadedEntry) -> int:
    repro = item.entry.repro if item.entry is not None else None
    return repro.world_size if repro is not None else 1


def problems_of(knowledge: Knowledge, engine: Engine = firings, only: Collection[str] | None = None) -> list[Problem]:
    """What the logs contradict; with `only`, as far as those entries take part."""
    tested, logs = matrix(knowledge, engine, only)
    raws = {slug: item.raw() for slug, item in knowledge.entries.items()}
    by_owner: dict[str, list[Log]] = {}
    for log in logs:
        by_owner.setdefault(log.owner.slug, []).append(log)
    problems: list[Problem] = []
    for one in tested.values():
        if only is not None and one.owner.slug not in only:
            continue
        problems += _own(one, by_owner.get(one.owner.slug, []), raws[one.owner.slug])
    for log in logs:
        problems += _foreign(log, tested, raws)
    return problems


def _own(one: Tested, logs: Sequence[Log], raw: Raw) -> Iterator[Problem]:
    """The signature on the logs of its own entry."""
    cited = {row["file"].removeprefix("logs/") for row in raw.get("recorded") or () if _cites(row, one)}
    for log in logs:
        if log.name in cited and one.name not in log.fired:
            message = f"`{one.signature.id}` does not fire on logs/{log.name}, which is said to show it"
            yield one.owner.problem(one.loc, message, "recorded-unmatched")
    broken = [log for log in logs if log.half == "broken"]
    if broken and not cited and not _quoted(one.signature) and not any(one.name in log.fired for log in broken):
        names = " or ".join(f"logs/{log.name}" for log in broken)
        message = f"`{one.signature.id}` does not fire on {names}"
        yield one.owner.problem(one.loc, message, "broken-unmatched", "does the failing run print that line?")


def _quoted(signature: Signature) -> bool:
    """Whether every pattern cites a source because no run here can print it."""
    if not isinstance(signature, LogSignature):
        return False
    return all(pattern.source for pattern in (*signature.all, *signature.any))


def _cites(row: object, one: Tested) -> bool:
    return isinstance(row, dict) and isinstance(row.get("file"), str) and one.signature.id in (row.get("signatures") or ())


def _foreign(log: Log, tested: Mapping[str, Tested], raws: Mapping[str, Raw]) -> Iterator[Problem]:
    """Signatures that fire on a log where they should not."""
    mine = log.owner.slug
    for name, firing in sorted(log.fired.items()):
        one = tested[name]
        theirs, role = one.owner.slug, one.signature.role
        quoted = f"{log.path}:{firing.line}: {firing.text[:100]}"
        if log.half == "fixed" and role != "noise":
            message = f"`{one.signature.id}` fires on the fixed run of {mine}"
            yield one.owner.problem(one.loc, message, "fixed-matched", quoted)
        elif log.half == "broken" and role in NAMES_A_CAUSE and not _allowed(theirs, mine, one, raws):
            message = f"`{one.signature.id}` fires on the broken run of {mine}, which is another failure"
            yield one.owner.problem(one.loc, message, "confusion", quoted)


def _allowed(theirs: str, mine: str, one: Tested, raws: Mapping[str, Raw]) -> bool:
    """Whether an entry's signature may fire on the broken log of another."""
    if theirs == mine or theirs in ancestors(mine, raws) or mine in ancestors(theirs, raws):
        return True
    if mine in one.signature.not_evidence_of:
        return True
    return mine in _related(raws[theirs]) or theirs in _related(raws[mine])


def _related(raw: Raw) -> set[str]:
    rows = [*(raw.get("related") or ()), *(raw.get("not_this_if") or ())]
    routes = [{"entry": row.get("to")} for row in raw.get("routes") or () if isinstance(row, dict)]
    return {str(row.get("entry")) for row in [*rows, *routes] if isinstance(row, dict)}
