"""What Slurm's accounting says about the end of a job, as events; the same words elsewhere are none."""

from __future__ import annotations

from pathlib import Path

import pytest

import faultbook
from faultbook.event_patterns import EVENT_PATTERNS
from faultbook.events import matches

HEAD = """JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
"""
ROWS = {
    "time_limit": "4711           pretrain        gpu      lab-a         64    TIMEOUT      0:0 ",
    "preempted": "4711_3         pretrain        gpu      lab-a         64  PREEMPTED      0:0 ",
    "oom_kill_step": "4711.0         pretrain               lab-a         64 OUT_OF_ME+    0:125 ",
    "node_failed": "4711           pretrain        gpu      lab-a         64  NODE_FAIL      0:0 ",
}
PARSABLE = {
    "time_limit": "4711|pretrain|gpu|lab-a|64|TIMEOUT|0:0",
    "preempted": "4711+0.batch|batch||lab-a|64|PREEMPTED|0:0|",
    "oom_kill_step": "4711.extern|extern||lab-a|64|OUT_OF_MEMORY|0:125",
    "cancelled": "4711|pretrain|gpu|lab-a|64|CANCELLED by 1000|0:0",
}
SCONTROL = {
    "time_limit": "   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)",
    "oom_kill_step": "   JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null)",
    "cancelled": "   JobState=CANCELLED Reason=None Dependency=(null)",
}
POD = {
    "oom_killed_pod": "      Reason:       OOMKilled",
    "evicted": "4m11s  Warning  Evicted  pod/train-0  The node was low on resource",
}


@pytest.mark.parametrize(
    ("kind", "row"), [item for table in (ROWS, PARSABLE, SCONTROL, POD) for item in table.items()], ids=lambda v: str(v)[:24]
)
def test_a_state_of_the_accounting_is_an_event(kind: str, row: str):
    assert kind in {EVENT_PATTERNS[index].kind for index, _ in matches(row)}


@pytest.mark.parametrize(
    "line",
    [
        "4711           pretrain        gpu      lab-a         64  COMPLETED      0:0 ",
        "4711           pretrain        gpu      lab-a         64    RUNNING      0:0 ",
        "2026-11-30 12:00:00 INFO  TIMEOUT  600 seconds",
        "12 retries left, TIMEOUT  after 3 s",
        "NCCL_TIMEOUT  1800",
        "| TIMEOUT | 1800 |",
        "error code OUT_OF_MEMORY in cublas",
        "7 requests PREEMPTED  by the scheduler of the engine",
    ],
)
def test_the_same_words_elsewhere_are_no_end_of_a_job(line: str):
    ends = {"time_limit", "preempted", "oom_kill_step", "cancelled", "node_failed"}
    assert not ends & {EVENT_PATTERNS[index].kind for index, _ in matches(line)}


def test_a_log_with_the_accounting_of_a_time_limit_is_stopped():
    log = "".join(f"step={n} loss={1 / (n + 1):.4f}\n" for n in range(50))
    answer = faultbook.diagnose(text=log + HEAD + ROWS["time_limit"] + "\n")
    assert answer.verdict == "stopped"
    assert answer.initiating is not None and answer.initiating.scope == "outside"


POD_DESCRIBED = """Name:         train-worker-3
Namespace:    ml
Node:         gpu-node-7/10.0.0.7
Status:       Failed
Containers:
  trainer:
    State:          Terminated
      Reason:       OOMKilled
      Exit Code:    137
"""
JOB_SHOWN = """JobId=88 JobName=train
   JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null)
   NodeList=node-0 BatchHost=node-0
"""


@pytest.mark.parametrize(
    ("name", "text", "node"), [("pod.txt", POD_DESCRIBED, "gpu-node-7"), ("scontrol.txt", JOB_SHOWN, "node-0")]
)
def test_a_kill_that_only_the_orchestrator_tells_of_names_its_node(tmp_path: Path, name: str, text: str, node: str):
    for rank in (0, 1):
        (tmp_path / f"rank_{rank}.log").write_text(f"[rank{rank}]: world_size=2 rank={rank}\n[rank{rank}]: step=9 loss=1.0\n")
    (tmp_path / name).write_text(text)
    answer = faultbook.diagnose(tmp_path)
    assert answer.verdict != "healthy" and answer.initiating is not None
    assert (answer.initiating.scope, answer.initiating.node) == ("node", node)
    assert "None" not in answer.summary
