"""The mkdocs plugin `faultbook`: puts the pages of the catalogue into a site, and the files that machines read."""

from __future__ import annotations

import functools
import html
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, get_plugin_logger
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation

from . import catalogue as cat
from . import engine, machine, markup, pages, runs, search_rows, seo, source
from .config import FaultbookConfig
from .render import render
from .structure import GeneratedPage

log = get_plugin_logger(__name__)
THEME = Path(__file__).parent / "theme"
STYLES = ("base.css", "entry.css", "lists.css", "paste.css")
SCRIPTS = ("site.js", "browse.js", "paste.js")


class FaultbookPlugin(BasePlugin[FaultbookConfig]):  # type: ignore[no-untyped-call]
    catalogue: cat.Catalogue
    data: dict[str, Any]
    signatures: bytes
    engine: engine.Engine

    def on_config(self, config: MkDocsConfig) -> MkDocsConfig:
        root = Path(config.config_file_path or ".").parent
        kb = root / self.config.kb
        compiled = root / self.config.catalogue if self.config.catalogue else None
        self._kb = kb if compiled is None and kb.is_dir() else None
        try:
            self.data, self.signatures = source.load(self._kb, compiled)
        except (ValueError, OSError) as problem:
            raise PluginError(str(problem)) from None
        edit = f"edit/{branch}/" if (branch := config.extra.get("branch")) else ""
        self.catalogue = cat.from_json(self.data, config.repo_url or "", edit)
        try:
            self.engine = engine.build(root / self.config.pyodide, self.signatures)
        except engine.BadPyodide as problem:
            log.warning(str(problem))
            self.engine = engine.Engine({"included": False}, ())
        self._cache = _cache_folder(self.config.cache)
        config.theme.dirs.insert(0, str(THEME))
        config.theme.static_templates.add("404.html")
        config.extra_css = [*(f"assets/faultbook/{n}" for n in STYLES), *config.extra_css]
        config.extra["faultbook"] = {
            "engine": json.dumps(
                {**self.engine.manifest, "samples": self._samples(), "issues": _issues(config.repo_url)}
            ).replace("<", "\\u003c"),
            "scripts": [f"assets/faultbook/{n}" for n in SCRIPTS],
        }
        if self._kb is not None:
            config.watch = [*config.watch, str(self._kb)]
        return config

    def _samples(self) -> list[dict[str, str]]:
        chosen = [self.catalogue.by_slug[s] for s in self.config.samples if s in self.catalogue.by_slug]
        if not chosen:
            chosen = cat.in_order(self.catalogue.by_slug.values())
        with_log = [(e, logs[0][0]) for e in chosen if (logs := runs.logs(e, "broken"))]
        return [{"title": markup.clean(e["title"]), "url": f"entries/{e['slug']}/{name}"} for e, name in with_log[:3]]

    def on_files(self, files: Files, *, config: MkDocsConfig) -> Files:
        one = self.catalogue

        def add(
            uri: str, title: str, text: str | Callable[[], str], meta: dict[str, Any], key: str = "", nav: bool = False
        ) -> None:
            if files.get_file_from_path(uri):
                return  # a hand-written page of that name wins
            file = File.generated(config, uri, content="")
            # Entries stay out of the navigation tree: it would be printed into every page.
            file.inclusion = InclusionLevel.INCLUDED if nav else InclusionLevel.NOT_IN_NAV
            produce = text if callable(text) else functools.partial(str, text)
            GeneratedPage(title, file, config, produce, key or produce(), meta, self._cache)
            files.append(file)

        add("index.md", "Home", pages.home(one), {"hide": ["navigation", "toc"], "fb": {"page": "home"}}, nav=True)
        add("browse/index.md", "Browse", pages.browse(one), {"hide": ["navigation", "toc"]}, nav=True)
        add("families/index.md", "Families", pages.families(one), {"hide": ["navigation", "toc"]}, nav=True)
        add("proofs/index.md", "Proof records", pages.proof_page(one), {"hide": ["navigation", "toc"]})
        add("tags/index.md", "Tags", pages.tag_index(one), {"hide": ["navigation", "toc"]})
        for name, entries in pages.tags(one).items():
            add(f"tags/{name}.md", f"#{markup.attribute(name)}", pages.tag(name, entries), {"hide": ["navigation", "toc"]})
        for slug, entry in one.by_slug.items():
            facts = seo.meta(entry, f"{(config.site_url or '').rstrip('/')}/entries/{slug}/")
            meta = {
                "hide": ["navigation"],
                "description": facts["description"],
                "fb": {"page": "entry", "slug": slug, "jsonld": facts["jsonld"]},
            }
            add(f"entries/{slug}.md", facts["title"], functools.partial(render, entry, one), meta, cat.page_key(entry, one))
        return files

    def on_nav(self, nav: Navigation, *, config: MkDocsConfig, files: Files) -> Navigation:
        self._own_search_rows(config)
        return nav

    def _own_search_rows(self, config: MkDocsConfig) -> None:
        """Generated pages give the search rows of their own; only hand-written pages are parsed."""
        plugin = config.plugins.get("material/search") or config.plugins.get("search")
        index = getattr(plugin, "search_index", None)
        if index is None:
            return
        parse = index.add_entry_from_context

        def add(page: Any) -> None:
            if not isinstance(page, GeneratedPage):
                parse(page)

        index.add_entry_from_context = add
        index.entries.extend(search_rows.rows(self.catalogue))

    def on_post_build(self, *, config: MkDocsConfig) -> None:
        site = Path(config.site_dir)
        dates = source.first_dates(self._kb)
        for path, text in machine.files(self.catalogue, config.site_url or "", dates):
            _put(site, path, text.encode())
        _put(site, "catalog.json", (json.dumps(self.data, ensure_ascii=False, sort_keys=True) + "\n").encode())
        _put(site, "signatures.json", self.signatures)
        for path, content in self.engine.files:
            if isinstance(content, Path):
                target = site / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(content, target)
            else:
                _put(site, path, content)


def _issues(repo_url: str | None) -> str:
    return f"{repo_url.rstrip('/')}/issues/new?title=Log%20not%20recognised" if repo_url else ""


def _put(site: Path, path: str, content: bytes) -> None:
    target = (site / path).resolve()
    if not target.is_relative_to(site.resolve()):
        raise ValueError(f"{html.escape(path)} lies outside the site")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _cache_folder(given: str | None) -> Path | None:
    if given is not None:
        return Path(given) if given else None
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "faultbook" / "pages"
