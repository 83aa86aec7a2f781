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
    """Folder for what builds keep for the next one; by default below the user's cache folder. Empty: nothing is kept."""

    samples = c.Type(str, default="samples/samples.yml")
    """Title → file or folder of logs, offered in the diagnosis box; where the file is absent, failing runs of entries."""
