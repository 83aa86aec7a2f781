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


Part = tuple[dict[str, Any], dict[str, Any]]


def part(slug: str, pattern: str, literal: str, category: str = "scheduler", role: str = "root") -> Part:
    entry = {"slug": slug, "kind": "cause", "title": slug, "category": category, "visibility": "loud", "ancestors": []}
    row = {
        "entry": slug, "kind": "log", "id": "x", "role": role,
        "all": [{"pattern": pattern, "literals": [literal]}],
    }  # fmt: skip
    return entry, row


def book(slug: str, pattern: str, literal: str) -> Catalog:
    return bound(part(slug, pattern, literal))


def bound(*parts: Part) -> Catalog:
    return Catalog("", {entry["slug"]: entry for entry, _ in parts}, tuple(row for _, row in parts), "")


def test_an_entry_whose_line_is_the_stop_leaves_the_verdict_stopped() -> None:
    answer = diagnose(text=LOG, catalog=book("preempted", r"DUE TO PREEMPTION", "due to preemption"))
    assert answer.verdict == "stopped"
    assert [(f.entry, f.role) for f in answer.diagnoses] == [("preempted", "primary")]


def test_another_fault_before_the_stop_is_diagnosed() -> None:
    log = LOG.replace("slurmstepd", "RuntimeError: the sampler ran dry\nslurmstepd")
    answer = diagnose(text=log, catalog=book("dry", r"the sampler ran dry", "the sampler ran dry"))
    assert answer.verdict == "diagnosed"


def test_the_end_of_a_job_that_hung_comes_after_the_hang() -> None:
    steps = "".join(f"[rank0]: 2026-11-30 12:00:{n:02d} step={n} loss=2.{n:04d}\n" for n in range(1, 30))
    end = "slurmstepd: error: *** JOB 37361369 ON node-0 CANCELLED AT {} DUE TO PREEMPTION ***\n"
    both = bound(
        part("preempted", r"DUE TO PREEMPTION", "due to preemption"),
        part("hang", r"faultbook-incident kind=hang ", "faultbook-incident kind=hang ", "distributed", "cascade"),
    )
    moving = diagnose(text=steps + end.format("2026-11-30T12:00:30"), catalog=both)
    assert (moving.verdict, moving.diagnoses[0].entry) == ("stopped", "preempted")
    hung = diagnose(text=steps + end.format("2026-11-30T18:00:00"), catalog=both)
    assert hung.verdict == "diagnosed"
    assert [(f.entry, f.role) for f in hung.diagnoses] == [("hang", "primary"), ("preempted", "collateral")]


def test_a_keyboard_interrupt_whose_traceback_is_cut_off_is_a_stop() -> None:
    log = '  File "train.py", line 40, in step\n    loss.item()\nKeyboardInterrupt\n'
    assert diagnose(text=log, catalog=bound()).verdict == "stopped"
    assert diagnose(text="RuntimeError: mine\n" + log.replace("KeyboardInterrupt", "x"), catalog=bound()).verdict != "stopped"


def test_a_node_that_was_perhaps_preempted_is_no_preemption() -> None:
    said = "Task failed because the node is dead. This can happen if the node was preempted, or its raylet crashed.\n"
    assert diagnose(text=said, catalog=bound()).verdict != "stopped"
    assert diagnose(text="the node was preempted\n", catalog=bound()).verdict == "stopped"


def test_a_noise_line_of_a_cause_does_not_name_it() -> None:
    noisy = part("out-of-memory", r"this is not a failure", "this is not a failure", "memory", "noise")
    answer = diagnose(text="allocator: this is not a failure\nstep=1 loss=2.1\nstep=2 loss=2.0\n", catalog=bound(noisy))
    assert (answer.verdict, answer.diagnoses) == ("inconclusive", ())
