"""The table of events: what each kind matches, and what it must not."""

# ruff: noqa: E501 - log lines are quoted whole

from __future__ import annotations

import time

import pytest

from faultbook import events, literals, portable
from faultbook.events import EVENT_PATTERNS
from faultbook.model import Hit, Line

SAMPLES = [
    ("gloo_timeout", "[unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete", {"timeout_ms": 4000, "direction": "recv"}),
    ("peer_closed", "[pair.cc:553] Connection closed by peer [127.0.0.1]:14762.", {}),
    ("peer_reset", "[pair.cc:537] Read error [127.0.0.1]:43951: Connection reset by peer. This", {"error": "Connection reset by peer"}),
    ("full_mesh_failed", "Gloo connectFullMesh failed with [pair.cc:144] no error", {}),
    ("size_mismatch", "what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 726 vs 704.", {"got": 726, "asked": 704}),
    ("watchdog", "[rank8]:[E606 07:08:11.1 ProcessGroupNCCL.cpp:616] [PG ID 11 PG GUID 31 Rank 0] Watchdog caught collective operation "
     "timeout: WorkNCCL(SeqNum=96, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600031 milliseconds",
     {"group": 11, "group_rank": 0, "seq": 96, "op": "ALLREDUCE", "numel_in": 1, "timeout_ms": 600000, "ran_ms": 600031}),
    ("watchdog", "[E ProcessGroupNCCL.cpp:475] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, "
     "Timeout(ms)=1800000) ran for 1800572 milliseconds before timing out.", {"printed_rank": 3, "timeout_ms": 1800000}),
    ("group_status", "[PG 0 (default_pg) Rank 3] Timeout at NCCL work: 96, last enqueued NCCL work: 98, last completed NCCL work: 95.",
     {"enqueued": 98, "timed_out": 96, "completed": 95}),
    ("dump_signal", "Received a dump signal due to a collective timeout from  rank 5 and we will try", {"detector": 5}),
    ("communicator_aborted", "NCCL communicator was aborted on rank 3.", {"aborted": 3}),
    ("nccl_error", "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:784", {"error": "NCCL error in"}),
    ("barrier_failed", "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 1800000 ms", {"missing": "1, 3", "printed_rank": 0}),
    ("store_clients", "Timed out after 5 seconds waiting for clients. 3/4 clients joined.", {"joined": 3, "world_size": 4}),
    ("store_barrier", "store based barrier on rank: 0 (world_size=2048, worker_count=1792, timeout=0:30:00)", {"joined": 1792, "world_size": 2048}),
    ("store_connect", "The client socket has timed out after 4000ms while trying to connect to (node-7, 25092).", {"remote": "node-7", "port": 25092}),
    ("horovod_ready", "Stalled ops: x [ready ranks: 4, 6, 7]", {"ready": "4, 6, 7"}),
    ("sigterm_sent", "Sending process 3788 closing signal SIGTERM", {"pid": 3788, "signal": "SIGTERM"}),
    ("sigkill_sent", "Unable to shutdown process 3788 via 15, forcefully exiting via 9", {"pid": 3788}),
    ("agent_failed", "failed (exitcode: -9) local_rank: 1 (pid: 3789) of binary: /usr/bin/python3", {"exitcode": -9, "local_rank": 1, "pid": 3789}),
    ("agent_signal", "Received 15 death signal, shutting down workers", {"signal": 15}),
    ("spawn_exit", "ProcessExitedException: process 2 terminated with exit code 3", {"process": 2, "exitcode": 3}),
    ("spawn_exit", "process 1 terminated with signal SIGKILL", {"process": 1, "signal": "SIGKILL"}),
    ("deepspeed_exit", "['/usr/bin/python3', '-u', 'train.py', '--local_rank=1', '--x'] exits with return code = -7", {"local_rank": 1, "exitcode": -7}),
    ("composer_crash", "Rank 1 crashed with exit code 1.", {"named": 1, "exitcode": 1}),
    ("mpi_exit", "mpirun noticed that process rank 7 with PID 411 on node node-2 exited on signal 9 (Killed).", {"named": 7, "node": "node-2", "signal": 9}),
    ("srun_task", "srun: error: node-1: tasks 2,4-5,7: Killed", {"node": "node-1", "tasks": "2,4-5,7", "what": "Killed"}),
    ("host_oom_kill", "Out of memory: Killed process 4288 (python3) total-vm:1kB", {"pid": 4288}),
    ("host_oom_kill", "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python3.11,pid=24896,uid=1000", {"pid": 24896}),
    ("oom_kill_step", "slurmstepd-node-0: error: Detected 1 oom-kill event(s) in StepId=88.batch cgroup.", {"node": "node-0"}),
    ("xid", "NVRM: Xid (PCI:0000:b3:00): 79, pid=4288, name=python3, GPU has fallen off the bus.", {"xid": 79, "pid": 4288}),
    ("time_limit", "*** STEP 88.0 ON node-0 CANCELLED AT 2026-04-23T12:18:08 DUE TO TIME LIMIT ***", {"node": "node-0", "when": "2026-04-23T12:18:08"}),
    ("preempted", "*** JOB 88 ON node-0 CANCELLED AT 2026-04-23T12:18:08 DUE TO PREEMPTION ***", {"when": "2026-04-23T12:18:08"}),
    ("cancelled", "slurmstepd: error: *** STEP 6053.0 ON node-0 CANCELLED AT 2024-04-23T12:18:08 ***", {"when": "2024-04-23T12:18:08"}),
    ("user_interrupt", "[rank0]: KeyboardInterrupt", {}),
    ("interrupt_caught", "Detected KeyboardInterrupt, attempting graceful shutdown ...", {}),
    ("killed_line", "run.sh: line 12: 4288 Killed                  python train.py", {}),
    ("killed_line", "Killed", {}),
    ("cuda_oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.35 GiB.", {}),
    ("ecc", "RuntimeError: CUDA error: uncorrectable ECC error encountered", {}),
    ("disk_full", "OSError: [Errno 28] No space left on device", {}),
    ("local_nan", "RuntimeError: Rank 2, node node-0, device 2, iteration -1: Unexpected result nan (message='found NaN in local grad norm')", {"named": 2}),
    ("handled", "WARNING:train:CUDA out of memory, skipping this batch", {}),
    ("handled", "non-finite loss at step 12, skipping batch", {}),
    ("handled", "CUDA OOM at step 9, emptying the cache and moving on", {}),
    ("handled", "batch 12 was dropped after a bad checksum", {}),
    ("advice", "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.", {}),
    ("peer_refused", "[pair.cc:155] SO_ERROR: Connection refused, remote=[10.0.0.2]:33445", {"error": "Connection refused"}),
    ("work_list", "[PG 0 Rank 2] NCCL heartbeat: workMetaList_.size() = 17", {"pending": 17}),
    ("watchdog_stuck", "[Rank 3] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress", {}),
    ("watchdog_exception", "[PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: CUDA error: device-side "
     "assert triggered", {"group": 0, "group_rank": 3, "message": "CUDA error: device-side assert triggered"}),
    ("nccl_recv_failed", "NCCL WARN socketProgress: Call to recv from 10.0.0.7<41235> failed : Connection reset by peer", {"peer": "10.0.0.7<41235>"}),
    ("nccl_completion_error", "NET/IB : Got completion from peer 10.0.0.7<41235> with status=12 opcode=32769 len=0", {"status": 12}),
    ("nccl_warn", "node-0:774:854 [0] transport/shm.cc:590 NCCL WARN Cuda failure 'out of memory'", {"message": "Cuda failure 'out of memory'"}),
    ("nccl_duplicate_gpu", "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", {"rank_a": 1, "rank_b": 0}),
    ("mismatch_around", "NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 3.", {"named": 3}),
    ("fingerprint_mismatch", "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=3, "
     "OpType=ALLREDUCE), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=REDUCE)", {"self_rank": 1, "peer_rank": 0}),
    ("barrier_reached", "[Rank 0]: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0.", {}),
    ("parameters_differ", "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 4 params, while rank 1 has inconsistent 0 params.", {}),
    ("store_wait", "wait timeout after 300000ms, keys: /default_pg/0//cuda//2", {"timeout_ms": 300000, "key": "/default_pg/0//cuda//2"}),
    ("store_address", "The IPv4 network addresses of (node-7, 29500) cannot be retrieved (gai error: -2 - Name or service not known).", {"remote": "node-7", "port": 29500}),
    ("store_timeout", "torch.distributed.DistStoreError: Socket Timeout", {}),
    ("store_gone", "recvValue failed on SocketImpl(fd=4, addr=[node-0]:51234, remote=[node-0]:29500): Connection reset by peer", {}),
    ("horovod_missing", "allreduce.grad_3 [missing ranks: 3]", {"missing": 3}),
    ("jax_task_error", "/job:jax_worker/replica:0/task:37 has been set to ERROR in coordination service: UNAVAILABLE: Task heartbeat timeout", {"task": 37}),
    ("jax_heartbeat", "/job:jax_worker/replica:0/task:5 heartbeat timeout. This indicates that the remote task has failed", {"task": 5}),
    ("jax_unavailable", "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: The following tasks are unhealthy", {}),
    ("actor_died", "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.", {"error": "ActorDiedError"}),
    ("shm_broadcast", "No available shared memory broadcast block found in 60 second.", {}),
    ("spawn_terminated", "W0902 00:42:50.212000 31581 spawn.py:169] Terminating process 3788 via signal SIGTERM", {"pid": 3788, "signal": "SIGTERM"}),
    ("deepspeed_killing", "[launch.py:315:sigkill_handler] Killing subprocess 45098", {"pid": 45098}),
    ("group_restarted", "[default] Worker group FAILED. 3/3 attempts left; will restart worker group", {"left": 3, "restarts": 3}),
    ("summary_head", "Root Cause (first observed failure):", {}),
    ("spawn_error", "-- Process 1 terminated with the following error:", {"process": 1}),
    ("mpi_exit_code", "  Process name: [[29973,1],2]", {"named": 2}),
    ("srun_terminated", "srun: Terminating StepId=88.0", {}),
    ("job_step_aborted", "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", {}),
    ("accelerate_failed", "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.", {"exitcode": 1}),
    ("kernel_segfault", "[ 1843.308145] python3[4288]: segfault at 8 ip 00007f ss 00007f error 4 in libtorch.so", {"pid": 4288}),
    ("node_failed", "srun: error: Node failure on node-[3,7]", {"lost_node": "node-[3,7]"}),
    ("node_failed", "slurmstepd: error: *** JOB 88 ON node-0 CANCELLED AT 2026-04-23T12:18:08 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", {}),
    ("evicted", "train-worker-3   0/1   Evicted   0   19h", {}),
    ("oom_killed_pod", "    Reason:       OOMKilled", {}),
    ("run_limit", "TERM_RUNLIMIT: job killed after reaching LSF run time limit.", {}),
    ("signal_received", "INFO: received SIGUSR1, saving a checkpoint", {"signal": "USR1"}),
    ("cuda_error", "RuntimeError: CUDA error: an illegal memory access was encountered", {"message": "an illegal memory access was encountered"}),
    ("device_assert", "RuntimeError: CUDA error: device-side assert triggered", {}),
    ("cuda_assert_line", "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward: block: [0,0,0], thread: [4,0,0] Assertion `t >= 0 && t < n_classes` failed.", {}),
    ("host_alloc", "RuntimeError: [enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.", {}),
    ("host_alloc", "OSError: [Errno 12] Cannot allocate memory", {}),
    ("write_failed", "RuntimeError: [enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0", {}),
    ("write_failed", "RuntimeError: basic_ios::clear: iostream error", {}),
    ("fatal_error", "Fatal Python error: Segmentation fault", {"what": "Segmentation fault"}),
    ("cpp_terminate", "terminate called after throwing an instance of 'gloo::EnforceNotMet'", {"how": "after throwing", "type": "gloo::EnforceNotMet"}),
    ("cpp_terminate", "terminate called without an active exception", {"how": "without an active"}),
    ("bus_error", "ERROR: Unexpected bus error encountered in worker. Bus error (core dumped)", {}),
    ("segfault", "run.sh: line 3: 4288 Segmentation fault      (core dumped) python train.py", {}),
    ("address_in_use", "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).", {}),
    ("typically_caused", "This is typically caused by the remote worker crashing. Review earlier application logs on the remote worker.", {}),
    ("closed_by_local_rank", "node-0:4288:4521 [1] NCCL INFO [Service thread] Connection closed by localRank 2", {}),
    ("abort_complete", "node-0:4288:4521 [1] NCCL INFO comm 0x5640 rank 1 nranks 2 cudaDev 1 busId a7000 - Abort COMPLETE", {}),
    ("leaked_objects", "resource_tracker: There appear to be 12 leaked semaphore objects to clean up at shutdown", {}),
    ("group_not_destroyed", "Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.", {}),
    ("destructor", "Exception ignored in: <function DeepSpeedCPUAdam.__del__ at 0x7f>", {}),
    ("should_dump_flag", 'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early)', {}),
]


