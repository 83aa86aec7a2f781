"""mkdocs pages whose Markdown is given, whose title is not guessed, and whose HTML is kept between builds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink, TableOfContents

from .build_cache import Kept

_SEALED = re.compile(r"<div>.*</div>", re.DOTALL)
_PLACE = re.compile(r'<div id="fb-sealed-(\d+)"></div>')
_ID = re.compile(r'\bid="([^"]+)"')


class GeneratedPage(Page):
    """Front matter is never read from the text, so no entry can set a template or a title.

    `produce` gives the Markdown, and is only called when no page was kept under `key`, which
    must change with everything the Markdown depends on.
    """

    hidden: str | None = None
    """The content, while other plugins are kept from it."""

    def __init__(
        self,
        title: str,
        file: File,
        config: MkDocsConfig,
        produce: Callable[[], str],
        key: str,
        meta: Mapping[str, Any],
        kept: Kept,
    ) -> None:
        super().__init__(title, file, config)
        self._produce, self._given_key, self._meta, self._kept = produce, key, dict(meta), kept

    def read_source(self, config: MkDocsConfig) -> None:
        self.markdown, self.meta = "", dict(self._meta)

    def render(self, config: MkDocsConfig, files: Files) -> None:
        """As mkdocs does it, unless the same text was rendered before under the same settings."""
        # Generated pages link by final address in sealed HTML, so no other page's address is part of the key.
        extensions = [e if isinstance(e, str) else type(e).__qualname__ for e in config.markdown_extensions]
        settings = [self.file.src_uri, extensions, repr(config.mdx_configs)]
        page = self._kept.get(f"page\n{json.dumps(settings)}\n{self._given_key}", lambda: self._made(config, files))
        self.content = page["content"]
        self.toc = TableOfContents(toc(page["toc"], 1))
        self.present_anchor_ids = set(page["anchors"])

    def _made(self, config: MkDocsConfig, files: Files) -> dict[str, Any]:
        """The sealed HTML blocks are taken out before Markdown reads the page and put back afterwards: it would change
        nothing in them, and looking for their ends takes it longer than all the rest of a build."""
        sealed: list[str] = []

        def out(block: str) -> str:
            if not _SEALED.fullmatch(block):
                return block
            sealed.append(block)
            return f'<div id="fb-sealed-{len(sealed) - 1}"></div>'

        self.markdown = "\n\n".join(out(block) for block in self._produce().strip().split("\n\n"))
        super().render(config, files)
        anchors = {a for a in self.present_anchor_ids or () if not a.startswith("fb-sealed-")}
        return {
            "content": _PLACE.sub(lambda place: sealed[int(place[1])], self.content or ""),
            "toc": [plain(item) for item in self.toc],
            "anchors": sorted(anchors.union(*(_ID.findall(block) for block in sealed))),
        }


def plain(item: AnchorLink) -> dict[str, Any]:
    return {"title": item.title, "id": item.id, "level": item.level, "children": [plain(c) for c in item.children]}


def toc(items: list[dict[str, Any]], level: int) -> list[AnchorLink]:
    out = []
    for item in items:
        link = AnchorLink(item["title"], item["id"], level=item["level"])
        link.children = toc(item["children"], level + 1)
        out.append(link)
    return out
