"""Scores the engine on the project's own incidents: runs whose guilty rank is known because we put the fault there."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import pytest

from faultbook.catalog import load_catalog
from faultbook.diagnosis import diagnose
from faultbook.score import Score, read_cases, score

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def result() -> Score:
    catalog = load_catalog()
    return score(read_cases(HERE / "labels.jsonl"), frozenset(catalog.entries), partial(diagnose, catalog=catalog))


def test_initiating_rank(result: Score) -> None:
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for case in result.cases:
        assert case.rank is not None, case
        by_kind[case.kind][case.rank] += 1
    for kind, counts in sorted(by_kind.items()):
        print(f"{kind:<22}", "  ".join(f"{what} {n}" for what, n in sorted(counts.items())))
    total = sum(by_kind.values(), Counter())
    names = result.totals()["names"]
    print(f"{sum(total.values())} incidents: rank", dict(total), "verdict", result.totals()["verdict"], "name", names)
    for case in result.cases:
        if case.rank != "right":
            print(case.id, case.kind, case.rank, case.answer, case.verdict)
    assert sum(total.values()) >= 60
    assert total["right"] >= 0.9 * sum(total.values())
    assert total["wrong"] <= 0.03 * sum(total.values())
    # A wrong name is worse than none.
    assert names["wrong"] <= 0.03 * sum(names.values())


def test_what_cannot_be_decided_is_called_unknown(result: Score) -> None:
    labels = {d["id"]: d for d in map(json.loads, (HERE / "labels.jsonl").read_text(encoding="utf-8").splitlines())}
    undecidable = [c for c in result.cases if labels[c.id]["undecidable"]]
    assert len(undecidable) >= 5
    assert [c.id for c in undecidable if c.rank == "wrong"] == []


def test_healthy_runs_raise_no_alarm(result: Score) -> None:
    assert [c.id for c in result.cases if c.alarm] == []
    assert [c.id for c in result.cases if c.verdict == "healthy" and c.answer is not None] == []


def _rank_of(file: str) -> int | None:
    found = re.search(r"rank_?(\d+)|^attempt_\d+/(\d+)/|task_?(\d+)", file)
    return next((int(g) for g in found.groups() if g is not None), None) if found else None


def test_without_the_guilty_ranks_files_nobody_else_is_accused(tmp_path: Path) -> None:
    """The one file that would tell is the one that is missing: the answer is unknown, or still the right rank."""
    catalog = load_catalog()
    answers: Counter[str] = Counter()
    for label in map(json.loads, (HERE / "labels.jsonl").read_text(encoding="utf-8").splitlines()):
        guilty = label["truth_rank"]
        kept = [f for f in label["files"] if guilty is None or _rank_of(f) != guilty]
        if guilty is None or len(kept) == len(label["files"]) or not kept:
            continue
        for file in kept:
            copy = tmp_path / label["id"] / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(HERE / "data" / label["id"] / file, copy)
        initiating = diagnose(tmp_path / label["id"], catalog=catalog).initiating
        named = initiating.rank if initiating else None
        answers["right" if named == guilty else "unknown" if named is None else "wrong"] += 1
        assert named in (None, guilty), (label["id"], label["kind"], initiating)
    print(dict(answers))
    assert answers.total() >= 25


def test_the_corpus_is_whole() -> None:
    """Every file of a label is there and no other; small, and nothing of the machine that made it."""
    size = 0
    for line in (HERE / "labels.jsonl").read_text(encoding="utf-8").splitlines():
        label = json.loads(line)
        folder = HERE / "data" / label["id"]
        present = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        assert present == label["files"], label["id"]
        for name in present:
            text = (folder / name).read_text(encoding="utf-8")
            size += len(text.encode())
            for place in ("/tmp/", "/home/", "/root/", "/work/", ".venv"):
                assert place not in text, f"{label['id']}/{name}: {place}"
    assert size < 1_500_000
