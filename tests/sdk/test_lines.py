"""One test for each form of prefix: rank, local rank, host, process, time, and what is left.

The lines are our own, in the layouts that the programs print. Longer than other files: most of it is that one table.
"""

from __future__ import annotations

import time
from calendar import timegm
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultbook.lines import elapsed, parse, split_glued, strip_ansi
from faultbook.model import Line
from faultbook.prefixes import FACTS, PREFIXES
from faultbook.rankmap import rank_map, task_list, task_ranks

ESC = "\x1b"
JUNE6 = (31 + 29 + 31 + 30 + 31 + 5) * 86400.0  # on a leap year's calendar
STAMP = timegm((2031, 5, 6, 10, 0, 1))

# (line, body, fields); fields that are not given must be empty.
FORMS: list[tuple[str, str, dict[str, Any]]] = [
    # torch
    ("[rank3]: Traceback (most recent call last):", "Traceback (most recent call last):", {"rank": 3}),
    ('[rank0]:   File "train.py", line 3', '  File "train.py", line 3', {"rank": 0}),
    (
        "[rank3]:W0606 07:08:11.344000 31581 torch/_dynamo/convert_frame.py:861] [3/0] hit the limit",
        "[3/0] hit the limit",
        {"rank": 3, "pid": 31581, "level": "WARNING", "time": JUNE6 + 25691.344, "clock": "glog"},
    ),
    (
        "[E ProcessGroupNCCL.cpp:475] [Rank 3] Watchdog caught collective",
        "Watchdog caught collective",
        {"rank": 3, "level": "ERROR"},
    ),
    (
        "[rank8]:[E ProcessGroupNCCL.cpp:523] [Rank 0] Watchdog caught",
        "Watchdog caught",
        {"rank": 8, "level": "ERROR"},
    ),
    (
        "[rank3]:[E606 07:08:11.123456789 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught",
        "Watchdog caught",
        {"rank": 3, "level": "ERROR", "time": JUNE6 + 25691.123456789, "clock": "glog"},
    ),
    (
        "[E1206 07:08:11.123456789 ProcessGroupNCCL.cpp:616] text",
        "text",
        {"level": "ERROR", "time": (335 + 5) * 86400 + 25691.123456789, "clock": "glog"},
    ),
    ("[PG 0 Rank 3] text", "text", {"rank": 3}),
    ("[PG 0 (default_pg) Rank 3] text", "text", {"rank": 3}),
    ("[PG ID 0 PG GUID 0(default_pg) Rank 3] text", "text", {"rank": 3}),
    ("[PG ID 1 PG GUID 9 Rank 0] text", "text", {"group_rank": 0}),
    ("[PG ID 2 PG GUID 31(tp_group) Rank 1] text", "text", {"group_rank": 1}),
    (
        "[rank8]:[E606 07:08:11.000000000 ProcessGroupNCCL.cpp:616] [PG ID 11 PG GUID 31 Rank 0] text",
        "text",
        {"rank": 8, "group_rank": 0, "level": "ERROR", "time": JUNE6 + 25691, "clock": "glog"},
    ),
    (
        "W0606 07:08:11.212000 31581 torch/distributed/elastic/multiprocessing/api.py:858] Sending process 3788",
        "Sending process 3788",
        {"pid": 31581, "level": "WARNING", "time": JUNE6 + 25691.212, "clock": "glog"},
    ),
    (
        "W0606 07:08:11.212000 140312345678901 torch/distributed/run.py:793] text",
        "text",
        {"level": "WARNING", "time": JUNE6 + 25691.212, "clock": "glog"},
    ),
    (
        "E0606 07:08:11.412000 31581 torch/x/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 3789) of binary: py",
        "failed (exitcode: -9) local_rank: 1 (pid: 3789) of binary: py",
        {"local_rank": 1, "pid": 3789, "level": "ERROR", "time": JUNE6 + 25691.412, "clock": "glog"},
    ),
    (
        "[2031-05-06 10:00:01,500] torch.distributed.elastic.multiprocessing.api: [ERROR] failed",
        "failed",
        {"level": "ERROR", "time": STAMP + 0.5, "clock": "local"},
    ),
    ("ERROR:torch.distributed.elastic.multiprocessing.api:failed", "failed", {"level": "ERROR"}),
    ("[INFO] 2031-05-06 10:00:01,500 run: text", "run: text", {"level": "INFO", "time": STAMP + 0.5, "clock": "local"}),
    ("  rank      : 8 (local_rank: 0)", "  rank      : 8 (local_rank: 0)", {"rank": 8, "local_rank": 0}),
    ("  exitcode  : -15 (pid: 31591)", "  exitcode  : -15 (pid: 31591)", {"pid": 31591}),
    ("  host      : node-1", "  host      : node-1", {"host": "node-1"}),
    # tee and what stacks
    ("[default3]:text", "text", {"local_rank": 3}),
    ("[trainer0|0]:text", "text", {"local_rank": 0}),
    ("[default1]:[rank9]: RuntimeError: x", "RuntimeError: x", {"rank": 9, "local_rank": 1}),
    ("i.pretrain/0 [default2]:[rank2]: text", "text", {"rank": 2, "local_rank": 2}),
    ("[layer3]: text", "[layer3]: text", {}),
    ("[0]: text", "[0]: text", {}),
    # Slurm
    ("15: [rank15]: AssertionError", "AssertionError", {"rank": 15, "task": 15}),
    (" 2: [rank18]:   File x", "  File x", {"rank": 18, "task": 2}),
    (
        "1: node-1:4827:6900 [4] enqueue.cc:99 NCCL WARN x",
        "enqueue.cc:99 NCCL WARN x",
        {"task": 1, "host": "node-1", "pid": 4827, "device": 4, "stream": "nccl"},
    ),
    (
        "2: node-1.nolog [stderr] [rank18]:[E606 07:08:11.000000000 ProcessGroupNCCL.cpp:616] x",
        "x",
        {
            "task": 2,
            "host": "node-1",
            "stream": "stderr",
            "rank": 18,
            "level": "ERROR",
            "time": JUNE6 + 25691,
            "clock": "glog@node-1",
        },
    ),
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=88.0.",
        "error: Detected 1 oom_kill event in StepId=88.0.",
        {"stream": "scheduler"},
    ),
    (
        "slurmstepd-node-0: error: Detected 1 oom-kill event(s) in StepId=88.batch cgroup.",
        "error: Detected 1 oom-kill event(s) in StepId=88.batch cgroup.",
        {"stream": "scheduler", "host": "node-0"},
    ),
    (
        "slurmstepd: error: *** STEP 88.0 ON node-0 CANCELLED AT 2031-05-06T10:00:01 DUE TO TIME LIMIT ***",
        "error: *** STEP 88.0 ON node-0 CANCELLED AT 2031-05-06T10:00:01 DUE TO TIME LIMIT ***",
        {"stream": "scheduler", "host": "node-0"},
    ),
    (
        "srun: error: node-0: task 3: Out Of Memory",
        "srun: error: node-0: task 3: Out Of Memory",
        {"stream": "scheduler", "host": "node-0", "task": 3},
    ),
    (
        "srun: error: node-1: tasks 2,4-5,7: Killed",
        "srun: error: node-1: tasks 2,4-5,7: Killed",
        {"stream": "scheduler", "host": "node-1"},
    ),
    # Ray
    ("(WorkerDict pid=39435) [rank0]: text", "text", {"rank": 0, "pid": 39435}),
    ("(RayWorkerWrapper pid=922, ip=10.0.0.7) text", "text", {"pid": 922, "host": "10.0.0.7"}),
    ("(ActorWorker(actor_train-1) pid=77, ip=10.0.0.7) text", "text", {"pid": 77, "host": "10.0.0.7"}),
    ("(raylet) text", "text", {}),
    ("(raylet, ip=10.0.0.7) text", "text", {"host": "10.0.0.7"}),
    ("(pid=77) text", "text", {"pid": 77}),
    (
        f"{ESC}[36m(WorkerDict pid=7){ESC}[0m text [repeated 4x across cluster]",
        "text",
        {"pid": 7, "folded": 4},
    ),
    ("[36m(WorkerDict pid=7)[0m text", "text", {"pid": 7}),
    # DeepSpeed
    (
        "[2031-05-06 10:00:01,500] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 45098",
        "Killing subprocess 45098",
        {"level": "INFO", "time": STAMP + 0.5, "clock": "local"},
    ),
    (
        "[2031-05-06 10:00:01,500] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', "
        "'--local_rank=1', '--x'] exits with return code = -7",
        "['/usr/bin/python3', '-u', 'train.py', '--local_rank=1', '--x'] exits with return code = -7",
        {"local_rank": 1, "level": "ERROR", "time": STAMP + 0.5, "clock": "local"},
    ),
    (
        "[2031-05-06 10:00:01,500] [INFO] [logging.py:96:log_dist] [Rank 0] step=10",
        "step=10",
        {"rank": 0, "level": "INFO", "time": STAMP + 0.5, "clock": "local"},
    ),
    ("node-0: Traceback (most recent call last):", "Traceback (most recent call last):", {"host": "node-0"}),
    ("10.0.0.1: │ /app/train.py:88 in <module> │", "│ /app/train.py:88 in <module> │", {"host": "10.0.0.1"}),
    # MPI
    ("[1,23]<stderr>:text", "text", {"rank": 23, "stream": "stderr"}),
    (
        "mpirun noticed that process rank 7 with PID 411 on node node-2 exited on signal 9 (Killed).",
        "mpirun noticed that process rank 7 with PID 411 on node node-2 exited on signal 9 (Killed).",
        {"rank": 7, "pid": 411, "host": "node-2"},
    ),
    ("  Process name: [[29973,1],5]", "  Process name: [[29973,1],5]", {"rank": 5}),
    ("[node-3:04288] *** Process received signal ***", "*** Process received signal ***", {"host": "node-3", "pid": 4288}),
    ("[node-3:4288 :0:4521] Caught signal 11", "Caught signal 11", {"host": "node-3", "pid": 4288}),
    ("[dltrainer.py:209] INFO text", "INFO text", {}),
    # other launchers
    (
        "[2031-05-06T10:00:01.726901Z] fa88a9df [rank=2] || Traceback",
        "Traceback",
        {"rank": 2, "time": STAMP + 0.726901, "clock": "utc"},
    ),
    (
        "2031-05-06 10:00:01,379: rank1[10034][MainThread]: DEBUG: composer.utils.dist: Initializing torch.dist: "
        "global_rank=1, local_rank=1, world_size=2",
        "composer.utils.dist: Initializing torch.dist: global_rank=1, local_rank=1, world_size=2",
        {"rank": 1, "local_rank": 1, "pid": 10034, "level": "DEBUG", "time": STAMP + 0.379, "clock": "local"},
    ),
    (
        "ERROR:composer.cli.launcher:Rank 1 crashed with exit code 1.",
        "Rank 1 crashed with exit code 1.",
        {"rank": 1, "level": "ERROR"},
    ),
    ("stderr: WARNING:torch.distributed.elastic:text", "text", {"stream": "stderr", "level": "WARNING"}),
    (
        "Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/8",
        "Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/8",
        {"rank": 3},
    ),
    ("LOCAL_RANK: 2 - CUDA_VISIBLE_DEVICES: [0,1,2]", "LOCAL_RANK: 2 - CUDA_VISIBLE_DEVICES: [0,1,2]", {"local_rank": 2}),
    ("[rank: 3] Seed set to 42", "Seed set to 42", {"rank": 3}),
    (
        "AssertionError: Rank 3: found NaN in local grad norm. Device: 3, node: node-0",
        "AssertionError: Rank 3: found NaN in local grad norm. Device: 3, node: node-0",
        {"rank": 3, "device": 3, "host": "node-0"},
    ),
    (
        "Rank 2, node node-0, device 2, iteration 40: Unexpected result nan",
        "Rank 2, node node-0, device 2, iteration 40: Unexpected result nan",
        {"rank": 2, "device": 2, "host": "node-0"},
    ),
    (
        "2031-05-06 10:00:01.460\tbig-host-03:5\tolmo.train:98\tINFO\ttext",
        "text",
        {"local_rank": 5, "host": "big-host-03", "level": "INFO", "time": STAMP + 0.46, "clock": "local@big-host-03"},
    ),
    # serving
    (
        "[2031-05-06 10:00:01 DP1 TP2] Decode batch. x",
        "Decode batch. x",
        {"coordinates": {"dp": 1, "tp": 2}, "time": STAMP, "clock": "local"},
    ),
    (
        "(EngineCore_DP1 pid=70) ERROR 06-06 07:08:11 [core.py:866] text",
        "text",
        {"pid": 70, "coordinates": {"dp": 1}, "level": "ERROR", "time": JUNE6 + 25691, "clock": "month-day"},
    ),
    ("(VllmWorker TP0 pid=71) text", "text", {"pid": 71, "coordinates": {"tp": 0}}),
    ("(Worker_TP3 pid=72) text", "text", {"pid": 72, "coordinates": {"tp": 3}}),
    ("vllm-1  | text", "text", {}),
    # JAX, TensorFlow
    (
        "I0606 07:08:11.451247 140641718562816 trainer.py:501] step 198",
        "step 198",
        {"level": "INFO", "time": JUNE6 + 25691.451247, "clock": "glog"},
    ),
    (
        "2031-05-06 10:00:01.140058: E external/tsl/coordination_service.cc:954] /job:jax_worker/replica:0/task:37 has "
        "been set to ERROR",
        "/job:jax_worker/replica:0/task:37 has been set to ERROR",
        {"coordinates": {"process": 37}, "level": "ERROR", "time": STAMP + 0.140058, "clock": "local"},
    ),
    (
        "OOM when allocating on /job:localhost/replica:0/task:0/device:GPU:0",
        "OOM when allocating on /job:localhost/replica:0/task:0/device:GPU:0",
        {},
    ),
    # user forms
    (
        "[RANK 1] 2031-05-06 10:00:01,500 [ERROR] text",
        "text",
        {"rank": 1, "level": "ERROR", "time": STAMP + 0.5, "clock": "local"},
    ),
    ("[80746] [rank0]:text", "text", {"rank": 0, "pid": 80746}),
    (
        "run.node-0.nolog [stderr] [rank3]:text",
        "text",
        {"rank": 3, "host": "node-0", "stream": "stderr"},
    ),
    ("2031-05-06T10:00:01.681Z [rank7]:text", "text", {"rank": 7, "time": STAMP + 0.681, "clock": "utc"}),
    ("2031-05-06T12:00:01+02:00 text", "text", {"time": STAMP, "clock": "utc"}),
    ("anything the collector adds > [rank7]: text", "text", {"rank": 7}),
    ("[GPU2] text", "text", {"device": 2}),
    # NCCL, kernel, orchestrators
    (
        "node-0:4288:4521 [1] NCCL INFO text",
        "NCCL INFO text",
        {"host": "node-0", "pid": 4288, "device": 1, "stream": "nccl"},
    ),
    (
        "[2031-05-06 10:00:01] node-0:774:854 [0] transport/shm.cc:590 NCCL WARN text",
        "transport/shm.cc:590 NCCL WARN text",
        {"host": "node-0", "pid": 774, "device": 0, "stream": "nccl", "time": STAMP, "clock": "local@node-0"},
    ),
    (
        "[ 1843.308145] NVRM: Xid (PCI:0000:b3:00): 79, pid=4288, name=python3, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:b3:00): 79, pid=4288, name=python3, GPU has fallen off the bus.",
        {"pid": 4288, "stream": "kernel", "time": 1843.308145, "clock": "boot"},
    ),
    (
        "[Tue May  6 10:00:01 2031] Out of memory: Killed process 4288 (python3) total-vm:1kB",
        "Out of memory: Killed process 4288 (python3) total-vm:1kB",
        {"pid": 4288, "stream": "kernel", "time": STAMP, "clock": "local"},
    ),
    (
        "node-7: kern: warning: [2031-05-06T10:00:01.29Z]: NVRM: text",
        "NVRM: text",
        {"host": "node-7", "stream": "kernel", "time": STAMP + 0.29, "clock": "utc@node-7"},
    ),
    (
        "Jun  6 07:08:11 node-0 trainer[394]: text",
        "text",
        {"host": "node-0", "time": JUNE6 + 25691, "clock": "syslog@node-0"},
    ),
    (
        "Jun 06 07:08:11 node-0 kernel: text",
        "text",
        {"host": "node-0", "stream": "kernel", "time": JUNE6 + 25691, "clock": "syslog@node-0"},
    ),
    (
        "4m11s  Warning  Evicted  pod/train-0  The node was low on resource: memory.",
        "4m11s  Warning  Evicted  pod/train-0  The node was low on resource: memory.",
        {"host": "train-0", "stream": "scheduler"},
    ),
    ("[pod/train-1/pytorch] text", "text", {"host": "train-1"}),
    ("2031-05-06T10:00:01.5Z stderr F text", "text", {"stream": "stderr", "time": STAMP + 0.5, "clock": "utc"}),
    # loggers
    (
        "2031-05-06 10:00:01.500 | INFO     | app.main:run:12 - text",
        "text",
        {"level": "INFO", "time": STAMP + 0.5, "clock": "local"},
    ),
    ("2031-05-06 10:00:01,500 - app - WARNING - text", "text", {"level": "WARNING", "time": STAMP + 0.5, "clock": "local"}),
    ("05/06/2031 10:00:01 - INFO - __main__ - text", "__main__ - text", {"level": "INFO", "time": STAMP, "clock": "local"}),
    ("[06/06 07:08:11 d2.utils.events]: text", "text", {"time": JUNE6 + 25691, "clock": "month-day"}),
    *[
        (
            f"train-worker-3   0/1   {state}   0   19h",
            f"train-worker-3   0/1   {state}   0   19h",
            {"host": "train-worker-3", "stream": "scheduler"},
        )
        for state in ("Evicted", "OOMKilled", "CrashLoopBackOff")
    ],
    # rarer rows
    ("[2031-05-06T10:00:01Z] fa88a9df || text", "text", {"time": STAMP, "clock": "utc"}),
    (
        "[1900000000.250000] [node-0:4288 :0] text",
        "text",
        {"host": "node-0", "pid": 4288, "time": 1.9e9 + 0.25, "clock": "unix@node-0"},
    ),
    ("[local_rank 2] text", "text", {"local_rank": 2}),
    ("06-06 07:08:11.500 text", "text", {"time": JUNE6 + 25691.5, "clock": "month-day"}),
    (
        "2031-05-06T10:00:01Z node-4 kernel: text",
        "text",
        {"host": "node-4", "stream": "kernel", "time": STAMP, "clock": "utc@node-4"},
    ),
    ("| distributed init (rank 3): tcp://localhost:1", "| distributed init (rank 3): tcp://localhost:1", {"rank": 3}),
    ("WARNING: text", "text", {"level": "WARNING"}),
    (
        "slurmstepd: error: *** JOB 88 ON node-0 CANCELLED AT 2031-05-06T10:00:01 ***",
        "error: *** JOB 88 ON node-0 CANCELLED AT 2031-05-06T10:00:01 ***",
        {"stream": "scheduler", "host": "node-0"},
    ),
    # nothing
    ("", "", {}),
    ("plain text", "plain text", {}),
    ("ValueError: bad value", "ValueError: bad value", {}),
    ("step2: done", "step2: done", {}),
    ("100: not a number", "not a number", {"task": 100}),
    ("2: 519.797913, 519.720886 avg loss, 0.0 rate", "2: 519.797913, 519.720886 avg loss, 0.0 rate", {}),
]

