"""The mkdocs plugin `faultbook`: puts the pages of the catalogue into a site, and the files that machines read."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority, get_plugin_logger
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from . import catalogue as cat
from . import engine, entry_outputs, families, fonts, machine, markup, measured, pages, samples, search_rows, seo, source
from .build_cache import Kept
from .config import FaultbookConfig
from .handwritten import Written
from .outputs import Outputs
from .render import render
from .shells import TEMPLATE, Shells
from .structure import GeneratedPage

log = get_plugin_logger(__name__)
THEME = Path(__file__).parent / "theme"
SEARCH_WORKER = re.compile(r"assets/javascripts/workers/search\.\w+\.min\.js")
SEARCH_QUERY = Path(__file__).with_name("search_query.js")
CONTRIBUTING = "contributing.md"
STYLES = ("base.css", "entry.css", "lists.css", "paste.css")
SCRIPTS = ("site.js", "browse.js", "engine.js", "result.js", "paste.js")


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
        cache = _cache_folder(self.config.cache)
        try:
            self.data, self.signatures = source.load(self._kb, compiled, cache)
        except (ValueError, OSError) as problem:
            raise PluginError(str(problem)) from None
        edit = f"edit/{config.extra.get('branch', 'main')}/"
        self.catalogue = cat.from_json(self.data, config.repo_url or "", edit, measured.load(Path(config.docs_dir)))
        try:
            self.engine = engine.build(root / self.config.pyodide, self.signatures)
        except engine.BadPyodide as problem:
            log.warning(str(problem))
            self.engine = engine.Engine({"included": False}, ())
        self._kept = Kept(cache / "pages" if cache else None)
        self._dates = source.dates(self._kb)
        self._made = entry_outputs.of_all(self.catalogue, (config.site_name, config.site_url or ""), self._dates, self._kept)
        try:
            offered, self._sample_files = samples.find(root / self.config.samples, self.catalogue)
        except (ValueError, OSError) as problem:
            raise PluginError(str(problem)) from None
        config.theme.dirs.insert(0, str(THEME))
        config.theme.static_templates.add("404.html")
        early, self._fonts = fonts.build((root / self.config.pyodide).parent)
        config.extra_css = [*([fonts.STYLE] if early else []), *(f"assets/faultbook/{n}" for n in STYLES), *config.extra_css]
        config.extra["faultbook"] = {
            "engine": json.dumps({**self.engine.manifest, "samples": offered, "issues": _issues(config.repo_url)}).replace(
                "<", "\\u003c"
            ),
            "scripts": [f"assets/faultbook/{n}" for n in SCRIPTS],
            "fonts": early,
        }
        self._contributing = Path(config.docs_dir).parent / "CONTRIBUTING.md"
        watched = [self._kb, self._kb.parent / "proofs"] if self._kb is not None else []
        config.watch = [*config.watch, *(str(p) for p in [*watched, self._contributing] if p is not None and p.exists())]
        return config

    @event_priority(-100)
    def on_pre_build(self, *, config: MkDocsConfig) -> None:
        self._outputs = Outputs(Path(config.site_dir))
        self._outputs.hide()

    @event_priority(100)
    def on_files(self, files: Files, *, config: MkDocsConfig) -> Files:
        self._outputs.show()
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
            GeneratedPage(title, file, config, produce, key or produce(), meta, self._kept)
            files.append(file)

        about = seo.home_json_ld(config.site_name, config.site_description or "", config.site_url or "")
        home = {"hide": ["navigation", "toc"], "fb": {"page": "home", "jsonld": about}}
        add("index.md", "Home", pages.home(one), home, nav=True)
        add("browse/index.md", "Browse", pages.browse(one), {"hide": ["navigation", "toc"]}, nav=True)
        add("families/index.md", "Families", families.page(one), {"hide": ["navigation", "toc"]}, nav=True)
        add("proofs/index.md", "Proof records", pages.proof_page(one), {"hide": ["toc"]}, nav=True)
        add("tags/index.md", "Tags", pages.tag_index(one), {"hide": ["navigation", "toc"]})
        for name, entries in pages.tags(one).items():
            meta: dict[str, Any] = {"hide": ["navigation", "toc"], "template": TEMPLATE}
            add(f"tags/{name}.md", f"#{markup.attribute(name)}", pages.tag(name, entries), meta)
        for slug, entry in one.by_slug.items():
            mine = self._made[slug]
            meta = {
                "hide": ["navigation"],
                "template": TEMPLATE,
                "description": mine.facts["description"],
                "fb": {"page": "entry", "slug": slug, "jsonld": mine.facts["jsonld"]},
            }
            add(f"entries/{slug}.md", mine.facts["title"], functools.partial(render, entry, one), meta, mine.key)
        if self._contributing.is_file() and not files.get_file_from_path(CONTRIBUTING):
            # The page that code hosts show, whose links start at the root of the checkout.
            text = self._contributing.read_text(encoding="utf-8").replace("](docs/", "](")
            files.append(File.generated(config, CONTRIBUTING, content=text))
        self._own_search_query(files, config)
        return files

    def _own_search_query(self, files: Files, config: MkDocsConfig) -> None:
        """Material's search worker, with what rewrites the query before it."""
        found = [f for f in files if SEARCH_WORKER.fullmatch(f.src_uri)]
        for file in found:
            own = File.generated(config, file.src_uri, content=SEARCH_QUERY.read_text(encoding="utf-8") + file.content_string)
            files.remove(file)
            files.append(own)
        if not found:
            log.warning("the theme's search worker was not found: pasted lines are searched for as they are")

    def on_env(self, env: jinja2.Environment, *, config: MkDocsConfig, files: Files) -> jinja2.Environment:
        Shells().install(env, _cache_folder(self.config.cache))
        return env

    def on_nav(self, nav: Navigation, *, config: MkDocsConfig, files: Files) -> Navigation:
        self._own_search_rows(config)
        self._written = Written(config, files, self._kept)
        return nav

    def on_pre_page(self, page: Page, *, config: MkDocsConfig, files: Files) -> Page:
        if not isinstance(page, GeneratedPage):
            self._written.take(page)
        return page

    def _own_search_rows(self, config: MkDocsConfig) -> None:
        """Generated pages give the search rows of their own; of hand-written ones each section's beginning is enough."""
        plugin = config.plugins.get("material/search") or config.plugins.get("search")
        index = getattr(plugin, "search_index", None)
        if index is None:
            return
        parse = index.add_entry_from_context

        def parsed(page: Any) -> dict[str, Any]:
            first = len(index.entries)
            parse(page)
            rows = [{**row, "text": search_rows.beginning(row["text"])} for row in index.entries[first:]]
            del index.entries[first:]
            return {"rows": rows}

        def add(page: Any) -> None:
            if not isinstance(page, GeneratedPage):
                key = f"rows\n{page.url}\n{page.title}\n{page.meta}\n{page.content}"
                index.entries.extend(self._kept.get(key, functools.partial(parsed, page))["rows"])

        index.add_entry_from_context = add
        index.entries.extend(m.row for m in self._made.values())

    @event_priority(100)
    def _hide_content(self, context: Any, *, page: Any, config: MkDocsConfig, nav: Navigation) -> Any:
        """From the search plugin, which looks through every page for attributes that generated pages do not have."""
        if isinstance(page, GeneratedPage):
            page.hidden, page.content = page.content, ""
        return context

    @event_priority(-100)
    def _show_content(self, context: Any, *, page: Any, config: MkDocsConfig, nav: Navigation) -> Any:
        if isinstance(page, GeneratedPage):
            page.content = page.hidden
        return context

    on_page_context = CombinedEvent(_hide_content, _show_content)

    def _put_all(self, *, config: MkDocsConfig) -> None:
        put = self._outputs.put
        texts = {slug: (m.json, m.markdown) for slug, m in self._made.items()}
        for path, text in machine.files(self.catalogue, texts, config.site_url or "", self._dates, config.site_name):
            put(path, text.encode())
        put("catalog.json", machine.catalog_json(self.data, [m.json for m in self._made.values()]).encode())
        put("signatures.json", self.signatures)
        for schema in sorted((Path(config.docs_dir).parent / "schema").glob("*.schema.json")):
            put(f"schema/{schema.name}", schema.read_bytes())
        self._kept.tidy()
        for path, given in (self._sample_files | self._fonts).items():
            put(path, given)
        for path, content in self.engine.files:
            put(path, content.read_bytes() if isinstance(content, Path) else content)

    @event_priority(-100)
    def _tidy(self, *, config: MkDocsConfig) -> None:
        self._outputs.tidy()

    on_post_build = CombinedEvent(_put_all, _tidy)


def _issues(repo_url: str | None) -> str:
    return f"{repo_url.rstrip('/')}/issues/new" if repo_url else ""


def _cache_folder(given: str | None) -> Path | None:
    if given is not None:
        return Path(given) if given else None
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "faultbook" / "site"
