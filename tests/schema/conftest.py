"""A knowledge base of the good fixture entries, in a folder of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture
def make_kb(root: Path, tmp_path: Path) -> Callable[..., Path]:
    """`make_kb()` copies the good entries; `make_kb(**{"data/some-slug": folder})` adds more."""

    def make(**more: Path) -> Path:
        kb = tmp_path / "checkout" / "kb"
        shutil.copytree(HERE / "good", kb)
        shutil.copy(root / "kb" / "taxonomy.yaml", kb)
        for place, folder in more.items():
            shutil.copytree(folder, kb / place, ignore=shutil.ignore_patterns("expected.txt"))
        return kb

    return make


@pytest.fixture
def kb(make_kb: Callable[..., Path]) -> Path:
    return make_kb()


@pytest.fixture
def edit(kb: Path) -> Callable[..., Path]:
    """Replaces text in a file of the good knowledge; the text must be there."""

    def change(name: str, old: str, new: str) -> Path:
        path = kb / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        return path

    return change
