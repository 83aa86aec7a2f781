"""Mutation tests of the knowledge: falsify a run or a claim, and some criterion must object.

Each mutant is judged by the same `judge` as the real runs. A survivor means that the
entry would be called proven although it is wrong, so it names a hole in the entry's
`check`, in its workload, or in its signature.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from faultbook import fact_lines
from faultbook.portable import compile_pattern
from faultbook.series import select
from faultbook.signatures import Comparison, LogSignature, MetricSignature, Pattern, Predicate, Signature

from .core.entry import Entry
from .core.firing import firings
from .core.judge import Half, Pair, Problem, judge, with_log
from .core.metrics import metric_firing, series_of
from .core.runner import Runner
from .core.spec import Spec


@dataclass(frozen=True, slots=True)
class Mutant:
    """One falsification and what the criteria said about it."""

    name: str
    variant: str
    killed_by: str | None
    """The criterion that objected first; None when it survived."""


def mutate(entry: Entry, pairs: list[Pair], runner: Runner, device: str = "cpu") -> list[Mutant]:
    """All mutants of one proven entry."""
    assert entry.spec is not None
    expected = entry.spec.expected(device)
    mutants: list[Mutant] = []

    def judged(name: str, variant: str, mutated: list[Pair], claimed: tuple[Signature, ...]) -> None:
        problems = judge(mutated, expected, claimed)
        mutants.append(Mutant(name, variant, _criterion(problems)))

    for index, pair in enumerate(pairs):
        for name, changed in _of_runs(entry, pair, runner, device):
            judged(name, pair.variant, [*pairs[:index], changed, *pairs[index + 1 :]], entry.claimed)
    for signature in entry.claimed:
        for name, changed_pairs in _of_logs(entry, signature, pairs):
            judged(name, "", changed_pairs, entry.claimed)
        for name, other in inversions(signature):
            changed_signatures = tuple(other if s.id == signature.id else s for s in entry.claimed)
            if isinstance(signature, MetricSignature) and isinstance(other, MetricSignature):
                before = [contrasts(signature, signature, p) for p in pairs]
                if [contrasts(other, signature, p) for p in pairs] != before:
                    mutants.append(Mutant(name, "", "broken: contrast"))
                    continue
            judged(name, "", [_reexamined(p, changed_signatures) for p in pairs], changed_signatures)
    return mutants


def _criterion(problems: list[Problem]) -> str | None:
    return f"{problems[0].half}: {problems[0].criterion}" if problems else None


def _of_runs(entry: Entry, pair: Pair, runner: Runner, device: str) -> Iterator[tuple[str, Pair]]:
    """Mutants that need another run, or that falsify what a run reported."""
    spec = entry.spec
    assert spec is not None
    signatures = entry.signatures

    def run(target: Spec, *, fixed: bool, constants: dict[str, Any] | None = None) -> Half:
        outcome = runner.run(target, fixed=fixed, device=device, variant=pair.variant, constants=constants)
        objection = runner.check(target, outcome)
        return with_log(Half(outcome, objection), outcome.log, signatures)

    # Both forms have just been run: relabelled, they are exactly what a run() that ignores
    # ctx.fixed would have done.
    yield "fix reverted: the fixed half runs the broken form", replace(pair, fixed=pair.broken)
    yield "failure removed: the broken half runs the fixed form", replace(pair, broken=pair.fixed)
    reverted = swap_regions(spec.path.read_text(encoding="utf-8"))
    if reverted is not None:
        yield (
            "fix reverted: the text of its region is the broken one",
            replace(pair, fixed=run(replace(spec, source=reverted), fixed=True)),
        )
    if signatures and entry.claimed:
        yield (
            "logs swapped",
            replace(
                pair,
                broken=with_log(pair.broken, pair.fixed.outcome.log, signatures),
                fixed=with_log(pair.fixed, pair.broken.outcome.log, signatures),
            ),
        )
    asked = pair.fixed.outcome.workload
    for key, value in asked.items():
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            yield (
                f"fixed half reports less work ({key})",
                replace(pair, fixed=_reports(pair.fixed, key, value - 1)),
            )
    for name, value in work_constants(spec.path.read_text(encoding="utf-8")).items():
        shrunk = run(spec, fixed=True, constants={name: max(1, value // 2)})
        yield f"fixed half does less work ({name} = {max(1, value // 2)})", replace(pair, fixed=shrunk)


def _reports(half: Half, key: str, value: int) -> Half:
    ranks = [replace(r, workload={**r.workload, key: value}) for r in half.outcome.ranks]
    return replace(half, outcome=replace(half.outcome, ranks=ranks))


_WORK = re.compile(r"STEP|ITER|EPOCH|BATCH|ROUND")


def work_constants(source: str) -> dict[str, int]:
    """Module constants that name an amount of work, e.g. `STEPS, BATCH = 100, 64`."""
    values: dict[str, int] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            items = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for name, item in zip(names, items, strict=False):
                if (
                    isinstance(name, ast.Name)
                    and _WORK.search(name.id.upper())
                    and isinstance(item, ast.Constant)
                    and type(item.value) is int
                    and item.value > 1
                ):
                    values[name.id] = item.value
    return values


_REGION = re.compile(r"^([ \t]*)# region (broken|fixed)[ \t]*\n(.*?)^[ \t]*# endregion[ \t]*$", re.M | re.S)


def swap_regions(source: str) -> str | None:
    """`source` with the text of its fixed region replaced by that of its broken region.

    None where the two regions do not define the same names: the swap would then only
    prove that a NameError is an error.
    """
    regions = {m[2]: m for m in _REGION.finditer(source)}
    if len(regions) != 2 or len(_REGION.findall(source)) != 2:
        return None
    broken, fixed = regions["broken"], regions["fixed"]
    if broken[1] != fixed[1] or _defines(broken[3]) != _defines(fixed[3]):
        return None
    return source[: fixed.start(3)] + broken[3] + source[fixed.end(3) :]


def _defines(text: str) -> frozenset[str]:
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return frozenset({"?", text})
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return frozenset(names)


def _of_logs(entry: Entry, signature: Signature, pairs: list[Pair]) -> Iterator[tuple[str, list[Pair]]]:
    """Each required literal (of `any`: all alternatives at once) taken out of every broken log."""
    if not isinstance(signature, LogSignature):
        return
    groups = [(p,) for p in signature.all] + ([signature.any] if signature.any else [])
    for group in groups:
        if not any(_matches(p, pair.broken.outcome.log) for p in group for pair in pairs):
            continue
        if any(fact_lines.is_virtual(p) for p in group):
            yield f"{signature.id}: the initiating rank's log replaced by another rank's", [_nobody_odd(entry, p) for p in pairs]
            continue
        literals = sorted({text for p in group for text in required(p)}, key=len, reverse=True)
        cut = re.compile("|".join(re.escape(text) for text in literals), re.IGNORECASE)
        changed = [
            replace(p, broken=with_log(p.broken, cut.sub("", p.broken.outcome.log), entry.signatures))
            for p in pairs
        ]
        shown = literals[0] if len(literals) == 1 else f"{literals[0]} and {len(literals) - 1} more"
        yield f"{signature.id}: literal {shown!r} removed from the log", changed


def _nobody_odd(entry: Entry, pair: Pair) -> Pair:
    """The broken run as it would look if the initiating rank had done what another one did."""
    log = pair.broken.outcome.log
    told = fact_lines.incident_of(log).initiating
    odd = told.rank if told is not None and told.rank is not None else 0
    mine, other = f"[rank{odd}]", f"[rank{1 if odd == 0 else 0}]"
    kept = [line for line in log.splitlines() if not line.startswith(mine)]
    copied = [mine + line[len(other) :] for line in kept if line.startswith(other)]
    return replace(pair, broken=with_log(pair.broken, "\n".join([*kept, *copied]) + "\n", entry.signatures))


def required(pattern: Pattern) -> tuple[str, ...]:
    """The literals of which every matching line contains one."""
    if pattern.literals:
        return pattern.literals
    from faultbook.literals import required_literals

    return pattern.anchors or tuple(required_literals(pattern.pattern, pattern.ignore_case))


def matching_lines(pattern: Pattern, log: str) -> int:
    """Lines of a log that the pattern matches; 1 for a fact of the whole run that holds."""
    if fact_lines.is_virtual(pattern):
        return int(_matches(pattern, log))
    search = compile_pattern(pattern).search
    return sum(search(line.encode("utf-8", "replace")) is not None for line in log.split("\n"))


def _matches(pattern: Pattern, log: str) -> bool:
    probe = LogSignature(kind="log", id="x", role="root", all=(replace(pattern, at_least=1),))
    return firings([probe], log)["x"].fired


_OPPOSITE = {"above": "below", "below": "above", "rises": "falls", "falls": "rises"}
_NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


def inversions(signature: Signature) -> Iterator[tuple[str, Signature]]:
    """The signature with a predicate or a comparison turned round."""
    if isinstance(signature, LogSignature):
        for index, comparison in enumerate(signature.where):
            turned: Comparison = replace(comparison, op=_NEGATED[comparison.op])  # type: ignore[arg-type]
            where = (*signature.where[:index], turned, *signature.where[index + 1 :])
            yield (
                f"{signature.id}: comparison {comparison.left} {comparison.op} inverted",
                replace(signature, where=where),
            )
        return
    for index, predicate in enumerate(signature.all):
        rest = (*signature.all[:index], *signature.all[index + 1 :])
        name = f"{signature.id}: {predicate.test} of {predicate.series[0]} inverted"
        yield name, _inverted(signature, predicate, rest, index)
    if signature.any:
        yield (
            f"{signature.id}: all alternatives inverted",
            replace(
                signature,
                any=(),
                none=(*signature.none, *signature.any),
                all=signature.all or (signature.any[0],),
            ),
        )


def _inverted(
    signature: MetricSignature, predicate: Predicate, rest: tuple[Predicate, ...], index: int
) -> MetricSignature:
    opposite = _OPPOSITE.get(predicate.test)
    if opposite is None:
        # No opposite in the grammar: it must not hold instead of holding.
        return replace(signature, all=(*rest, predicate), none=(*signature.none, predicate))
    turned: Predicate = replace(predicate, test=opposite)  # type: ignore[arg-type]
    return replace(signature, all=(*rest[:index], turned, *rest[index:]))


def contrasts(signature: MetricSignature, original: MetricSignature, pair: Pair) -> tuple[bool, ...]:
    """Whether it fires on the broken run when one of the original's required series is the fixed run's.

    "The loss jumps, but the temperature never fell" is another failure: a signature that
    asks for both is silent there, and one with the wrong direction is not. Neither of the
    two real logs could tell them apart.
    """
    broken, fixed = series_of(pair.broken.outcome.log), series_of(pair.fixed.outcome.log)
    answers = []
    for predicate in original.all:
        names = {s.name for s in (*select(predicate, broken), *select(predicate, fixed))}
        mixed = [s for s in broken if s.name not in names] + [s for s in fixed if s.name in names]
        answers.append(metric_firing(signature, mixed)[0])
    return tuple(answers)


def _reexamined(pair: Pair, signatures: tuple[Signature, ...]) -> Pair:
    return replace(
        pair,
        broken=with_log(pair.broken, pair.broken.outcome.log, signatures),
        fixed=with_log(pair.fixed, pair.fixed.outcome.log, signatures),
    )