EMPTY = {f: getattr(Line(body=""), f) for f in Line.__slots__ if f != "body"}


@pytest.mark.parametrize(("text", "body", "fields"), FORMS, ids=[f[0][:60] for f in FORMS])
def test_form(text: str, body: str, fields: dict[str, Any]) -> None:
    line = parse(text)
    assert line.body == body
    for name, empty in EMPTY.items():
        expected = fields.get(name, empty)
        found = getattr(line, name)
        assert found == (pytest.approx(expected, abs=1e-4) if name == "time" and expected is not None else expected), name


@pytest.mark.parametrize(("text", "body", "fields"), FORMS, ids=[f[0][:60] for f in FORMS])
def test_torch_rank_inside_wins_over_every_outer_form(text: str, body: str, fields: dict[str, Any]) -> None:
    if body and text.endswith(body) and text != body:
        outer = text[: -len(body)]
        if "[rank" not in outer:
            assert parse(outer + "[rank41]: text").rank == 41


def test_json_records() -> None:
    line = parse('{"log": "[rank3]: RuntimeError: x\\n", "stream": "stderr", "time": "2031-05-06T10:00:01.5Z", "pod": "p-1"}')
    assert (line.body, line.rank, line.stream, line.host) == ("RuntimeError: x", 3, "stderr", "p-1")
    assert (line.time, line.clock) == (STAMP + 0.5, "utc")
    line = parse('{"message": "lost", "rank": 4, "levelname": "ERROR", "timestamp": 1900000000.5}')
    assert (line.body, line.rank, line.level, line.time, line.clock) == ("lost", 4, "ERROR", 1900000000.5, "unix")
    assert parse("{'loss': 1.0}").body == "{'loss': 1.0}"
    assert parse('{"loss": 1.0}').body == '{"loss": 1.0}'
    assert parse('{"message": 3, "log": ').body == '{"message": 3, "log": '


