"""Entries that read like a text: BM25 over the words of the catalogue (SQLite's full-text search).

For a contributor who is about to write an entry that may exist under another name.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

_WEIGHTS = (8.0, 6.0, 4.0, 2.0, 1.0)
"""Of title, aliases, signatures, quick answer and symptoms, the rest."""
_MOST_WORDS = 60


class Similar(NamedTuple):
    slug: str
    title: str
    share: float
    """Score as a share of what the entry scores on its own title and quick answer: 1 is the same text."""


def similar(entries: Mapping[str, Mapping[str, Any]], text: str, most: int = 5) -> list[Similar]:
    """The entries nearest to a text, best first; empty where SQLite has no full-text search."""
    try:
        base = sqlite3.connect(":memory:")
        columns = "slug UNINDEXED, title, aliases, signatures, answer, rest"
        base.execute(f"CREATE VIRTUAL TABLE entry USING fts5({columns}, tokenize='porter')")
    except sqlite3.Error:
        return []
    base.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", [(slug, *_columns(raw)) for slug, raw in entries.items()])
    found = _scores(base, text)
    best = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:most]
    shown = []
    for slug, score in best:
        own = _scores(base, " ".join(_columns(entries[slug])[i] for i in (0, 3))).get(slug, score)
        shown.append(Similar(slug, str(entries[slug].get("title", slug)), round(min(1.0, score / own), 2) if own else 0.0))
    return sorted(shown, key=lambda s: (-s.share, s.slug))


def _scores(base: sqlite3.Connection, text: str) -> dict[str, float]:
    words = list(dict.fromkeys(w for w in re.findall(r"[a-z][a-z0-9]{2,}", text.lower().replace("_", " "))))[:_MOST_WORDS]
    if not words:
        return {}
    weights = ", ".join(["0", *map(str, _WEIGHTS)])
    query = " OR ".join(f'"{w}"' for w in words)
    rows = base.execute(f"SELECT slug, -bm25(entry, {weights}) FROM entry WHERE entry MATCH ?", (query,))
    return {slug: score for slug, score in rows}


def _columns(raw: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    def words(*names: str) -> str:
        return " ".join(_text(raw.get(name)) for name in names).replace("_", " ")

    slug = str(raw.get("slug", "")).replace("-", " ")
    return (
        f"{raw.get('title', '')} {slug}",
        words("aliases", "tags"),
        words("signatures"),
        words("quick_answer", "symptoms", "root_cause"),
        words("mechanism", "confirm", "fix", "origin", "routes", "misread_as"),
    )


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(_text(v) for key, v in value.items() if key not in ("kind", "role", "id", "source"))
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return re.sub(r"\\[a-zA-Z]|[^\w ]", " ", value) if isinstance(value, str) else ""
