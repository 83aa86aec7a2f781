"""What is made of one entry beside its page, once per version of the entry: kept between builds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import catalogue as cat
from . import machine, search_rows, seo
from .build_cache import Kept


@dataclass(frozen=True, slots=True)
class Made:
    key: str
    """Changes with everything that the page and these values depend on."""
    json: str
    markdown: str
    row: Mapping[str, Any]
    facts: Mapping[str, str]


def of_all(catalogue: cat.Catalogue, site: tuple[str, str], dates: Mapping[str, tuple[str, str]], kept: Kept) -> dict[str, Made]:
    """`site`: its name and its address."""
    return {slug: _of(entry, catalogue, site, dates.get(slug, ("", "")), kept) for slug, entry in catalogue.by_slug.items()}


def _of(entry: cat.Entry, catalogue: cat.Catalogue, site: tuple[str, str], dates: tuple[str, str], kept: Kept) -> Made:
    text = json.dumps(entry, ensure_ascii=False, sort_keys=True)
    key = cat.page_key(entry, catalogue, text)
    name, site_url = site
    url = f"{site_url.rstrip('/')}/entries/{entry['slug']}/"

    def make() -> dict[str, Any]:
        return {
            "markdown": machine.to_markdown(entry, catalogue),
            "row": search_rows.row(entry, entry["slug"] in catalogue.children or entry["kind"] == "symptom"),
            "facts": seo.meta(entry, url, dates, name),
        }

    found = kept.get(f"entry\n{name}\n{url}\n{dates}\n{entry['slug'] in catalogue.children}\n{key}", make)
    return Made(key, text, found["markdown"], found["row"], found["facts"])
