"""Stands in for mkdocs: builds the pages of some entries with nothing but a Markdown library.

python driver.py catalog.json FOLDER SLUG…
"""

import json
import sys
from pathlib import Path

import markdown

from faultbook_site.catalogue import from_json
from faultbook_site.render import render

PAGE = '<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><body><article>{body}</article>'
EXTENSIONS = {"attr_list": {}, "toc": {"permalink": "#", "permalink_title": "Link to this section"}}


def main(catalog: str, folder: str, *slugs: str) -> None:
    catalogue = from_json(json.loads(Path(catalog).read_text(encoding="utf-8")))
    for slug in slugs:
        entry = catalogue.by_slug[slug]
        body = markdown.markdown(render(entry, catalogue), extensions=list(EXTENSIONS), extension_configs=EXTENSIONS)
        target = Path(folder) / "entries" / slug / "index.html"
        target.parent.mkdir(parents=True)
        target.write_text(PAGE.format(title=slug, body=body), encoding="utf-8")
    assert "mkdocs" not in sys.modules


main(*sys.argv[1:])
