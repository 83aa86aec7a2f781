"""mkdocs pages whose Markdown is given, whose title is not guessed, and whose HTML is kept between builds."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink, TableOfContents


class GeneratedPage(Page):
    """Front matter is never read from the text, so no entry can set a template or a title.

    `produce` gives the Markdown, and is only called when no page was kept under `key`, which
    must change with everything the Markdown depends on.
    """

    def __init__(
        self,
        title: str,
        file: File,
        config: MkDocsConfig,
        produce: Callable[[], str],
        key: str,
        meta: Mapping[str, Any],
        cache: Path | None,
    ) -> None:
        super().__init__(title, file, config)
        self._produce, self._given_key, self._meta, self._cache = produce, key, dict(meta), cache

    def read_source(self, config: MkDocsConfig) -> None:
        self.markdown, self.meta = "", dict(self._meta)

    def render(self, config: MkDocsConfig, files: Files) -> None:
        """As mkdocs does it, unless the same text was rendered before under the same settings."""
        if self._cache is None:
            self.markdown = self._produce()
            super().render(config, files)
            return
        stored = self._cache / f"{self._key(config)}.json"
        try:
            kept = json.loads(stored.read_text(encoding="utf-8"))
            self.content = kept["content"]
            self.toc = TableOfContents(_toc(kept["toc"], 1))
            self.present_anchor_ids = set(kept["anchors"])
            return
        except (OSError, ValueError, KeyError):
            pass
        self.markdown = self._produce()
        super().render(config, files)
        _write(
            stored,
            json.dumps(
                {
                    "content": self.content,
                    "toc": [_plain(item) for item in self.toc],
                    "anchors": sorted(self.present_anchor_ids or ()),
                }
            ),
        )

    def _key(self, config: MkDocsConfig) -> str:
        # Generated pages link by final address in sealed HTML, so no other page's address is part of the key.
        settings = [code_version(), self.file.src_uri, [str(e) for e in config.markdown_extensions], repr(config.mdx_configs)]
        digest = hashlib.sha256(json.dumps(settings).encode())
        digest.update(self._given_key.encode())
        return digest.hexdigest()[:40]


@lru_cache(maxsize=1)
def code_version() -> str:
    """Of everything that turns an entry into a page."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _plain(item: AnchorLink) -> dict[str, Any]:
    return {"title": item.title, "id": item.id, "level": item.level, "children": [_plain(c) for c in item.children]}


def _toc(items: list[dict[str, Any]], level: int) -> list[AnchorLink]:
    out = []
    for item in items:
        link = AnchorLink(item["title"], item["id"], level=item["level"])
        link.children = _toc(item["children"], level + 1)
        out.append(link)
    return out


def _write(path: Path, content: str) -> None:
    """Whole or not at all: two builds may share the folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as handle:
            handle.write(content)
        Path(handle.name).replace(path)
    except OSError:
        return
