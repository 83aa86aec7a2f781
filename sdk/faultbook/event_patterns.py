"""The table of lines that mean something happened to a job, and the role each can play.

It is data: one scan finds these patterns together with the catalogue's signatures, and
`events.events_from_hits` turns the hits into values. What an event means for the question
"who started it" is decided in `rules`, never here.
"""

from __future__ import annotations

from .signatures import Pattern, Role
from .values import dataclass


@dataclass(frozen=True, slots=True)
class EventPattern:
    """One kind of line. Named groups of the pattern and of `fields` become the event's
    detail; a group that holds an integer becomes an int."""

    kind: str
    role: Role
    pattern: Pattern
    fields: tuple[str, ...] = ()
    """Further expressions searched in the same line; each adds its captures when it matches."""


_WATCHDOG_FIELDS = (
    r"\[PG (?:ID )?(?P<group>\d+)(?: PG GUID (?P<guid>[^ (\]]+)[^ \]]*)?(?: \([^)]*\))? Rank (?P<group_rank>\d+)\]",
    r"\[Rank (?P<printed_rank>\d+)\]",
    r"SeqNum=(?P<seq>\d+)",
    r"OpType=(?P<op>\w+)",
    r"NumelIn=(?P<numel_in>\d+)",
    r"NumelOut=(?P<numel_out>\d+)",
    r"Timeout\(ms\)=(?P<timeout_ms>\d+)",
    r"ran for (?P<ran_ms>\d+) milliseconds",
)
_STATUS_FIELDS = (
    r"\[PG (?:ID )?(?P<group>\d+)(?: PG GUID (?P<guid>[^ (\]]+)[^ \]]*)?(?: \([^)]*\))? Rank (?P<group_rank>\d+)\]",
    r"\[Rank (?P<printed_rank>\d+)\]",
    r"(?:work|at NCCL work): (?P<timed_out>\d+)",
    r"ast completed NCCL work: (?P<completed>\d+)",
)


def _event(
    kind: str,
    role: Role,
    anchors: str | tuple[str, ...],
    pattern: str,
    fields: tuple[str, ...] = (),
    ignore_case: bool = False,
) -> EventPattern:
    literals = (anchors,) if isinstance(anchors, str) else anchors
    return EventPattern(kind, role, Pattern(pattern=pattern, ignore_case=ignore_case, anchors=literals), fields)


