"""Pages written by hand: their HTML is kept between builds too, for as long as all that it was made of is the same.

With the HTML goes what others collect while it is made: mkdocs the links to check, mkdocstrings what can be linked to.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import TableOfContents

from .build_cache import Kept
from .structure import plain, toc

# Extensions that look at nothing but the page: another may include files, and the page is made anew each time.
_KNOWN = {"abbr", "admonition", "attr_list", "def_list", "fenced_code", "footnotes", "md_in_html", "meta", "tables", "toc"}
_KNOWN |= {"pymdownx.highlight", "pymdownx.superfences", "pymdownx.details", "pymdownx.tabbed"}
_COLLECTING = {"MkdocstringsExtension", "AutorefsExtension"}
_DOCUMENTED = re.compile(r"^\s*::: *(\w*)", re.MULTILINE)
_LIBRARIES = ("mkdocstrings", "mkdocstrings-python", "mkdocs-autorefs", "griffe", "griffelib")


class Written:
    def __init__(self, config: MkDocsConfig, files: Files, kept: Kept) -> None:
        self._config, self._files, self._kept = config, files, kept
        extensions = [e if isinstance(e, str) else type(e).__qualname__ for e in config.markdown_extensions]
        self._pure = all(e in _KNOWN or e in _COLLECTING for e in extensions)
        # Any page may link to any file.
        addresses = sorted((f.src_uri, f.url, str(f.inclusion)) for f in files)
        plugins = sorted(name for name in config.plugins)
        settings = [extensions, repr(config.mdx_configs), repr(dict(config.validation)), plugins, str(config.theme.name)]
        settings += [str(config.use_directory_urls), hashlib.sha256(json.dumps(addresses).encode()).hexdigest()]
        self._settings = json.dumps(settings)

    def take(self, page: Page) -> None:
        """The page's HTML will be the one that is kept, where there is one."""
        setattr(page, "render", functools.partial(self._render, page, page.render))  # noqa: B010

    def _render(self, page: Page, render: Callable[..., None], config: MkDocsConfig, files: Files) -> None:
        documented = self._documented(page.markdown or "")
        if not self._pure or documented is None:
            return render(config, files)
        level = logging.getLogger("mkdocs").getEffectiveLevel()  # a quiet build does not see what the next one has to say
        key = f"written\n{level}\n{self._settings}\n{documented}\n{page.file.src_uri}\n{page.markdown}"
        fresh: list[bool] = []

        def make() -> dict[str, Any]:
            fresh.append(True)
            return self._made(page, lambda: render(config, files))

        found = self._kept.get(key, make, worth=lambda made: not made["said"])
        if not fresh:
            self._restore(page, found)

    def _made(self, page: Page, render: Callable[[], None]) -> dict[str, Any]:
        collected: list[Any] = []
        with _said() as said, self._collecting(page, collected):
            render()
        links = page.links_to_anchors
        return {
            # A page that something was said of is made anew by each build, so that each build says it.
            "said": bool(said) or links is None or "<backlinks" in (page.content or ""),
            "content": page.content,
            "toc": [plain(item) for item in page.toc],
            "anchors": sorted(page.present_anchor_ids or ()),
            "links": {file.src_uri: anchors for file, anchors in (links or {}).items()},
            "title": page._title_from_render,
            "collected": collected,
        }

    def _restore(self, page: Page, found: dict[str, Any]) -> None:
        page.content, page.toc = found["content"], TableOfContents(toc(found["toc"], 1))
        page.present_anchor_ids = set(found["anchors"])
        page._title_from_render = found["title"]
        to = {self._files.get_file_from_path(uri): anchors for uri, anchors in found["links"].items()}
        page.links_to_anchors = {file: anchors for file, anchors in to.items() if file is not None}
        for kind, args, options in found["collected"]:
            if kind == "anchor":
                self._config.plugins["autorefs"].register_anchor(page, *args, **options)  # type: ignore[attr-defined]
            elif kind == "object":
                self._handlers().inventory.register(*args, **options)
            else:  # its style sheet and the inventory are written for the handlers that were asked for
                self._handlers().get_handler(*args, **options)

    def _handlers(self) -> Any:
        return self._config.plugins["mkdocstrings"].handlers  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def _collecting(self, page: Page, collected: list[Any]) -> Iterator[None]:
        """Notes the calls by which a page's objects are made known."""
        if "mkdocstrings" not in self._config.plugins:
            yield
            return
        handlers = self._handlers()
        noted = [
            ("anchor", self._config.plugins["autorefs"], "register_anchor", 1),
            ("object", handlers.inventory, "register", 0),
            ("handler", handlers, "get_handler", 0),
        ]
        for kind, owner, name, skipped in noted:
            setattr(owner, name, functools.partial(_note, collected, kind, skipped, getattr(owner, name)))
        try:
            yield
        finally:
            for _, owner, name, _ in noted:
                delattr(owner, name)

    def _documented(self, markdown: str) -> str | None:
        """Of the code that the page prints the documentation of: empty without any, None where it cannot be told."""
        names = set(_DOCUMENTED.findall(markdown))
        if not names or "mkdocstrings" not in self._config.plugins:
            return ""
        options = dict(self._config.plugins["mkdocstrings"].config)
        if options.get("default_handler") != "python" or options.get("custom_templates") or "handler:" in markdown:
            return None
        root = Path(self._config.config_file_path or ".").parent
        paths = [root / p for p in options.get("handlers", {}).get("python", {}).get("paths", ())]
        digest = hashlib.sha256(repr(options).encode())
        for name in sorted(names):
            package = next((p / name for p in paths if name and (p / name).is_dir()), None)
            if package is None:
                return None
            for source in sorted(package.rglob("*.py*")):
                if source.suffix in (".py", ".pyi"):
                    digest.update(f"\n{source.relative_to(package)}\n".encode() + source.read_bytes())
        for library in _LIBRARIES:
            with contextlib.suppress(ModuleNotFoundError):
                digest.update(f"{library} {version(library)}".encode())
        return digest.hexdigest()


def _note(collected: list[Any], kind: str, skipped: int, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    noted = [kind, list(args[skipped:]), options]
    if kind != "handler" or noted not in collected:
        collected.append(noted)
    return call(*args, **options)


@contextlib.contextmanager
def _said() -> Iterator[list[str]]:
    """What is logged meanwhile, from information upwards."""
    said: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    listening = Listening(logging.INFO)
    logger = logging.getLogger("mkdocs")
    logger.addHandler(listening)
    try:
        yield said
    finally:
        logger.removeHandler(listening)
