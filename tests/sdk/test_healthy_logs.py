"""No alarm on healthy logs; an honest answer on failed ones (real logs, where they are at hand)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faultbook import diagnose


def manifest(shared: Path, status: str) -> list[Path]:
    rows = [json.loads(line) for line in (shared / "logs" / "manifest.jsonl").read_text("utf-8").splitlines()]
    return [shared / "logs" / row["file"] for row in rows if (row["status"] == "healthy") == (status == "healthy")]


def test_no_alarm_on_healthy_logs(shared: Path):
    alarms = {}
    for path in manifest(shared, "healthy"):
        answer = diagnose(path)
        if answer.verdict in ("diagnosed", "unrecognised"):
            alarms[path.name] = (answer.verdict, [f.entry for f in answer.diagnoses], answer.first_abnormal)
    assert alarms == {}


def test_interrupts_and_time_limits_are_stopped_not_failed(shared: Path):
    stopped = ("interrupt", "timelimit")
    verdicts = {p.name: diagnose(p).verdict for p in manifest(shared, "failed") if any(s in p.name for s in stopped)}
    if not verdicts:
        pytest.skip("no such logs")
    assert set(verdicts.values()) <= {"stopped", "diagnosed"}, verdicts


def test_a_failed_log_is_never_called_healthy(shared: Path):
    assert [p.name for p in manifest(shared, "failed") if diagnose(p).verdict == "healthy"] == []
