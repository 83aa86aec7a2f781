"""An end from outside that an entry names as its cause is still an end from outside."""

from __future__ import annotations

from typing import Any

from faultbook import diagnose
from faultbook.catalog import Catalog

LOG = """\
2026-11-30 12:00:01 step=1 loss=2.1000
2026-11-30 12:00:02 step=2 loss=2.0000
2026-11-30 12:00:03 step=3 loss=1.9000
slurmstepd: error: *** JOB 37361369 ON node-0 CANCELLED AT 2026-11-30T12:00:04 DUE TO PREEMPTION ***
"""


def book(slug: str, pattern: str, literal: str) -> Catalog:
    entry: dict[str, Any] = {"slug": slug, "kind": "cause", "title": slug, "category": "scheduler", "ancestors": []}
    row = {
        "entry": slug, "kind": "log", "id": "x", "role": "root",
        "all": [{"pattern": pattern, "literals": [literal]}],
    }  # fmt: skip
    return Catalog("", {slug: entry}, (row,), "")


def test_an_entry_whose_line_is_the_stop_leaves_the_verdict_stopped() -> None:
    answer = diagnose(text=LOG, catalog=book("preempted", r"DUE TO PREEMPTION", "due to preemption"))
    assert answer.verdict == "stopped"
    assert [(f.entry, f.role) for f in answer.diagnoses] == [("preempted", "primary")]


def test_another_fault_before_the_stop_is_diagnosed() -> None:
    log = LOG.replace("slurmstepd", "RuntimeError: the sampler ran dry\nslurmstepd")
    answer = diagnose(text=log, catalog=book("dry", r"the sampler ran dry", "the sampler ran dry"))
    assert answer.verdict == "diagnosed"
