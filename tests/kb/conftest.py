"""One runner for the whole session: a separate server process that has imported torch once."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `entries`: importlib mode adds no folder

if importlib.util.find_spec("torch") is None:
    collect_ignore = ["test_reproductions.py", "test_runner.py", "test_verify.py"]


@pytest.fixture(scope="session")
def runner() -> Iterator[object]:
    from faultbook_repro import Runner

    with Runner() as running:
        yield running
