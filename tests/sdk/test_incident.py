"""Who started it: every exception to the order of evidence, and the cases that mislead simple readers.

Longer than other files: the cases are one list, told in lines that the same few builders make.
"""

# ruff: noqa: E501 - log lines are quoted whole

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faultbook import incident, reading, sources
from faultbook.incident import Incident

CLOSED = "[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:14762. This is typically caused by"
TIMED_OUT = "[/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete"


def of_text(text: str) -> Incident:
    return incident.from_sources(sources.discover(text=text))


def of_files(folder: Path, files: dict[str, str]) -> Incident:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return incident.from_sources(sources.discover([folder]))


def banner(rank: int, world: int = 4, pid: int | None = None, host: str = "node-0", local: int | None = None) -> str:
    own = rank if local is None else local
    return f"INFO:train:world_size={world} rank={rank} local_rank={own} pid={pid or 500 + rank} host={host}\n"


def steps(rank: int, last: int, first: int = 1) -> str:
    return "".join(f"INFO:train:step={n}/40 loss=2.{n:04d} step_time=0.070s rank={rank}\n" for n in range(first, last + 1))


def raised(rank: int, error: str, line: int = 107, function: str = "train", code: str = "loss.backward()",
           prefix: str | None = None) -> str:
    head = f"[rank{rank}]: " if prefix is None else prefix
    lines = ["Traceback (most recent call last):", '  File "/home/user/proj/train.py", line 172, in <module>', "    main()",
             f'  File "/home/user/proj/train.py", line {line}, in {function}', f"    {code}",
             '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3, in wait',
             "    work.wait()", error]
    return "".join(f"{head}{text}\n" for text in lines)


def lost(rank: int, error: str = CLOSED, **where: object) -> str:
    return raised(rank, f"RuntimeError: {error}", **where)  # type: ignore[arg-type]


def summary(*entries: tuple[int, int, str], root: int, host: str = "node-0", error: str = "") -> str:
    """(rank, exit code, second) of each failure; pids are 500 + rank."""
    def item(index: int, rank: int, code: int, second: str) -> str:
        return (f"[{index}]:\n  time      : 2026-03-04_15:34:{second}\n  host      : {host}\n  rank      : {rank} (local_rank: {rank})\n"
                f"  exitcode  : {code} (pid: {500 + rank})\n  error_file: <N/A>\n"
                f"  traceback : {error if rank == root and error else f'Signal {-code} received by PID {500 + rank}'}\n")
    others = [e for e in entries if e[0] != root]
    (first,) = [e for e in entries if e[0] == root]
    line = "-" * 60 + "\n"
    body = "".join(item(n, *e) for n, e in enumerate(others, 1))
    return ("=" * 60 + "\ntrain.py FAILED\n" + line + "Failures:\n" + body + line
            + "Root Cause (first observed failure):\n" + item(0, *first) + "=" * 60 + "\n")


def sigterm(*ranks: int) -> str:
    return "".join(
        f"W0304 15:34:07.100000 400 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process {500 + r} closing signal SIGTERM\n"
        for r in ranks)


def failed(rank: int, code: int) -> str:
    return (f"E0304 15:34:07.400000 400 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) "
            f"local_rank: {rank} (pid: {500 + rank}) of binary: /opt/venv/bin/python\n")


def named(found: Incident) -> tuple[str, int | None]:
    return ("none", None) if found.initiating is None else (found.initiating.scope, found.initiating.rank)


# -- the fifteen cases of the fact sheet ----------------------------------------------------

def test_sigterm_lines_stand_before_the_failing_exit_code() -> None:
    text = "".join(banner(r) for r in range(4)) + sigterm(0, 1, 2) + failed(3, -9)
    assert named(of_text(text)) == ("rank", 3)


def test_a_victims_traceback_in_the_summary_is_not_the_cause() -> None:
    # Rank 0 has a real traceback and the earliest second; it was told to stop. Rank 2 died by SIGKILL.
    victim = "Traceback (most recent call last):\n    File \"/p/train.py\", line 9, in main\n      loss.backward()\n  RuntimeError: " + CLOSED
    text = "".join(banner(r) for r in range(4)) + summary(
        (1, -15, "07"), (2, -9, "08"), (3, -15, "07"), (0, -15, "06"), root=0, error=victim)
    assert named(of_text(text)) == ("rank", 2)


def test_guilty_rank_is_the_silent_one() -> None:
    text = "".join(banner(r) + steps(r, 5) for r in range(4)) + lost(0) + lost(1) + lost(3)
    found = of_text(text)
    assert named(found) == ("rank", 2)
    assert found.initiating is not None and found.initiating.confidence == "weak"


def watchdog(rank: int, seq: int, op: str = "ALLREDUCE", numel: int = 1000, enqueued: int = 0) -> str:
    head = f"[rank{rank}]:[E606 07:08:11.{rank}23456789 ProcessGroupNCCL.cpp:616] "
    text = (f"{head}[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, "
            f"NumelOut={numel}, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n")
    if enqueued:
        text += (f"{head}[PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG status: "
                 f"last enqueued work: {enqueued}\n{head}[PG 0 (default_pg) Rank {rank}] Timeout at NCCL work: {seq}, "
                 f"last enqueued NCCL work: {enqueued}, last completed NCCL work: {seq - 1}.\n")
    return text


def test_the_detector_named_by_the_dump_signal_is_a_victim() -> None:
    text = "".join(banner(r) for r in range(4)) + "".join(watchdog(r, 96, enqueued=98) for r in (0, 1, 3))
    text += ("[rank2]:[E606 07:08:11.5 ProcessGroupNCCL.cpp:1] [PG 0 (default_pg) Rank 2] Received a dump signal due to a collective "
             "timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: 95, last completed NCCL work: 95.\n")
    found = of_text(text)
    assert named(found) == ("rank", 2)  # it enqueued fewer calls; rank 1 only noticed first
    assert found.initiating is not None and found.initiating.confidence == "strong"


