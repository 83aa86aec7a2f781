"""Stacks of running processes: py-spy's and faulthandler's forms, and what they decide about a hang."""

from __future__ import annotations

from pathlib import Path

from faultbook import diagnose, stacks

SPY = """Process 4242: python -u train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4242 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2810)
    reduce_metrics (train.py:88)
    main (train.py:120)
    <module> (train.py:140)
Thread 4300 (idle): "QueueFeederThread"
    wait (threading.py:320)
"""
HANDLER = """pid 77 rank 1 argv train.py
Current thread 0x00007ff203f856c0 (most recent call first):
  File "hook.py", line 35 in dump

Thread 0x00007ff2049e4b80 (most recent call first):
  File "train.py", line 61 in rebuild_index
  File "train.py", line 120 in main
"""


def lines(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.splitlines(), 1))


def test_py_spy_main_thread_innermost_frame_and_pid():
    (stack,) = stacks.read(lines(SPY), 0)
    assert (stack.kind, stack.process, stack.rank) == ("stack", 4242, None)
    assert [f.function for f in stack.cause.frames] == ["<module>", "main", "reduce_metrics", "all_reduce"]
    assert stack.cause.user_frame.function == "reduce_metrics"
    assert stack.cause.collective == "all_reduce"


def test_faulthandler_form_with_its_rank():
    (stack,) = stacks.read(lines(HANDLER), 0)
    assert stack.rank == 1
    assert stack.cause.user_frame.function == "rebuild_index"


def test_the_rank_outside_the_collective_started_the_hang(tmp_path: Path):
    (tmp_path / "rank_0.log").write_text("step=1 loss=0.5\nstep=2 loss=0.4\n")
    (tmp_path / "rank_1.log").write_text("step=1 loss=0.5\nstep=2 loss=0.4\n")
    (tmp_path / "stacks").mkdir()
    waiting = "pid 76 rank 0 argv train.py\n" + SPY.split("\n", 2)[2]
    (tmp_path / "stacks" / "rank_0.txt").write_text(waiting)
    (tmp_path / "stacks" / "rank_1.txt").write_text(HANDLER)
    answer = diagnose(tmp_path, stalled=600)
    assert answer.initiating is not None
    assert (answer.initiating.scope, answer.initiating.rank) == ("rank", 1)
    assert "rebuild_index" in answer.initiating.basis


def test_a_stalled_job_without_any_evidence_is_unknown_not_healthy(tmp_path: Path):
    log = tmp_path / "a.log"
    log.write_text("[rank0]: step=1 loss=0.5\n[rank1]: step=1 loss=0.5\n")
    answer = diagnose(log, stalled=900)
    assert answer.verdict in ("diagnosed", "unrecognised")
    assert answer.initiating is not None and answer.initiating.scope == "unknown"
