"""Puts the compiled catalogue into the wheel (and nothing into an editable install, which recompiles on demand)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogueHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        sys.path[:0] = [str(root / "sdk"), str(root / "schema")]
        from faultbook_schema.compiler import write_catalogue

        target = root / "build" / "catalogue"
        for path in write_catalogue(root / "kb", target):
            build_data["force_include"][str(path)] = f"faultbook/_catalogue/{path.name}"
