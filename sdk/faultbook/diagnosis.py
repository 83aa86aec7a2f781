"""Puts the stages together. `diagnose` reads as one line per stage."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from . import curves, detectors, disclosure, facts, gpu_state, lazy, matching, pregate, progress, ranking, sources
from .attribution import Record
from .catalog import Catalog, EntrySignature, load_catalog
from .curves import CurveFinding
from .examine import Examined, examine
from .incident import Incident
from .model import Diagnosis, Finding, Initiating, Source, Verdict
from .ranking import Candidate, Match
from .signatures import LogSignature, MetricSignature
from .values import replace

URL = "https://faultbook.github.io/entries/{slug}/"


def diagnose(
    *paths: str | os.PathLike[str],
    text: str | bytes | None = None,
    catalog: Catalog | None = None,
    gate: str | None = None,
    share: bool = False,
    stalled: float | None = None,
    look: Callable[[Examined], None] | None = None,
    told: Callable[[Source, int], None] | None = None,
) -> Diagnosis:
    """Names what broke a run and where it started.

    `paths` are log files or folders of them (`-` is standard input); `text` is a log as a string
    instead. `catalog` defaults to the one that comes with the package. `gate` forces a scan engine
    (answers are identical). `share` replaces users, hosts, paths and addresses by pseudonyms; secrets
    are masked always. `stalled` says for how many seconds the job, still running, has printed nothing.
    `look` is given what was read (unmasked), for those who want to draw the series. `told` is called while
    an input is read, with the number of bytes so far.

    Raises `sources.SourceError` for inputs that cannot be read, `catalog.CatalogError` without a catalogue.
    """
    catalog = catalog or load_catalog()
    inputs = sources.discover([os.fspath(p) for p in paths], text=text)
    small = pregate.of_small(inputs)
    signatures = catalog.signatures if small is None else catalog.those(small.may_hold)
    seen = examine(inputs, [s.signature for s in signatures], gate, stalled, told)
    if look is not None:
        look(seen)
    matches = match(seen, signatures)
    explaining, harmless = ranking.candidates(matches, catalog, seen.incident.initiating, _recovered(seen))
    result = conclude(seen, ranking.ordered(explaining, catalog), harmless)
    return disclosure.masked(result, share, _hosts(seen))


def match(seen: Examined, signatures: Sequence[EntrySignature]) -> list[Match]:
    """Every signature that holds."""
    logs = {id(s.signature): s.entry for s in signatures if isinstance(s.signature, LogSignature)}
    found = [
        ranking.from_log(logs[id(m.signature)], m)
        for m in matching.evaluate(
            [s.signature for s in signatures if isinstance(s.signature, LogSignature)],
            seen.observations,
            all_ranks=frozenset(seen.incident.ranks),
            incomplete=lambda rank: _incomplete(seen, rank),
        )
    ]
    if seen.series:
        attempts = detectors.by_attempt(seen.series)
        for item in signatures:
            if not isinstance(item.signature, LogSignature):
                holds = detectors.evaluate_attempts(item.signature, attempts)
                if holds is not None:
                    found.append(ranking.from_metric(item.entry, item.signature, holds))
    return found


def _incomplete(seen: Examined, rank: int | None) -> bool:
    """Whether that rank's log is cut, so that the absence of a line proves nothing."""
    if rank is not None and rank in seen.incident.missing_ranks:
        return True
    return any(
        s.ends_mid_line and (rank is None or seen.sources[s.source].rank in (None, rank)) for s in seen.scanned.values()
    )


def _recovered(seen: Examined) -> list[tuple[int, int]]:
    """(source, line) of exceptions after which the run completed."""
    if seen.incident.initiating is not None or not seen.incident.completed:
        return []
    return [
        (r.source, line) for r in seen.incident.exceptions for line in range(r.first, min(r.last, r.first + 500) + 1)
    ]