def barrier(outer: int, inner: int, missing: str) -> str:
    return f"[rank{outer}]: RuntimeError: [Rank {inner}]: Ranks {missing} failed to pass monitoredBarrier in 1800000 ms\n"


def test_group_local_numbers_are_translated_by_the_members() -> None:
    text = "".join(banner(r) for r in range(4)) + "INFO:train:expert groups: [[0, 1], [2, 3]]\n"
    text += barrier(2, 0, "1") + barrier(0, 0, "2")
    assert named(of_text(text)) == ("rank", 3)


def test_group_local_numbers_without_a_member_list_name_nobody() -> None:
    text = "".join(banner(r) for r in range(4)) + barrier(2, 0, "1") + barrier(0, 0, "2")
    found = of_text(text)
    assert named(found) == ("unknown", None)
    assert found.initiating is not None and "member" in found.initiating.basis


SUBGROUP = {"line": 25, "function": "expert_exchange", "code": "dist.all_to_all_single(recv, counts, group=group)"}
WORLD = {"line": 61, "function": "run", "code": "dist.all_reduce(g)"}


def test_subgroup_deadlock_follows_the_starved_wait_not_the_world_minority() -> None:
    text = "".join(banner(r) for r in range(4)) + "INFO:train:expert groups: [[0, 1], [2, 3]]\n"
    text += lost(2, TIMED_OUT, **SUBGROUP) + "".join(lost(r, TIMED_OUT, **WORLD) for r in (0, 1, 3))
    assert named(of_text(text)) == ("rank", 3)


def test_subgroup_deadlock_with_unknown_members_is_unknown() -> None:
    text = "".join(banner(r) for r in range(4))
    text += lost(2, TIMED_OUT, **SUBGROUP) + "".join(lost(r, TIMED_OUT, **WORLD) for r in (0, 1, 3))
    assert named(of_text(text)) == ("unknown", None)


def fingerprint(own: int, op: str, peer: int, peer_op: str) -> str:
    return (f"[rank{own}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {own} is running collective: "
            f"CollectiveFingerPrint(SequenceNumber=7, OpType={op}, TensorShape=[5], TensorDtypes=Float), but Rank {peer} is running "
            f"collective: CollectiveFingerPrint(SequenceNumber=0OpType={peer_op}).\n")


def test_what_a_fingerprint_says_about_its_peer_is_not_believed() -> None:
    # Each statement about the peer is wrong; the statements about oneself make rank 1 the odd one.
    text = "".join(banner(r) for r in range(4))
    text += fingerprint(0, "ALLREDUCE", 1, "GATHER") + fingerprint(2, "ALLREDUCE", 0, "REDUCE")
    text += fingerprint(1, "BARRIER", 3, "ALLTOALL") + fingerprint(3, "ALLREDUCE", 2, "REDUCE")
    assert named(of_text(text)) == ("rank", 1)


def test_the_same_error_on_all_ranks_is_no_ranks_fault() -> None:
    text = "".join(banner(r) for r in range(4)) + "".join(raised(r, "KeyError: 'weight'") for r in range(4))
    text += failed(0, 1)
    assert named(of_text(text)) == ("all", None)


def test_an_oom_kill_printed_after_the_storm_names_the_rank_by_its_pid() -> None:
    text = "".join(banner(r) for r in range(4)) + lost(0) + lost(1) + lost(3)
    text += "[ 1843.308145] Memory cgroup out of memory: Killed process 502 (python3) total-vm:1kB, anon-rss:1kB\n"
    found = of_text(text)
    assert named(found) == ("rank", 2)
    assert found.initiating is not None and found.initiating.confidence == "strong"


def test_an_oom_kill_that_nothing_joins_to_a_rank_names_the_node() -> None:
    text = "slurmstepd-node-7: error: Detected 1 oom-kill event(s) in StepId=88.batch cgroup.\n"
    found = of_text(text)
    assert found.initiating is not None and (found.initiating.scope, found.initiating.node) == ("node", "node-7")


def timed(rank: int, clock: str, text: str) -> str:
    return f"2026-04-23 {clock} INFO train: {text} rank={rank}\n"


def moving(until: int) -> str:
    """Two ranks stepping once a second from 12:00:00."""
    return "".join(timed(r, f"12:{n // 60:02d}:{n % 60:02d},000", f"step={n + 1}/4000 loss=2.1") for n in range(until) for r in (0, 1))


def test_preemption_of_a_healthy_job_is_outside() -> None:
    text = moving(60) + "slurmstepd: error: *** STEP 88.0 ON node-0 CANCELLED AT 2026-04-23T12:01:00 DUE TO PREEMPTION ***\n"
    found = of_text(text)
    assert named(found) == ("outside", None)
    assert found.stopped == "preemption"


def test_after_a_node_failure_the_named_node_is_blamed_and_not_the_survivor_that_prints() -> None:
    cancelled = "slurmstepd: error: *** STEP 88.0 ON node-0 CANCELLED AT 2026-04-23T12:01:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
    found = of_text(moving(60) + "srun: error: Node failure on node-7\n" + cancelled)
    assert found.initiating is not None
    assert (found.initiating.scope, found.initiating.node) == ("outside", "node-7")
    alone = of_text(moving(60) + cancelled)
    assert alone.initiating is not None
    assert (alone.initiating.scope, alone.initiating.node) == ("outside", None)


