"""Every entry of kb/, on every device it declares, half by half: the knowledge, tested.

Both halves of an entry run once per session and are judged together; the two tests of a
half then show which of them broke the entry.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from faultbook_repro import Runner
from faultbook_repro.core.entry import Entry, find_kb, load_entry
from faultbook_repro.core.runner import cuda_missing
from faultbook_repro.core.spec import SpecError
from faultbook_repro.verify import Result, verify_entry

ALWAYS_MUTATED = {
    "learned-temperature-collapse",
    "fsdp-divergent-parameter-init-hang",
    "moe-pipeline-stage-asymmetry-hang",
    "rmsnorm-variance-overflow-fp16",
    "attention-softmax-fp16-overflow",
}

KB = find_kb(Path(__file__).parent)


@dataclass(frozen=True)
class Case:
    folder: Path
    device: str
    entry: Entry | None
    error: str = ""


def cases() -> list[Case]:
    found = []
    for path in sorted(KB.glob("*/*/entry.yaml")):
        try:
            entry = load_entry(path.parent)
        except SpecError as error:
            found.append(Case(path.parent, "cpu", None, str(error)))
            continue
        if entry is not None:
            devices = entry.spec.devices if entry.spec is not None else ("cpu",)
            found += [Case(path.parent, device, entry) for device in devices]
    return found


def parameters(halves: tuple[str, ...]) -> list[object]:
    return [
        pytest.param(
            case,
            half,
            id=f"{case.folder.name}-{case.device}-{half}",
            marks=[pytest.mark.repro, *([pytest.mark.cuda] if case.device == "cuda" else [])],
        )
        for case in CASES
        for half in halves
        if half == "broken" or case.entry is None or case.entry.spec is not None
    ]


CASES = cases()
_results: dict[tuple[Path, str], Result] = {}


def result_of(case: Case, runner: Runner) -> Result:
    if case.entry is None:
        pytest.fail(case.error)
    if case.device == "cuda" and (
        reason := cuda_missing(case.entry.spec.world_size if case.entry.spec else 1)
    ):
        pytest.skip(reason)
    key = (case.folder, case.device)
    if key not in _results:
        _results[key] = verify_entry(case.entry, case.device, runner)
    return _results[key]


@pytest.mark.parametrize(("case", "half"), parameters(("broken", "fixed")))
def test_reproduction(case: Case, half: str, runner: Runner) -> None:
    result = result_of(case, runner)
    halves = (half, "both") if half == "fixed" else (half,)
    problems = [str(p) for p in result.problems if p.half in halves]
    tail = "".join(
        f"\n--- end of the {half} log {pair.variant}\n{_half(pair, half)[-1500:]}" for pair in result.pairs
    )
    assert not problems, "\n".join(problems) + tail


def _half(pair: object, half: str) -> str:
    return str(getattr(pair, half).outcome.log)


@pytest.mark.parametrize(("case", "half"), [p for p in parameters(("broken",)) if "-cpu-" in str(p.id)])  # type: ignore[attr-defined]
def test_every_mutant_is_killed(case: Case, half: str, runner: Runner) -> None:
    """Falsified runs and claims of this entry must be noticed by the criteria that call it proven.

    Mutants run most entries several times more, so every entry is mutated at night (FAULTBOOK_NIGHTLY=1) and the
    model entries in every run."""
    from faultbook_repro.mutate import mutate

    if case.folder.name not in ALWAYS_MUTATED and not os.environ.get("FAULTBOOK_NIGHTLY"):
        pytest.skip("mutants of all entries: FAULTBOOK_NIGHTLY=1")
    result = result_of(case, runner)
    if not result.pairs or case.entry is None:
        pytest.skip("nothing was run")
    assert result.proven, "not proven as it is; see test_reproduction"
    mutants = mutate(case.entry, list(result.pairs), runner)
    survivors = [m.name for m in mutants if m.killed_by is None]
    assert mutants and not survivors
