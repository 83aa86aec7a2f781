"""`faultbook new --from-log`: what a raw log gives to an entry.

The engine reads the log as it does for a diagnosis. What it finds abnormal becomes proposed
patterns and a masked sample; what it names, and what reads alike, is shown before anybody
writes an entry that exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultbook import diagnose
from faultbook.attribution import Record
from faultbook.catalog import Catalog
from faultbook.examine import Examined
from faultbook.masking import Pseudonyms
from faultbook.model import Diagnosis
from faultbook.signatures import LogSignature, Pattern

from .firing import fires
from .generalise import pattern_of
from .healthy import sample as healthy_sample
from .similar import Similar, similar

MOST = 4
"""Patterns proposed."""
WHOLE = 120
"""Lines of a log that is kept whole; of a longer one the lines around what is abnormal."""
AROUND = 6
_WARNING = re.compile(r"(?P<name>[A-Za-z_]\w*Warning): (?P<message>.{12,})")
_DATED = ("DeprecationWarning", "FutureWarning", "PendingDeprecationWarning", "ResourceWarning", "SyntaxWarning")
_LEVELS = ("ERROR", "CRITICAL", "FATAL")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A line that looks like the failure, and the pattern made of it."""

    pattern: Pattern
    line: int
    text: str
    """The line's message, masked."""
    why: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What the log gives."""

    proposals: tuple[Proposal, ...]
    sample: str
    """Masked; what logs/ will hold."""
    verdict: str
    named: tuple[tuple[str, str, str, float], ...]
    """(slug, title, kind, confidence) of the entries that the log shows, the cause first."""
    alike: tuple[Similar, ...]
    visibility: str
    world_size: int


def read(
    path: Path, catalog: Catalog, entries: Mapping[str, Mapping[str, Any]], about: str, healthy: Sequence[str] = ()
) -> Reading:
    """Reads a log file or folder. `entries` are the raw entries by slug, `about` the title so far,
    `healthy` texts on which no proposal may fire. Raises `faultbook.sources.SourceError`."""
    looks: list[Examined] = []
    answer = diagnose(path, catalog=catalog, look=looks.append)
    seen = looks[0]
    names = Pseudonyms()
    names.learn((r.text for r in seen.records), sorted({r.parsed.host for r in seen.records if r.parsed.host}))
    proposals = tuple(_proposals(seen, answer, names, [healthy_sample(), *healthy]))
    words = " ".join([about, *(p.text for p in proposals)])
    named = [
        (f.entry, f.title, str(entries.get(f.entry, {}).get("kind", "cause")), f.confidence)
        for f in answer.diagnoses
        if f.role in ("primary", "contributing")
    ]
    ranks = max([seen.incident.world_size or 1, *(rank + 1 for rank in seen.incident.ranks)])
    return Reading(
        proposals,
        _sample(seen, [p.line for p in proposals], names),
        answer.verdict,
        tuple(named),
        tuple(similar(entries, words)),
        _visibility(seen, answer),
        ranks,
    )


def _visibility(seen: Examined, answer: Diagnosis) -> str:
    if seen.incident.hung:
        return "hang"
    loud = any(r.kind in ("own", "fatal", "communication") for r in seen.incident.exceptions)
    return "loud" if loud or answer.verdict in ("diagnosed", "unrecognised") else "silent"


def _proposals(seen: Examined, answer: Diagnosis, names: Pseudonyms, healthy: Sequence[str]) -> Iterator[Proposal]:
    found: set[str] = set()
    for record, why in _abnormal(seen, answer):
        masked = names.mask(record.body.strip())
        pattern = pattern_of(masked, record.body)
        if pattern is None or pattern.pattern in found or len(found) >= MOST:
            continue
        probe = LogSignature(kind="log", id="probe", role="root", all=(pattern,))
        if any(fires(probe, text) for text in healthy):
            continue
        found.add(pattern.pattern)
        shown = "".join(c if c.isprintable() else " " for c in masked[:200]).strip()
        yield Proposal(pattern, record.line, shown, why)


def _abnormal(seen: Examined, answer: Diagnosis) -> Iterator[tuple[Record, str]]:
    """Lines that may be the failure, the likeliest first."""
    by_place = {(r.source, r.line): r for r in seen.records}
    rank = {"own": 0, "fatal": 0, "launcher_fault": 1, "pair": 1, "communication": 2}
    raised = [r for r in seen.incident.exceptions if r.kind in rank]
    for one in sorted(raised, key=lambda r: (rank[r.kind], r.source, r.first)):
        header = by_place.get((one.source, one.cause.header or one.cause.last))
        if header is not None:
            yield header, "exception"
    for event in seen.incident.events:
        record = by_place.get((event.source, event.line))
        if record is not None and event.role == "root" and event.kind != "handled":
            yield record, event.kind
    first = answer.first_abnormal
    for record in seen.records:
        if first is not None and not record.about and record.line == first["line"] and seen.name(record.source) == first["file"]:
            yield record, "first abnormal line"
    for record in seen.records:
        warning = _WARNING.search(record.body)
        if warning is not None and warning["name"] not in _DATED:
            yield record, "warning"
    for record in seen.records:
        if not record.about and (record.parsed.level or "").upper() in _LEVELS:
            yield record, "error line"


def _sample(seen: Examined, marked: Sequence[int], names: Pseudonyms) -> str:
    """The log, masked: whole when short, else its first lines, those around what is abnormal, and its last."""
    lines: dict[tuple[int, int], str] = {}
    for record in seen.records:
        source = seen.sources[record.source]
        prefix = f"[rank{source.rank}]: " if source.rank is not None and "[rank" not in record.text[:12] else ""
        lines.setdefault((record.source, record.line), prefix + record.text)
    places = sorted(lines)
    keep = set(range(len(places)))
    if len(places) > WHOLE:
        tracebacks = [range(r.first, r.last + 1) for r in seen.incident.exceptions[:4]]
        wanted = {n for line in marked for n in range(line - AROUND, line + AROUND + 1)} | {n for r in tracebacks for n in r}
        keep = {i for i, (_, line) in enumerate(places) if line in wanted or i < AROUND or i >= len(places) - AROUND}
        keep = set(sorted(keep)[: 4 * WHOLE])
    out: list[str] = []
    last = -1
    for index in sorted(keep):
        if index > last + 1:
            out.append(f"[… {index - last - 1} lines left out …]")
        out.append(names.mask(lines[places[index]]))
        last = index
    return "\n".join(out) + "\n"