def test_in_two_appended_attempts_the_first_one_counts() -> None:
    first = "".join(banner(r, pid=500 + r) for r in range(4)) + steps(0, 3) + raised(1, "ValueError: bad record 9")
    first += lost(0) + lost(2) + sigterm(0, 2, 3) + failed(1, 1)
    second = "".join(banner(r, pid=900 + r) for r in range(4)) + "".join(raised(r, "RuntimeError: checkpoint is incomplete") for r in range(4))
    found = of_text(first + second)
    assert named(found) == ("rank", 1)
    assert (found.attempt, found.attempts) == (0, 2)


def test_a_second_attempt_that_completes_leaves_nothing_to_blame() -> None:
    first = "".join(banner(r, pid=500 + r) for r in range(2)) + raised(1, "ValueError: bad record 9") + sigterm(0) + failed(1, 1)
    second = "".join(banner(r, pid=900 + r) for r in range(2)) + steps(0, 40) + "INFO:train:training complete\n"
    found = of_text(first + second)
    assert found.initiating is None
    assert any("attempt 0 failed" in reason for reason in found.reasons)


def test_attempt_directories_are_read_apart(tmp_path: Path) -> None:
    files = {f"attempt_0/{r}/stderr.log": lost(r) for r in (0, 1, 3)}
    files["attempt_0/2/stderr.log"] = raised(2, "ValueError: bad record")
    files |= {f"attempt_1/{r}/stderr.log": raised(r, "RuntimeError: checkpoint is incomplete") for r in range(4)}
    found = of_files(tmp_path, files)
    assert named(found) == ("rank", 2)
    assert found.attempt == 0


def test_one_missing_file_is_reported_and_not_blamed(tmp_path: Path) -> None:
    files = {f"rank_{r}.log": banner(r) + steps(r, 9) + lost(r) for r in (0, 1, 3)}
    found = of_files(tmp_path, files)
    assert named(found) == ("unknown", None)
    assert found.missing_ranks == (2,)
    assert found.initiating is not None and "no log for rank 2" in found.initiating.basis
    assert any("rank 2" in wanted for wanted in found.next_evidence)


def test_silence_proves_nothing_where_ray_folds_lines() -> None:
    text = "".join(f"(WorkerDict pid={60 + r}) " + banner(r) for r in range(4))
    text += lost(0).rstrip("\n") + " [repeated 2x across cluster]\n" + lost(3)
    assert named(of_text(text)) == ("unknown", None)


def test_a_slurm_task_is_not_a_rank_where_lines_show_it() -> None:
    # One torchrun per node: task 1 prints ranks 4-7.
    text = "".join(f"{r // 4}: [default{r % 4}]:[rank{r}]: started\n" for r in range(8))
    text += "".join(f"{r // 4}: [default{r % 4}]:" + line + "\n" for r in (0, 5) for line in lost(r).splitlines())
    text += "".join("1: [default2]:" + line + "\n" for line in raised(6, "ValueError: bad record").splitlines())
    text += "srun: error: node-1: task 1: Exited with exit code 1\n"
    assert named(of_text(text)) == ("rank", 6)


def test_a_tie_within_a_second_between_different_faults_is_unknown(tmp_path: Path) -> None:
    files = {f"attempt_0/{r}/error.json": json.dumps({"message": {"message": error, "extraInfo": {
        "py_callstack": raised(r, error, prefix=""), "timestamp": "1796052847"}}})
        for r, error in ((0, "ValueError: one"), (1, "KeyError: 'other'"))}
    files |= {f"attempt_0/{r}/stderr.log": banner(r, 2) for r in range(2)}
    assert named(of_files(tmp_path, files)) == ("unknown", None)


def test_of_different_faults_the_earliest_on_one_clock_counts(tmp_path: Path) -> None:
    files = {f"attempt_0/{r}/error.json": json.dumps({"message": {"message": error, "extraInfo": {
        "py_callstack": raised(r, error, prefix=""), "timestamp": str(1796052847 - 5 * r)}}})
        for r, error in ((0, "ValueError: one"), (1, "KeyError: 'other'"))}
    files |= {f"attempt_0/{r}/stderr.log": banner(r, 2) for r in range(2)}
    assert named(of_files(tmp_path, files)) == ("rank", 1)


# -- exceptions that overrule the order -------------------------------------------------------

def test_a_hang_that_was_cancelled_hours_later_is_a_hang() -> None:
    text = moving(60) + "slurmstepd: error: *** STEP 88.0 ON node-0 CANCELLED AT 2026-04-23T18:01:00 DUE TO TIME LIMIT ***\n"
    found = of_text(text)
    assert found.initiating is not None and found.initiating.scope == "unknown"
    assert "silent for" in found.hung
    assert found.stopped == ""


def test_a_handled_error_just_before_the_others_wait_is_the_first_suspect() -> None:
    text = "".join(banner(r) + steps(r, 9) for r in range(4))
    text += "WARNING:train:rank 2: CUDA out of memory, skipping this batch\n" + steps(2, 10, 10)
    text += "".join(lost(r, TIMED_OUT) for r in range(4))
    assert named(of_text(text)) == ("rank", 2)


def test_a_handled_error_after_which_all_went_on_is_cleared() -> None:
    text = "".join(banner(r) + steps(r, 9) for r in range(4))
    text += "WARNING:train:rank 2: CUDA out of memory, skipping this batch\n" + "".join(steps(r, 30, 10) for r in range(4))
    text += lost(0, TIMED_OUT, **WORLD) + "".join(lost(r, TIMED_OUT) for r in (1, 2, 3))
    assert named(of_text(text)) == ("rank", 0)


def test_a_fault_after_the_abort_is_teardown() -> None:
    # Rank 1 lost its peers first; the full disk hit its save on exit. Rank 2 was killed.
    text = "".join(banner(r) for r in range(4)) + lost(0) + lost(1) + lost(3)
    text += raised(1, "OSError: [Errno 28] No space left on device: '/ckpt/on_exit.pt'") + failed(2, -9)
    assert named(of_text(text)) == ("rank", 2)


