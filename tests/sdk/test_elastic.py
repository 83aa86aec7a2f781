"""Error files of all writers, and the summary blocks of torchelastic."""

# ruff: noqa: E501 - log lines are quoted whole

from __future__ import annotations

import json

import pytest

from faultbook.elastic import pid_ranks, read_error_file, read_summaries
from faultbook.exceptions import Text

STACK = 'Traceback (most recent call last):\n  File "/p/train.py", line 155, in main\n    train()\nValueError: bad record 9\n'
BLOCK = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-03-04_15:34:07
  host      : node-1
  rank      : 8 (local_rank: 0)
  exitcode  : -15 (pid: 31591)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 31591
[2]:
  time      : 2026-03-04_15:34:07
  host      : node-1
  rank      : 10 (local_rank: 2)
  exitcode  : -15 (pid: 31593)  (SIGTERM)
  error_file: /tmp/x/attempt_0/2/error.json
  traceback : Traceback (most recent call last):
    File "/p/train.py", line 107, in train
      loss.backward()
  RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1
  
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-04_15:34:06
  host      : node-1
  rank      : 9 (local_rank: 1)
  exitcode  : 1 (pid: 31592) 
  error_file: /logs/run7_ab12/attempt_0/1/error.json
  traceback : Traceback (most recent call last):
    File "/p/train.py", line 90, in train
      batch = next(it)
  ValueError: bad record 9
  
============================================================
"""


def texts(text: str) -> list[Text]:
    return [Text(n, line) for n, line in enumerate(text.splitlines(), 1)]


@pytest.mark.parametrize("data", [
    {"message": {"message": "ValueError: bad record 9", "extraInfo": {"py_callstack": STACK, "timestamp": "1796052847"}}},
    {"message": {"message": "ValueError: bad record 9", "extraInfo": {"py_callstack": STACK, "timestamp": 1796052847}}},
    {"message": STACK, "timestamp": 1796052847},
    {"message": "ValueError: bad record 9", "py_callstack": STACK, "timestamp": "1796052847.25"},
])
def test_error_files_of_all_writers(data: object) -> None:
    found = read_error_file(json.dumps(data))
    assert found is not None and found.raised is not None
    assert found.timestamp == 1796052847
    assert (found.raised.cause.type, found.raised.cause.message) == ("ValueError", "bad record 9")
    assert found.raised.origin == "error_json"
    assert found.raised.cause.user_frame is not None


def test_a_plain_message_still_gives_the_type() -> None:
    found = read_error_file('{"message": "SignalException: Process 7 got signal: 15"}')
    assert found is not None and found.raised is not None
    assert found.raised.cause.type == "SignalException"


@pytest.mark.parametrize("text", ["", "not json", "[]", "{}", '{"message": {}}', '"text"', "[" * 100_000])
def test_what_is_no_error_file(text: str) -> None:
    assert read_error_file(text) is None


def test_a_summary_block() -> None:
    (block,) = read_summaries(texts("noise\n" + BLOCK + "more\n"), source=3)
    assert [(f.rank, f.local_rank, f.exitcode, f.pid, f.host) for f in block.failures] == [
        (8, 0, -15, 31591, "node-1"), (10, 2, -15, 31593, "node-1"), (9, 1, 1, 31592, "node-1")]
    assert block.root is not None and block.root.rank == 9
    assert [f.told_to_stop for f in block.failures] == [True, True, False]
    assert block.failures[1].raised is not None and block.failures[1].raised.kind == "communication"
    assert block.root.raised is not None and block.root.raised.cause.message == "bad record 9"
    assert block.root.error_file == "/logs/run7_ab12/attempt_0/1/error.json"
    assert block.failures[0].error_file is None
    assert (block.source, block.first) == (3, 3)


def test_several_blocks_in_one_log_and_the_pid_map() -> None:
    second = BLOCK.replace("node-1", "node-0").replace("rank      : 8 ", "rank      : 0 ").replace("rank      : 9 ", "rank      : 1 ")
    second = second.replace("rank      : 10 ", "rank      : 2 ").replace("3159", "4159")
    blocks = read_summaries(texts(BLOCK + second), 0)
    assert [b.root.rank if b.root else None for b in blocks] == [9, 1]
    assert pid_ranks(blocks) == {31591: 8, 31592: 9, 31593: 10, 41591: 0, 41592: 1, 41593: 2}


def test_a_block_with_no_other_failures_and_one_that_is_cut() -> None:
    only = BLOCK[: BLOCK.index("[1]:")] + "  <NO_OTHER_FAILURES>\n" + BLOCK[BLOCK.index("-----", BLOCK.index("[2]:")):]
    (block,) = read_summaries(texts(only), 0)
    assert [f.rank for f in block.failures] == [9]
    (cut,) = read_summaries(texts(BLOCK[: BLOCK.index("Root Cause")]), 0)
    assert [f.rank for f in cut.failures] == [8, 10]
    assert cut.root is None


def test_text_that_only_says_failed_is_no_block() -> None:
    assert read_summaries(texts("test_x FAILED\nFailures:\nsomething\nelse\n" * 5), 0) == []
