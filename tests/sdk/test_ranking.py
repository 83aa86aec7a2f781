"""Which of several entries that hold is the answer: hubs against their causes."""

from __future__ import annotations

from typing import Any

import pytest

from faultbook import ranking
from faultbook.catalog import Catalog
from faultbook.matching import Observation
from faultbook.model import Initiating
from faultbook.ranking import Match
from faultbook.signatures import LogSignature, Pattern

GUILTY = Initiating("rank", 2, None, "", "medium")


def catalog(*entries: dict[str, Any]) -> Catalog:
    return Catalog("", {e["slug"]: {"title": e["slug"], **e} for e in entries}, (), "")


HUB = {"slug": "hub", "kind": "symptom", "ancestors": []}
CAUSE = {"slug": "cause", "kind": "cause", "ancestors": ["hub"]}
OTHER = {"slug": "other", "kind": "cause", "ancestors": []}
LAUNCHER = {"slug": "launcher", "kind": "symptom", "ancestors": []}


def match(entry: str, role: str, line: int, rank: int = 2, source: int = 0) -> Match:
    signature = LogSignature(kind="log", id="x", role=role, all=(Pattern(pattern=entry),))  # type: ignore[arg-type]
    return Match(entry, signature, rank, 0, (Observation(source, line, entry, rank=rank),), True)


def order(*matches: Match) -> list[str]:
    book = catalog(HUB, CAUSE, OTHER, LAUNCHER)
    explaining, _ = ranking.candidates(matches, book, GUILTY)
    return [c.slug for c in ranking.ordered(explaining, book)]


@pytest.mark.parametrize("rank", [2, 0])
def test_a_hub_goes_behind_its_cause_at_equal_strength(rank: int) -> None:
    """Also where the hub's evidence comes first, and where the cause's telling line is a victim's."""
    assert order(match("hub", "cascade", 1, source=-1), match("cause", "cascade", 900, rank)) == ["cause", "hub"]


def test_a_weaker_cause_does_not_displace_the_hub() -> None:
    assert order(match("hub", "cascade", 1), match("cause", "teardown", 900)) == ["hub", "cause"]


def test_a_hub_does_not_go_behind_a_stranger() -> None:
    assert order(match("hub", "cascade", 1), match("other", "cascade", 900)) == ["hub", "other"]


def test_what_a_hub_confirms_is_no_cause() -> None:
    """A launcher's summary comes after the finding on the ranks, although its block is a confirmation."""
    assert order(match("hub", "cascade", 1, source=-1), match("launcher", "confirmation", 40)) == ["hub", "launcher"]
    assert order(match("other", "root", 90), match("launcher", "confirmation", 40)) == ["other", "launcher"]
    assert order(match("other", "cascade", 1), match("cause", "confirmation", 40)) == ["cause", "other"]