def test_a_fault_while_handling_a_lost_connection_is_teardown() -> None:
    chained = lost(1) + "[rank1]: \n[rank1]: During handling of the above exception, another exception occurred:\n[rank1]: \n"
    chained += raised(1, "OSError: [Errno 28] No space left on device")
    text = "".join(banner(r) for r in range(4)) + lost(0) + chained + lost(3) + failed(2, -11)
    assert named(of_text(text)) == ("rank", 2)


def test_the_same_error_on_all_ranks_of_one_host_names_the_node() -> None:
    text = "".join(banner(r, host=f"node-{r // 2}", local=r % 2) for r in range(4))
    text += raised(2, "OSError: stale file handle") + raised(3, "OSError: stale file handle") + lost(0) + lost(1)
    found = of_text(text)
    assert found.initiating is not None and (found.initiating.scope, found.initiating.node) == ("node", "node-1")


def test_a_finite_check_after_the_all_reduce_has_no_known_origin() -> None:
    text = "".join(banner(r) for r in range(4)) + "".join(raised(r, "ValueError: gradient norm is nan at step 7") for r in range(4))
    found = of_text(text)
    assert named(found) == ("unknown", None)


def test_a_check_before_gradients_are_mixed_names_its_rank() -> None:
    text = ("[default2]:[rank2]: RuntimeError: Rank 2, node node-0, device 2, iteration 40: Unexpected result nan "
            "(message='found NaN in local grad norm for bucket #0 in backward pass')\n")
    assert named(of_text(text)) == ("rank", 2)


def test_two_ranks_and_one_skipped_call_cannot_be_decided() -> None:
    text = banner(0, 2) + banner(1, 2) + lost(0, CLOSED, **WORLD) + lost(1, TIMED_OUT)
    found = of_text(text)
    assert named(found) == ("unknown", None)
    assert any("flight recorder" in wanted for wanted in found.next_evidence)


# -- the addendum: what the recorded incidents taught ---------------------------------------

def test_root_cause_block_that_names_a_victim_is_overruled() -> None:
    text = "".join(banner(r) for r in range(4)) + lost(0) + lost(2) + summary(
        (3, -6, "16"), (1, -15, "16"), (2, -15, "15"), (0, -15, "15"), root=0)
    assert named(of_text(text)) == ("rank", 3)


def test_a_victim_that_aborted_without_an_active_exception_is_not_guilty() -> None:
    text = "".join(banner(r) for r in range(4)) + lost(1, TIMED_OUT, line=144, function="finish", code="dist.barrier()")
    text += "".join(lost(r) for r in (0, 2, 3)) + "[default2]:terminate called without an active exception\n"
    text += "[default2]:Fatal Python error: Aborted\n[default2]:\n[default2]:Thread 0x00007f640d9f8b80 (most recent call first):\n"
    text += "[default2]:  <no Python frame>\n" + summary((0, -15, "01"), (1, -15, "01"), (3, -15, "01"), (2, -6, "01"), root=2)
    assert named(of_text(text)) == ("rank", 1)


def test_a_crash_with_user_frames_names_its_rank() -> None:
    text = "".join(banner(r) for r in range(2)) + "1: Fatal Python error: Segmentation fault\n1: \n"
    text += "1: Current thread 0x00007f902d3d8b80 (most recent call first):\n"
    text += '1:   File "/home/user/proj/utils/storage.py", line 68 in fetch\n1:   File "/home/user/proj/train.py", line 90 in train\n'
    text += "0: [rank0]: started\n1: [rank1]: started\nsrun: error: node-0: task 1: Segmentation fault\n"
    assert named(of_text(text)) == ("rank", 1)


def test_on_two_nodes_each_block_names_its_own_and_the_real_exit_code_decides() -> None:
    node0 = lost(0) + lost(1) + summary((1, -15, "07"), (0, 1, "07"), root=0)
    block = summary((3, -15, "07"), (2, -9, "06"), root=2, host="node-1")
    node1 = lost(3) + block.replace("(local_rank: 2)", "(local_rank: 0)").replace("(local_rank: 3)", "(local_rank: 1)")
    assert named(of_text(node0 + node1)) == ("rank", 2)


def test_ctrl_c_after_a_hang_exposes_the_guilty_frame() -> None:
    text = "".join(banner(r) for r in range(4)) + "".join(raised(r, "KeyboardInterrupt") for r in (0, 1, 3))
    text += ("[rank2]: Traceback (most recent call last):\n[rank2]:   File \"/home/user/proj/train.py\", line 90, in train\n"
             "[rank2]:     batch = stream.next(step)\n[rank2]:   File \"/home/user/proj/utils/data.py\", line 27, in next\n"
             "[rank2]:     lock.acquire()\n[rank2]: KeyboardInterrupt\n")
    assert named(of_text(text)) == ("rank", 2)


def test_ctrl_c_after_a_hang_whose_victims_lost_each_other_meanwhile() -> None:
    def victim(r: int) -> str:
        return lost(r).replace("work.wait()", "work.wait()") + f"[rank{r}]: \n[rank{r}]: During handling of the above exception, another exception occurred:\n[rank{r}]: \n" + raised(r, "KeyboardInterrupt")
    guilty = ("[rank3]: Traceback (most recent call last):\n[rank3]:   File \"/opt/venv/lib/python3.11/site-packages/torch/distributed/elastic/"
              "multiprocessing/errors/__init__.py\", line 367, in wrapper\n[rank3]:     return f(*args, **kwargs)\n"
              "[rank3]:   File \"/home/user/proj/train.py\", line 160, in train\n[rank3]:     self.lock.acquire()\n[rank3]: KeyboardInterrupt\n")
    text = "".join(banner(r) for r in range(4)) + "".join(victim(r) for r in (0, 1, 2)) + guilty
    assert named(of_text(text)) == ("rank", 3)


