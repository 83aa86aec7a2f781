"""How often an entry was named on real logs, rightly and wrongly: read from what tests/measure.py wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def load(docs: Path) -> dict[str, Any]:
    """docs/measured.json; empty where nothing was measured."""
    path = docs / "measured.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def of(entry: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of one entry, and out of how many; empty for an entry that no log can name."""
    if not found.get("cases") or not entry.get("signatures"):
        return {}
    none = {"labelled": 0, "named": 0, "wrong": 0, "alarms": 0}
    totals = {key: found[key] for key in ("cases", "healthy", "date")}
    mine: dict[str, Any] = found.get("entries", {}).get(entry["slug"], {})
    return none | totals | mine
