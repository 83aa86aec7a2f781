"""The criteria: what makes an entry proven. Pure functions over what two runs left.

`verify` applies them to real runs and `mutate` to falsified ones; a criterion that no
falsified run violates would be no criterion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from faultbook.signatures import LogSignature, MetricSignature, Signature

from .firing import Firing, firings
from .records import Outcome


@dataclass(frozen=True, slots=True)
class Half:
    """One half as it went: the run, what `check(out)` said, which signatures fired on its log."""

    outcome: Outcome
    objection: str | None
    fired: Mapping[str, Firing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why an entry is not proven."""

    half: str
    """`broken`, `fixed`, or `both`."""
    criterion: str
    """outcome | check | signature | within_steps | workload | silent | setup | recorded"""
    text: str
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.half}{f' ({self.variant})' if self.variant else ''}: {self.text}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Both halves of one variant."""

    variant: str
    broken: Half
    fixed: Half


def examine(outcome: Outcome, objection: str | None, signatures: Iterable[Signature]) -> Half:
    return Half(outcome, objection, firings(signatures, outcome.log, len(outcome.ranks)))


def with_log(half: Half, log: str, signatures: Iterable[Signature]) -> Half:
    """The same half with another log; used by the mutants."""
    return examine(replace(half.outcome, log=log), half.objection, signatures)


def judge(
    pairs: list[Pair], expected: str, claimed: tuple[Signature, ...], primary: bool = True
) -> list[Problem]:
    """Everything that speaks against the entry; empty when it is proven.

    Every variant must show the declared outcome, fail `check` broken and pass it fixed, do
    the same work in both halves, keep every signature silent on the fixed log, and be
    recognised by some signature. On the entry's primary device each claimed signature
    must fire on some variant; texts differ between gloo and nccl, so not on the others.
    """
    problems: list[Problem] = []
    for pair in pairs:
        problems += [replace(p, variant=pair.variant) for p in _judge_pair(pair, expected, claimed)]
    if primary and pairs and not any(p.criterion == "setup" for p in problems):
        for signature in claimed:
            if not any(_fired(pair.broken, signature) for pair in pairs):
                problems.append(
                    Problem("broken", "signature", f"signature {signature.id} does not fire on its log")
                )
    return problems


def _judge_pair(pair: Pair, expected: str, claimed: tuple[Signature, ...]) -> list[Problem]:
    broken, fixed = pair.broken, pair.fixed
    found: list[Problem] = []
    for name, half in (("broken", broken), ("fixed", fixed)):
        if half.outcome.setup_failed:
            first = next(r for r in half.outcome.ranks if not r.ok and r.phase == "setup")
            what = first.exception or first.signal or "no record"
            found.append(Problem(name, "setup", f"rank {first.rank} ended before run(ctx): {what}"))
    if found:
        return found
    if expected not in broken.outcome.symptoms:
        seen = broken.outcome.outcome
        found.append(Problem("broken", "outcome", f"expected that it {expected}, but it {seen}"))
    if broken.objection is None:
        found.append(Problem("broken", "check", "check(out) passes on the broken run"))
    if claimed and not any(_fired(broken, s) for s in claimed):
        found.append(Problem("broken", "signature", "no signature of the entry fires on its log"))
    for signature in claimed:
        firing = broken.fired.get(signature.id)
        if not isinstance(signature, MetricSignature) or signature.within_steps is None or not firing:
            continue
        if firing.fired and (firing.step is None or firing.step > signature.within_steps):
            at = "at an unknown step" if firing.step is None else f"at step {firing.step:g}"
            text = f"signature {signature.id} fires {at}, promised within {signature.within_steps}"
            found.append(Problem("broken", "within_steps", text))
    if not fixed.outcome.ok:
        bad = next(r for r in fixed.outcome.ranks if not r.ok)
        found.append(Problem("fixed", "outcome", f"rank {bad.rank}: {bad.signal or bad.exception}"))
    if fixed.objection is not None:
        found.append(Problem("fixed", "check", f"check(out) fails: {fixed.objection}"))
    if not any(broken.outcome.workloads):
        found.append(Problem("both", "workload", "ctx.workload(…) was never called"))
    elif broken.outcome.workloads != fixed.outcome.workloads:
        found.append(Problem("both", "workload", _difference(broken.outcome, fixed.outcome)))
    for name, firing in fixed.fired.items():
        if firing.fired:
            where = f" (line {firing.lines[0]})" if firing.lines else ""
            found.append(Problem("fixed", "silent", f"signature {name} fires on the fixed log{where}"))
    return found


def _fired(half: Half, signature: Signature) -> bool:
    firing = half.fired.get(signature.id)
    return firing is not None and firing.fired


def _difference(broken: Outcome, fixed: Outcome) -> str:
    for rank, (a, b) in enumerate(zip(broken.workloads, fixed.workloads, strict=False)):
        for key in sorted({*a, *b}):
            if a.get(key) != b.get(key):
                return f"workload differs: rank {rank} {key}: broken {a.get(key)!r}, fixed {b.get(key)!r}"
    return "workload differs: another number of ranks"


def log_signatures(signatures: Iterable[Signature]) -> list[LogSignature]:
    return [s for s in signatures if isinstance(s, LogSignature)]
