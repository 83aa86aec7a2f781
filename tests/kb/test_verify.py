"""What `verify` accepts, and each way in which an entry can claim too much."""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path

import pytest
from entries import REPRO, write_entry, write_kb

from faultbook_repro import Runner, proofs
from faultbook_repro.commands import verify
from faultbook_repro.core.entry import load_entry
from faultbook_repro.isolation import Refused, held
from faultbook_repro.mutate import swap_regions, work_constants
from faultbook_repro.recording import shorten
from faultbook_repro.verify import Result, verify_entry

pytestmark = pytest.mark.repro


def prove(folder: Path, runner: Runner, **options: bool) -> Result:
    entry = load_entry(folder)
    assert entry is not None
    return verify_entry(entry, "cpu", runner, **options)  # type: ignore[arg-type]


def criteria(result: Result) -> set[tuple[str, str]]:
    return {(p.half, p.criterion) for p in result.problems}


def test_a_proven_entry(tmp_path: Path, runner: Runner) -> None:
    result = prove(write_entry(tmp_path / "exploding-weight"), runner)
    assert result.proven, [str(p) for p in result.problems]
    (pair,) = result.pairs
    assert pair.broken.fired["exploded"].fired and pair.broken.fired["loss-rises"].step == 0.0
    assert not any(f.fired for f in pair.fixed.fired.values())