def conclude(seen: Examined, explaining: Sequence[Candidate], harmless: Sequence[Candidate]) -> Diagnosis:
    """The verdict and its parts."""
    incident = seen.incident
    abnormal = _curves(seen)
    names = {s.index: s.name for s in seen.sources} | {-1: facts.NAME}
    explaining = _hang_first(explaining, incident)
    findings = ranking.findings(explaining, incident.initiating, names, URL)
    findings = [_in_words(f, incident.initiating, incident.hung or incident.stopped) for f in findings]
    verdict = _verdict(seen, explaining, abnormal)
    if verdict == "diagnosed" and _died_of_something_else(seen, explaining[0]):
        verdict = "unrecognised"
        findings = [replace(f, role="contributing") if f.role == "primary" else f for f in findings]
    handled: list[Finding] = []
    if verdict == "healthy":
        findings, handled = [], findings
    if verdict == "stopped":
        findings = _as_stopped(harmless, explaining, findings, names)
    elif not findings or verdict in ("healthy", "inconclusive"):
        # Only entries that are harmless as such: a cause's noise line says that it is *not* that cause.
        known = [c for c in harmless if c.entry["kind"] == "noise"]
        findings = [*findings, *(ranking.finding(c, "contributing", 0.9, None, names, URL) for c in known)]
    initiating = None if verdict == "healthy" or _single(seen) else incident.initiating
    first = incident.first_abnormal or _bare_exception(seen) or _first_bend(abnormal, seen)
    return Diagnosis(
        verdict=verdict,
        summary=_summary(verdict, findings, initiating, first),
        diagnoses=tuple(findings),
        initiating=initiating,
        collateral=incident.collateral if verdict != "healthy" else (),
        leads=_leads(seen, verdict, abnormal, handled),
        first_abnormal=first if verdict != "healthy" else None,
        not_examined=tuple([*seen.notes, *(r for r in incident.reasons if r != incident.hung)]),
        timeline=incident.timeline if verdict != "healthy" else (),
    )


def _in_words(finding: Finding, initiating: Initiating | None, state: str) -> Finding:
    """The virtual lines of `facts` are for signatures; people get the sentence that they stand for."""
    told = initiating.basis if initiating is not None else ""
    basis = told if initiating is not None and initiating.scope != "unknown" else state or told
    evidence = tuple(
        replace(e, text=f"comparison of the ranks: {basis}") if e.file == facts.NAME and basis else e for e in finding.evidence
    )
    return replace(finding, evidence=evidence)


def _single(seen: Examined) -> bool:
    """One process, as far as anything tells: "which rank" is then no question, and unknown is no answer to it."""
    incident = seen.incident
    if incident.initiating is None or incident.initiating.scope != "unknown":
        return False
    several = len(incident.ranks) > 1 or (incident.world_size or 1) > 1
    return not several and not any(r.kind in ("communication", "launcher", "pair") for r in incident.exceptions)


def _curves(seen: Examined) -> list[CurveFinding]:
    """What the curves say without any entry. A run that came to its planned end (early stopping is one) and
    whose loss is finite is not called failed for its shape alone: that becomes a lead."""
    found = curves.curve_findings(seen.series)
    if not seen.incident.completed:
        return found
    return [replace(f, certain=False) if f.kind in ("diverged", "overfitting") else f for f in found]


def _verdict(seen: Examined, explaining: Sequence[Candidate], abnormal: Sequence[CurveFinding]) -> Verdict:
    incident = seen.incident
    strong = [c for c in explaining if not c.recovered and (c.order == 0 or (c.order == 1 and incident.initiating is not None))]
    faults = [c for c in strong if c.order == 0 and not c.elsewhere and not _names_the_stop(c, incident)]
    if incident.stopped and not incident.hung and not faults:
        return "stopped"
    if strong:
        return "diagnosed"
    if incident.initiating is not None:
        return "unrecognised"
    if explaining and not incident.completed:
        return "diagnosed"
    if any(a.certain for a in abnormal) or _bare_exception(seen):
        return "unrecognised"
    if incident.completed:
        return "healthy"
    return "inconclusive"


def _names_the_stop(candidate: Candidate, incident: Incident) -> bool:
    """An entry such as a preemption is a cause, and its line is the end from outside itself, not another fault.
    A node that failed ended the run from outside too, but that is a fault, and somebody has to mend it."""
    if candidate.entry["category"] != "scheduler":
        return False
    stops = {(e.source, e.line) for e in incident.events if e.kind in progress.STOPS}
    return all((o.source, o.line) in stops for o in candidate.best.evidence)


def _hang_first(explaining: Sequence[Candidate], incident: Incident) -> Sequence[Candidate]:
    """Somebody ended a job that had long stood still: that end is a consequence, whatever names it."""
    if not incident.hung:
        return explaining
    stops = [c for c in explaining if _names_the_stop(c, incident)]
    return [*(c for c in explaining if c not in stops), *stops]


def _as_stopped(
    harmless: Sequence[Candidate], explaining: Sequence[Candidate], findings: Sequence[Finding], names: dict[int, str]
) -> list[Finding]:
    """What ended the run comes first: a scheduler's or user's entry. What only followed the stop is collateral,
    and what is known to be harmless is mentioned behind."""
    ended = sorted((c for c in harmless if c.entry["category"] == "scheduler"), key=lambda c: c.best.place, reverse=True)
    causes = {c.slug for c in explaining if c.order == 0 and c.entry["category"] == "scheduler"}
    first = [f for f in findings if f.entry in causes]
    first += [ranking.finding(c, "primary", 0.9, None, names, URL) for c in ended]
    rest = [replace(f, role="collateral") for f in findings if f.entry not in causes]
    rest += [ranking.finding(c, "contributing", 0.9, None, names, URL) for c in harmless if c not in ended]
    return [replace(f, role="primary" if n == 0 else "contributing") for n, f in enumerate(first)] + rest


