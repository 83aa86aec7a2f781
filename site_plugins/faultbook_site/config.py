"""Options of the plugin in `mkdocs.yml`. A private catalogue is built by pointing `kb` at its own folder."""

from __future__ import annotations

from mkdocs.config import config_options as c
from mkdocs.config.base import Config


class FaultbookConfig(Config):  # type: ignore[no-untyped-call]
    kb = c.Type(str, default="kb")
    """Folder of the knowledge, relative to mkdocs.yml; compiled by `faultbook_schema`."""

    catalogue = c.Optional(c.Type(str))
    """A folder with a compiled `catalog.json` and `signatures.json`, instead of `kb`."""

    pyodide = c.Type(str, default="node_modules/pyodide")
    """The npm package; the in-browser engine is left out where it is absent."""

    cache = c.Optional(c.Type(str))
    """Folder for rendered pages; by default below the user's cache folder. Empty: no cache."""

    samples = c.ListOfItems(c.Type(str), default=[])
    """`slug` of entries whose failing log is offered as a sample; by default the first three proven ones."""
