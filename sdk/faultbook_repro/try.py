"""Runs one half once and prints everything: `python -m faultbook_repro.try kb/model/<slug> [--fixed]`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from .core.records import Outcome
from .core.runner import Runner, RunnerError, Skipped
from .core.spec import Spec, SpecError, load_spec
from .isolation import held
from .untrusted_entry import refuse_harmful


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m faultbook_repro.try", description=__doc__)
    parser.add_argument("target", type=Path, help="an entry's folder or a repro.py")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--variant")
    parser.add_argument("--guilty", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="leave rank_N.log, records.json and fr/ here")
    parser.add_argument("--timeout", type=float, dest="timeout_s", help="hard deadline in seconds")
    parser.add_argument("--world-size", type=int, help="overrides the entry's; so does --flight-recorder")
    parser.add_argument("--collective-timeout", type=float, dest="collective_timeout_s")
    parser.add_argument("--flight-recorder", action="store_true", default=None)
    parser.add_argument("--trust", action="store_true", help="also where it cannot be isolated, and as yourself")
    options = parser.parse_args(argv)
    overrides = {
        name: value
        for name in ("timeout_s", "world_size", "collective_timeout_s", "flight_recorder")
        if (value := getattr(options, name)) is not None
    }
    try:
        if options.target.is_dir():
            refuse_harmful(options.target)
        spec = dataclasses.replace(load_spec(options.target), **overrides)
        outcome, objection, about = held(
            lambda keep: _run(spec, options, keep),
            trust=options.trust,
            reads=[spec.path.parent.resolve()],
            keep=options.keep.resolve() if options.keep else None,
        )
    except (RunnerError, SpecError, Skipped) as error:
        print(f"faultbook: {error}", file=sys.stderr)
        return 2
    print(outcome.log, end="" if outcome.log.endswith("\n") else "\n")
    print("-" * 60)
    for record in outcome.ranks:
        print(json.dumps(record.to_dict()))
        if record.stacks:
            print(f"  hung in:\n{record.stacks}")
    half = "fixed" if options.fixed else "broken"
    print(
        f"{half} {outcome.variant or ''} {outcome.outcome} in {outcome.seconds:.2f} s; check(out): "
        f"{'passes' if objection is None else 'fails: ' + objection}"
    )
    print(
        f"sandbox: {about['sandbox']}; {about['threads']} thread(s), imports {about['import_seconds']:.1f} s"
    )
    return 0


def _run(spec: Spec, options: argparse.Namespace, keep: Path | None) -> tuple[Outcome, str | None, dict[str, Any]]:
    with Runner() as runner:
        outcome = runner.run(
            spec,
            fixed=options.fixed,
            device=options.device,
            variant=options.variant,
            guilty=options.guilty,
            seed=options.seed,
            keep=keep,
        )
        return outcome, runner.check(spec, outcome), runner.about(spec.preload)


if __name__ == "__main__":
    sys.exit(main())