_NUMERIC = lazy.regex(r"\b(?:nan|inf(?:inity|inite)?|non-?finite|finite|overflow\w*|diverg\w*|invalid)\b", re.IGNORECASE)


def _died_of_something_else(seen: Examined, first: Candidate) -> bool:
    """A curve shows a silent fault, and the run was ended by an exception that is no consequence of numbers: the
    curve is true, but it does not name what killed the run."""
    if first.entry["visibility"] != "silent" or not all(isinstance(m.signature, MetricSignature) for m in first.matches):
        return False
    own = [r for r in seen.incident.exceptions if r.kind in ("own", "fatal")]
    bare = None if own else _bare_exception(seen)
    texts = [f"{r.cause.type} {r.cause.message}" for r in own] + ([bare["text"]] if bare else [])
    return bool(texts) and not any(_NUMERIC.search(text) for text in texts)


_EXCEPTION = lazy.regex(r"^(?:E {2,})?(?:[A-Za-z_]\w*\.){0,6}[A-Z]\w*(?:Error|Exception|Interrupt)(?:: \S|$)")
_AFTER = 400
"""Records from the end in which a bare exception counts: further up the run went on after it."""


def _bare_exception(seen: Examined) -> dict[str, Any] | None:
    """An exception line without its traceback (cut excerpts have it), after which nothing moved any more."""
    if seen.incident.completed or seen.incident.initiating is not None:
        return None
    found: Record | None = None
    for record in seen.records[-_AFTER:]:
        if _EXCEPTION.match(record.body):
            found = found or record
        elif found is not None and progress.step_of(record.body) is not None:
            found = None
    if found is None:
        return None
    return {"file": seen.name(found.source), "line": found.line, "rank": found.rank, "text": found.body}


def _first_bend(abnormal: Sequence[CurveFinding], seen: Examined) -> dict[str, Any] | None:
    certain = [a for a in abnormal if a.certain]
    if not certain:
        return None
    first = min(certain, key=lambda a: (a.attempt, a.source, a.line))
    return {"file": seen.name(first.source), "line": first.line, "rank": first.rank, "text": first.text}


def _leads(
    seen: Examined, verdict: Verdict, abnormal: Sequence[CurveFinding], handled: Sequence[Finding]
) -> tuple[dict[str, Any], ...]:
    if verdict == "healthy":  # what the run met and got over is worth knowing, but no diagnosis
        at = [(f, f.evidence[0]) for f in handled if f.role == "primary" and f.evidence]
        return tuple({"text": f"met and got over: {f.title} ({f.entry})", "file": e.file, "line": e.line} for f, e in at)
    leads: list[dict[str, Any]] = [
        {"text": a.text, "file": seen.name(a.source), "line": a.line} for a in abnormal if not a.certain
    ]
    leads += [
        {"text": f"nvidia-smi: {e.text}", "file": seen.name(e.source), "line": e.line}
        for e in seen.incident.events
        if e.kind == gpu_state.KIND
    ]
    if not _single(seen):
        leads += [{"text": f"would decide: {what}", "file": None, "line": None} for what in seen.incident.next_evidence]
    return tuple(leads[:8])


def _summary(
    verdict: Verdict, findings: Sequence[Finding], initiating: Initiating | None, first: dict[str, Any] | Any | None
) -> str:
    if verdict == "diagnosed":
        start = ""
        if initiating is not None and initiating.scope == "rank":
            start = f"; it started on rank {initiating.rank}"
        elif initiating is not None and initiating.scope == "node":
            start = f"; it started on node {initiating.node}" if initiating.node else "; it started on one node"
        return f"{findings[0].title}{start}."
    if verdict == "stopped":
        why = initiating.basis if initiating is not None else (findings[0].title if findings else "it was told to stop")
        return f"The run did not fail by itself: {why}."
    if verdict == "unrecognised":
        return "Something failed, and no entry of this catalogue says what. " + (
            "The first abnormal line is below." if first else ""
        )
    if verdict == "inconclusive":
        return "Nothing failed in what these logs hold, but they end without a completion."
    return "The run came to its end, and nothing abnormal was found."


def _hosts(seen: Examined) -> list[str]:
    return sorted({r.parsed.host for r in seen.records if r.parsed.host})