def test_strip_ansi() -> None:
    assert strip_ansi(f"{ESC}[1;31mred{ESC}[0m {ESC}[2Kx{ESC}]0;title\x07y") == "red xy"
    assert strip_ansi("[34m[1mAMP: [39m[22mchecks [0m") == "AMP: checks "
    assert strip_ansi("[12m3s left] a[3]m") == "[12m3s left] a[3]m"


def test_year_less_stamps_over_new_year() -> None:
    before = parse("W1231 23:59:59.000000 1 a/b.py:1] x")
    after = parse("W0101 00:00:01.000000 1 a/b.py:1] x")
    assert elapsed(before, after) == pytest.approx(2.0)
    assert elapsed(after, before) == pytest.approx(-2.0)


def test_times_of_other_clocks_are_not_compared() -> None:
    local = parse("[2031-05-06 10:00:01,500] x")
    assert elapsed(local, parse("[2031-05-06T10:00:02Z] x")) is None
    assert elapsed(local, parse("x")) is None
    assert elapsed(local, parse("2031-05-06 10:00:03 x")) == pytest.approx(1.5)
    nodes = [parse(f"Jun  6 07:08:11 node-{n} kernel: x") for n in (0, 1)]
    assert elapsed(*nodes) is None


def test_impossible_dates_are_no_times() -> None:
    for text in ("[2031-13-45 10:00:01] x", "W9999 99:99:99.000000 1 a.py:1] x", "[rank1]:[E000 00:00:00.000000000 a.cpp:1] x"):
        assert parse(text).time is None
    assert parse("[rank1]:[E000 00:00:00.000000000 a.cpp:1] x").rank == 1


