"""Reads all inputs once: hits of all patterns with rank and attempt, metric series, and the incident.

Small inputs are read whole. Of large ones only what the scan pointed at is read a second time (lines
around hits, head and tail), and metric lines are sampled; what was left out is said in `notes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from . import attribution, events, fact_lines, facts, incident, metrics, scan
from .attribution import Record
from .incident import Incident
from .matching import Key, Observation, key_of
from .model import Scanned, Series, Source
from .signatures import LogSignature, Pattern, Signature
from .values import dataclass, field

WHOLE = 4 << 20
"""Bytes of all log inputs together up to which every line is parsed."""
AROUND = 60
"""Lines read around a hit of a large input."""
EDGE = 2000
"""Lines read from each end of a large input."""
MAX_WINDOWS = 400


@dataclass(slots=True)
class Examined:
    """Everything the later stages need; nothing refers back to files."""

    sources: Sequence[Source]
    incident: Incident
    observations: Mapping[Key, Sequence[Observation]]
    series: Sequence[Series]
    scanned: Mapping[int, Scanned]
    records: Sequence[Record]
    notes: list[str] = field(default_factory=list)

    def name(self, source: int) -> str:
        return facts.NAME if source < 0 else self.sources[source].name


def examine(
    sources: Sequence[Source], signatures: Iterable[Signature], gate: str | None = None, stalled: float | None = None
) -> Examined:
    """One scan with the engine's own event patterns and all log signatures, then the second look."""
    patterns = _patterns(signatures)
    scanner = scan.Scanner(patterns, gate=gate)
    logs = [s for s in sources if s.kind in ("log", "kernel", "scheduler", "stacks", "gpu") and not s.skipped]
    scanned = {s.index: scanner.scan(s) for s in logs}
    whole = sum(x.size for x in scanned.values()) <= WHOLE
    notes = []
    texts = {s.index: _texts(s, scanned[s.index], whole) for s in logs}
    if not whole:
        size = sum(x.size for x in scanned.values()) / 1e6
        notes.append(
            f"{size:.0f} MB of logs: every line was searched for all signatures, but ranks, times and metrics were read "
            "only around hits, at both ends, and in samples"
        )
    def reader(source: Source) -> Iterable[tuple[int, str]]:
        return texts[source.index] if source.index in texts else attribution.read_text(source)

    seen, records = incident.with_records(sources, reader, stalled)
    observations = _observe(patterns, scanned, records, sources)
    for key, lines in fact_lines.observe(patterns, seen).items():
        observations.setdefault(key, []).extend(lines)
    series = [x for s in sources for x in _series(s, texts.get(s.index), records)]
    for found in scanned.values():
        if found.capped:
            notes.append(
                f"{sources[found.source].name}: {len(found.capped)} patterns match so often that only their first "
                "and last lines were kept"
            )
    notes += [f"{s.name}: {s.skipped}" for s in sources if s.skipped]
    return Examined(sources, seen, observations, series, scanned, records, notes)


def _patterns(signatures: Iterable[Signature]) -> list[Pattern]:
    found: dict[Key, Pattern] = {key_of(e.pattern): e.pattern for e in events.EVENT_PATTERNS}
    for signature in signatures:
        if isinstance(signature, LogSignature):
            for pattern in (*signature.all, *signature.any, *signature.none):
                found.setdefault(key_of(pattern), pattern)
    return list(found.values())


def _texts(source: Source, scanned: Scanned, whole: bool) -> list[tuple[int, str]]:
    if whole:
        return [(line, text) for line, _, text in scan.records(source)]
    wanted: list[tuple[int, int]] = [(1, min(EDGE, scanned.lines)), (max(1, scanned.lines - EDGE), scanned.lines)]
    hits = sorted({h.line for h in scanned.hits})
    wanted += [(max(1, n - AROUND), n + AROUND) for n in hits[:MAX_WINDOWS]]
    return scan.windows(source, wanted, scanned)


def _observe(
    patterns: Sequence[Pattern], scanned: Mapping[int, Scanned], records: Sequence[Record], sources: Sequence[Source]
) -> dict[Key, list[Observation]]:
    """Hits with what their line says about rank, attempt and time."""
    at: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for item in records:
        at[item.source, item.line].append(item)
    result: dict[Key, list[Observation]] = defaultdict(list)
    for found in scanned.values():
        source = sources[found.source]
        for hit in found.hits:
            # A physical line can hold several records (glued, redrawn): take the one the hit's text is in.
            here = at.get((hit.source, hit.line), ())
            own = (r for r in here if r.body and r.body[:80] in hit.text)
            record: Record | None = next(own, here[0] if here else None)
            result[key_of(patterns[hit.pattern])].append(
                Observation(
                    hit.source,
                    hit.line,
                    hit.text,
                    rank=source.rank if record is None else record.rank,
                    host=source.node if record is None else record.parsed.host or source.node,
                    attempt=(source.attempt or 0) if record is None else record.attempt,
                    time=None if record is None else record.time,
                    clock=None if record is None else record.parsed.clock,
                )
            )
    return result


def _series(source: Source, texts: Sequence[tuple[int, str]] | None, records: Sequence[Record]) -> list[Series]:
    if source.skipped:
        return []
    if source.kind == "metrics":
        return metrics.series_from_file(incident.content(source), source.name.rsplit(".", 1)[-1], source.index, source.rank)
    if texts is None or source.kind != "log":
        return []
    rank = source.rank
    if rank is None:
        own = {r.rank for r in records if r.source == source.index and r.rank is not None}
        rank = own.pop() if len(own) == 1 and source.local_rank is not None else None
    return metrics.read_series(texts, source.index, rank)
