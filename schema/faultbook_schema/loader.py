"""Loads kb/ and reports everything wrong with it, with file and line.

One entry is read in four steps, each of which adds problems and none of which stops
the next: YAML → fields (`validation`) → rules of the entry (`rules`) → its files
(`files`). `links` then looks between entries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from . import files, links, rules, validation, yaml_nodes
from .models import AnyEntry
from .problems import Problem
from .regions import Code
from .taxonomy import Taxonomy, load_taxonomy
from .yaml_nodes import Loc, Node


@dataclass(frozen=True, slots=True)
class LoadedEntry:
    """One entry's folder."""

    folder: Path
    path: str
    """Of entry.yaml, as problems show it: kb/<category>/<slug>/entry.yaml."""
    node: Node | None
    """The YAML tree with lines; None when the text is no YAML mapping."""
    entry: AnyEntry | None
    """None when a field is wrong."""
    code: Code | None = None
    logs: Mapping[str, str] = field(default_factory=dict)
    """File name under logs/ → text."""

    @property
    def slug(self) -> str:
        """As written, else the folder's name."""
        value = self.node.value.get("slug") if self.node is not None else None
        return value.value if value is not None and isinstance(value.value, str) else self.folder.name

    def raw(self) -> dict[str, Any]:
        """The fields as YAML gave them, right or wrong."""
        plain = self.node.plain() if self.node is not None else {}
        return plain if isinstance(plain, dict) else {}

    def problem(self, loc: Loc, message: str, code: str, hint: str = "") -> Problem:
        line = self.node.line_of(loc) if self.node is not None else 1
        return Problem(self.path, line, message, code, hint)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All of kb/."""

    kb: Path
    taxonomy: Taxonomy
    loaded: tuple[LoadedEntry, ...]
    """In the order of their paths, unusable ones included."""
    problems: tuple[Problem, ...]

    @property
    def entries(self) -> dict[str, LoadedEntry]:
        """Usable entries by slug; of two with one slug, the first."""
        found: dict[str, LoadedEntry] = {}
        for item in self.loaded:
            if item.entry is not None:
                found.setdefault(item.entry.slug, item)
        return dict(sorted(found.items()))


def load_kb(kb: Path, only: Collection[Path] | None = None) -> Knowledge:
    """Reads every entry of kb/. Never raises on what the files hold.

    With `only`, folders of entries, the others are read as far as these can refer to them or be
    confused with them, and what is wrong inside the others is not looked for.
    """
    kb = Path(kb)
    taxonomy, problems = load_taxonomy(kb)
    if not kb.is_dir():
        return Knowledge(kb, taxonomy, (), tuple(problems))
    loaded = []
    for folder in entry_folders(kb):
        item, found = load_entry(folder, taxonomy, brief=only is not None and folder not in only)
        loaded.append(item)
        problems += found
    problems += links.problems_of(loaded)
    problems += _misplaced(kb)
    return Knowledge(kb, taxonomy, tuple(loaded), _sorted(problems))


def find_kb(start: Path | None = None) -> Path | None:
    """kb/ in this folder or one above."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "kb" / "taxonomy.yaml").is_file():
            return folder / "kb"
        if folder.name == "kb" and (folder / "taxonomy.yaml").is_file():
            return folder
    return None


def entry_folders(kb: Path) -> list[Path]:
    """All kb/<category>/<slug>/, sorted: also those that have no entry.yaml yet, which is a problem of theirs."""
    return sorted(
        slug
        for category in kb.iterdir()
        if category.is_dir() and not category.name.startswith(".")
        for slug in category.iterdir()
        if slug.is_dir() and not slug.name.startswith((".", "__")) and any(slug.iterdir())
    )


def _misplaced(kb: Path) -> Iterator[Problem]:
    for path in sorted(kb.rglob("entry.yaml")):
        name = path.relative_to(kb).as_posix()
        if name.count("/") != 2:
            hint = "entries are kb/<category>/<slug>/entry.yaml"
            yield Problem(f"kb/{name}", 1, "not where entries are", "unexpected-file", hint)


def load_entry(folder: Path, taxonomy: Taxonomy, *, brief: bool = False) -> tuple[LoadedEntry, list[Problem]]:
    """One entry and the problems that can be seen without the others; with `brief`, the entry
    alone, without its code. Never raises."""
    folder = Path(folder)
    path = f"kb/{folder.parent.name}/{folder.name}/entry.yaml"
    data, problem = files.read_bytes(folder, "entry.yaml", path, yaml_nodes.MAX_BYTES + 1)
    if data is None:
        return LoadedEntry(folder, path, None, None), [problem] if problem else []
    node, problems = yaml_nodes.read(data, path)
    if node is None:
        return LoadedEntry(folder, path, None, None), problems
    if not isinstance(node.value, dict):
        text = "an entry is a mapping of fields to values, not a list or a text"
        return LoadedEntry(folder, path, None, None), [
            *problems,
            Problem(path, node.line, text, "not-a-mapping"),
        ]
    entry, found = validation.validate(node, path, taxonomy)
    problems += found
    item = LoadedEntry(folder, path, node, entry)
    if brief:
        return dataclasses.replace(item, logs=files.read_logs(item)[0]), []
    raw = item.raw()
    problems += [item.problem(*f) for f in islice(rules.problems_of(raw), yaml_nodes.MAX_PROBLEMS)]
    problems += [item.problem(*f) for f in _placement(folder, raw, taxonomy)]
    logs, code, found = files.read_files(item, raw)
    problems += found
    return LoadedEntry(folder, path, node, entry, code, logs), problems


def _placement(folder: Path, raw: dict[str, Any], taxonomy: Taxonomy) -> Iterable[tuple[Loc, str, str, str]]:
    slug, category = raw.get("slug"), raw.get("category")
    if isinstance(slug, str) and slug != folder.name:
        yield (
            ("slug",),
            f"slug `{slug[:80]}` differs from the folder `{folder.name}`",
            "slug-folder",
            "rename one of them; an old slug becomes an alias",
        )
    if isinstance(category, str) and category in taxonomy["categories"] and category != folder.parent.name:
        yield (
            ("category",),
            f"category `{category}` differs from the folder `{folder.parent.name}`",
            "category-folder",
            f"move the entry to kb/{category}/",
        )


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(set(problems)))