def test_a_rank_that_gloo_aborted_in_other_code_than_the_rest() -> None:
    text = "".join(banner(r) for r in range(4))
    text += ("[default1]:terminate called after throwing an instance of 'gloo::EnforceNotMet'\n[default1]:  what():  [enforce fail at "
             "/gloo/pair.cc:456] op.preamble.length <= op.nbytes. 726 vs 20. Received data size doesn't match expected size\n"
             "[default1]:Fatal Python error: Aborted\n[default1]:\n[default1]:Current thread 0x00007f902d3d8b80 (most recent call first):\n"
             "[default1]:  File \"/home/user/proj/train.py\", line 140 in train\n[default1]:\n")
    assert named(of_text(text + lost(0) + lost(2) + lost(3))) == ("rank", 1)


def test_ctrl_c_in_a_moving_run_is_the_user() -> None:
    text = "".join(banner(r) + steps(r, 5) for r in range(3))
    for r in range(3):
        text += (f"[rank{r}]: Traceback (most recent call last):\n[rank{r}]:   File \"/home/user/proj/train.py\", line 99, in train\n"
                 f"[rank{r}]:     time.sleep(cfg.step_time)\n[rank{r}]: KeyboardInterrupt\n")
    found = of_text(text)
    assert named(found) == ("outside", None)
    assert "Ctrl-C" in found.stopped


def test_launcher_that_failed_before_any_rank_is_outside() -> None:
    text = ("Traceback (most recent call last):\n  File \"/opt/venv/bin/torchrun\", line 8, in <module>\n    sys.exit(main())\n"
            "  File \"/opt/venv/lib/python3.11/site-packages/torch/distributed/run.py\", line 1028, in main\n    run(args)\n"
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29082, "
            "useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n")
    assert named(of_text(text)) == ("outside", None)


def test_an_interrupt_that_a_framework_caught_is_the_user() -> None:
    text = banner(0, 1) + steps(0, 9) + "Detected KeyboardInterrupt, attempting graceful shutdown ...\n"
    assert named(of_text(text)) == ("outside", None)


def test_a_bare_killed_says_that_someone_sent_sigkill_and_no_more() -> None:
    found = of_text(banner(0, 1) + steps(0, 9) + "Killed\n")
    assert named(found) == ("unknown", None)


# -- tables of watchdog lines, other launchers -------------------------------------------------

def test_ranks_equal_and_ahead_of_the_timed_out_call_accuse_nobody() -> None:
    text = "".join(banner(r) for r in range(4)) + "".join(watchdog(r, 96, enqueued=98) for r in range(4))
    assert named(of_text(text)) == ("unknown", None)


def test_another_call_at_the_same_number_is_the_minority() -> None:
    text = "".join(banner(r) for r in range(4)) + "".join(watchdog(r, 96, numel=1000) for r in (0, 1, 2)) + watchdog(3, 96, op="ALLGATHER", numel=7)
    assert named(of_text(text)) == ("rank", 3)


def in_group(rank: int, inner: int, guid: str, seq: int, enqueued: int, waits: bool = True) -> str:
    head = f"[rank{rank}]:[E606 07:08:11.{rank}23456789 ProcessGroupNCCL.cpp:616] [PG ID 1 PG GUID {guid} Rank {inner}] "
    text = (f"{head}Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLTOALL_BASE, NumelIn=64, NumelOut=64, "
            "Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n") if waits else ""
    return text + (f"{head}Timeout at NCCL work: {seq}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {seq - 1}.\n")


def test_the_counters_of_a_sub_group_come_before_those_of_the_world() -> None:
    # Rank 3 skipped call 40 of its group and waits with 0 and 1 in the world's call 96; rank 2 is the world's odd one, a victim.
    text = "".join(banner(r) for r in range(4)) + "".join(watchdog(r, 96, enqueued=96) for r in (0, 1, 3))
    text += in_group(2, 0, "5(ep)", seq=40, enqueued=40) + in_group(3, 1, "5(ep)", seq=40, enqueued=39, waits=False)
    found = of_text(text)
    assert (named(found), found.rule) == (("rank", 3), "behind_in_sub_group")


def test_a_printed_member_list_tells_who_is_missing_from_a_group() -> None:
    text = "INFO:train:expert groups: [[0, 1], [2, 3]]\n" + "".join(banner(r) for r in range(4))
    text += "".join(watchdog(r, 96, enqueued=96) for r in (0, 1, 3)) + in_group(2, 0, "5(ep)", seq=40, enqueued=40)
    assert named(of_text(text)) == ("rank", 3)


def test_group_ids_without_a_guid_are_not_compared() -> None:
    # Each process counts its groups itself: [PG 1 ...] of two ranks may be two groups.
    text = "".join(banner(r) for r in range(4)) + in_group(2, 0, "5", 40, 40).replace("ID 1 PG GUID 5", "1")
    text += in_group(3, 1, "5", 40, 39, waits=False).replace("ID 1 PG GUID 5", "1")
    assert of_text(text).rule != "behind_in_sub_group"


def test_two_ranks_that_gave_up_on_different_calls_of_one_group_went_apart_and_neither_is_accused() -> None:
    first = in_group(0, 0, "0(default_pg)", 122, 127)
    found = of_text(first + in_group(1, 1, "0(default_pg)", 126, 128))
    assert (named(found), found.rule) == (("unknown", None), "waits_differ")
    assert of_text(first + in_group(1, 1, "0(default_pg)", 122, 127)).rule != "waits_differ"
    assert of_text(first + in_group(1, 1, "5(ep)", 126, 128)).rule != "waits_differ"  # another group counts by itself


SHM = "node-0:202016:20223{0} [{0}] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes\n"
RECV = "node-0:202016:20223{0} [{0}] proxy.cc:1326 NCCL WARN Socket recv failed\n"