# fmt: off
_COMMUNICATION = (
    _event("gloo_timeout", "cascade", "Timed out waiting",
           r"Timed out waiting (?P<timeout_ms>\d+)ms for (?P<direction>recv|send)"),
    _event("peer_closed", "cascade", "Connection closed by peer",
           r"Connection closed by peer \["),
    _event("peer_reset", "cascade", ("Read error [", "Write error ["),
           r"(?:Read|Write) error \[[^\]]{0,60}\]:\d{1,6}: (?P<error>[A-Z][a-z]{2,20} [a-z ]{2,40})"),
    _event("peer_refused", "cascade", "SO_ERROR",
           r"SO_ERROR: (?P<error>[A-Z][a-z ]+)"),
    _event("full_mesh_failed", "cascade", "connectFullMesh failed",
           r"connectFullMesh failed"),
    _event("size_mismatch", "cascade", "op.preamble.length <= op.nbytes",
           r"op\.preamble\.length <= op\.nbytes\. (?P<got>\d+) vs (?P<asked>\d+)"),
    _event("watchdog", "cascade", "Watchdog caught collective operation timeout",
           r"Watchdog caught collective operation timeout", _WATCHDOG_FIELDS),
    _event("group_status", "cascade", "ast enqueued NCCL work",
           r"ast enqueued NCCL work: (?P<enqueued>\d+)", _STATUS_FIELDS),
    _event("work_list", "cascade", "workMetaList_.size()",
           r"workMetaList_\.size\(\)[ :=]+(?P<pending>\d+)",
           (r"\[Rank (?P<printed_rank>\d+)\]",)),
    _event("watchdog_stuck", "cascade", ("watchdog got stuck", "heartbeat monitor"),
           r"(?:watchdog got stuck|[Hh]eartbeat monitor timed out)"),
    _event("watchdog_exception", "cascade", "watchdog thread terminated with exception",
           r"watchdog thread terminated with exception: (?P<message>.*)",
           (r"\[PG (?:ID )?(?P<group>\d+)(?: PG GUID (?P<guid>[^ (\]]+)[^ \]]*)?(?: \([^)]*\))? Rank (?P<group_rank>\d+)\]",
            r"\[Rank (?P<printed_rank>\d+)\]")),
    _event("dump_signal", "cascade", "dump signal",
           r"(?:Received a|Observed flight recorder) dump signal(?: due to a collective timeout)?(?: from "
           r"+(?:another )?rank)?(?: (?P<detector>\d+))?"),
    _event("communicator_aborted", "cascade", "communicator was aborted on rank",
           r"communicator was aborted on rank (?P<aborted>\d+)"),
    _event("nccl_error", "cascade",
           ("ncclRemoteError", "ncclSystemError", "ncclInternalError", "ncclUnhandledCudaError",
            "ncclInvalidUsage", "NCCL error in"),
           r"(?P<error>ncclRemoteError|ncclSystemError|ncclInternalError|ncclUnhandledCudaError"
           r"|ncclInvalidUsage|NCCL error in)"),
    _event("nccl_recv_failed", "cascade", "Call to recv from",
           r"Call to recv from (?P<peer>[^ ]+) failed"),
    _event("nccl_completion_error", "cascade", "Got completion from peer",
           r"Got completion from peer (?P<peer>[^ ]+) with status=(?P<status>\d+)"),
    _event("nccl_warn", "cascade", "NCCL WARN",
           r"NCCL WARN (?P<message>.*)"),
    _event("nccl_duplicate_gpu", "root", "Duplicate GPU detected",
           r"Duplicate GPU detected : rank (?P<rank_a>\d+) and rank (?P<rank_b>\d+)"),
    _event("mismatch_around", "cascade", "Mismatched collective",
           r"Mismatched collective.*around rank (?P<named>\d+)"),
    _event("fingerprint_mismatch", "cascade", "Detected mismatch between collectives on ranks",
           r"Detected mismatch between collectives on ranks\. Rank (?P<self_rank>\d+) is running "
           r"(?:collective: )?(?P<self_text>.*?), but Rank (?P<peer_rank>\d+) is running (?:collective: )?"
           r"(?P<peer_text>.*)"),
    _event("barrier_failed", "cascade", "failed to pass monitoredBarrier",
           r"Ranks? (?P<missing>\d[\d, ]*) failed to pass monitoredBarrier",
           (r"\[Rank (?P<printed_rank>\d+)\]",)),
    _event("barrier_reached", "cascade", "successfully reached monitoredBarrier",
           r"successfully reached monitoredBarrier, but received errors"),
    _event("parameters_differ", "cascade", ("inconsistent", "in this process"),
           r"(?:inconsistent \d+ params|params\[\d+\] in this process)"),
    _event("store_clients", "cascade", "clients joined",
           r"waiting for clients\. (?P<joined>\d+)/(?P<world_size>\d+) clients joined"),
    _event("store_barrier", "cascade", "worker_count=",
           r"worker_count=(?P<joined>\d+)",
           (r"world_size=(?P<world_size>\d+)",)),
    _event("store_wait", "cascade", "wait timeout after",
           r"wait timeout after (?P<timeout_ms>\d+)ms, keys: (?P<key>.*)"),
    _event("store_connect", "cascade", "client socket has",
           r"client socket has (?:timed out after \d{1,9} ?m?s|failed to connect)",
           (r"trying to connect to \(?(?P<remote>[\w.\-]{1,100})[,:] ?(?P<port>\d{1,5})",
            r" to (?:any )?(?:network address of )?\((?P<remote>[\w.\-]{1,100}), (?P<port>\d{1,5})\)")),
    _event("store_address", "cascade", "cannot be retrieved",
           r"network addresses of \((?P<remote>[\w.\-]+), (?P<port>\d+)\) cannot be retrieved"),
    _event("store_timeout", "cascade", ("waitForInput", "Socket Timeout"),
           r"(?:waitForInput: |Socket Timeout)"),
    _event("store_gone", "cascade", ("recvValue failed on", "sendBytes failed on"),
           r"(?:recvValue|sendBytes) failed on SocketImpl"),
    _event("horovod_missing", "cascade", "missing ranks:",
           r"\[missing ranks: ?(?P<missing>[\d, ]+)\]"),
    _event("horovod_ready", "cascade", "ready ranks:",
           r"\[ready ranks: ?(?P<ready>[\d, ]+)\]"),
    _event("jax_task_error", "root", "has been set to ERROR in coordination service",
           r"/task:(?P<task>\d+) has been set to ERROR in coordination service"),
    _event("jax_heartbeat", "root", "heartbeat timeout",
           r"/task:(?P<task>\d+) heartbeat timeout"),
    _event("jax_unavailable", "cascade", "UNAVAILABLE",
           r"UNAVAILABLE: "),
    _event("actor_died", "cascade",
           ("ActorDiedError", "EngineDeadError", "RayActorError", "WorkerCrashedError"),
           r"(?P<error>ActorDiedError|EngineDeadError|RayActorError|WorkerCrashedError)"),
    _event("shm_broadcast", "cascade", "No available shared memory broadcast block",
           r"No available shared memory broadcast block", (), True),
)
# fmt: on