def test_split_glued() -> None:
    bar = "Epoch 1:  5%|▌ | 5/100 [00:01<00:20, loss=2.6]"
    head = "[rank2]:[E606 07:08:11.123456789 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog"
    assert split_glued(bar + head) == [bar, head]
    assert split_glued(bar + "{'loss': 1.0}") == [bar, "{'loss': 1.0}"]
    assert split_glued(bar + "Traceback (most recent call last):") == [bar, "Traceback (most recent call last):"]
    assert split_glued(bar + "2031-05-06 10:00:01,500 - INFO - x") == [bar, "2031-05-06 10:00:01,500 - INFO - x"]
    assert split_glued("a 1\ra 2\ra 3") == ["a 1", "a 2", "a 3"]
    # a prefix is no record of its own
    for text in (head, "[default1]:" + head, "[1,2]<stderr>:[rank2]:Traceback (most recent call last):"):
        assert split_glued(text) == [text]


# From one number to another. ------------------------------------------------------------------

SUMMARY = """\
train.py FAILED
Failures:
[1]:
  time      : 2031-05-06_10:00:01
  host      : node-1
  rank      : 8 (local_rank: 0)
  exitcode  : -15 (pid: 31591)
Root Cause (first observed failure):
[0]:
  time      : 2031-05-06_10:00:01
  host      : node-1
  rank      : 9 (local_rank: 1)
  exitcode  : 1 (pid: 31592)
"""


