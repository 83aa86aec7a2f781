"""What entries say about one another: slugs, aliases, parents, routes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from .problems import Problem, nearest
from .yaml_nodes import MAX_PROBLEMS, Loc

if TYPE_CHECKING:
    from .loader import LoadedEntry

Raw = dict[str, Any]


def problems_of(loaded: Sequence[LoadedEntry]) -> list[Problem]:
    """All faults between entries; reads raw fields, so one bad entry does not hide the links of others."""
    raws = [(item, item.raw()) for item in loaded if item.node is not None]
    problems = list(_names(raws))
    # An entry that is no YAML still exists: its name is not reported once more at each mention.
    by_slug: dict[str, Raw] = {}
    for item in loaded:
        by_slug.setdefault(item.slug, item.raw())
    for item, raw in raws:
        found = islice(_references(item.slug, raw, by_slug), MAX_PROBLEMS)
        problems += [item.problem(*one) for one in found]
    for item, _ in raws:
        cycle = _cycle(item.slug, by_slug)
        if cycle:
            problems.append(item.problem(("parent",), f"is its own ancestor: {' → '.join(cycle)}", "parent-cycle"))
    return problems


def normal(name: str) -> str:
    """Names that differ only in case, spaces or punctuation are the same name."""
    return "-".join(re.findall(r"[^\W_]+", name.lower()))


def _names(raws: list[tuple[LoadedEntry, Raw]]) -> Iterator[Problem]:
    owners: dict[str, LoadedEntry] = {}
    claims: list[tuple[str, LoadedEntry, Loc, str]] = []
    for item, _ in raws:
        claims.append((item.slug, item, ("slug",), "slug"))
    for item, raw in raws:
        for index, alias in enumerate(_list(raw, "aliases")):
            if isinstance(alias, str):
                claims.append((alias, item, ("aliases", index), "alias"))
    for name, item, loc, what in claims:
        key = normal(name)
        owner = owners.setdefault(key, item)
        if owner is not item:
            yield item.problem(loc, f"{what} `{name[:80]}` is already taken", "duplicate-slug", f"by {owner.path}")
        elif what == "alias" and key == normal(item.slug):
            yield item.problem(loc, f"alias `{name[:80]}` is the slug itself", "duplicate-slug", "remove it")


def _references(slug: str, raw: Raw, by_slug: dict[str, Raw]) -> Iterator[tuple[Loc, str, str, str]]:
    for loc, target in _slugs(raw):
        if target == slug and loc[0] != "routes" and loc[0] != "signatures":
            yield (loc, "an entry cannot refer to itself", "self-reference", "")
        elif target == "todo":
            yield (loc, "TODO is still to be filled in", "todo", "the slug of an entry")
        elif target not in by_slug:
            yield (loc, f"no entry `{target[:80]}`", "unknown-entry", nearest(target, by_slug))
        elif loc == ("parent",) and (kind := by_slug[target].get("kind", "symptom")) != "symptom":
            yield (loc, f"`{target}` is of kind {kind}", "parent-kind", "a parent is a hub (kind symptom)")
    for index, route in enumerate(_list(raw, "routes")):
        name = route.get("signature") if isinstance(route, dict) else None
        if not isinstance(name, str) or "#" not in name:
            continue
        loc = ("routes", index, "signature")
        owner, _, identifier = name.partition("#")
        if owner not in by_slug:
            yield (loc, f"no entry `{owner[:80]}`", "unknown-entry", nearest(owner, by_slug))
            continue
        if not by_slug[owner]:
            continue
        ids = [s["id"] for s in _list(by_slug[owner], "signatures") if isinstance(s, dict) and _is_id(s)]
        if identifier not in ids:
            hint = nearest(identifier, ids) or f"it has: {', '.join(ids) or 'none'}"
            yield (loc, f"`{owner}` has no signature `{identifier[:80]}`", "unknown-signature", hint)


def _is_id(signature: Raw) -> bool:
    return isinstance(signature.get("id"), str)


def _slugs(raw: Raw) -> Iterator[tuple[Loc, str]]:
    """Every place where an entry names another one."""
    if isinstance(raw.get("parent"), str):
        yield ("parent",), raw["parent"]
    for name, key in (("not_this_if", "entry"), ("related", "entry"), ("routes", "to")):
        for index, item in enumerate(_list(raw, name)):
            if isinstance(item, dict) and isinstance(item.get(key), str):
                yield (name, index, key), item[key]
    for index, signature in enumerate(_list(raw, "signatures")):
        for number, slug in enumerate(_list(signature, "not_evidence_of") if isinstance(signature, dict) else ()):
            if isinstance(slug, str):
                yield ("signatures", index, "not_evidence_of", number), slug


def ancestors(slug: str, by_slug: Mapping[str, Raw]) -> list[str]:
    """Parents upwards, nearest first; stops at an unknown one or when a cycle closes."""
    found: list[str] = []
    parent = by_slug.get(slug, {}).get("parent")
    while isinstance(parent, str) and parent in by_slug and parent not in found and parent != slug:
        found.append(parent)
        parent = by_slug[parent].get("parent")
    return found


def _cycle(slug: str, by_slug: dict[str, Raw]) -> list[str]:
    """The way from an entry back to itself, empty when there is none."""
    way = [slug, *ancestors(slug, by_slug)]
    closes = len(way) > 1 and by_slug.get(way[-1], {}).get("parent") == slug
    return [*way, slug] if closes else []  # its own parent is reported as a reference to itself


def _list(data: Raw, name: str) -> list[Any]:
    value = data.get(name)
    return value if isinstance(value, list) else []
