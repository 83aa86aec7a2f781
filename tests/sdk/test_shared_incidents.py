"""Scores recorded multi-rank runs with a known culprit, where the shared data is at hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from faultbook import incident, sources


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _result(label: dict[str, Any], found: incident.Incident) -> str:
    answer = found.initiating
    scope, rank = (answer.scope, answer.rank) if answer else ("none", None)
    if scope == label["scope"] and (scope != "rank" or rank == label["initiating_rank"]):
        return "right"
    if scope in label["scope_alt"] and (scope != "rank" or rank == label["truth_rank"]):
        return "right"
    return "unknown" if scope == "unknown" else "wrong"


def test_recorded_incidents(shared: Path) -> None:
    counts: Counter[str] = Counter()
    for label in _lines(shared / "incidents" / "labels.jsonl"):
        found = incident.from_sources(sources.discover([shared / "incidents" / "data" / label["id"]]))
        result = _result(label, found)
        counts[result] += 1
        if result != "right":
            print(label["id"], label["kind"], "wanted", label["scope"], label["initiating_rank"], "got", found.initiating)
    total = sum(counts.values())
    print(dict(counts))
    assert total >= 20
    assert counts["right"] >= 0.9 * total
    assert counts["wrong"] <= 0.03 * total


def test_excerpts_of_real_logs(shared: Path) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for case in _lines(shared / "cases" / "dev.jsonl"):
        confidence = case.get("initiating_confidence")
        if not confidence:
            continue
        found = incident.from_sources(sources.discover(text=case["log"])).initiating
        if found is None or found.scope == "unknown":
            result = "unknown"
        else:
            result = "right" if (found.scope, found.rank) == ("rank", case["initiating_rank"]) else "wrong"
        counts[confidence, result] += 1
    print(dict(counts))
    strong = {r: counts["strong", r] for r in ("right", "unknown", "wrong")}
    assert strong["right"] >= 15 or (strong["right"] >= 14 and strong["unknown"] >= 2)
    assert counts["weak", "wrong"] == 0


def test_healthy_logs_have_no_initiating_rank(shared: Path) -> None:
    accused = []
    for path in sorted((shared / "logs" / "healthy").iterdir()):
        if path.is_file() and path.stat().st_size < 3_000_000:
            found = incident.from_sources(sources.discover([path])).initiating
            if found is not None:
                accused.append((path.name, found))
    assert accused == []
