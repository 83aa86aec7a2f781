"""Each folder of bad/ is an entry with faults; expected.txt holds exactly what `faultbook check` says of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from faultbook_schema.check import check
from faultbook_schema.loader import load_kb
from faultbook_schema.problems import CODES

CASES = sorted((Path(__file__).parent / "bad").iterdir())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_entry(case: Path, make_kb: Callable[..., Path]) -> None:
    expected = (case / "expected.txt").read_text(encoding="utf-8").splitlines()
    assert expected, "a bad entry has at least one problem"
    place = expected[0].split("/")[1]
    kb = make_kb(**{f"{place}/{case.name}": case})
    problems = check(kb, [kb / place / case.name]).problems
    # The short cases have no schema comment, cite one source and copy a good entry; only cases about that say so.
    said = {line.rpartition("[")[2].rstrip("]") for line in expected}
    problems = tuple(p for p in problems if p.code not in {"layout", "references", "confusion"} - said)
    assert [f"{p} [{p.code}]" for p in problems] == expected
    assert {p.code for p in problems} <= set(CODES)


def test_there_are_many() -> None:
    assert len(CASES) >= 50
    told = [(case / "expected.txt").read_text(encoding="utf-8").count("\n") for case in CASES]
    assert told.count(1) >= 45, "one fault, one line"


def test_the_good_ones_have_no_problem(kb: Path) -> None:
    knowledge = load_kb(kb)
    assert knowledge.problems == ()
    assert {type(item.entry).__name__ for item in knowledge.loaded} == {
        "CauseEntry",
        "SymptomEntry",
        "NoiseEntry",
    }


def test_every_code_is_explained_and_used(root: Path) -> None:
    """A code that no source emits would be a promise nobody keeps."""
    sources = "".join(p.read_text() for p in (root / "schema" / "faultbook_schema").glob("*.py") if p.name != "problems.py")
    assert [code for code in CODES if f'"{code}"' not in sources] == []