def test_the_first_nccl_warning_is_a_weak_hint_if_it_is_of_its_own_resources() -> None:
    found = of_text(SHM.format(5) + RECV.format(2))
    assert named(found) == ("rank", 5) and found.initiating is not None and found.initiating.confidence == "weak"
    assert named(of_text(RECV.format(2) + SHM.format(5)))[0] != "rank"  # a lost peer came first
    assert named(of_text(SHM.format(1) + RECV.format(2).replace("node-0", "node-1")))[0] != "rank"  # two hosts, no order
    assert of_text(SHM.format(5) + steps(5, 9)).initiating is None  # it went on


def test_a_cuda_fault_that_ended_one_watchdog_is_that_ranks() -> None:
    line = "  what():  [PG {0} Rank {1}] Process group watchdog thread terminated with exception: CUDA error: {2}\n"
    assert named(of_text(line.format(0, 1, "device-side assert triggered"))) == ("rank", 1)
    both = line.format(0, 1, "device-side assert triggered") + line.format(0, 2, "device-side assert triggered")
    assert named(of_text(both))[0] != "rank"
    assert named(of_text(line.format(0, 1, "initialization error")))[0] != "rank"


def test_a_save_announced_without_a_rank_before_the_others_timed_out_is_rank_0s() -> None:
    save = "2026-02-18 10:28:25,496 - root - INFO - Saving latest checkpoint model trained for 3 complete epochs\n"
    assert named(of_text(save + watchdog(7, 96))) == ("rank", 0)
    assert named(of_text(save + watchdog(0, 96)))[0] != "rank"  # rank 0 waits itself
    assert named(of_text(watchdog(7, 96)))[0] != "rank"


def test_a_bar_that_ran_for_the_whole_timeout_names_the_busy_rank() -> None:
    text = "Running tokenizer on dataset:   9%|#| 280000/2969526 [29:55<4:48:08, 155.57 examples/s]"
    text += "".join(f"[E ProcessGroupNCCL.cpp:475] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, "
                    "NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800328 milliseconds before timing out.\n" for r in (2, 1, 3))
    assert named(of_text(text)) == ("rank", 0)


@pytest.mark.parametrize(("text", "rank"), [
    ("mpirun noticed that process rank 7 with PID 411 on node node-2 exited on signal 9 (Killed).\n", 7),
    ("ERROR:composer.cli.launcher:Rank 1 crashed with exit code 1.\n", 1),
    ("Stalled ops: a [missing ranks: 3], b [missing ranks: 3]\n", 3),
    ("Stalled ops: a [ready ranks: 4, 6, 7, 1, 5, 3, 2], b [ready ranks: 5, 4, 6, 7, 1, 3, 2]\n", 0),
    ("[2026-02-03 10:00:01,500] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', '--local_rank=1'] "
     "exits with return code = -7\n", 1),
    ("E external/coordination_service.cc:954] /job:jax_worker/replica:0/task:37 has been set to ERROR in coordination service: UNAVAILABLE\n", 37),
    ("srun: error: node-0: tasks 0-2: Exited with exit code 1\nsrun: error: node-0: task 3: Out Of Memory\n", 3),
])
def test_components_that_can_know_are_believed(text: str, rank: int) -> None:
    assert named(of_text(text)) == ("rank", rank)


def test_one_rank_that_looks_for_the_store_elsewhere() -> None:
    wait = "torch.distributed.DistStoreError: wait timeout after 4000ms, keys: /default_pg/0//cpu//0/0"
    text = "".join(f"{r}: " + banner(r) for r in range(4))
    text += "".join(f"{r}: {line}\n" for r in (1, 3) for line in raised(r, wait, prefix="").splitlines())
    text += "".join(f"0: {line}\n" for line in raised(
        0, "torch.distributed.DistStoreError: Timed out after 5 seconds waiting for clients. 3/4 clients joined.", prefix="").splitlines())
    text += "".join(f"2: {line}\n" for line in raised(
        2, "torch.distributed.DistNetworkError: The client socket has timed out after 4000ms while trying to connect to (node-7, 25092).",
        prefix="").splitlines())
    assert named(of_text(text)) == ("rank", 2)


def test_one_rank_built_another_model() -> None:
    text = "".join(banner(r) + f"INFO:train:rank {r}: {4 if r == 2 else 3} blocks, {4224 if r == 2 else 3168} parameters\n" for r in range(4))
    text += "".join(lost(r, TIMED_OUT) for r in range(4))
    assert named(of_text(text)) == ("rank", 2)


def test_a_save_that_outlasts_the_timeout(tmp_path: Path) -> None:
    files = {f"rank_{r}.log": banner(r) + steps(r, 9) + lost(r, TIMED_OUT) for r in (1, 2, 3)}
    files["rank_0.log"] = banner(0) + steps(0, 9) + "INFO:train:saving checkpoint at step 9\n" + lost(0, CLOSED)
    assert named(of_files(tmp_path, files)) == ("rank", 0)


def test_spawned_process_with_its_own_traceback() -> None:
    text = "".join(banner(r) for r in range(3))
    text += ("W1130 17:05:23.526000 400 torch/multiprocessing/spawn.py:165] Terminating process 500 via signal SIGTERM\n"
             "Traceback (most recent call last):\n  File \"/home/user/proj/train.py\", line 170, in <module>\n    mp.spawn(worker)\n"
             "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 terminated with the following error:\n"
             "Traceback (most recent call last):\n  File \"/home/user/proj/train.py\", line 90, in train\n    batch = next(it)\n"
             "utils.data.ShardIntegrityError: shard-00002: checksum\n")
    assert named(of_text(text)) == ("rank", 2)


