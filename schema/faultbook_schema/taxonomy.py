"""The closed vocabularies of kb/taxonomy.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .problems import Problem
from .yaml_nodes import read

VOCABULARIES = (
    "kinds",
    "categories",
    "severities",
    "visibilities",
    "stages",
    "applies_to",
    "roles",
    "actions",
    "modes",
    "outcomes",
    "devices",
    "relations",
    "reference_kinds",
    "example_status",
    "stacks",
    "systems",
    "tags",
)
SCHEMA = "faultbook.taxonomy/1"


@dataclass(frozen=True, slots=True)
class Term:
    """One value of a vocabulary."""

    name: str
    title: str
    """For people; the name itself where none is given."""
    rubric: str
    """When this value is the right one."""


Vocabulary = Mapping[str, Term]


@dataclass(frozen=True, slots=True)
class Taxonomy:
    """Vocabulary name → value → term, in the order of the file."""

    vocabularies: Mapping[str, Vocabulary]

    def __getitem__(self, name: str) -> Vocabulary:
        return self.vocabularies[name]

    def to_dict(self) -> dict[str, dict[str, dict[str, str]]]:
        return {
            name: {t.name: {"title": t.title, "rubric": t.rubric} for t in terms.values()}
            for name, terms in self.vocabularies.items()
        }


def load_taxonomy(kb: Path) -> tuple[Taxonomy, list[Problem]]:
    """Reads kb/taxonomy.yaml; vocabularies with problems come out empty. Never raises."""
    path = "kb/taxonomy.yaml"
    empty: dict[str, Vocabulary] = {name: {} for name in VOCABULARIES}
    try:
        data = (kb / "taxonomy.yaml").read_bytes()
    except OSError as error:
        text = f"cannot be read: {error.strerror or error}"
        return Taxonomy(empty), [Problem(path, 1, text, "taxonomy")]
    root, problems = read(data, path)
    if root is None or not isinstance(root.value, dict):
        if not problems:
            problems.append(Problem(path, 1, "must be a mapping of vocabularies", "taxonomy"))
        return Taxonomy(empty), problems

    def bad(line: int, message: str) -> None:
        problems.append(Problem(path, line, message, "taxonomy"))

    found = dict(empty)
    for name, node in root.value.items():
        line = root.key_lines[name]
        if name == "schema":
            if node.value != SCHEMA:
                bad(line, f"schema must be {SCHEMA}")
        elif name not in empty:
            bad(line, f"unknown vocabulary `{name}`")
        elif not isinstance(node.value, dict):
            bad(line, f"`{name}` must map values to their rubrics")
        else:
            terms = {}
            for value, term in node.value.items():
                fields = term.plain() if isinstance(term.value, dict) else {}
                rubric, title = fields.get("rubric"), fields.get("title", value)
                usable = isinstance(rubric, str) and isinstance(title, str)
                if not usable or set(fields) - {"rubric", "title"}:
                    bad(node.key_lines[value], f"`{name}.{value}` needs a rubric, and may have a title")
                    continue
                terms[value] = Term(value, str(title), str(rubric))
            found[name] = terms
    for name in VOCABULARIES:
        if name not in root.value:
            bad(1, f"vocabulary `{name}` is missing")
    return Taxonomy(found), problems
