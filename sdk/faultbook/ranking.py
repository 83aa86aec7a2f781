"""From everything that matched to an ordered list of findings: the initiating cause first.

The primary is not the loudest line. Order of preference:
1. the role: a root or its confirmation before a cascade, a cascade before teardown;
2. where it happened: on the initiating rank before elsewhere, in the attempt that broke first;
3. a finding from which the run recovered comes after one from which it did not;
4. within one event (lines close together) the more specific entry: a cause before its hub;
5. the earlier event, because one fault makes many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .catalog import Catalog, Entry
from .detectors import MetricMatch
from .matching import LogMatch, Observation
from .model import Evidence, Finding, Initiating
from .signatures import MetricSignature, Role, Signature
from .values import dataclass

ROLE_ORDER: Mapping[Role, int] = {"root": 0, "confirmation": 0, "cascade": 1, "teardown": 2, "advice": 3, "noise": 3}
SAME_EVENT = 60
"""Lines of one source that are closer than this are about one event (a traceback, a block)."""
MAX_EVIDENCE = 6


@dataclass(frozen=True, slots=True)
class Match:
    """One signature that holds, whatever its kind."""

    entry: str
    signature: Signature
    rank: int | None
    attempt: int
    evidence: tuple[Observation, ...]
    certain: bool

    @property
    def name(self) -> str:
        return f"{self.entry}#{self.signature.id}"

    @property
    def place(self) -> tuple[int, int, int]:
        """(attempt, source, line) of the first line of evidence."""
        first = min(self.evidence, key=lambda o: (o.source, o.line))
        return (self.attempt, first.source, first.line)


def from_log(entry: str, match: LogMatch) -> Match:
    return Match(entry, match.signature, match.rank, match.attempt, match.evidence, match.certain)


def from_metric(entry: str, signature: MetricSignature, match: MetricMatch) -> Match:
    """A metric match; its evidence are the records at which the predicates first held."""
    evidence = tuple(Observation(f.source, f.line, f.text, f.rank, attempt=match.attempt) for f in match.firings)
    return Match(entry, signature, match.rank, match.attempt, evidence, not match.unknown)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One entry with all its matches."""

    entry: Entry
    matches: tuple[Match, ...]
    order: int
    """The best role of its matches, as in ROLE_ORDER."""
    elsewhere: bool
    """All its lines belong to ranks other than the initiating one."""
    recovered: bool

    @property
    def slug(self) -> str:
        return str(self.entry["slug"])

    @property
    def best(self) -> Match:
        return min(self.matches, key=lambda m: (ROLE_ORDER[m.signature.role], not m.certain, m.place, m.name))


def candidates(
    matches: Iterable[Match],
    catalog: Catalog,
    initiating: Initiating | None,
    recovered: Iterable[tuple[int, int]] = (),
) -> tuple[list[Candidate], list[Candidate]]:
    """(what can explain a failure, what is known to be harmless), unordered.

    `recovered` lists (source, line) of exceptions after which the run went on.
    """
    healed = set(recovered)
    by_entry: dict[str, list[Match]] = {}
    for match in matches:
        by_entry.setdefault(match.entry, []).append(match)
    explaining: list[Candidate] = []
    harmless: list[Candidate] = []
    for slug, own in sorted(by_entry.items()):
        entry = catalog.entries[slug]
        order = min(ROLE_ORDER[m.signature.role] for m in own)
        if order == 0 and entry["kind"] == "symptom" and not any(m.signature.role == "root" for m in own):
            order = 1  # a hub's confirmation confirms the symptom, which no cause has to stand behind
        guilty = None if initiating is None or initiating.scope != "rank" else initiating.rank
        elsewhere = guilty is not None and all(m.rank is not None and m.rank != guilty for m in own)
        healed_all = bool(healed) and all(any((o.source, o.line) in healed for o in m.evidence) for m in own)
        candidate = Candidate(entry, tuple(own), order, elsewhere, healed_all)
        if entry["kind"] == "noise" or order >= 3:
            harmless.append(candidate)
        else:
            explaining.append(candidate)
    return explaining, harmless


def ordered(found: Sequence[Candidate], catalog: Catalog) -> list[Candidate]:
    """The initiating cause first."""
    by_position = sorted(found, key=lambda c: (c.recovered, c.order, c.elsewhere, c.best.place, c.slug))
    groups: list[list[Candidate]] = []
    for candidate in by_position:
        if groups and _same_event(groups[-1][0], candidate):
            groups[-1].append(candidate)
        else:
            groups.append([candidate])
    result = [c for group in groups for c in sorted(group, key=lambda c: _specificity(c, group))]
    # A hub that was reached through one of its causes adds nothing as an answer of its own: it goes behind.
    hubs = {c.slug for c in result if any(_explains(d, c) for d in result)}
    return [c for c in result if c.slug not in hubs] + [c for c in result if c.slug in hubs]


