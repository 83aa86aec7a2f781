"""The theme's templates are run once for all pages of one shape, not once for each of a thousand entries.

Pages of entries differ from each other in their title, text, address and description, and in which sections their table of
contents lists; so do pages of tags. One of each such shape is rendered with marks in those places; the others are cut from it.
"""

from __future__ import annotations

import contextlib
import html
import json
import re
from pathlib import Path
from typing import Any

import jinja2
from mkdocs.plugins import get_plugin_logger

log = get_plugin_logger(__name__)
TEMPLATE = "faultbook-shell.html"  # what a page names as its template to be made this way
FULL = "main.html"
_MARK = re.compile("fb0mark0([a-z]+)0")
# The heading keeps the theme from adding one of its own.
_MARKS = {name: f"fb0mark0{name}0" for name in ("title", "address", "description", "slug", "jsonld")}
_CONTENT = "<h1>fb0mark0content0</h1>"


class _Marked:
    """A page with marks in place of what differs; in all else the page it stands for."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self.title, self.canonical_url, self.content = _MARKS["title"], _MARKS["address"], _CONTENT
        self.meta = dict(page.meta)
        if "description" in page.meta:
            self.meta["description"] = _MARKS["description"]
        if "fb" in page.meta:
            self.meta["fb"] = {**page.meta["fb"], "slug": _MARKS["slug"], "jsonld": _MARKS["jsonld"]}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._page, name)


class Shells:
    def __init__(self) -> None:
        self._pieces: dict[str, list[str]] = {}
        self._trusted: bool | None = None

    def install(self, env: jinja2.Environment, cache: Path | None) -> None:
        if cache is not None:
            with contextlib.suppress(OSError):  # a folder that cannot be written to costs time only
                (cache / "templates").mkdir(parents=True, exist_ok=True)
                env.bytecode_cache = jinja2.FileSystemBytecodeCache(str(cache / "templates"))
        own = jinja2.DictLoader({TEMPLATE: "{{ faultbook_page() }}"})
        env.loader = jinja2.ChoiceLoader([own, env.loader] if env.loader else [own])
        env.globals["faultbook_page"] = self._page

    @jinja2.pass_context
    def _page(self, context: jinja2.runtime.Context) -> str:
        values = dict(context.get_all())
        page = values["page"]
        template = context.environment.get_template(FULL)
        if self._trusted is False or page.canonical_url is None:
            return template.render(values)
        shape = _shape(page)
        if shape not in self._pieces:
            whole = template.render({**values, "page": _Marked(page)})
            self._pieces[shape] = _MARK.split(whole.replace(_CONTENT, "fb0mark0content0"))
        pieces = self._pieces[shape]
        filled = {
            "content": page.content,
            "title": page.title,
            "address": html.escape(page.canonical_url),
            "description": page.meta.get("description", ""),
            **{name: str(page.meta.get("fb", {}).get(name, "")) for name in ("slug", "jsonld")},
        }
        made = "".join(filled[piece] if place % 2 else piece for place, piece in enumerate(pieces))
        if self._trusted is None:  # the first page of a build is also made the long way
            whole = template.render(values)
            self._trusted = made == whole
            if not self._trusted:
                log.warning("the theme prints more of a page than shells.py knows of; each page is rendered in full")
                return whole
        return made


def _shape(page: Any) -> str:
    """All that the templates may look at, but for what is marked."""
    rest = {k: v for k, v in page.meta.items() if k not in ("description", "fb")}
    kind = {k: v for k, v in page.meta["fb"].items() if k not in ("slug", "jsonld")} if "fb" in page.meta else None
    toc = [_contents(item) for item in page.toc]
    place = [page.url.count("/"), page.edit_url, page.is_homepage]
    return json.dumps([rest, kind, "description" in page.meta, toc, *place], default=str)


def _contents(item: Any) -> list[Any]:
    return [item.title, item.url, item.level, [_contents(c) for c in item.children]]
