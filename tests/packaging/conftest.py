"""The wheel as it is released, built once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EPOCH = "1767225600"


@pytest.fixture(scope="session")
def build() -> Callable[..., Path]:
    """`build(source, target, "--wheel")`: the one file that was built, with this environment's hatchling."""

    def make(source: Path, target: Path, what: str) -> Path:
        done = subprocess.run(
            [sys.executable, "-m", "build", what, "--no-isolation", "--outdir", str(target), str(source)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        (path,) = (p for p in target.iterdir() if p.suffix == (".whl" if what == "--wheel" else ".gz"))
        return path

    return make


@pytest.fixture(scope="session")
def snapshot(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout as it is now: somebody who edits while the tests run is no irreproducible build."""
    target = tmp_path_factory.mktemp("snapshot") / "faultbook"
    made = (".git", ".venv", "node_modules", "site", "build", "dist", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(root, target, ignore=shutil.ignore_patterns(*made), symlinks=True)
    return target


@pytest.fixture(scope="session")
def wheel(snapshot: Path, tmp_path_factory: pytest.TempPathFactory, build: Callable[..., Path]) -> Path:
    return build(snapshot, tmp_path_factory.mktemp("wheel"), "--wheel")