def test_tasks_that_are_ranks() -> None:
    assert task_ranks(map(parse, [f"{n}: [rank{n}]: x" for n in range(4)])) == "rank"


def test_tasks_that_are_nodes() -> None:
    assert task_ranks(map(parse, ["2: [rank18]: x", "0: [rank0]: x"])) == "node"
    assert task_ranks(map(parse, ["0: [rank0]: x", "0: [rank3]: x"])) == "node"


def test_tasks_that_nothing_decides() -> None:
    assert task_ranks(map(parse, ["0: [rank0]: x", "3: x"])) is None


def test_task_list() -> None:
    assert task_list("srun: error: node-1: tasks 2,4-5,7: Killed") == (2, 4, 5, 7)
    assert task_list("srun: error: node-1: task 3: Killed") == (3,)
    assert task_list("srun: error: nothing") == ()
    assert task_list("tasks 1-99999999999: x") == ()


def test_summary_gives_process_local_rank_and_host() -> None:
    known = rank_map(SUMMARY.splitlines())
    assert known.process["node-1", 31592] == 9 and known.process[None, 31591] == 8
    assert known.local["node-1", 1] == 9
    assert known.hosts == {8: "node-1", 9: "node-1"}
    assert known.resolve(parse("E0606 07:08:11.4 1 x/api.py:1] x")) is None
    assert known.resolve(parse("failed (exitcode: 1) local_rank: 1 (pid: 31592) of binary: python")) == 9


