"""What a reviewer would send back: prose, references, layout, sample logs, patterns on healthy lines.

None of it makes an entry unusable, so the compiler does not ask; `faultbook check` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import files, healthy, layout, log_rules, prose, yaml_nodes
from .loader import Knowledge, LoadedEntry
from .problems import Problem
from .signature_rules import Found

OFFICIAL = frozenset({"docs", "source", "paper"})
THREADS = frozenset({"issue", "post"})


def problems_of(
    knowledge: Knowledge, only: frozenset[str] | None = None, healthy_logs: Mapping[str, str] | None = None
) -> list[Problem]:
    """Everything a reviewer would say of the entries in `only` (None: of all)."""
    found: list[Problem] = []
    items = {item.slug: item for item in knowledge.loaded if item.node is not None}
    raws = {slug: item.raw() for slug, item in items.items()}
    for slug, item in items.items():
        if only is None or slug in only:
            found += _of_entry(item, raws[slug])
    for slug, fault in prose.repeated(list(raws.items()), only):
        found.append(items[slug].problem(*fault))
    return [*found, *healthy.problems_of(knowledge, only, healthy_logs)]


def _of_entry(item: LoadedEntry, raw: dict[str, Any]) -> Iterator[Problem]:
    for fault in (*prose.problems_of(raw), *_references(raw)):
        yield item.problem(*fault)
    data, _ = files.read_bytes(item.folder, "entry.yaml", item.path, yaml_nodes.MAX_BYTES + 1)
    text = (data or b"").decode("utf-8-sig", "replace")
    yield from layout.problems_of(item.path, text, item.node)
    base = item.path.removesuffix("entry.yaml")
    for shown, content in {item.path: text, **{f"{base}logs/{name}": log for name, log in item.logs.items()}}.items():
        yield from log_rules.problems_of(shown, content)


def _references(raw: Mapping[str, Any]) -> Iterator[Found]:
    rows = [row for row in raw.get("references") or () if isinstance(row, dict)]
    kinds = {row.get("kind") for row in rows}
    if raw.get("kind") == "cause" and rows:
        if not kinds & OFFICIAL:
            hint = "add the documentation or source that says why (kind docs, source or paper)"
            yield (("references",), "no official source", "references", hint)
        if not kinds & THREADS:
            hint = "add a public thread in which it happened (kind issue or post)"
            yield (("references",), "no case that somebody reported", "references", hint)
    seen: set[str] = set()
    for index, row in enumerate(rows):
        url = str(row.get("url")).rstrip("/")
        if url in seen:
            yield (("references", index, "url"), f"`{url[:80]}` is listed twice", "references", "remove one")
        seen.add(url)