@pytest.mark.parametrize(("kind", "text", "detail"), SAMPLES)
def test_each_kind_matches_its_line(kind: str, text: str, detail: dict[str, object]) -> None:
    found = {EVENT_PATTERNS[i].kind: d for i, d in events.matches(text)}
    assert kind in found
    assert {k: found[kind].get(k) for k in detail} == detail


def test_every_kind_has_a_line() -> None:
    assert {e.kind for e in EVENT_PATTERNS} == {kind for kind, *_ in SAMPLES}


@pytest.mark.parametrize("text", [
    "step=1/40 loss=2.8442 grad_norm=1.4689", "number of nan iterations: 0", "--timeout 1800 --signal none",
    "torch.distributed.run: Setting OMP_NUM_THREADS", "| N/A   30C    P0    52W / 400W |      0MiB / 40960MiB | Volatile Uncorr. ECC |",
    "INFO train: trainable parameters: 12,912", "huggingface/tokenizers: The current process just got forked",
    "the tenant finance-prod preempts nobody", "tasks Killed: 0", "Killed 3 idle workers", "loading skipping_rope.txt",
])
def test_ordinary_lines_are_no_events(text: str) -> None:
    assert [EVENT_PATTERNS[i].kind for i, _ in events.matches(text)] == []


@pytest.mark.parametrize(("text", "stops"), [
    ("trainer received SIGTERM, saving", True), ("Caught SIGUSR1", True),
    ("[8d6bf97c3bf4:3039 :0:3095] Caught signal 7 (Bus error: nonexistent physical address)", False),
    ("Caught SIGSEGV", False),
])
def test_only_signals_that_ask_to_stop_are_stops(text: str, stops: bool) -> None:
    assert ("signal_received" in {EVENT_PATTERNS[i].kind for i, _ in events.matches(text)}) is stops