# fmt: off
_LAUNCHER = (
    _event("sigterm_sent", "teardown", "closing signal",
           r"Sending process (?P<pid>\d+) closing signal (?P<signal>SIG\w+)"),
    _event("sigkill_sent", "teardown", "forcefully exiting via",
           r"Unable to shutdown process (?P<pid>\d+) via .*forcefully exiting via"),
    _event("spawn_terminated", "teardown", "Terminating process",
           r"Terminating process (?P<pid>\d+) via signal (?P<signal>\w+)"),
    _event("deepspeed_killing", "teardown", "Killing subprocess",
           r"Killing subprocess (?P<pid>\d+)"),
    _event("agent_failed", "confirmation", "failed (exitcode:",
           r"failed \(exitcode: (?P<exitcode>-?\d+)\) local_rank: (?P<local_rank>\d+) \(pid: "
           r"(?P<pid>\d+)\)"),
    _event("agent_signal", "confirmation", "death signal",
           r"Received (?P<signal>\d+) death signal"),
    _event("agent_signal", "confirmation", "got signal:",
           r"SignalException: Process \d+ got signal: (?P<signal>\d+)"),
    _event("group_restarted", "teardown", "attempts left; will restart",
           r"Worker group (?P<state>\w+)\. (?P<left>\d+)/(?P<restarts>\d+) attempts left; will restart"),
    _event("summary_head", "confirmation", "Root Cause (first observed failure)",
           r"Root Cause \(first observed failure\)"),
    _event("spawn_exit", "confirmation", "terminated with exit code",
           r"rocess (?P<process>\d+) terminated with exit code (?P<exitcode>-?\d+)"),
    _event("spawn_exit", "confirmation", "terminated with signal",
           r"rocess (?P<process>\d+) terminated with signal (?P<signal>\w+)"),
    _event("spawn_error", "confirmation", "terminated with the following error",
           r"-- Process (?P<process>\d+) terminated with the following error"),
    _event("deepspeed_exit", "confirmation", "exits with return code",
           r"exits with return code = (?P<exitcode>-?\d+)",
           (r"""--local_rank[= '\",]{1,5}(?P<local_rank>\d{1,4})""",)),
    _event("composer_crash", "confirmation", "crashed with exit code",
           r"Rank (?P<named>\d+) crashed with exit code (?P<exitcode>-?\d+)"),
    _event("mpi_exit", "confirmation", "noticed that process rank",
           r"noticed that process rank (?P<named>\d+) with PID (?P<pid>\d+) on node (?P<node>[^ ]+) "
           r"exited on signal (?P<signal>\d+)"),
    _event("mpi_exit_code", "confirmation", "Process name: [[",
           r"Process name: \[\[\d+,\d+\],(?P<named>\d+)\]"),
    _event("srun_task", "confirmation", "srun: error:",
           r"srun: error: (?P<node>[\w.\-]+): tasks? (?P<tasks>[\d,\- \[\]]+): (?P<what>[A-Z].*)"),
    _event("srun_terminated", "teardown", "srun: Terminating",
           r"srun: Terminating (?:job step|StepId)"),
    _event("job_step_aborted", "teardown", "Job step aborted",
           r"Job step aborted"),
    _event("accelerate_failed", "teardown", "returned non-zero exit status",
           r"returned non-zero exit status (?P<exitcode>\d+)"),
)
# fmt: on

_SACCT = r"^\s{0,4}\d{1,12}(?:[_+.][a-z\d\[\]\-]{1,12})?(?:\.[a-z\d]{1,10})?[|\s].{0,120}"
"""The beginning of a row of accounting: a job or a step of it."""

