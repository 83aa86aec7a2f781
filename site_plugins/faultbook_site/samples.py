"""The logs that the diagnosis box offers to try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from . import markup, runs
from .catalogue import Catalogue, in_order

HOW_MANY = 3


def find(listed: Path, catalogue: Catalogue) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """(title and addresses of each sample, the files to put into the site for them).

    `listed` is a YAML file: title → file or folder of logs. Where it is absent, failing runs of entries are offered,
    one of each way to fail before the second of any.
    """
    if not listed.is_file():
        return _of_entries(catalogue), {}
    shown: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    for number, (title, given) in enumerate(yaml.safe_load(listed.read_text(encoding="utf-8")).items(), 1):
        place = listed.parent / str(given)
        inside = [p for p in place.rglob("*") if p.is_file()]
        found = sorted(inside, key=lambda p: (len(p.parts), p)) if place.is_dir() else [place]
        if not all(p.is_file() for p in found):
            raise ValueError(f"{listed}: there is no {place} (sample {title!r})")
        urls = [f"samples/{number}/{p.name}" for p in found]
        files.update({url: p.read_bytes() for url, p in zip(urls, found, strict=True)})
        shown.append({"title": str(title), "urls": urls})
    return shown, files


def _of_entries(catalogue: Catalogue) -> list[dict[str, Any]]:
    with_log = [e for e in in_order(catalogue.by_slug.values()) if runs.logs(e, "broken")]
    firsts = {e.get("visibility"): e for e in reversed(with_log)}
    ordered = [*firsts.values(), *(e for e in with_log if e not in firsts.values())]
    return [
        {"title": markup.clean(e["title"]), "urls": [f"entries/{e['slug']}/{runs.logs(e, 'broken')[0][0]}"]}
        for e in ordered[:HOW_MANY]
    ]
