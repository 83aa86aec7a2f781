"""Who started it: one small function per rule, in the order in which evidence counts.

Each rule looks at one `Case` and answers an `Initiating` with its basis, or None. The
first answer stands; the exceptions to the order (a hang that was then cancelled, a fault
after the abort, the same fault everywhere) are rules or conditions of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from . import rules_counters, rules_desync, rules_fault, rules_hints, rules_named, rules_time
from .evidence import Case
from .model import Initiating

Rule = Callable[[Case], "Initiating | None"]


RULES: tuple[Rule, ...] = (
    rules_fault.kernel_killed_a_rank,
    rules_fault.stopped_from_outside,
    rules_fault.gpu_fell_off,
    rules_fault.own_fault,
    rules_fault.fault_line,
    rules_named.named_by_component,
    rules_fault.parameters_differ,
    rules_named.one_odd_exit,
    rules_named.absent_from_summary,
    rules_named.launcher_failed,
    rules_desync.flight_recorder_shows,
    rules_named.named_by_barrier,
    rules_desync.own_fingerprint_differs,
    rules_desync.handled_error_before,
    rules_counters.behind_in_sub_group,
    rules_counters.behind_in_counters,
    rules_desync.interrupted_elsewhere,
    rules_desync.member_missing_in_group,
    rules_desync.in_another_frame,
    rules_desync.never_joined_the_store,
    rules_time.busy_bar_at_timeout,
    rules_time.different_start,
    rules_time.still_busy_when_others_failed,
    rules_time.slow_in_its_own_work,
    rules_time.busy_elsewhere,
    rules_time.step_differs,
    rules_time.raised_late,
    rules_time.only_one_did_not_time_out,
    rules_time.silent_by_elimination,
    rules_hints.cuda_fault_in_watchdog,
    rules_fault.defective_gpu,
    rules_hints.announced_a_save_before_the_wait,
    rules_counters.waits_differ,
    rules_named.nobody_named,
    rules_hints.first_nccl_warning,
    rules_named.last_word_of_launcher,
)
"""The order of evidence: the first rule that answers decides."""


def decide(case: Case) -> tuple[Initiating | None, str]:
    """(answer, name of the rule that gave it)."""
    for rule in RULES:
        answer = rule(case)
        if answer is not None:
            return answer, rule.__name__
    return None, ""