def _explains(cause: Candidate, hub: Candidate) -> bool:
    """The cause belongs to the hub and its evidence is no weaker."""
    if hub.slug not in cause.entry.get("ancestors", ()):
        return False
    # Not `elsewhere`: in a desync the telling line is often the victim's.
    return cause.order == 0 or (cause.recovered, cause.order) <= (hub.recovered, hub.order)


def _same_event(first: Candidate, other: Candidate) -> bool:
    if (first.recovered, first.order, first.elsewhere) != (other.recovered, other.order, other.elsewhere):
        return False
    a, b = first.best.place, other.best.place
    return a[:2] == b[:2] and abs(a[2] - b[2]) <= SAME_EVENT


def _specificity(candidate: Candidate, group: Sequence[Candidate]) -> tuple[Any, ...]:
    """Smaller is more specific."""
    kind = {"cause": 0, "symptom": 1}.get(candidate.entry["kind"], 2)
    depth = -len(candidate.entry.get("ancestors", ()))
    # A signature that asks for more (several lines, a comparison, a rule over ranks) says more.
    demands = max(_demands(m.signature) for m in candidate.matches)
    lone = all(len(m.evidence) == 1 for m in candidate.matches)
    return (kind, depth, -demands, lone, candidate.best.place, candidate.slug)


def _demands(signature: Signature) -> int:
    if isinstance(signature, MetricSignature):
        return len(signature.all) + bool(signature.any) + signature.ordered
    extra = bool(signature.where) * 2 + bool(signature.ranks) + bool(signature.within) + signature.ordered
    return len(signature.all) + bool(signature.any) + extra


def findings(
    explaining: Sequence[Candidate],
    initiating: Initiating | None,
    names: Mapping[int, str],
    url: str,
) -> list[Finding]:
    """Findings in order; the first is primary, causes and hubs of the same event contribute, the rest is collateral."""
    result: list[Finding] = []
    for position, candidate in enumerate(explaining):
        first = explaining[0]
        related = candidate.slug in first.entry.get("ancestors", ()) or (
            candidate.order == first.order and not candidate.elsewhere and not candidate.recovered
        )
        role = "primary" if position == 0 else "contributing" if related else "collateral"
        rank = candidate.best.rank
        if rank is None and position == 0 and initiating is not None and initiating.scope == "rank":
            rank = initiating.rank
        confidence = confidence_of(candidate, explaining, initiating) if position == 0 else 0.0
        result.append(finding(candidate, role, confidence or _lesser(candidate, first, initiating), rank, names, url))
    return result


def finding(
    candidate: Candidate, role: Any, confidence: float, rank: int | None, names: Mapping[int, str], url: str
) -> Finding:
    entry = candidate.entry
    evidence: dict[tuple[int, int], Evidence] = {}
    for match in sorted(candidate.matches, key=lambda m: (ROLE_ORDER[m.signature.role], m.place)):
        for seen in match.evidence:
            evidence.setdefault(
                (seen.source, seen.line), Evidence(names.get(seen.source, "?"), seen.line, seen.rank, seen.text, match.name)
            )
    return Finding(
        entry=candidate.slug,
        title=entry["title"],
        role=role,
        confidence=round(confidence, 2),
        rank=rank,
        evidence=tuple(list(evidence.values())[:MAX_EVIDENCE]),
        action=dict(entry.get("action") or {}),
        fix=entry.get("fix") or "",
        verify=entry.get("verify") or "",
        url=url.format(slug=candidate.slug),
    )


def confidence_of(candidate: Candidate, others: Sequence[Candidate], initiating: Initiating | None) -> float:
    """Stated confidence of the primary; the constants are checked against the reliability table of `score`."""
    value = {0: 0.93, 1: 0.75, 2: 0.5}[candidate.order]
    best = candidate.best
    if isinstance(best.signature, MetricSignature):
        value -= 0.08
    if not best.certain:
        value -= 0.15
    if candidate.entry["kind"] == "symptom":
        value -= 0.03
    rivals = [
        c for c in others
        if c.order == 0 and c.slug != candidate.slug and not c.recovered and not c.elsewhere
        and c.slug not in candidate.entry.get("ancestors", ()) and candidate.slug not in c.entry.get("ancestors", ())
    ]  # fmt: skip
    value -= 0.1 * min(len(rivals), 3)
    if candidate.elsewhere:
        value -= 0.2
    return max(0.05, value)


def _lesser(candidate: Candidate, first: Candidate, initiating: Initiating | None) -> float:
    return max(0.05, {0: 0.5, 1: 0.35, 2: 0.2}[candidate.order])
