"""A diagnosis as SARIF 2.1.0, which code hosts and editors show beside the log's lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from . import __version__
from .model import Diagnosis, Evidence, Finding

VERSION = "2.1.0"
SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVEL = {"primary": "error", "contributing": "warning", "collateral": "note"}
UNRECOGNISED = "unrecognised-failure"
"""The rule of a failure that no entry explains."""
VIRTUAL = frozenset({"incident", "<text>", "-", "<stdin>", ""})
"""Names of sources that are no file: a location would point nowhere."""


def as_sarif(diagnosis: Diagnosis) -> str:
    return json.dumps(to_sarif(diagnosis), indent=2, ensure_ascii=False, allow_nan=False)


def to_sarif(diagnosis: Diagnosis) -> dict[str, Any]:
    """One run; a result per finding, its first evidence line as the location and the others as related ones.

    A healthy or stopped run has no error to show: its findings, if any, are notes.
    """
    calm = diagnosis.verdict in ("healthy", "stopped", "inconclusive")
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for finding in diagnosis.diagnoses:
        rules.setdefault(finding.entry, _rule(finding))
        results.append(_result(finding, list(rules).index(finding.entry), calm))
    if diagnosis.verdict == "unrecognised":
        rules.setdefault(UNRECOGNISED, {
            "id": UNRECOGNISED,
            "name": "UnrecognisedFailure",
            "shortDescription": {"text": "Something failed, and no entry of the catalogue says what."},
        })  # fmt: skip
        results.insert(0, _unrecognised(diagnosis, list(rules).index(UNRECOGNISED)))
    told = diagnosis.initiating
    notes = [{"level": "note", "message": {"text": note}} for note in diagnosis.not_examined]
    return {
        "$schema": SCHEMA_URI,
        "version": VERSION,
        "runs": [
            {
                "tool": {"driver": {
                    "name": "faultbook",
                    "version": __version__,
                    "informationUri": "https://faultbook.github.io/",
                    "rules": list(rules.values()),
                }},
                "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
                "results": results,
                "properties": {
                    "verdict": diagnosis.verdict,
                    "summary": diagnosis.summary,
                    "initiating": None if told is None else {
                        "scope": told.scope, "rank": told.rank, "node": told.node,
                        "basis": told.basis, "confidence": told.confidence,
                    },
                },
            }
        ],
    }  # fmt: skip


def _rule(finding: Finding) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": finding.entry,
        "name": "".join(part.capitalize() for part in finding.entry.split("-")),
        "shortDescription": {"text": finding.title},
        "help": {"text": "\n".join(_help(finding)) or finding.title},
    }
    if finding.url:
        rule["helpUri"] = finding.url
    return rule


def _help(finding: Finding) -> list[str]:
    told = []
    if finding.action.get("do"):
        told.append(f"Do now: {finding.action['do']}: {finding.action.get('when', '')}")
    if finding.fix:
        told.append(f"Fix: {finding.fix}")
    if finding.verify:
        told.append(f"Verify: {finding.verify}")
    return told


def _result(finding: Finding, index: int, calm: bool) -> dict[str, Any]:
    where = "" if finding.rank is None else f" on rank {finding.rank}"
    places = [place for e in finding.evidence if (place := _location(e)) is not None]
    result: dict[str, Any] = {
        "ruleId": finding.entry,
        "ruleIndex": index,
        "level": "note" if calm else LEVEL[finding.role],
        "message": {"text": f"{finding.title}{where}. {finding.fix}".strip()},
        "locations": places[:1],
        # The same failure of the same run is one alert, however the log's lines shift.
        "partialFingerprints": {"faultbookEntry/v1": f"{finding.entry}:{'-' if finding.rank is None else finding.rank}"},
        "rank": round(100 * finding.confidence, 1),
        "properties": {"role": finding.role, "rank": finding.rank, "signatures": sorted({e.signature for e in finding.evidence})},
    }
    if places[1:]:
        result["relatedLocations"] = [{"id": n, **place} for n, place in enumerate(places[1:], 1)]
    return result


def _unrecognised(diagnosis: Diagnosis, index: int) -> dict[str, Any]:
    seen = diagnosis.first_abnormal
    text = diagnosis.summary if seen is None else f"{diagnosis.summary} {seen['text']}"
    result: dict[str, Any] = {"ruleId": UNRECOGNISED, "ruleIndex": index, "level": "error", "message": {"text": text}}
    place = _location(_as_evidence(seen)) if seen is not None else None
    result["locations"] = [] if place is None else [place]
    return result


def _as_evidence(seen: Mapping[str, Any]) -> Evidence:
    return Evidence(str(seen["file"]), int(seen["line"]), seen.get("rank"), str(seen["text"]), "")


def _location(evidence: Evidence) -> dict[str, Any] | None:
    if evidence.file in VIRTUAL or evidence.line < 1:
        return None
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(evidence.file.replace("\\", "/"), safe="/._-~+@:=,")},
            "region": {"startLine": evidence.line},
        },
        "message": {"text": evidence.text},
    }