# fmt: off
_OUTSIDE = (
    _event("host_oom_kill", "confirmation", "Killed process",
           r"[Oo]ut of memory: Killed process (?P<pid>\d+)"),
    _event("host_oom_kill", "confirmation", "oom-kill:constraint",
           r"oom-kill:constraint.*pid=(?P<pid>\d+)"),
    _event("oom_kill_step", "confirmation", ("oom_kill event", "oom-kill event"),
           r"Detected \d+ oom[_\-]kill event",
           (r"slurmstepd-(?P<node>[\w.\-]+):",)),
    _event("xid", "confirmation", "NVRM: Xid",
           r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)",
           (r"pid='?(?P<pid>\d+)",)),
    _event("kernel_segfault", "confirmation", "segfault at",
           r"\[(?P<pid>\d+)\]: segfault at"),
    _event("time_limit", "confirmation", "DUE TO TIME LIMIT",
           r"(?:ON (?P<node>[\w.\-]+) )?CANCELLED AT (?P<when>[^ ]+) DUE TO TIME LIMIT"),
    _event("preempted", "confirmation", "DUE TO PREEMPTION",
           r"(?:ON (?P<node>[\w.\-]+) )?CANCELLED AT (?P<when>[^ ]+) DUE TO PREEMPTION"),
    _event("node_failed", "confirmation", "error: Node failure on",
           r"error: Node failure on (?P<lost_node>[\w.\-\[\],]+)"),
    _event("node_failed", "confirmation", ("DUE TO NODE FAILURE", "NODE_FAIL"),
           r"(?:CANCELLED AT (?P<when>[^ ]+) DUE TO NODE FAILURE|NODE_FAIL)"),
    # Accounting: `sacct` in columns (State, ExitCode last) or with --parsable, and `scontrol show job`. The state of a
    # job in them is a word that logs use for other things, so the shape of the row must fit.
    _event("time_limit", "confirmation", ("TIMEOUT  ", "|TIMEOUT|", "JobState=TIMEOUT"),
           rf"{_SACCT}(?:TIMEOUT  \s{{0,8}}\d{{1,3}}:\d{{1,3}}\s{{0,4}}$|\|TIMEOUT\|)|\bJobState=TIMEOUT\b"),
    _event("preempted", "confirmation", ("PREEMPTED  ", "|PREEMPTED|", "JobState=PREEMPTED"),
           rf"{_SACCT}(?:PREEMPTED  \s{{0,8}}\d{{1,3}}:\d{{1,3}}\s{{0,4}}$|\|PREEMPTED\|)|\bJobState=PREEMPTED\b"),
    _event("oom_kill_step", "confirmation", "OUT_OF_ME",
           rf"{_SACCT}OUT_OF_ME(?:\+|MORY)(?:\s{{1,12}}\d{{1,3}}:\d{{1,3}}\s{{0,4}}$|\|)|\bJobState=OUT_OF_MEMORY\b",
           (r"\bBatchHost=(?P<node>[\w.\-]+)",)),
    _event("cancelled", "confirmation", ("CANCELLED by", "JobState=CANCELLED"),
           rf"{_SACCT}CANCELLED by \d{{1,10}}\b|\bJobState=CANCELLED\b"),
    _event("cancelled", "confirmation", "CANCELLED AT",
           r"(?:ON (?P<node>[\w.\-]+) )?CANCELLED AT (?P<when>[^ *]+)(?: \*\*\*| ?$)"),
    _event("preempted", "confirmation",
           ("preempted", "preemption notice", "preemption signal", "received preemption",
            "received a preemption"),
           # Not "this can happen if the node was preempted", which Ray adds to every node that it lost.
           r"(?:(?:^|[^f] )the |(?:^|[^a-z ]|[^h]e |[^e] ))(?:job|instance|node|pod|[Ww]orker|VM) "
           r"(?:[\w.:-]{1,60} )?[^.]{0,40}preempted"
           r"|[Pp]reemption (?:notice|signal)(?: received)?|received (?:a )?preemption", (), True),
    _event("preempted", "confirmation", "interruption notice",
           r"[Ss]pot (?:instance )?interruption notice"),
    _event("evicted", "confirmation", "Evicted",
           r"\bEvicted\b"),
    _event("oom_killed_pod", "confirmation", "OOMKilled",
           r"\bOOMKilled\b"),
    _event("run_limit", "confirmation", ("TERM_RUNLIMIT", "exceeded limit"),
           r"(?:TERM_RUNLIMIT|walltime \d+ exceeded limit)"),
    _event("user_interrupt", "confirmation", "KeyboardInterrupt",
           r"(?:^|[\]: ])KeyboardInterrupt\s*$"),
    _event("interrupt_caught", "confirmation", "Detected KeyboardInterrupt", r"Detected KeyboardInterrupt"),
    _event("killed_line", "confirmation", "Killed", r"(?:^\s*Killed\s*$|: line \d{1,6}: +\d{1,9} Killed\b)"),
    _event("signal_received", "confirmation", ("received SIG", "caught SIG", "got SIG"),
           # Only signals that ask to stop: "Caught signal 7 (Bus error" is a crash handler's line.
           r"(?:received SIG|caught SIG|got SIG)(?P<signal>TERM|INT|HUP|QUIT|USR[12]|XCPU|CONT|KILL)\b", (), True),
)
# fmt: on