def test_ray_inner_ranks() -> None:
    known = rank_map(["(WorkerDict pid=7, ip=10.0.0.7) [rank3]: x", "(WorkerDict pid=7, ip=10.0.0.8) [rank5]: x"])
    assert known.resolve(parse("(WorkerDict pid=7, ip=10.0.0.8) boom")) == 5
    assert known.resolve(parse("(WorkerDict pid=7) boom")) is None


def test_nccl_init_of_the_world_communicator() -> None:
    lines = [
        f"node-0:{100 + r}:{900 + r} [{r}] NCCL INFO comm 0xabc rank {r} nranks 4 cudaDev {r} busId a{r}000" for r in range(4)
    ]
    pairs = [f"node-0:{100 + r}:{900 + r} [{r}] NCCL INFO comm 0xdef rank {r % 2} nranks 2 cudaDev {r}" for r in range(4)]
    known = rank_map([*lines, *pairs])
    assert known.resolve(parse("node-0:103:1 [3] NCCL WARN x")) == 3
    # communicators of two alone say nothing about the world
    assert rank_map(pairs).process == {}


def test_deepspeed_launcher() -> None:
    head = "[2031-05-06 10:00:01,500] [INFO] [launch.py:163:main] "
    known = rank_map(
        [
            head + "nnodes=2, num_local_procs=8, node_rank=1",
            head + "process 500 spawned with command: ['python', '-u', 'train.py', '--local_rank=3', '--x']",
        ]
    )
    assert known.local[None, 3] == 11 and known.process[None, 500] == 11
    known = rank_map([head + "global_rank_mapping=defaultdict(<class 'list'>, {'localhost': [4, 5]})"])
    assert known.local[None, 1] == 5


