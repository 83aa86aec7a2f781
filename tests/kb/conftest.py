"""One runner for the whole session: a separate server process that has imported torch once."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore = ["test_reproductions.py", "test_runner.py", "test_mutations.py"]


@pytest.fixture(scope="session")
def runner() -> Iterator[object]:
    from faultbook_repro import Runner

    with Runner() as running:
        yield running
