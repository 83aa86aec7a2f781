"""Faultbook: name the failure that broke a training run, and the rank it started on.

>>> import faultbook
>>> faultbook.diagnose(text="RuntimeError: CUDA out of memory ...").verdict  # doctest: +SKIP
'diagnosed'

Importing this package costs next to nothing: the engine is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .catalog import Catalog, load_catalog
    from .diagnosis import diagnose
    from .model import Diagnosis

__version__ = "0.1.0"
__all__ = ["Catalog", "Diagnosis", "__version__", "diagnose", "load_catalog"]

_HOME = {"diagnose": "diagnosis", "load_catalog": "catalog", "Catalog": "catalog", "Diagnosis": "model"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
