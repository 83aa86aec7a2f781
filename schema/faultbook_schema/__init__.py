"""The knowledge in kb/: models, loader with file:line errors, compiler, check.

>>> from faultbook_schema import load_kb, write_catalogue
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiler import write_catalogue
    from .digest import entry_digest
    from .loader import load_entry, load_kb
    from .problems import InvalidKnowledge, Problem
    from .taxonomy import load_taxonomy

_HOME = {
    "write_catalogue": "compiler",
    "entry_digest": "digest",
    "load_entry": "loader",
    "load_kb": "loader",
    "InvalidKnowledge": "problems",
    "Problem": "problems",
    "load_taxonomy": "taxonomy",
}
__all__ = [
    "InvalidKnowledge",
    "Problem",
    "entry_digest",
    "load_entry",
    "load_kb",
    "load_taxonomy",
    "write_catalogue",
]


def __getattr__(name: str) -> Any:
    # On first use: a digest should not cost an import of pydantic.
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