def test_a_kill_of_a_worker_process_names_the_rank_that_lost_its_worker() -> None:
    text = "".join(banner(r) for r in range(4)) + lost(0) + lost(1) + lost(3)
    text += raised(2, "RuntimeError: DataLoader worker (pid 7788) is killed by signal: Killed.")
    text += "[ 1843.308145] Out of memory: Killed process 7788 (pt_data_worker) total-vm:1kB\n"
    assert named(of_text(text)) == ("rank", 2)


def test_a_kill_of_a_foreign_process_does_not_hide_a_fault() -> None:
    text = banner(0, 2) + banner(1, 2) + raised(1, "ValueError: bad record 9") + lost(0)
    text += "[ 1843.308145] Out of memory: Killed process 99 (mysqld) total-vm:1kB\n"
    assert named(of_text(text)) == ("rank", 1)


def test_a_rank_that_left_early_is_the_one_the_summary_does_not_list() -> None:
    text = "".join(banner(r) + steps(r, 9) for r in range(4)) + lost(0) + lost(1) + lost(3)
    text += summary((1, -15, "07"), (3, -15, "07"), (0, 1, "07"), root=0)
    found = of_text(text)
    assert (named(found), found.rule) == (("rank", 2), "absent_from_summary")


def test_a_caught_and_logged_error_is_not_the_fault_of_a_later_crash() -> None:
    text = "".join(banner(r) for r in range(3)) + steps(1, 4) + "ERROR:data:read failed, will try again rank=1\n"
    text += raised(1, "TimeoutError: s3", prefix="[default1]:") + "".join(f"[default1]:{s}\n" for s in steps(1, 9, 5).splitlines())
    text += raised(2, "ValueError: bad record 9") + lost(0) + lost(1)
    assert named(of_text(text)) == ("rank", 2)


def test_one_rank_still_working_after_the_others_timed_out() -> None:
    def line(rank: int, clock: str, said: str) -> str:
        return f"2026-11-30 17:53:{clock} INFO train: {said} rank={rank}\n"
    text = "".join(banner(r) for r in range(4)) + "".join(line(r, "32,600", "step=9/30 loss=2.1") for r in range(4))
    text += "".join(lost(r, TIMED_OUT) for r in (1, 2, 3)) + line(0, "41,614", "step=10/30 loss=2.0") + lost(0, CLOSED)
    assert named(of_text(text)) == ("rank", 0)


def test_the_latecomer_is_the_one_that_did_not_wait() -> None:
    text = "".join(banner(r) for r in range(4)) + "".join(lost(r, TIMED_OUT) for r in (0, 1, 3)) + lost(2, CLOSED)
    found = of_text(text)
    assert named(found) == ("rank", 2)
    assert found.initiating is not None and found.initiating.confidence == "weak"
    mixed = "".join(banner(r) for r in range(4)) + "".join(lost(r, TIMED_OUT) for r in (0, 1)) + lost(2, CLOSED) + lost(3, CLOSED)
    assert named(of_text(mixed)) == ("unknown", None)


def test_data_time_of_one_rank_far_above_the_others() -> None:
    text = "".join(banner(r) for r in range(4)) + "".join(
        f"INFO:train:step=9/40 loss=2.1 data_time={9.31 if r == 2 else 0.02}s rank={r}\n" for r in range(4))
    assert named(of_text(text + "".join(lost(r, TIMED_OUT) for r in range(4)))) == ("rank", 2)


def test_last_words_of_the_only_rank_that_logs_accuse_nobody() -> None:
    text = banner(0) + steps(0, 9) + "INFO:train:running evaluation at step 9 rank=0\n"
    text += "".join(lost(r, TIMED_OUT, line=24, function="evaluate", code="dist.all_gather(parts, total)") for r in (0, 1, 2, 3))
    assert named(of_text(text)) == ("unknown", None)


def test_pipeline_stages_wait_in_different_code_by_design() -> None:
    text = "".join(banner(r) for r in range(4))
    for r, code in ((0, "dist.send(x, dst=1)"), (1, "dist.send(x, dst=2)"), (3, "dist.recv(x, src=2)"), (2, "dist.send(x, dst=3)")):
        text += lost(r, TIMED_OUT, line=10 + (r == 3), function="stage", code=code)
    assert named(of_text(text)) == ("unknown", None)


def test_machines_named_differently_by_banner_and_summary_are_one() -> None:
    text = "".join(f"[default{r}]:" + banner(r) for r in range(3)) + "".join(
        f"[default1]:{line}\n" for line in raised(1, "ImportError: libfoo.so.1", prefix="").splitlines())
    text += sigterm(0, 2) + failed(1, 1) + summary((0, -15, "07"), (2, -15, "07"), (1, 1, "07"), root=1, host="node-0.cluster.local")
    assert named(of_text(text)) == ("rank", 1)


def test_sigterm_passed_on_by_the_scheduler_after_a_failure_is_teardown() -> None:
    death = "W0304 15:34:07.100000 400 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
    text = "".join(banner(r, host=f"node-{r // 2}", local=r % 2) for r in range(4)) + raised(2, "ValueError: bad record 9")
    text += lost(0) + lost(1) + death
    assert named(of_text(text)) == ("rank", 2)


def test_sigterm_to_the_only_agent_is_outside() -> None:
    death = "W0304 15:34:07.100000 400 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
    text = "".join(banner(r) + steps(r, 5) for r in range(4)) + death + sigterm(0, 1, 2, 3) + lost(2)
    found = of_text(text)
    assert named(found) == ("outside", None)


def test_a_log_cut_within_a_traceback_accuses_no_silent_rank() -> None:
    text = "".join(banner(r) for r in range(4)) + lost(0, TIMED_OUT) + lost(1, TIMED_OUT) + "\n".join(lost(2).splitlines()[:4])
    assert named(of_text(text)) == ("unknown", None)


