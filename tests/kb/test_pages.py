"""Each page is about its own failure: its quick answer and root cause find it first among all pages, by plain BM25."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import faultbook

K1, B = 1.5, 0.75


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_]{2,}", text.lower())


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [s for v in value.values() for s in strings(v)]
    if isinstance(value, (list, tuple)):
        return [s for v in value for s in strings(v)]
    return []


def hidden(text: str, entry: Mapping[str, Any]) -> list[str]:
    """Its words without those of the title and the slug."""
    names = set(words(entry["title"])) | set(entry["slug"].split("-"))
    return [w for w in words(text) if w not in names]


def body(entry: Mapping[str, Any]) -> list[str]:
    """What the page says beyond the text it is asked with: a page must not be found by itself alone."""
    left_out = {"slug", "title", "aliases", "logs", "code", "proofs", "references", "quick_answer", "root_cause"}
    return hidden(" ".join(s for k, v in entry.items() if k not in left_out for s in strings(v)), entry)


class Bm25:
    def __init__(self, pages: Mapping[str, list[str]]) -> None:
        self.counts = {slug: Counter(page) for slug, page in pages.items()}
        self.sizes = {slug: len(page) for slug, page in pages.items()}
        self.mean = sum(self.sizes.values()) / len(pages)
        self.holders = Counter(w for counts in self.counts.values() for w in counts)

    def best(self, query: list[str]) -> list[str]:
        total = len(self.counts)

        def score(slug: str) -> float:
            counts, norm = self.counts[slug], K1 * (1 - B + B * self.sizes[slug] / self.mean)
            return sum(
                math.log(1 + (total - self.holders[w] + 0.5) / (self.holders[w] + 0.5))
                * (counts[w] * (K1 + 1) / (counts[w] + norm))
                for w in set(query)
                if w in counts
            )

        return sorted(self.counts, key=lambda slug: (-score(slug), slug))


def test_quick_answer_and_root_cause_find_their_own_page():
    entries = faultbook.load_catalog().load_entries()
    index = Bm25({slug: body(e) for slug, e in entries.items()})
    missed = {}
    for slug, entry in entries.items():
        query = hidden(entry["quick_answer"] + " " + (entry.get("root_cause") or ""), entry)
        found = index.best(query)
        if found[0] != slug:
            missed[slug] = (found.index(slug) + 1, found[:2])
    print(f"\n{len(entries) - len(missed)} of {len(entries)} pages found first: {missed}")
    assert missed == {}


def test_every_reference_has_a_title_a_date_and_an_address():
    for slug, entry in faultbook.load_catalog().load_entries().items():
        references = entry.get("references") or []
        assert references, slug
        for reference in references:
            assert len(reference["title"]) > 8 and re.fullmatch(r"\d{4}-\d\d-\d\d", str(reference["date"])), (slug, reference)
            assert reference["url"].startswith("https://"), (slug, reference)
        kinds = {r["kind"] for r in references}
        assert kinds & {"docs", "source"}, f"{slug}: no official documentation or source"
