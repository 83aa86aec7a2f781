"""Tracebacks out of logs, in every form in which they arrive."""

# ruff: noqa: E501 - log lines are quoted whole

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from faultbook.exceptions import Raised, Text, classify, is_communication
from faultbook.tracebacks import from_callstack, read

PLAIN = """\
Traceback (most recent call last):
  File "/home/user/proj/train.py", line 172, in <module>
    main()
  File "/home/user/proj/utils/data.py", line 40, in collate
    return torch.stack(rows)
           ^^^^^^^^^^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/torch/functional.py", line 9, in stack
    return _VF.stack(tensors)
RuntimeError: stack expects each tensor to be equal size, but got [16] at entry 0 and [13] at entry 3
"""


def of(text: str) -> list[Raised]:
    return read(Text(n, line) for n, line in enumerate(text.splitlines(), 1))


def test_type_message_and_the_innermost_user_frame() -> None:
    (found,) = of("step 1 loss 2.0\n" + PLAIN + "INFO:train:done\n")
    assert found.cause.type == "RuntimeError"
    assert found.cause.message.startswith("stack expects each tensor")
    frame = found.cause.user_frame
    assert frame is not None
    assert (frame.file, frame.line, frame.function, frame.code) == (
        "/home/user/proj/utils/data.py", 40, "collate", "return torch.stack(rows)")
    assert len(found.cause.frames) == 3
    assert (found.first, found.last) == (2, 10)
    assert found.kind == "own"


def test_the_interpreters_own_output_is_read_back(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "def read(step):\n    try:\n        return {}['weight']\n    except KeyError as error:\n"
        "        raise ValueError(f'bad record {step}') from error\n\ndef main():\n    read(9)\n\nmain()\n")
    text = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False).stderr
    (found,) = of(text)
    assert [p.type for p in found.parts] == ["KeyError", "ValueError"]
    assert found.cause.type == "KeyError"
    assert found.final.message == "bad record 9"
    assert [f.function for f in found.final.frames] == ["<module>", "main", "read"]


@pytest.mark.parametrize("marker", [
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
])
def test_the_first_of_a_chain_is_nearest_the_cause(marker: str) -> None:
    (found,) = of(PLAIN + f"\n{marker}\n\n" + PLAIN.replace("RuntimeError: stack", "OSError: disk"))
    assert (found.cause.type, found.final.type) == ("RuntimeError", "OSError")


def test_without_a_marker_two_tracebacks_are_two_exceptions() -> None:
    assert [r.cause.type for r in of(PLAIN + "\n" + PLAIN.replace("RuntimeError", "KeyError"))] == ["RuntimeError", "KeyError"]


def test_how_a_library_polls_is_no_cause() -> None:
    polling = PLAIN.replace("RuntimeError: stack expects", "_queue.Empty: nothing")
    text = polling + "\nThe above exception was the direct cause of the following exception:\n\n" + PLAIN
    (found,) = of(text)
    assert found.cause.type == "RuntimeError"


def test_a_worker_process_original_traceback_is_the_cause() -> None:
    outer = PLAIN.replace("RuntimeError: stack expects", "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal")
    outer = outer.split("Original")[0]
    inner = "Original " + PLAIN.replace("RuntimeError: stack expects each", "KeyError: 'weight' each")
    (found,) = of(outer + inner)
    assert found.cause.message.startswith("'weight'")
    frame = found.cause.user_frame
    assert frame is not None and frame.function == "collate"


def test_ray_wraps_the_remote_traceback() -> None:
    text = ("Traceback (most recent call last):\n  File \"/p/driver.py\", line 3, in <module>\n    ray.get(x)\n"
            "ray.exceptions.RayTaskError(ValueError): ray::train() (pid=77, ip=10.0.0.7)\n"
            "  File \"/p/worker.py\", line 8, in train\n    raise ValueError('bad')\nValueError: bad\n")
    (found,) = of(text)
    assert (found.cause.type, found.cause.message) == ("ValueError", "bad")
    frame = found.cause.user_frame
    assert frame is not None and frame.file == "/p/worker.py"


def test_the_line_after_a_compiler_wrapper_is_the_real_error() -> None:
    text = PLAIN.replace("RuntimeError: stack expects each tensor to be equal size, but got [16] at entry 0 and [13] at entry 3",
                         "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nAssertionError: bad stride")
    (found,) = of(text)
    assert found.cause.type == "AssertionError"
    assert found.cause.frames


def test_exception_groups_lead_to_their_first_member(tmp_path: Path) -> None:
    text = """\
  + Exception Group Traceback (most recent call last):
  |   File "/p/job.py", line 5, in <module>
  |     raise ExceptionGroup("two", errors)
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/p/job.py", line 2, in read
    |     raise ValueError("first")
    | ValueError: first
    +---------------- 2 ----------------
    | KeyError: 'second'
    +------------------------------------
"""
    (found,) = of(text)
    assert (found.cause.type, found.cause.message.split("\n")[0]) == ("ValueError", "first")


def test_rich_boxes() -> None:
    text = """\
╭───────────────── Traceback (most recent call last) ─────────────────╮
│ /home/user/proj/train.py:88 in <module>                             │
│                                                                     │
│   86 if __name__ == "__main__":                                     │
│ ❱ 88 │   main()                                                     │
│ /home/user/proj/data.py:12 in read                                  │
╰─────────────────────────────────────────────────────────────────────╯
ValueError: bad record 9
"""
    (found,) = of(text)
    assert (found.cause.type, found.cause.message) == ("ValueError", "bad record 9")
    assert [(f.line, f.function) for f in found.cause.frames] == [(88, "<module>"), (12, "read")]


