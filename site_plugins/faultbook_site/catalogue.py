"""The compiled catalogue as pages need it: entries by slug, hubs and their causes, the words of the taxonomy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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

    def title(self, slug: str) -> str:
        return str(self.by_slug.get(slug, {}).get("title", slug))


def from_json(data: Mapping[str, Any], repo_url: str = "", edit_uri: str = "") -> Catalogue:
    """Reads the layout of `catalog.json`."""
    by_slug = {str(e["slug"]): e for e in data["entries"]}
    children: dict[str, list[str]] = {}
    for slug, entry in sorted(by_slug.items()):
        if entry.get("parent") in by_slug:
            children.setdefault(entry["parent"], []).append(slug)
    frozen = {parent: tuple(slugs) for parent, slugs in children.items()}
    return Catalogue(by_slug, str(data.get("digest", "")), repo_url, edit_uri, frozen)


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


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """By severity, then title."""
    rank = {name: i for i, name in enumerate(SEVERITIES)}
    return sorted(entries, key=lambda e: (rank.get(e.get("severity", ""), 9), str(e["title"]).lower()))


def words(identifier: object) -> str:
    """`fix_code` and `data-loading` as a reader would say them."""
    return str(identifier).replace("_", " ").replace("-", " ")


@dataclass(frozen=True, slots=True)
class Proof:
    """What may be claimed about the runs of an entry on one device and variant."""

    mode: str
    device: str
    date: str
    versions: Mapping[str, str]
    variant: str
    curves: Mapping[str, Mapping[str, Any]]


def proofs(entry: Entry) -> list[Proof]:
    """Only records that say they are proven; the compiler drops those whose digest is stale."""
    return [
        Proof(
            mode=str(p.get("mode", "")),
            device=str(p.get("device", "")),
            date=str(p.get("date", ""))[:10],
            versions={str(k): str(v) for k, v in (p.get("versions") or {}).items()},
            variant=str(p.get("variant") or ""),
            curves=p.get("curves") or {},
        )
        for p in entry.get("proofs") or ()
        if p.get("proven", True) and p.get("mode") in ("real", "simulated", "recorded")
    ]
