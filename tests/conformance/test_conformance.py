"""Anybody can write another reader of the signatures: a small one in JavaScript gives the engine's answers."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from faultbook.signatures import LogSignature, signature_from_dict

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_generate", HERE / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def suite() -> dict[str, Any]:
    return json.loads((HERE / "cases.json").read_text("utf-8"))


def javascript(path: Path) -> dict[str, Any]:
    if shutil.which("node") is None:
        pytest.skip("needs node")
    done = subprocess.run(["node", str(HERE / "reader.mjs"), str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return {case["name"]: case["holds"] for case in json.loads(done.stdout)}


def test_the_engine_gives_the_answers_of_the_suite(suite: dict[str, Any], generate: ModuleType):
    signatures = {name: signature_from_dict(data) for name, data in suite["signatures"].items()}
    for case in suite["cases"]:
        assert generate.holds(signatures, case["lines"]) == case["holds"], case["name"]


def test_the_javascript_reader_passes_every_case(suite: dict[str, Any]):
    answers = javascript(HERE / "cases.json")
    assert len(answers) == len(suite["cases"])
    wrong = {c["name"]: (c["holds"], answers[c["name"]]) for c in suite["cases"] if answers[c["name"]] != c["holds"]}
    assert wrong == {}


def test_the_reader_is_short_and_the_suite_small():
    assert len((HERE / "reader.mjs").read_text().splitlines()) <= 100
    assert (HERE / "cases.json").stat().st_size < 400_000


def test_the_suite_says_yes_and_no_to_every_part_of_the_grammar(suite: dict[str, Any]):
    """A reader that ignored one part would fail some case."""
    hits = {hold["signature"] for case in suite["cases"] for hold in case["holds"]}
    parts = {"all", "any", "none", "ordered", "within", "where", "ranks"}
    for part in parts:
        using = {name for name, s in suite["signatures"].items() if s.get(part)}
        assert using & hits, part
    assert {name for name in suite["signatures"] if name.startswith("grammar#")} <= hits
    for name in (n for n in suite["signatures"] if n.startswith("grammar#")):
        missed = [c["name"] for c in suite["cases"] if c["name"][0].islower() and all(h["signature"] != name for h in c["holds"])]
        assert missed, name


@pytest.mark.parametrize("part", ["all", "any", "none", "ordered", "within", "where", "ranks", "ignore_case", "at_least"])
def test_leaving_out_a_part_changes_an_answer(part: str, suite: dict[str, Any], generate: ModuleType):
    def without(data: dict[str, Any]) -> dict[str, Any]:
        if part in ("ignore_case", "at_least"):
            lists = {k: [{x: y for x, y in p.items() if x != part} for p in data.get(k, ())] for k in ("all", "any", "none")}
            return {**data, **lists}
        return {k: v for k, v in data.items() if k != part}

    changed = {n: signature_from_dict(without(s)) for n, s in suite["signatures"].items() if n.startswith("grammar#")}
    cases = [c for c in suite["cases"] if "/" not in c["name"]]
    expected = [[h for h in c["holds"] if h["signature"] in changed] for c in cases]
    assert [generate.holds(changed, c["lines"]) for c in cases] != expected


def test_both_agree_on_all_of_kb(generate: ModuleType, tmp_path: Path):
    """Every log signature of the catalogue on every whole log of kb/."""
    rows = {name: data for group in generate.from_catalogue().values() for name, data in group.items()}
    signatures = {name: signature_from_dict(data) for name, data in rows.items()}
    assert all(isinstance(s, LogSignature) for s in signatures.values())
    cases = []
    for path in sorted(generate.KB.glob("*/*/logs/*.log")):
        lines = generate.records(path.read_text("utf-8", "replace"))
        cases.append({"name": str(path.relative_to(generate.KB)), "lines": lines})
    (tmp_path / "all.json").write_text(json.dumps({"signatures": rows, "cases": cases}), "utf-8")
    answers = javascript(tmp_path / "all.json")
    for case in cases:
        assert answers[case["name"]] == generate.holds(signatures, case["lines"]), case["name"]
