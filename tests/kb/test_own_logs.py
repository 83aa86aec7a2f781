"""What the command line says of each entry's own logs: the broken one is that entry, the fixed one is healthy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import faultbook

ROOT = Path(__file__).resolve().parents[2]
CATALOG = faultbook.load_catalog()
BROKEN = sorted((ROOT / "kb").glob("*/*/logs/broken*.log"))
FIXED = sorted((ROOT / "kb").glob("*/*/logs/fixed*.log"))


def name(path: Path) -> str:
    return f"{path.parts[-3]}:{path.stem}"


def answers(slug: str) -> set[str]:
    """The entry itself; for a hub also what it routes to or stands above, because its example has one of its causes."""
    entry: Any = CATALOG.entries[slug]
    fair = {slug}
    if entry["kind"] == "symptom":
        fair |= {route["to"] for route in entry.get("routes") or ()}
        fair |= {other for other, e in CATALOG.entries.items() if slug in e.get("ancestors", ())}
        # and a hub whose example is told more exactly by a hub that routes to it
        fair |= {other for other, e in CATALOG.entries.items() if any(r["to"] == slug for r in e.get("routes") or ())}
    return fair


@pytest.mark.parametrize("path", BROKEN, ids=name)
def test_the_broken_log_is_diagnosed_as_its_entry(path: Path):
    slug = path.parts[-3]
    answer = faultbook.diagnose(path, catalog=CATALOG)
    assert answer.diagnoses, answer.summary
    assert answer.diagnoses[0].entry in answers(slug), [f.entry for f in answer.diagnoses]
    if CATALOG.entries[slug]["kind"] != "noise":
        assert answer.verdict in ("diagnosed", "stopped")


@pytest.mark.parametrize("path", FIXED, ids=name)
def test_the_fixed_log_is_healthy(path: Path):
    answer = faultbook.diagnose(path, catalog=CATALOG)
    assert answer.verdict == "healthy", (answer.summary, [f.entry for f in answer.diagnoses], answer.first_abnormal)