# fmt: off
_OWN_FAULT = (
    _event("cuda_oom", "root", "out of memory",
           r"(?:CUDA|HIP|XPU) out of memory", (), True),
    _event("cuda_error", "root", "CUDA error:",
           r"CUDA error: (?P<message>[a-z\-][^.]*)"),
    _event("device_assert", "root", "device-side assert triggered",
           r"device-side assert triggered"),
    _event("cuda_assert_line", "root", "Assertion `",
           r"thread: \[\d+,\d+,\d+\] Assertion `"),
    _event("ecc", "root", "uncorrectable ECC error",
           r"uncorrectable ECC error"),
    _event("host_alloc", "root", ("DefaultCPUAllocator", "Cannot allocate memory"),
           r"(?:DefaultCPUAllocator: (?:can't|not enough)|Cannot allocate memory)"),
    _event("disk_full", "root", ("No space left on device", "Disk quota exceeded"),
           r"(?:No space left on device|Disk quota exceeded)"),
    _event("write_failed", "root", ("iostream error", "unexpected pos", "file write failed"),
           r"(?:iostream error|unexpected pos \d+ vs \d+|file write failed)"),
    _event("fatal_error", "root", "Fatal Python error",
           r"Fatal Python error: (?P<what>[A-Z][\w ]*)"),
    _event("cpp_terminate", "cascade", "terminate called",
           r"terminate called (?P<how>after throwing|without an active)",
           (r"instance of '(?P<type>[^']+)'",)),
    _event("bus_error", "root", "Bus error",
           r"\bBus error\b"),
    _event("segfault", "root", "Segmentation fault",
           r"\bSegmentation fault\b"),
    _event("local_nan", "root", ("Unexpected result", "found NaN in local grad norm"),
           r"(?:Unexpected result (?:nan|inf)|found NaN in local grad norm)",
           (r"[Rr]ank (?P<named>\d+)[:, ]",)),
    _event("address_in_use", "root", ("EADDRINUSE", "ddress already in use"),
           r"(?:EADDRINUSE|[Aa]ddress already in use)"),
    _event("handled", "root",
           ("skip", "dropping", "dropped", "ignor", "discard", "continu", "retry", "recover", "caught", "handled",
            "moving on", "emptying"),
           r"(?:(?:skip|skipp?ed|skipping|dropping|dropped|ignoring|discard\w{0,4})\b.{0,40}"
           r"\b(?:batch|step|sample|update|record|micro-?batch|iteration|shard|gradient|sync|reduction)"
           r"|\b(?:batch|step|sample|update|record)\b.{0,30}\b(?:skipped|dropped|discarded|ignored)\b"
           r"|(?:out of memory|OutOfMemoryError|OOM)\b.{0,80}(?:skip|continu|retry|recover|moving on|emptying)"
           r"|(?:caught|handled|recovered from) .{0,60}(?:error|exception|memory)"
           r"|\b(?:error|exception|nan|inf|non-finite)\b.{0,60}\b(?:skipping|skipped|continuing|ignored|moving on))",
           (), True),
)
# fmt: on

# fmt: off
_ADVICE_AND_NOISE = (
    _event("advice", "advice",
           ("For debugging consider passing", "TORCH_USE_CUDA_DSA", "To enable traceback see",
            "Check rank 0 logs for faulty rank"),
           r"(?:For debugging consider passing|Compile with `?TORCH_USE_CUDA_DSA|To enable traceback see"
           r"|[Cc]heck rank 0 logs for faulty rank)"),
    _event("typically_caused", "advice", "This is typically caused by",
           r"This is typically caused by"),
    _event("should_dump_flag", "teardown", "should dump",
           r"Failed to check the .should dump. flag on TCPStore"),
    _event("closed_by_local_rank", "teardown", "Connection closed by localRank",
           r"Connection closed by localRank"),
    _event("abort_complete", "teardown", "Abort COMPLETE",
           r"Abort COMPLETE"),
    _event("leaked_objects", "noise", "leaked",
           r"There appear to be \d+ leaked"),
    _event("group_not_destroyed", "noise", "destroy_process_group() was not called",
           r"destroy_process_group\(\) was not called"),
    _event("destructor", "teardown", "Exception ignored in",
           r"Exception ignored in"),
)
# fmt: on

EVENT_PATTERNS: tuple[EventPattern, ...] = (
    *_COMMUNICATION,
    *_LAUNCHER,
    *_OUTSIDE,
    *_OWN_FAULT,
    *_ADVICE_AND_NOISE,
)
"""Everything one scan looks for besides the catalogue's signatures, in this order."""
