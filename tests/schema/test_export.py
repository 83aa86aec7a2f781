"""The exported JSON Schemas are current, are JSON Schemas, and accept what they describe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from faultbook import model, signatures
from faultbook_schema import yaml_nodes
from faultbook_schema.compiler import write_catalogue
from faultbook_schema.export import write
from faultbook_schema.models import ENTRY, KINDS
from faultbook_schema.taxonomy import load_taxonomy

NAMES = ("entry", "signatures", "catalogue", "diagnosis")
HERE = Path(__file__).parent


def validator(root: Path, name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((root / "schema" / f"{name}.schema.json").read_text()))


@pytest.mark.parametrize("name", NAMES)
def test_is_a_json_schema(root: Path, name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(validator(root, name).schema)


def test_files_are_current(root: Path, tmp_path: Path) -> None:
    write(root / "kb", tmp_path)
    for name in NAMES:
        path = root / "schema" / f"{name}.schema.json"
        assert path.read_text() == (tmp_path / path.name).read_text(), "run python -m faultbook_schema.export"


def test_entry_schema_accepts_the_good_and_refuses_bad_fields(root: Path) -> None:
    check = validator(root, "entry")
    for path in HERE.glob("good/*/*/entry.yaml"):
        node, _ = yaml_nodes.read(path.read_bytes(), "x")
        assert node is not None and list(check.iter_errors(node.plain())) == [], path
    for name in ("severity-misspelt", "unknown-field", "fix-in-hub", "two-symptoms", "tag-unknown", "wrong-types"):
        node, _ = yaml_nodes.read((HERE / "bad" / name / "entry.yaml").read_bytes(), "x")
        assert node is not None and not check.is_valid(node.plain()), name


def test_first_line_of_an_entry_leads_to_the_schema(root: Path) -> None:
    from faultbook_schema.scaffold import SCHEMA_LINE

    relative = SCHEMA_LINE.split("$schema=")[1]
    assert (root / "kb" / "category" / "slug" / relative).resolve() == (root / "schema/entry.schema.json").resolve()


def test_compiled_files_fit_their_schemas(root: Path, kb: Path, tmp_path: Path) -> None:
    write_catalogue(kb, tmp_path)
    for name, file in (("signatures", "signatures.json"), ("catalogue", "catalog.json")):
        data = json.loads((tmp_path / file).read_text())
        assert [e.message for e in validator(root, name).iter_errors(data)] == []
        data["entries"][0]["surprise"] = 1
        assert not validator(root, name).is_valid(data)


def test_diagnosis_fits_its_schema(root: Path) -> None:
    evidence = model.Evidence("run.log", 3, 1, "boom", "slug#id")
    finding = model.Finding("slug", "T", "primary", 0.9, 1, (evidence,), {"do": "retry", "when": "now"}, "f", "v", "u")
    initiating = model.Initiating("rank", 1, None, "first to raise", "strong")
    full = model.Diagnosis("diagnosed", "s", (finding,), initiating, ({"what": "x"},), ({"text": "y"},), {"file": "f"})
    check = validator(root, "diagnosis")
    for diagnosis in (full, model.Diagnosis("healthy", "s")):
        assert [e.message for e in check.iter_errors(json.loads(json.dumps(diagnosis.to_dict())))] == []
    assert not check.is_valid({**full.to_dict(), "verdict": "cured"})


def test_every_field_is_described_or_plain(root: Path) -> None:
    """Docstrings of signature dataclasses reach the schema, where editors show them."""
    definitions = validator(root, "entry").schema["$defs"]
    assert "running extreme" in definitions["Predicate"]["properties"]["factor"]["description"]
    assert "60 words" in definitions["CauseEntry"]["properties"]["quick_answer"]["description"]


def literals(cls: Any, name: str) -> set[str]:
    schema = ENTRY.json_schema()["$defs"][cls]["properties"][name]
    items = schema.get("items", schema)
    options = (
        items.get("enum")
        or [i["const"] for i in items.get("anyOf", []) if "const" in i]
        or [v for i in items.get("anyOf", []) for v in i.get("enum", [])]
    )
    return set(options)


def test_taxonomy_says_what_the_models_know(root: Path) -> None:
    """Words that code depends on are Literals; their rubrics are in the taxonomy, and the sets agree."""
    taxonomy, problems = load_taxonomy(root / "kb")
    assert problems == []
    assert set(taxonomy["kinds"]) == set(KINDS)
    assert set(taxonomy["roles"]) == set(get_args(signatures.Role))
    assert set(taxonomy["visibilities"]) == literals("CauseEntry", "visibility")
    assert set(taxonomy["applies_to"]) == literals("CauseEntry", "applies_to")
    assert set(taxonomy["modes"]) == literals("Repro", "mode")
    assert set(taxonomy["devices"]) == literals("Repro", "devices")
    assert set(taxonomy["outcomes"]) == literals("Expectation", "broken")
    assert all(term.rubric.endswith(".") for terms in taxonomy.vocabularies.values() for term in terms.values())


def test_taxonomy_covers_the_catalogue(root: Path, shared: Path) -> None:
    import csv

    taxonomy, _ = load_taxonomy(root / "kb")
    for name in ("catalogue.csv", "catalogue-reserve.csv"):
        with open(shared / name, newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                assert row["category"] in taxonomy["categories"]
                assert row["severity"] in taxonomy["severities"] and row["visibility"] in taxonomy["visibilities"]
                assert set(filter(None, row["systems"].split(";"))) <= set(taxonomy["systems"])