def test_a_local_rank_alone_is_nothing_on_several_nodes() -> None:
    lines = ["node-0: [default1]:[rank1]: x", "node-1: [default1]:[rank9]: x", "node-0: [default0]:[rank0]: x"]
    known = rank_map(lines)
    assert known.resolve(parse("[default1]:x")) is None
    assert known.resolve(parse("[default0]:x")) is None
    assert known.resolve(parse("node-1: [default1]:x")) == 9


def test_contradictions_are_no_ranks() -> None:
    assert rank_map(["[rank1]:W0606 07:08:11.344000 5 a.py:1] x", "[rank2]:W0606 07:08:11.344000 5 a.py:1] x"]).process == {}


# Any input. -----------------------------------------------------------------------------------

PIECES = st.one_of(
    st.sampled_from([f[0][:40] for f in FORMS]),
    st.sampled_from(["[rank", "]:", "[PG ID ", "pid=", "(", ESC + "[31m", "{", '{"log": "', "\t", " ", "[E", ": ", "9" * 30]),
    st.text(max_size=20),
)


@given(st.lists(PIECES, max_size=12).map("".join))
@settings(max_examples=500, deadline=None)
def test_never_raises_and_never_invents_text(text: str) -> None:
    line = parse(text)
    assert isinstance(line, Line)
    split_glued(text)
    rank_map([text, text])
    if not text.startswith("{") and not line.folded:
        assert line.body in strip_ansi(text)


