"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real logs and labelled cases that are not part of the project; skips where absent."""
    path = Path(os.environ.get("FAULTBOOK_SHARED", ROOT.parent / "shared"))
    if not (path / "cases").is_dir():
        pytest.skip("no shared data set beside this checkout")
    return path
