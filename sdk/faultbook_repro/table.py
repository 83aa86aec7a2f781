"""What `verify` shows: a table, what failed with the end of its log, and the JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TextIO

from faultbook.signatures import LogSignature

from .core.firing import Firing
from .core.judge import Half, Pair
from .mutate import matching_lines
from .verify import Result

ADVICE = {
    ("broken", "outcome"): "`repro.expect.broken` in entry.yaml says how it ends: raises, hangs, killed or completes",
    ("broken", "check"): "check(out) must assert what only a healthy outcome has: a number reached, ranks equal, all steps done",
    ("broken", "signature"): "compare the patterns with the end of the broken log; --record writes all of it to logs/broken.log",
    ("broken", "within_steps"): "`within_steps` promises more than the run shows: raise it, or make the failure appear earlier",
    ("fixed", "outcome"): "the fix must make the same workload pass: look at the last lines of the fixed log",
    ("fixed", "check"): "either the fix does not reach the healthy outcome, or check(out) asks for more than it needs",
    ("fixed", "silent"): "the signature matches what a healthy run prints: take a part that only the failure has",
    ("both", "workload"): "call ctx.workload(steps=…, …) with the same values in both halves: the fix may not win by doing less",
    ("both", "entry"): "`faultbook check` says more",
}
"""What the author does about a criterion that objected."""
COLUMNS = ("entry", "device", "mode", "broken", "signature", "fixed", "workload", "silent", "time", "proven")


def row(result: Result) -> tuple[str, ...]:
    head = (result.slug, result.device, result.mode)
    if result.skipped:
        return (*head, "-", "-", "-", "-", "-", "-", f"skipped: {result.skipped}")
    proven = "yes" if result.proven else "NO"
    time = f"{result.seconds:.1f} s"
    if not result.pairs:
        recorded = "fires on recorded lines" if result.proven else "-"
        return (*head, "-", recorded, "-", "-", "-", time, proven)
    bad = {(p.half, p.criterion) for p in result.problems}

    def verdict(*criteria: tuple[str, str]) -> str:
        return "NO" if any(c in bad for c in criteria) else "ok"

    seen = "/".join(dict.fromkeys(p.broken.outcome.outcome for p in result.pairs))
    symptom = seen if ("broken", "outcome") not in bad else f"{seen}, not {result.expected}"
    if ("broken", "check") in bad:
        symptom += ", check passes"
    fired = sorted({name for p in result.pairs for name, f in p.broken.fired.items() if f.fired})
    signature = f"{len(fired)} fired" if fired else "none"
    if ("broken", "signature") in bad or ("broken", "within_steps") in bad:
        signature = "NO"
    return (
        *head,
        symptom,
        signature,
        verdict(("fixed", "outcome"), ("fixed", "check"), ("fixed", "setup")),
        verdict(("both", "workload")),
        verdict(("fixed", "silent")),
        time,
        proven,
    )


def print_table(results: list[Result], out: TextIO | None = None) -> None:
    """Rich on a terminal, aligned plain text elsewhere."""
    out = out or sys.stdout
    if out.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("entry", overflow="fold", min_width=12)
        for name in COLUMNS[1:]:
            table.add_column(name, no_wrap=name != "broken")
        for result in results:
            cells = list(row(result))
            style = "dim" if result.skipped else "green" if result.proven else "bold red"
            cells[-1] = f"[{style}]{cells[-1]}[/]"
            table.add_row(*cells)
        Console(file=out).print(table)
        return
    lines = [COLUMNS, *(row(r) for r in results)]
    widths = [max(len(r[i]) for r in lines) for i in range(len(COLUMNS))]
    for line in lines:
        print("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip(), file=out)


def print_problems(results: list[Result], out: TextIO | None = None, lines: int = 15) -> None:
    """Which half of which entry failed, why, and how its log ended."""
    out = out or sys.stdout
    for result in results:
        if result.proven or result.skipped:
            continue
        print(f"\n{result.slug} on {result.device}: not proven", file=out)
        last = {(p.half, p.criterion): n for n, p in enumerate(result.problems)}
        for number, problem in enumerate(result.problems):
            print(f"  {problem}", file=out)
            what = (problem.half, problem.criterion)
            if what in ADVICE and last[what] == number:
                print(f"    → {ADVICE[what]}", file=out)
        for line in _silent(result):
            print(f"  {line}", file=out)
        for pair in result.pairs:
            for name in ("broken", "fixed"):
                if any(p.half in (name, "both") and p.variant in (pair.variant, "") for p in result.problems):
                    _print_end(name, pair, lines, out)


def _print_end(name: str, pair: Pair, lines: int, out: TextIO) -> None:
    half: Half = pair.broken if name == "broken" else pair.fixed
    tail = half.outcome.log.splitlines()[-lines:]
    variant = f" ({pair.variant})" if pair.variant else ""
    print(f"  end of the {name} log{variant}:" + ("" if tail else " empty"), file=out)
    for line in tail:
        print(f"    | {line[:300]}", file=out)
    for record in half.outcome.ranks:
        if record.stacks:
            print(f"  rank {record.rank} hung in:", file=out)
            for line in record.stacks.splitlines()[:12]:
                print(f"    | {line}", file=out)


def _silent(result: Result) -> Iterator[str]:
    """Of each signature that should have fired: which of its patterns the broken runs print, and which not."""
    if not any(p.criterion == "signature" for p in result.problems):
        return
    logs = [pair.broken.outcome.log for pair in result.pairs]
    claimed = {s.id for s in result.claimed}
    for name in sorted({name for p in result.pairs for name, f in p.broken.fired.items() if f.fired} - claimed):
        yield f"{name}: fires, but does not count: `recorded` or `source` says that no run here prints it; remove that"
    for signature in result.claimed:
        if not isinstance(signature, LogSignature) or any(f.fired for f in _firings_of(signature, result)):
            continue
        for group, patterns in (("all", signature.all), ("any", signature.any), ("none", signature.none)):
            for index, pattern in enumerate(patterns):
                found = sum(matching_lines(pattern, log) for log in logs)
                seen = f"matches {found} line{'' if found == 1 else 's'}" if found else "matches no line"
                yield f"{signature.id}: {group}[{index}] {seen}: {pattern.pattern[:120]}"


def _firings_of(signature: LogSignature, result: Result) -> list[Firing]:
    return [f for pair in result.pairs if (f := pair.broken.fired.get(signature.id)) is not None]


def print_mutants(results: list[Result], out: TextIO | None = None) -> None:
    out = out or sys.stdout
    for result in results:
        if not result.mutants:
            continue
        killed = len(result.mutants) - len(result.survivors)
        print(f"\n{result.slug}: {killed} of {len(result.mutants)} mutants killed", file=out)
        for mutant in result.mutants:
            variant = f" ({mutant.variant})" if mutant.variant else ""
            print(f"  {mutant.killed_by or 'SURVIVED':20} {mutant.name}{variant}", file=out)
        if result.survivors:
            print(
                "  → a survivor is a wrong entry that would be called proven: let check(out) assert what the fixed half\n"
                "    achieves and how much it did, put the work into ctx.workload(…), or make the signature say more",
                file=out,
            )


def as_json(results: list[Result]) -> dict[str, Any]:
    return {"entries": [_json(r) for r in results]}


def _json(result: Result) -> dict[str, Any]:
    data: dict[str, Any] = {
        "slug": result.slug,
        "device": result.device,
        "mode": result.mode,
        "proven": result.proven,
        "skipped": result.skipped or None,
        "expected": result.expected or None,
        "seconds": round(result.seconds, 3),
        "runs": result.runs,
        "problems": [
            {"half": p.half, "criterion": p.criterion, "variant": p.variant, "text": p.text}
            for p in result.problems
        ],
        "variants": [
            {"variant": p.variant, "broken": _half(p.broken), "fixed": _half(p.fixed)} for p in result.pairs
        ],
    }
    if result.mutants:
        data["mutants"] = [
            {"name": m.name, "variant": m.variant, "killed_by": m.killed_by} for m in result.mutants
        ]
    return data


def _half(half: Half) -> dict[str, Any]:
    return {
        "outcome": half.outcome.outcome,
        "seconds": round(half.outcome.seconds, 3),
        "check": half.objection is None,
        "objection": half.objection,
        "signatures": {name: f.fired for name, f in sorted(half.fired.items())},
        "ranks": [
            {"rank": r.rank, "ok": r.ok, "signal": r.signal, "exception": r.exception}
            for r in half.outcome.ranks
        ],
    }