@pytest.mark.parametrize("form", [f[0] for f in FORMS if f[2].get("rank") is None and "pid" not in f[2]], ids=lambda t: t[:40])
def test_forms_without_a_rank_never_get_one(form: str) -> None:
    assert parse(form).rank is None


@pytest.mark.parametrize(
    "unit",
    ["[", "a", "0", "(", "[rank", "a-1 ", "a.", "(a", "[a1]:", "1: ", " ", ESC + "[", "[0m", "/job:", "task ", "rank : ", "a:1:",
     "[PG ", "{\"log\": ", "comm 0x1 rank 1 nranks ", "local_rank: ", "tasks 1,", "é"],
)  # fmt: skip
def test_64_kib_of_garbage_in_under_50_ms(unit: str) -> None:
    text = (unit * 65536)[:65536]

    def seconds() -> float:
        start = time.process_time()
        parse(text)
        split_glued(text)
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 0.05


def test_every_row_is_reached_by_some_form() -> None:
    """A row that no example uses is either dead or untested."""
    used: set[str] = set()
    for text, _, _ in FORMS:
        rest = strip_ansi(text)
        for _ in range(12):
            stripped = rest.lstrip()
            hit = next((row for row in PREFIXES if row.regex.match(stripped) and _begins(row.heads, stripped[:1])), None)
            if hit is None:
                break
            used.add(hit.name)
            rest = stripped[hit.regex.match(stripped).end() :]  # type: ignore[union-attr]
    assert {row.name for row in PREFIXES} - used == set()
    examples = [body for _, body, _ in FORMS]
    assert [f.name for f in FACTS if not any(f.regex.search(text) for text in examples)] == []


def _begins(heads: str, char: str) -> bool:
    return char != "" and any(
        (h == "a" and (char.isascii() and (char.isalpha() or char == "_"))) or (h == "0" and char.isdigit()) or h == char
        for h in heads
    )
