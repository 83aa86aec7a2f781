"""The `repro:` field of an entry, and where its files are.

Read with a safe YAML loader; `faultbook check` validates the same field with the full
model. A bare `repro.py` without entry (a test, a draft) gets the defaults.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class SpecError(Exception):
    """The reproduction is described wrongly; the message names file and field."""


@dataclass(frozen=True, slots=True)
class Spec:
    """How a reproduction wants to be run."""

    path: Path
    """The repro.py."""
    slug: str
    mode: str = "real"
    stands_in: str = ""
    devices: tuple[str, ...] = ("cpu",)
    world_size: int = 1
    timeout_s: float = 20.0
    collective_timeout_s: float = 1.0
    guilty_rank: int | None = None
    flight_recorder: bool = False
    rlimits: dict[str, int] = field(default_factory=dict)
    isolation: str = "warm"
    """`warm`: forked from the parent that has imported torch. `fresh`: an interpreter of its own."""
    preload: tuple[str, ...] = ()
    """Modules the warm parent imports as well, e.g. `transformers`."""
    expect: dict[str, Any] = field(default_factory=dict)
    variants: tuple[str, ...] = ("",)
    source: str | None = None
    """Run this text instead of the file's; for mutants."""

    def expected(self, device: str) -> str:
        """The declared outcome of the broken half, which may differ by device."""
        declared = self.expect.get("broken", "completes")
        if isinstance(declared, dict):
            declared = declared.get(device, declared.get("cpu", "completes"))
        return str(declared)


def load_spec(target: Path | str) -> Spec:
    """From an entry's folder (entry.yaml + repro.py) or from the path of a bare repro.py."""
    target = Path(target)
    if target.is_file() and target.suffix == ".py":
        entry = target.parent / "entry.yaml"
        path = target
    else:
        entry, path = target / "entry.yaml", target / "repro.py"
    if not path.is_file():
        raise SpecError(f"{path}: no such reproduction")
    settings: dict[str, Any] = {}
    slug = path.parent.name if path.name == "repro.py" else path.stem
    if entry.is_file() and path.name == "repro.py":
        data = read_yaml(entry)
        slug = str(data.get("slug", slug))
        found = data.get("repro")
        settings = found if isinstance(found, dict) else {}
    return make_spec(path, slug, settings)


def make_spec(path: Path, slug: str, settings: dict[str, Any]) -> Spec:
    """`settings` is the entry's `repro:` field; the schema's own model checks it."""
    from pydantic import ValidationError

    from faultbook_schema.models import Repro

    try:
        checked = Repro.model_validate({"mode": "real", **settings}).model_dump(exclude_none=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("repro", *first["loc"]))
        what = "no such field" if first["type"] == "extra_forbidden" else first["msg"]
        raise SpecError(f"{slug}: {where}: {what}") from None
    return Spec(path=path, slug=slug, variants=declared_variants(path), **checked)


def read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise SpecError(f"{path}: not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise SpecError(f"{path}: an entry is a mapping")
    return data


def declared_variants(path: Path) -> tuple[str, ...]:
    """`VARIANTS = (…)` of a repro.py, read as text: nothing of it runs here."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise SpecError(f"{path}:{error.lineno}: {error.msg}") from None
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "VARIANTS" for t in node.targets
        ):
            try:
                names = tuple(str(v) for v in ast.literal_eval(node.value))
            except (ValueError, TypeError):
                raise SpecError(f"{path}:{node.lineno}: VARIANTS is a tuple of plain strings") from None
            return names or ("",)
    return ("",)
