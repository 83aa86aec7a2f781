"""The compiled catalogue as pages need it: entries by slug, hubs and their causes, the words of the taxonomy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import measured

Entry = Mapping[str, Any]

SEVERITIES = ("critical", "high", "medium", "low")
VISIBILITIES = {
    "loud": "It stops with an error",
    "hang": "It stops moving",
    "silent": "It keeps going, wrongly",
}
# The relation as read from this entry, and as read from the other side.
RELATIONS = {
    "causes": ("can cause", "can be caused by"),
    "caused_by": ("can be caused by", "can cause"),
    "looks_like": ("looks like", "looks like"),
    "often_with": ("often seen with", "often seen with"),
    "see_also": ("see also", "see also"),
    "parent": ("is a case of", "has the case"),
}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything `render` may look at beside the entry itself."""

    by_slug: Mapping[str, Entry]
    digest: str = ""
    repo_url: str = ""
    edit_uri: str = ""
    children: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    """What tests/measure.py found on labelled logs (docs/measured.json); empty where that was not run."""

    titles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The taxonomy's own names: vocabulary → value → how it is written (`systems`, `pytorch` → PyTorch)."""

    titles_digest: str = ""

    def say(self, vocabulary: str, value: object) -> str:
        return self.titles.get(vocabulary, {}).get(str(value)) or words(value)

    def title(self, slug: str) -> str:
        return str(self.by_slug.get(slug, {}).get("title", slug))


def from_json(
    data: Mapping[str, Any], repo_url: str = "", edit_uri: str = "", found: Mapping[str, Any] | None = None
) -> Catalogue:
    """Reads the layout of `catalog.json`."""
    by_slug = {str(e["slug"]): e for e in data["entries"]}
    children: dict[str, list[str]] = {}
    for slug, entry in sorted(by_slug.items()):
        if entry.get("parent") in by_slug:
            children.setdefault(entry["parent"], []).append(slug)
    frozen = {parent: tuple(slugs) for parent, slugs in children.items()}
    titles = {
        vocabulary: {name: str(value.get("title", name)) for name, value in values.items() if isinstance(value, Mapping)}
        for vocabulary, values in data.get("taxonomy", {}).items()
        if isinstance(values, Mapping)
    }
    written = hashlib.sha256(json.dumps(titles, sort_keys=True).encode()).hexdigest()
    return Catalogue(by_slug, str(data.get("digest", "")), repo_url, edit_uri, frozen, found or {}, titles, written)


def related(entry: Entry, catalogue: Catalogue) -> list[tuple[str, str]]:
    """(slug, relation in words), typed relations first, then computed ones; each entry once."""
    found: dict[str, str] = {}

    def add(slug: Any, words: str) -> None:
        if slug in catalogue.by_slug and slug != entry["slug"]:
            found.setdefault(str(slug), words)

    for item in entry.get("related") or ():
        add(item.get("entry"), RELATIONS.get(item.get("relation"), ("see also",))[0])
    for item in entry.get("inverse_related") or ():
        add(item.get("entry"), RELATIONS.get(item.get("relation"), ("see also",))[0])
    add(entry.get("parent"), RELATIONS["parent"][0])
    for child in catalogue.children.get(str(entry["slug"]), ()):
        add(child, RELATIONS["parent"][1])
    for item in entry.get("not_this_if") or ():
        add(item.get("entry"), "looks like")
    return list(found.items())


def page_key(entry: Entry, catalogue: Catalogue, text: str) -> str:
    """Everything that the page of an entry depends on: itself (`text`, its JSON), and what it says of its neighbours."""
    refs = {slug for slug, _ in related(entry, catalogue)}
    refs |= {str(r.get("to")) for r in entry.get("routes") or ()}
    shown = ("title", "severity", "visibility", "kind", "category")
    near = {s: [catalogue.by_slug[s].get(k) for k in shown] for s in sorted(refs) if s in catalogue.by_slug}
    context = [related(entry, catalogue), near, catalogue.repo_url, catalogue.edit_uri, measured.of(entry, catalogue.measured)]
    context.append(catalogue.titles_digest)
    return f"{text}\n{json.dumps(context, sort_keys=True)}"


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """By severity, then title."""
    rank = {name: i for i, name in enumerate(SEVERITIES)}
    return sorted(entries, key=lambda e: (rank.get(e.get("severity", ""), 9), str(e["title"]).lower()))


def words(identifier: object) -> str:
    """`fix_code` and `data-loading` as a reader would say them."""
    return str(identifier).replace("_", " ").replace("-", " ")


@dataclass(frozen=True, slots=True)
class Run:
    """Both halves of one variant, as the proof record has them."""

    variant: str
    broken: Mapping[str, Any]
    fixed: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Proof:
    """What may be claimed about the runs of an entry on one device."""

    mode: str
    device: str
    date: str
    versions: tuple[tuple[str, str], ...]
    runs: tuple[Run, ...]


def proofs(entry: Entry) -> list[Proof]:
    """Records whose every variant failed as it should and passed when fixed; a stale record is already dropped."""
    found = []
    for record in entry.get("proofs") or ():
        runs = tuple(
            Run(str(v.get("variant") or ""), v.get("broken") or {}, v.get("fixed") or {}) for v in record.get("variants") or ()
        )
        held = all(r.broken.get("check") is False and r.fixed.get("check") is True for r in runs)
        if record.get("mode") not in ("real", "simulated", "recorded") or not held or not (runs or record["mode"] == "recorded"):
            continue
        versions = tuple((k, str(record[k])) for k in ("torch", "python", "platform") if record.get(k))
        found.append(Proof(str(record["mode"]), str(record.get("device", "")), str(record.get("date", ""))[:10], versions, runs))
    return found
