"""Reads all inputs once: hits of all patterns with rank and attempt, metric series, and the incident.

Inputs of usual size are read whole. Of large ones a bounded number of lines is read a second time (see `sampling`);
what was left out is said in `notes`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from . import attribution, events, fact_lines, facts, incident, metrics, pregate, sampling, scan, streams, tracking
from .attribution import Record
from .incident import Incident
from .matching import Key, Observation, key_of
from .model import Scanned, Series, Source
from .signatures import LogSignature, Pattern, Signature
from .values import dataclass, field

WHOLE = 2 << 20
"""Bytes of all log inputs together up to which every line is parsed."""
_COLD = 10
"""Literals of so many bytes rarely stand on every line."""


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
    sources: Sequence[Source],
    signatures: Iterable[Signature],
    gate: str | None = None,
    stalled: float | None = None,
    told: Callable[[Source, int], None] | None = None,
) -> Examined:
    """One scan for all log signatures, then the second look, line by line."""
    wanted = list(signatures)
    logs = {s.index: s for s in sources if s.kind in ("log", "kernel", "scheduler", "stacks", "gpu") and not s.skipped}
    known = _known_size(logs.values())
    patterns = _patterns(wanted, hints=known is None or known > WHOLE)
    scanner = scan.Scanner(patterns, gate=_gate(gate, known), brief=_hints(wanted, patterns))
    scanned = {index: scanner.scan(s, told=told) for index, s in logs.items()}
    denied, found = _denied(wanted, patterns, scanned, logs, scanner.gate.name)
    notes = []
    if sum(x.size for x in scanned.values()) <= WHOLE:
        texts = {index: [(line, text) for line, _, text in scan.records(s)] for index, s in logs.items()}
    else:
        texts = sampling.texts(logs, scanned)
        notes.append(sampling.note(scanned, texts))

    def reader(source: Source) -> Iterable[tuple[int, str]]:
        return texts[source.index] if source.index in texts else attribution.read_text(source)

    seen, records = incident.with_records(sources, reader, stalled)
    observations = _observe(patterns, scanned, records, sources) | _observe(denied, found, records, sources)
    for key, lines in fact_lines.observe([*patterns, *denied], seen).items():
        observations.setdefault(key, []).extend(lines)
    by_source: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_source[record.source].append(record)
    series = []
    for source in sources:
        found_here, note = _series(source, texts.get(source.index), by_source[source.index])
        series += found_here
        if note:
            notes.append(f"{source.name}: {note}")
    notes += _capped(wanted, patterns, scanned, observations, sources)
    notes += _skipped(sources)
    return Examined(sources, seen, observations, series, scanned, records, notes)


def _skipped(sources: Sequence[Source]) -> list[str]:
    """Inputs that were not read, by reason; of very many with one reason a few are named."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        if source.skipped:
            by_reason[source.skipped].append(source.name)
    found = []
    for why, names in by_reason.items():
        if len(names) <= 3:
            found += [f"{name}: {why}" for name in names]
        else:
            found.append(f"{len(names)} files ({names[0]}, {names[1]}, …): {why}")
    return found


def _known_size(logs: Iterable[Source]) -> int | None:
    """Bytes of all inputs together; None when one is compressed, or its size unknown."""
    total = 0
    for source in logs:
        if source.data is not None:
            total += len(source.data)
        elif source.path is None or not streams.seekable(source):
            return None
        else:
            try:
                total += os.path.getsize(source.path)
            except OSError:
                return None
    return total


def _gate(asked: str | None, size: int | None) -> str | None:
    """For a small input the gate that needs no library and no compilation."""
    small = size is not None and size <= pregate.SMALL
    return "python" if small and not asked and not os.environ.get("FAULTBOOK_GATE") else asked