CLAIMS = {
    # name: (texts replaced in repro.py, texts replaced in entry.yaml, the criteria that must object)
    "vacuous check": (
        (('out.results["steps"] == STEPS and out.results["loss"] < 0.2', "True"),),
        (),
        {("broken", "check")},
    ),
    "fix that does not fix": (
        (("return 0.1", "return 40.0"),),
        (),
        {("fixed", "outcome"), ("fixed", "check"), ("fixed", "silent")},
    ),
    "failure that does not fail": (
        (("return 40.0", "return 0.1"),),
        (),
        {("broken", "outcome"), ("broken", "check"), ("broken", "signature")},
    ),
    "fix that skips the work": (
        (("ctx.workload(steps=STEPS)", "ctx.workload(steps=2 if ctx.fixed else STEPS)"),),
        (),
        {("both", "workload")},
    ),
    "no workload": ((("    ctx.workload(steps=STEPS)\n", ""),), (), {("both", "workload")}),
    "other outcome": ((), (("broken: raises", "broken: hangs"),), {("broken", "outcome")}),
    "signature of another text": ((), (("has exploded", "has vanished"),), {("broken", "signature")}),
    "signature that is too wide": (
        (),
        (("FloatingPointError: weight has exploded", "step=[0-9]+ loss"),),
        {("fixed", "silent")},
    ),
    "metric that is too wide": (
        (),
        (("test: above, value: 100", "test: below, value: 1e9"),),
        {("fixed", "silent")},
    ),
    "no import": (
        (("import torch", "import no_such_module"),),
        (),
        {("broken", "setup"), ("fixed", "setup")},
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_that_does_not_hold(name: str, tmp_path: Path, runner: Runner) -> None:
    repro, entry, expected = CLAIMS[name]
    result = prove(write_entry(tmp_path / "x", repro=repro, entry=entry), runner)
    assert not result.proven
    assert criteria(result) == expected, [str(p) for p in result.problems]


def test_a_metric_signature_must_fire_in_time(tmp_path: Path, runner: Runner) -> None:
    # The weight doubles each step, so its square passes 100 at step 3.
    slow = (("return 40.0", "return -1.0"),)
    assert prove(write_entry(tmp_path / "a", repro=slow), runner).proven
    late = (("within_steps: 5", "within_steps: 2"),)
    result = prove(write_entry(tmp_path / "b", repro=slow, entry=late), runner)
    assert criteria(result) == {("broken", "within_steps")}
    assert "at step 3" in str(result.problems[0])


def test_every_mutant_of_a_sound_entry_is_killed(tmp_path: Path, runner: Runner) -> None:
    result = prove(write_entry(tmp_path / "exploding-weight"), runner, with_mutants=True)
    assert result.proven and not result.survivors, result.survivors
    names = " / ".join(m.name for m in result.mutants)
    for expected in (
        "fix reverted",
        "failure removed",
        "logs swapped",
        "reports less work",
        "STEPS = 6",
        "literal",
        "above of loss inverted",
    ):
        assert expected in names
    assert len(result.mutants) >= 7


def test_a_mutant_survives_where_the_workload_says_too_little(tmp_path: Path, runner: Runner) -> None:
    """The mutation test can fail: here nobody would notice if the fixed half did half the steps."""
    weak = (
        ("ctx.workload(steps=STEPS)", "ctx.workload(examples=1)"),
        ('out.results["steps"] == STEPS and ', ""),
        ("return 0.1", "return 0.5"),
    )
    result = prove(write_entry(tmp_path / "weak", repro=weak), runner, with_mutants=True)
    assert result.proven
    assert [m.name for m in result.survivors] == ["fixed half does less work (STEPS = 6)"]


def test_alternatives_are_taken_out_together(tmp_path: Path, runner: Runner) -> None:
    """Of `any`, one alternative may stand in for another; without all of them nothing fires."""
    twice = (("  all: [{pattern: 'Fl", "  any: [{pattern: 'step=[0-9]+ loss=[0-9.]+e.06'}, {pattern: 'Fl"),)
    result = prove(write_entry(tmp_path / "two", entry=twice), runner, with_mutants=True)
    assert result.proven and not result.survivors, result.survivors


TWO_PREDICATES = (
    ("test: above, value: 100}", "test: above, value: 100}, {series: [rate], test: above, value: 1}"),
)


def test_a_predicate_of_the_wrong_direction_is_noticed_beside_another(tmp_path: Path, runner: Runner) -> None:
    """Broken and fixed log alone would both be content with the opposite of one of two predicates."""
    printed = (
        (
            "loss={weight.square().item():.4g}",
            "loss={weight.square().item():.4g} rate={40 - 39.9 * ctx.fixed}",
        ),
    )
    result = prove(
        write_entry(tmp_path / "two", repro=printed, entry=TWO_PREDICATES), runner, with_mutants=True
    )
    assert result.proven and not result.survivors, result.survivors
    killers = {m.name: m.killed_by for m in result.mutants}
    assert killers["loss-rises: above of rate inverted"] is not None
    assert "broken: contrast" in killers.values()


def test_a_fix_reverted_in_the_text() -> None:
    named_alike = REPRO.replace("bounded_rate", "rate")
    swapped = swap_regions(named_alike)
    assert swapped is not None and swapped.count("return 40.0") == 2 and "return 0.1" not in swapped
    assert swap_regions(REPRO) is None, "other names: the swap would prove no more than a NameError"
    assert work_constants(REPRO) == {"STEPS": 12}


def test_variants_are_each_proven(tmp_path: Path, runner: Runner) -> None:
    two = (("STEPS = 12", 'STEPS = 12\nVARIANTS = ("a", "b")'),)
    result = prove(write_entry(tmp_path / "two", repro=two), runner)
    assert result.proven and [p.variant for p in result.pairs] == ["a", "b"]
    one_bad = (*two, ("ctx.fixed else", 'ctx.fixed or ctx.variant == "b" else'))
    result = prove(write_entry(tmp_path / "bad", repro=one_bad), runner)
    assert not result.proven and {p.variant for p in result.problems} == {"b"}


def test_recorded_lines_must_match_what_they_are_cited_for(tmp_path: Path, runner: Runner) -> None:
    folder = tmp_path / "quoted"
    folder.mkdir()
    (folder / "logs").mkdir()
    (folder / "logs" / "recorded-1.log").write_text("rank 3: NCCL WARN something rare\n")
    text = """
slug: quoted
signatures: [{kind: log, id: rare, role: root, all: [{pattern: 'NCCL WARN something rare'}]}]
repro: {mode: recorded}
recorded: [{file: logs/recorded-1.log, source: 'https://example.org', signatures: [rare]}]
"""
    (folder / "entry.yaml").write_text(text)
    assert prove(folder, runner).proven
    (folder / "entry.yaml").write_text(text.replace("something rare'}", "something common'}"))
    assert criteria(prove(folder, runner)) == {("broken", "recorded")}


@functools.cache
def trust() -> tuple[str, ...]:
    """These programs are ours: on a machine that cannot isolate them they run all the same."""
    try:
        held(lambda keep: None)
    except Refused:
        return ("--trust",)
    return ()


def command(kb: Path, *arguments: str) -> int:
    return verify([*arguments, *trust(), "--kb", str(kb), "--proofs", str(kb.parent / "proofs")])


def test_the_command_writes_and_removes_the_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kb = write_kb(tmp_path / "kb", "exploding-weight")
    folder = kb / "model" / "exploding-weight"
    assert command(kb, "--all", "--record", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert [(e["slug"], e["device"], e["mode"], e["proven"]) for e in data["entries"]] == [
        ("exploding-weight", "cpu", "real", True)
    ]
    path = tmp_path / "proofs" / "exploding-weight.cpu.json"
    record = json.loads(path.read_text())
    assert record["digest"] == proofs.proof_digest(folder) and record["torch"]
    assert record["variants"][0]["broken"]["signatures"]["exploded"]["fired"] is True
    assert record["variants"][0]["fixed"]["curves"][0]["name"] == "loss"
    assert proofs.is_current(tmp_path / "proofs", folder, "cpu")
    assert "weight has exploded" in (folder / "logs" / "broken.log").read_text()
    assert (
        str(tmp_path) not in path.read_text()
        and "faultbook-" not in (folder / "logs" / "broken.log").read_text()
    )

    before = path.read_bytes()
    kept = tmp_path / "kept"
    assert command(kb, "exploding-weight", "--repeat", "2", "--keep", str(kept)) == 0
    assert path.read_bytes() == before, "the same proof again changes no file"
    for place in (kept, kept / "repetition-2"):
        assert "weight has exploded" in (place / "exploding-weight" / "broken" / "rank_0.log").read_text()

    write_entry(folder, entry=(("has exploded", "has vanished"),))
    assert not proofs.is_current(tmp_path / "proofs", folder, "cpu"), "stale as soon as a signature changes"
    capsys.readouterr()
    assert command(kb, "exploding-weight") == 1
    out = capsys.readouterr().out
    assert "broken: signature exploded does not fire on its log" in out
    assert "→ compare the patterns" in out and "exploded: all[0] matches no line: " in out and "has vanished" in out
    assert "end of the broken log:" in out and "FloatingPointError" in out
    assert not path.exists()


def test_usage_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kb = write_kb(tmp_path / "kb", "exploding-weight")
    assert command(kb, "exploding-wait") == 2
    assert capsys.readouterr().err == "faultbook: no entry 'exploding-wait'; did you mean exploding-weight?\n"
    assert command(kb) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_without_torch_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert verify(["--all"]) == 2
    assert (
        capsys.readouterr().err
        == "faultbook: `faultbook verify` needs torch: pip install 'faultbook[repro]'\n"
    )


def test_cuda_is_skipped_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from faultbook_repro.core.runner import cuda_missing

    if cuda_missing() is None:
        pytest.skip("this machine has a CUDA device")
    assert command(write_kb(tmp_path / "kb", "exploding-weight"), "--all", "--device", "cuda", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert entry["proven"] is False and "CUDA" in entry["skipped"]


def test_two_jobs_give_the_same_answer_in_the_same_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kb = write_kb(tmp_path / "kb", "exploding-weight")
    write_entry(kb / "model" / "another", entry=(("broken: raises", "broken: hangs"),))
    assert command(kb, "--all", "--jobs", "2", "--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert [(e["slug"], e["proven"]) for e in data["entries"]] == [
        ("another", False),
        ("exploding-weight", True),
    ]


def test_a_long_log_is_cut_in_the_middle_and_says_so() -> None:
    text = "".join(f"line {i}\n" for i in range(50_000))
    short = shorten(text)
    assert len(short) <= 200 * 1024 and short.startswith("line 0\n") and short.endswith("line 49999\n")
    assert " lines left out by the recorder" in short
    assert shorten("a\n") == "a\n"