def test_a_traceback_squeezed_into_one_line() -> None:
    squeezed = '{"level": "error", "exc": "' + PLAIN.rstrip("\n").replace('"', '\\"').replace("\n", "\\n") + '"}'
    (found,) = of("first line\n" + squeezed + "\n")
    assert found.cause.type == "RuntimeError"
    frame = found.cause.user_frame
    assert frame is not None and frame.line == 40
    assert (found.first, found.last) == (2, 2)


def test_faulthandler_dump_of_the_thread_that_has_user_code() -> None:
    text = """\
Fatal Python error: Segmentation fault

Thread 0x00007f640d9f8b80 (most recent call first):
  <no Python frame>

Current thread 0x00007f902d3d8b80 (most recent call first):
  File "/home/user/proj/utils/storage.py", line 68 in fetch
  File "/home/user/proj/train.py", line 90 in train

Extension modules: numpy, torch._C (total: 2)
"""
    (found,) = of(text)
    assert (found.kind, found.fatal) == ("fatal", "Segmentation fault")
    frame = found.cause.user_frame
    assert frame is not None and (frame.function, frame.line) == ("fetch", 68)


def test_spawned_process_number() -> None:
    (outer, inner) = of("Traceback (most recent call last):\n  File \"/p/t.py\", line 1, in <module>\n    spawn()\n"
                        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 terminated with the following error:\n" + PLAIN)
    assert outer.kind == "launcher"
    assert (inner.process, inner.kind) == (2, "own")


def test_a_bare_exception_line_counts_only_under_torchs_prefix() -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.35 GiB."
    assert not read([Text(1, line)])
    (found,) = read([Text(1, line, hooked=True)])
    assert found.kind == "own"


def test_a_bare_warning_is_no_exception() -> None:
    """DDP prints it as `[rank0]:[W1130 … reducer.cpp:1529] Warning: …` in runs that complete."""
    line = "Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters"
    assert read([Text(1, line, hooked=True)]) == []
    assert [r.cause.type for r in read([Text(1, "ValueError: bad record 9", hooked=True)])] == ["ValueError"]


@pytest.mark.parametrize("name", ["utils.data.ShardIntegrityError", "__main__.read.<locals>.CorruptShard", "CorruptShard", "job.Stop"])
def test_types_of_any_name(name: str) -> None:
    (found,) = of(PLAIN.replace("RuntimeError: stack", f"{name}: stack"))
    assert (found.cause.type, found.kind) == (name, "own")


def test_a_cut_traceback_says_nothing() -> None:
    (found,) = of("\n".join(PLAIN.splitlines()[:6]))
    assert found.kind == "cut"


def test_messages_of_several_lines_end_at_the_next_record() -> None:
    text = PLAIN.replace("RuntimeError: stack expects each tensor to be equal size, but got [16] at entry 0 and [13] at entry 3",
                         "RuntimeError: Error(s) in loading state_dict:\n\tMissing key(s): \"a\".\n\tUnexpected key(s): \"b\".")
    (found,) = of(text + "2026-11-30 17:05:24,281 INFO train: step=18/40\n")
    assert found.cause.message.splitlines() == ["Error(s) in loading state_dict:", '\tMissing key(s): "a".', '\tUnexpected key(s): "b".']


@pytest.mark.parametrize("message", [
    "[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1",
    "[/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete",
    "NCCL communicator was aborted on rank 3. Original reason for failure was: timeout",
    "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 1800000 ms",
    "wait timeout after 4000ms, keys: /default_pg/0//cpu//0/0",
    "Detected mismatch between collectives on ranks. Rank 1 is running",
])
def test_what_only_says_that_others_were_lost(message: str) -> None:
    assert is_communication("RuntimeError", message)


@pytest.mark.parametrize(("type_name", "message"), [
    ("RuntimeError", "CUDA out of memory. Tried to allocate 2 GiB"),
    ("torch.distributed.DistNetworkError", "failed to listen, EADDRINUSE, address already in use"),
    ("ValueError", "label 16 not in [0, 16)"),
    ("TimeoutError", "read of shard-00001 timed out"),
])
def test_what_is_a_ranks_own_fault(type_name: str, message: str) -> None:
    assert not is_communication(type_name, message)


def test_a_web_connection_is_not_the_process_group() -> None:
    web = from_callstack(
        'Traceback (most recent call last):\n  File "/x/site-packages/urllib3/connectionpool.py", line 7, in urlopen\n    go()\n'
        "ConnectionResetError: [Errno 104] Connection reset by peer\n")
    group = from_callstack(
        'Traceback (most recent call last):\n  File "/x/site-packages/torch/distributed/rendezvous.py", line 7, in go\n    go()\n'
        "ConnectionResetError: [Errno 104] Connection reset by peer\n")
    assert web is not None and classify(web) == "own"
    assert group is not None and classify(group) == "communication"


def test_launchers_and_interrupts() -> None:
    launcher = ('Traceback (most recent call last):\n  File "/opt/venv/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
                "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n")
    assert of(launcher)[0].kind == "launcher"
    assert of(launcher.replace("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "OSError: no port"))[0].kind == "launcher_fault"
    assert of(PLAIN.replace("RuntimeError: stack", "KeyboardInterrupt\nstack"))[0].kind == "interrupt"


def test_time_is_linear_in_hostile_text() -> None:
    hostile = ("Traceback (most recent call last):\n" + '  File "' + "x" * 5000 + "\n" + "│" * 5000 + "\n" + " | " * 5000 + "\n") * 40
    assert isinstance(of(hostile), list)