def _denied(
    signatures: Sequence[Signature],
    patterns: Sequence[Pattern],
    scanned: Mapping[int, Scanned],
    logs: Mapping[int, Source],
    gate: str,
) -> tuple[list[Pattern], dict[int, Scanned]]:
    """Patterns that only a `none` asks for, and their hits, as far as these were not looked for at once. What must not
    occur is often what stands on every line of a healthy log: it is looked for only where everything else of the
    signature was found, in a scan of its own."""
    hits = {key_of(patterns[number]) for one in scanned.values() for number in one.counts}
    known = {key_of(p) for p in patterns}
    asked: dict[Key, Pattern] = {}
    for signature in signatures:
        if not isinstance(signature, LogSignature) or not signature.none:
            continue
        required = all(key_of(p) in hits or fact_lines.is_virtual(p) for p in signature.all)
        optional = not signature.any or any(key_of(p) in hits or fact_lines.is_virtual(p) for p in signature.any)
        if required and optional:
            asked.update((key_of(p), p) for p in signature.none if key_of(p) not in known)
    denied = list(asked.values())
    if not denied:
        return [], {}
    scanner = scan.Scanner(denied, gate=gate)
    return denied, {index: scanner.scan(source) for index, source in logs.items()}


def _patterns(signatures: Iterable[Signature], hints: bool) -> list[Pattern]:
    """All patterns that a signature requires. In a large input (`hints`) also those that say where it is worth reading, and
    those of a `none` that are cold enough not to be put off: a second pass takes longer."""
    found: dict[Key, Pattern] = {}
    if hints:
        found = {key_of(p): p for p in (*(e.pattern for e in events.EVENT_PATTERNS), *sampling.HINTS)}
    for signature in signatures:
        if isinstance(signature, LogSignature):
            cold = [p for p in signature.none if min(map(len, p.literals), default=0) >= _COLD] if hints else ()
            for pattern in (*signature.all, *signature.any, *cold):
                found.setdefault(key_of(pattern), pattern)
    return list(found.values())


def _hints(signatures: Iterable[Signature], patterns: Sequence[Pattern]) -> list[int]:
    """Numbers of the patterns that are hints and nothing else."""
    others = {key_of(e.pattern) for e in events.EVENT_PATTERNS}
    for s in signatures:
        if isinstance(s, LogSignature):
            others.update(key_of(p) for p in (*s.all, *s.any, *s.none))
    hints = {key_of(p) for p in sampling.HINTS} - others
    return [n for n, p in enumerate(patterns) if key_of(p) in hints]


def _capped(
    signatures: Sequence[Signature],
    patterns: Sequence[Pattern],
    scanned: Mapping[int, Scanned],
    observations: Mapping[Key, Sequence[Observation]],
    sources: Sequence[Source],
) -> list[str]:
    """Inputs in which patterns of a signature that could hold matched more often than lines were kept."""
    used: set[Key] = set()
    for signature in signatures:
        if isinstance(signature, LogSignature) and all(observations.get(key_of(p)) for p in signature.all):
            used.update(key_of(p) for p in (*signature.all, *signature.any))
    found = []
    for one in scanned.values():
        count = sum(key_of(patterns[number]) in used for number in one.capped)
        if count:
            found.append(
                f"{sources[one.source].name}: {count} patterns match so often that only their first and last lines were kept"
            )
    return found


def _observe(
    patterns: Sequence[Pattern], scanned: Mapping[int, Scanned], records: Sequence[Record], sources: Sequence[Source]
) -> dict[Key, list[Observation]]:
    """Hits with what their line says about rank, attempt and time."""
    places = {(hit.source, hit.line) for found in scanned.values() for hit in found.hits}
    at: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for item in records:
        if (item.source, item.line) in places:
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


def _series(source: Source, texts: Sequence[tuple[int, str]] | None, own: Sequence[Record]) -> tuple[list[Series], str]:
    """The metrics of one source, and what is to be said about them; `own` are its records."""
    if source.skipped:
        return [], ""
    if source.kind == "metrics":
        if source.path is not None and tracking.format_of(source.path):
            return tracking.read(source)
        return metrics.series_from_file(incident.content(source), "auto", source.index, source.rank), ""
    if texts is None or source.kind != "log":
        return [], ""
    rank = source.rank
    if rank is None and source.local_rank is not None:
        ranks = {r.rank for r in own if r.rank is not None}
        rank = ranks.pop() if len(ranks) == 1 else None
    return metrics.read_series(texts, source.index, rank, parsed={r.text: r.parsed for r in own if not r.about}), ""
