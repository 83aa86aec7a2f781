"""The runner itself, on small hand-written reproductions that misbehave in every way it must survive."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest

from faultbook_repro import Outcome, Runner
from faultbook_repro.core.records import merge
from faultbook_repro.core.runner import RunnerError
from faultbook_repro.core.spec import Spec, SpecError, load_spec

pytestmark = pytest.mark.repro

REPROS = Path(__file__).parent / "repros"
BAD = dataclasses.replace(load_spec(REPROS / "misbehaves.py"), timeout_s=5.0)


def misbehave(runner: Runner, variant: str, **changes: object) -> Outcome:
    return runner.run(dataclasses.replace(BAD, **changes), variant=variant)  # type: ignore[arg-type]


def isolated(runner: Runner) -> None:
    if not runner.about()["sandbox"]["network"].startswith("none"):
        pytest.skip(f"this machine allows no isolation: {runner.about()['sandbox']['network']}")


def test_a_run_that_completes(runner: Runner) -> None:
    outcome = runner.run(REPROS / "passes.py")
    assert outcome.outcome == "completes" and outcome.ok
    assert outcome.log == "to stdout\nto stderr\n", "plain for one rank, both streams, in order"
    assert outcome.workload == {"steps": 3, "shapes": [[2, 3]]}
    assert outcome.results["first"] == 1.5 and outcome.results["many"] == [1, 2]
    assert runner.check(REPROS / "passes.py", outcome) is None


def test_an_exception_is_recorded_and_printed_without_the_runners_frames(runner: Runner) -> None:
    outcome = misbehave(runner, "raises")
    record = outcome.ranks[0]
    assert outcome.outcome == "raises"
    assert record.exception == "ValueError: on purpose"
    assert outcome.log.startswith('Traceback (most recent call last):\n  File "repro.py", line ')
    assert outcome.log.endswith("ValueError: on purpose\n")
    assert "child.py" not in outcome.log
    assert record.results == {"before": 1}, "what was reported before the failure is kept"


def test_exit_status(runner: Runner) -> None:
    outcome = misbehave(runner, "exits")
    assert (outcome.outcome, outcome.ranks[0].exit_code) == ("raises", 3)


def test_a_hang_is_killed_at_the_deadline_and_says_where_it_hung(runner: Runner) -> None:
    outcome = misbehave(runner, "hangs", timeout_s=0.5)
    record = outcome.ranks[0]
    assert (outcome.outcome, record.signal) == ("hangs", "TIMEOUT")
    assert 0.45 < outcome.seconds < 3.0
    assert "in hangs" in record.stacks
    assert record.workload == {"steps": 1}


def test_a_stopped_process_is_a_hang(runner: Runner) -> None:
    assert misbehave(runner, "stops", timeout_s=0.5).ranks[0].signal == "TIMEOUT"


@pytest.mark.parametrize(("variant", "signal"), [("aborts", "SIGABRT"), ("segfaults", "SIGSEGV")])
def test_real_signal_names(runner: Runner, variant: str, signal: str) -> None:
    outcome = misbehave(runner, variant)
    assert (outcome.outcome, outcome.ranks[0].signal) == ("killed", signal)
    assert "Fatal Python error" in outcome.log


def test_a_file_that_grows_without_end_hits_the_limit(runner: Runner) -> None:
    outcome = misbehave(runner, "writes-too-much")
    assert outcome.outcome == "raises" and "File too large" in (outcome.ranks[0].exception or "")


def test_output_without_end_is_cut_off(runner: Runner) -> None:
    outcome = misbehave(runner, "infinite-output")
    assert outcome.ranks[0].signal == "OUTPUT"
    assert len(outcome.log) < 9 * 1024 * 1024


def test_memory_without_end_hits_the_limit(runner: Runner) -> None:
    outcome = misbehave(runner, "memory", timeout_s=20.0, rlimits={"as": 3 * 1024**3})
    assert outcome.outcome == "raises" and "MemoryError" in (outcome.ranks[0].exception or "")


def test_no_network_but_loopback(runner: Runner) -> None:
    isolated(runner)
    results = misbehave(runner, "network").results
    assert "unreachable" in results["refused"] and results["loopback"] is True
    assert results["interfaces"] == ["lo"]


def test_nothing_can_be_written_outside_the_run(runner: Runner) -> None:
    if not runner.about()["sandbox"]["files"].startswith("read-only"):
        pytest.skip(runner.about()["sandbox"]["files"])
    results = misbehave(runner, "writes-outside").results
    assert "written" not in results and "Read-only" in results["refused"]


def test_the_environment_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTBOOK_TEST_TOKEN", "s3cret")
    with Runner() as runner:
        results = misbehave(runner, "environment").results
    assert "FAULTBOOK_TEST_TOKEN" not in results["environment"]
    assert "s3cret" not in json.dumps(results), "nor can it be read from another process"


def test_children_of_a_run_end_with_it(runner: Runner) -> None:
    started = time.monotonic()
    assert misbehave(runner, "forks").outcome == "completes"
    assert time.monotonic() - started < 3.0


def test_a_daemon_does_not_outlive_its_run(runner: Runner) -> None:
    assert misbehave(runner, "escapes").outcome == "completes"
    assert runner._work is not None
    alive = runner._work / "runs" / "alive"
    alive.unlink(missing_ok=True)
    time.sleep(0.2)
    assert not alive.exists(), "the daemon went on writing after its run"


def test_killing_everything_in_reach_reaches_only_itself(runner: Runner) -> None:
    isolated(runner)
    misbehave(runner, "kills-all")  # finds nobody, or only itself
    assert misbehave(runner, "raises").outcome == "raises", "the server is still there"


def test_a_fork_bomb_ends_at_the_deadline(runner: Runner) -> None:
    isolated(runner)
    outcome = misbehave(runner, "fork-bomb", timeout_s=1.0)
    assert outcome.outcome == "hangs" and outcome.seconds < 20.0
    assert misbehave(runner, "raises").outcome == "raises"


@pytest.mark.parametrize("guilty", [0, 1])
def test_the_guilty_rank_is_a_parameter(runner: Runner, guilty: int, tmp_path: Path) -> None:
    spec = dataclasses.replace(
        load_spec(REPROS / "guilty.py"), world_size=2, timeout_s=3.0, flight_recorder=True
    )
    outcome = runner.run(spec, guilty=guilty, keep=tmp_path)
    assert outcome.outcome == "hangs"
    assert outcome.ranks[guilty].signal == "TIMEOUT" and "sleep" not in outcome.ranks[1 - guilty].stacks
    assert "Timed out waiting" in (outcome.ranks[1 - guilty].exception or "")
    assert f"[rank{guilty}]: step=0 sum=8.0\n" in outcome.log
    counts = {}
    for rank in range(2):
        dump = json.loads((tmp_path / "fr" / f"fr_trace_rank{rank}.json").read_text())
        counts[rank] = max(e["collective_seq_id"] for e in dump["entries"] if not e["is_p2p"])
        assert (tmp_path / f"rank_{rank}.log").read_text() == outcome.ranks[rank].log
    assert counts == {guilty: 1, 1 - guilty: 2}, "the rank that hangs left a dump too, one collective behind"
    assert runner.check(spec, outcome) is not None


def test_two_ranks_agree_when_fixed(runner: Runner) -> None:
    spec = dataclasses.replace(load_spec(REPROS / "guilty.py"), world_size=2)
    outcome = runner.run(spec, fixed=True)
    assert outcome.outcome == "completes" and runner.check(spec, outcome) is None
    assert outcome.workloads == [{"steps": 2}] * 2


def test_a_rank_that_aborts_leaves_a_flight_recorder_dump(runner: Runner, tmp_path: Path) -> None:
    spec = dataclasses.replace(load_spec(REPROS / "aborted_rank.py"), world_size=2, flight_recorder=True)
    outcome = runner.run(spec, guilty=1, keep=tmp_path)
    assert outcome.ranks[1].signal == "SIGABRT" and outcome.outcome == "killed"
    dump = json.loads((tmp_path / "fr" / "fr_trace_rank1.json").read_text())
    assert len(dump["entries"]) == 1


def test_a_fresh_process(runner: Runner) -> None:
    spec = dataclasses.replace(load_spec(REPROS / "passes.py"), isolation="fresh")
    outcome = runner.run(spec)
    assert outcome.ok and outcome.threads_before_fork is None
    assert outcome.log == "to stdout\nto stderr\n"


def test_500_forks_from_one_thread_and_none_hangs(runner: Runner) -> None:
    """The figure that the whole design rests on, measured on each test run."""
    spec = dataclasses.replace(load_spec(REPROS / "passes.py"), timeout_s=20.0)
    runner.run(spec)
    started = time.monotonic()
    for _ in range(500):
        outcome = runner.run(spec)
        assert outcome.ok, outcome.log
        assert outcome.threads_before_fork == 1
    seconds = time.monotonic() - started
    print(f"\n500 forks of the warm parent: {seconds:.1f} s, {seconds * 2:.0f} ms each")


def test_the_parent_has_one_thread_after_all_imports(runner: Runner) -> None:
    assert runner.about()["threads"] == 1


def test_a_second_parent_preloads_transformers(runner: Runner) -> None:
    pytest.importorskip("transformers")
    spec = dataclasses.replace(load_spec(REPROS / "passes.py"), preload=("transformers",))
    outcome = runner.run(spec)
    assert outcome.ok
    assert outcome.threads_before_fork in (1, None), "forked from one thread, else a fresh process"


def test_an_import_error_ends_before_run(runner: Runner, tmp_path: Path) -> None:
    path = tmp_path / "broken_import.py"
    path.write_text("import no_such_module_at_all\n")
    outcome = runner.run(path)
    assert outcome.setup_failed and "no_such_module_at_all" in (outcome.ranks[0].exception or "")


def test_unknown_variant_and_fields_are_named() -> None:
    with Runner() as runner, pytest.raises(RunnerError, match="no variant 'fp8'"):
        runner.run(REPROS / "passes.py", variant="fp8")
    with pytest.raises(SpecError, match=r"passes: repro\.timeout: no such field"):
        from faultbook_repro.core.spec import make_spec

        make_spec(REPROS / "passes.py", "passes", {"timeout": 3})


def test_merging_keeps_lines_whole_and_the_order_in_which_logs_grew() -> None:
    logs = ["a1\na2\n", "b1\nb2 without end"]
    assert merge(logs, [(1, 4), (0, 3), (1, 14)]) == (
        "[rank1]: b1\n[rank0]: a1\n[rank0]: a2\n[rank1]: b2 without end\n"
    )
    assert merge(["only"], []) == "only"


def test_spec_defaults() -> None:
    spec = load_spec(REPROS / "passes.py")
    assert isinstance(spec, Spec) and spec.variants == ("",) and spec.world_size == 1
    assert load_spec(REPROS / "misbehaves.py").variants[0] == "raises"