# -- what is not a failure ---------------------------------------------------------------------

def test_a_completed_run_has_no_initiating_rank() -> None:
    text = "".join(banner(r) + steps(r, 40) for r in range(2)) + "WARNING:data:s3 timeout, retrying\nINFO:train:training complete\n"
    found = of_text(text)
    assert found.initiating is None
    assert found.completed


def test_a_caught_and_logged_traceback_in_a_completed_run() -> None:
    text = banner(0, 1) + steps(0, 5) + "ERROR:data:read failed, retrying\n" + raised(0, "TimeoutError: s3", prefix="")
    text += steps(0, 40, 6) + "INFO:train:training complete\n"
    assert of_text(text).initiating is None


def test_a_caught_and_logged_traceback_in_a_run_that_still_moves() -> None:
    text = banner(0, 1) + steps(0, 5) + "ERROR:data:read failed, trying once more\n" + raised(0, "TimeoutError: s3", prefix="") + steps(0, 9, 6)
    assert of_text(text).initiating is None


def test_progress_printed_late_does_not_excuse_a_crash() -> None:
    # Buffered standard output arrives after the traceback; nobody logged that traceback.
    text = banner(0, 1) + raised(0, "ValueError: bad record 9", prefix="") + steps(0, 9)
    assert named(of_text(text)) == ("rank", 0)


def test_a_run_that_is_still_moving_has_no_initiating_rank() -> None:
    found = of_text("".join(banner(r) + steps(r, 12) for r in range(2)))
    assert found.initiating is None
    assert found.progressed and not found.completed


# -- large inputs ------------------------------------------------------------------------------

def test_a_large_log_gives_the_answer_of_the_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filler = "".join(steps(r, 3000) for r in range(4))
    text = "".join(banner(r) for r in range(4)) + filler + raised(2, "ValueError: bad record 9") + lost(0) + filler.replace("step", "note")
    text += lost(1) + lost(3) + sigterm(0, 1, 3) + failed(2, 1)
    log = tmp_path / "train.log"
    log.write_text(text)
    whole = incident.from_sources(sources.discover([log]))
    monkeypatch.setattr(reading, "WHOLE", 1000)
    monkeypatch.setattr(reading, "EDGE", 200)
    read = reading.texts(sources.discover([log])[0])
    assert 400 <= len(read) < 2000
    partly = incident.from_sources(sources.discover([log]))
    assert partly.initiating == whole.initiating
    assert named(partly) == ("rank", 2)


# -- the value ---------------------------------------------------------------------------------

def test_a_whole_traceback_in_one_json_record_belongs_to_the_rank_beside_it() -> None:
    def record(rank: int, text: str) -> str:
        return json.dumps({"level": "ERROR", "rank": rank, "msg": text}) + "\n"

    trace = 'Traceback (most recent call last):\n  File "/app/train.py", line 61, in <module>\n    main()\nKeyError: 3\n'
    found = of_text("".join(record(r, "step=1 loss=2.0") for r in range(4)) + record(3, trace))
    assert named(found) == ("rank", 3)
    assert found.first_abnormal is not None and found.first_abnormal["line"] == 5


def test_storms_are_folded_and_the_first_abnormal_line_is_the_guilty_ranks() -> None:
    text = "".join(banner(r) for r in range(4)) + lost(0) + lost(1) + raised(2, "ValueError: bad record 9") + lost(3)
    found = of_text(text)
    storm = next(c for c in found.collateral if c["what"] == "peer_closed")
    assert (storm["count"], storm["ranks"]) == (3, [0, 1, 3])
    assert storm["first"]["rank"] == 0 and storm["last"]["rank"] == 3
    assert found.first_abnormal is not None and found.first_abnormal["rank"] == 2


def test_the_first_abnormal_line_is_the_one_its_text_stands_on() -> None:
    text = "".join(banner(r) for r in range(4)) + lost(0) + raised(2, "ValueError: bad record 9") + lost(1) + lost(3)
    shown = of_text(text).first_abnormal
    assert shown is not None and text.splitlines()[shown["line"] - 1] == "[rank2]: " + shown["text"] == "[rank2]: ValueError: bad record 9"


def test_a_traceback_that_was_cut_is_shown_where_it_begins() -> None:
    text = banner(0, world=1) + "Traceback (most recent call last):\n" + '  File "/p/train.py", line 9, in main\n'
    shown = of_text(text).first_abnormal
    assert shown is not None and shown["line"] == 2 and shown["text"].startswith("Traceback")


def test_answers_do_not_depend_on_the_order_of_the_ranks() -> None:
    for guilty in range(4):
        text = "".join(banner(r) for r in range(4))
        text += "".join(raised(r, "ValueError: bad record 9") if r == guilty else lost(r) for r in (3, 1, 0, 2))
        assert named(of_text(text)) == ("rank", guilty)


def test_nothing_in_a_log_can_raise() -> None:
    hostile = "\x00\xff[rank99999999999]: Traceback (most recent call last):\n" * 3 + "exitcode : 99 (pid: \n[[[[\n" + "(" * 5000 + "\n"
    hostile += "Ranks , failed to pass monitoredBarrier\nsrun: error: n: tasks 0-9999999: Killed\n" + "a" * 300_000 + "\n"
    found = of_text(hostile)
    assert isinstance(found, Incident)


def test_the_same_bytes_give_the_same_answer_in_another_process(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(banner(r) for r in range(4)) + lost(0) + lost(1) + lost(3))
    code = ("import sys; from faultbook import incident, sources; "
            "print(incident.from_sources(sources.discover([sys.argv[1]])).initiating)")
    seen = {subprocess.run([sys.executable, "-c", code, str(log)], capture_output=True, text=True, check=True,
                           env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(incident.__file__).parents[1])}).stdout for seed in "12"}
    assert len(seen) == 1
