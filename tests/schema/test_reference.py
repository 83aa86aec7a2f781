"""The page of all fields is the one the models give, says something of each field, and its examples are valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faultbook_schema import yaml_nodes
from faultbook_schema.export import schemas
from faultbook_schema.reference import KINDS, page
from faultbook_schema.reference_examples import EXAMPLES
from faultbook_schema.taxonomy import load_taxonomy

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def schema(root: Path) -> dict[str, Any]:
    return schemas(load_taxonomy(root / "kb")[0])["entry.schema.json"]


def test_the_page_is_current(root: Path) -> None:
    written = (root / "docs" / "schema-reference.md").read_text(encoding="utf-8")
    assert written == page(load_taxonomy(root / "kb")[0]), "run: python -m faultbook_schema.reference"


def test_every_example_is_valid(schema: dict[str, Any]) -> None:
    for (part, name), text in EXAMPLES.items():
        node, problems = yaml_nodes.read(f"value: {text}\n".encode(), "example")
        assert node is not None and not problems, (part, name, problems)
        field = schema["$defs"]["SymptomEntry" if part == "EntryBase" else part]["properties"][name]
        errors = list(jsonschema.Draft202012Validator({**field, "$defs": schema["$defs"]}).iter_errors(node.plain()["value"]))
        assert not errors, (part, name, errors[0].message)


def test_every_field_has_a_meaning_and_every_plain_one_an_example(root: Path) -> None:
    part = ""
    for line in (root / "docs" / "schema-reference.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            part = line.lstrip("# ")
        if not line.startswith("| `") or part == "Vocabularies":
            continue
        name, kind, _, meaning, example = (cell.strip() for cell in line.replace("\\|", "/").strip("|").split(" | "))
        assert meaning, (part, name)
        computed = name == "`literals`"
        assert example or computed or "](#" in kind.replace("](#vocabularies)", ""), (part, name)


def test_every_kind_and_part_is_there(root: Path, schema: dict[str, Any]) -> None:
    text = (root / "docs" / "schema-reference.md").read_text(encoding="utf-8")
    for name in schema["$defs"]:
        if name not in KINDS and not name.startswith("taxonomy."):
            assert f"\n### {name}\n" in text, name
    for title in KINDS.values():
        assert f"\n## {title}\n" in text
