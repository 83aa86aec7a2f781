"""The page about the signature language says what the engine does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from faultbook import facts
from faultbook.detectors import DETECTORS
from faultbook.signatures import Role, Test


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return " ".join((root / "docs" / "signature-language.md").read_text("utf-8").split())


@pytest.mark.parametrize("name", get_args(Test))
def test_every_test_is_there_with_its_false_positives(name: str, page: str):
    meaning, found, wrong = " ".join((DETECTORS[name].__doc__ or "").split()).partition("False positives: ")
    assert found and f"| `{name}` | {meaning.strip()} | {wrong.strip()} |" in page


def test_roles_and_virtual_lines_are_there(page: str):
    vocabulary = (facts.__doc__ or "").partition("faultbook-incident")[2]
    fields = set(re.findall(r"\b(\w+)=<", vocabulary)) | set(re.findall(r"\[(\w+)=", vocabulary))
    kinds = set(re.findall(r"(\w+) \(", vocabulary.partition("kinds: ")[2].partition("lost counts")[0]))
    assert {"kind", "wait", "op"} <= fields and {"own_fault", "desync"} <= kinds
    for name in get_args(Role) + tuple(fields - {"kind"}) + tuple(kinds):
        assert f"`{name}`" in page, name