def test_overflow_search_of_a_loss_scaler_is_no_failure() -> None:
    kinds = {EVENT_PATTERNS[i].kind for i, _ in events.matches(
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768")}
    assert kinds <= {"handled"}


def test_patterns_stay_in_the_portable_subset_and_hold_their_literals() -> None:
    for event in EVENT_PATTERNS:
        pattern = event.pattern
        assert portable.problems(pattern.pattern, pattern.ignore_case) == [], event.kind
        assert literals.verify_anchors(pattern.pattern, pattern.anchors, pattern.ignore_case) == [], event.kind


@pytest.mark.parametrize("gate", ["python", "ahocorasick", "hyperscan"])
def test_many_lines_at_once_give_the_same_as_each_alone(gate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if gate != "python":
        pytest.importorskip({"ahocorasick": "ahocorasick_rs"}.get(gate, gate))
    monkeypatch.setenv("FAULTBOOK_GATE", gate)
    texts = [text for _, text, _ in SAMPLES] * 3 + ["step=1/40 loss=2.0", "", "ünïcode NCCL WARN ü"]
    alone = [(n, index, detail) for n, text in enumerate(texts) for index, detail in events.matches(text)]
    assert list(events.matches_of(texts)) == alone
    monkeypatch.setattr(events, "BATCH", 1)
    assert list(events.matches_of(texts)) == alone
    monkeypatch.setattr(events, "BATCH", 500)
    assert list(events.matches_of(texts)) == alone


def test_every_anchor_admits_what_its_pattern_matches() -> None:
    for kind, text, _ in SAMPLES:
        for pattern in EVENT_PATTERNS:
            if pattern.kind == kind and events.details(EVENT_PATTERNS.index(pattern), text) is not None:
                assert any(a.lower() in text.lower() for a in pattern.pattern.anchors), kind


def test_hits_become_events_with_the_writers_rank() -> None:
    index = next(i for i, p in enumerate(EVENT_PATTERNS) if p.kind == "communicator_aborted")
    hits = [Hit(source=0, line=9, offset=0, text="NCCL communicator was aborted on rank 3.", pattern=100 + index),
            Hit(source=0, line=4, offset=0, text="no match", pattern=100 + index),
            Hit(source=0, line=2, offset=0, text="another table's", pattern=5)]
    (found,) = events.events_from_hits(hits, lambda hit: Line(body=hit.text, rank=1), offset=100, attempts={0: [(8, 1)]})
    assert (found.kind, found.role, found.rank, found.attempt, found.detail) == ("communicator_aborted", "cascade", 1, 1, {"aborted": 3})


@pytest.mark.parametrize(("text", "ranks"), [("0, 2-4", (0, 2, 3, 4)), ("7", (7,)), ("[1,3]", (1, 3)), ("", ()), ("x-y", ())])
def test_rank_lists(text: str, ranks: tuple[int, ...]) -> None:
    assert events.rank_list(text) == ranks


def test_a_range_of_ranks_cannot_fill_the_memory() -> None:
    assert len(events.rank_list("0-9999999")) <= 100_001


def test_a_number_of_absurd_length_stays_a_number() -> None:
    """A line with a flipped digit or two must not make a rule compare a text with a number."""
    line = f"torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: {'1' * 40} (pid: 9) of binary: python"
    found = dict(events.matches(line))
    detail = next(iter(found.values()))
    assert detail["local_rank"] == 10**18 and detail["pid"] == 9


def test_no_event_pattern_can_be_pumped() -> None:
    """A line of 8,000 characters made of the pattern's own words costs bounded time."""
    slow = {}
    for index, event in enumerate(EVENT_PATTERNS):
        for anchor in event.pattern.anchors:
            for unit in (" ", "a", "0 "):
                for text in (anchor + unit * 8_000, unit * 4_000 + anchor, (anchor + unit) * 800):
                    started = time.process_time()
                    events.details(index, text[:8_000])
                    if time.process_time() - started > 0.2:
                        slow[event.kind] = (anchor, unit)
    assert slow == {}
