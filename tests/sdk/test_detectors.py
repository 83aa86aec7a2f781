"""Every detector: where it must fire, where it must not, and its documented limits."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultbook.detectors import DETECTORS, evaluate, evaluate_signature
from faultbook.metrics import read_series, role_of
from faultbook.model import Series
from faultbook.signatures import MetricSignature, Predicate, Test

NAN, INF = math.nan, math.inf


def series(
    values: Sequence[float], name: str = "loss", rank: int | None = None, attempt: int = 0, start: int = 1, source: int = 0
) -> Series:
    steps = tuple(float(10 * (i + start)) for i in range(len(values)))
    lines = tuple(range(100, 100 + len(values)))
    return Series(name, role_of(name), source, rank, attempt, steps, tuple(values), lines)


def fires(test: str, values: Sequence[float], warmup: int = 0, name: str = "loss", **options: Any) -> int | None:
    predicate = Predicate(series=(name,), test=test, **options)  # type: ignore[arg-type]
    firing = evaluate(predicate, [series(values, name)], warmup)
    if firing is None:
        return None
    assert firing.text.endswith(".") and name in firing.text
    assert (firing.step, firing.line) == (10.0 * (firing.index + 1), 100 + firing.index)
    return firing.index


def test_there_is_a_detector_for_every_test_of_the_grammar_and_each_states_its_false_positives() -> None:
    assert set(DETECTORS) == set(get_args(Test))
    for name, detector in DETECTORS.items():
        assert "False positives:" in " ".join((detector.__doc__ or "").split()), name


def test_nonfinite() -> None:
    assert fires("nonfinite", [1.0, 0.9, NAN, NAN]) == 2
    assert fires("nonfinite", [1.0, INF, 0.9], patience=1) == 1
    assert fires("nonfinite", [1.0, INF, 0.9], patience=2) is None
    assert fires("nonfinite", [NAN, 1.0, 0.9], warmup=1) is None
    assert fires("nonfinite", [1.0, NAN, 1.0, NAN, NAN], patience=2) == 3


def test_above_and_below() -> None:
    assert fires("above", [1, 2, 11, 12], value=10.0, patience=2) == 2
    assert fires("above", [1, 11, 2, 11], value=10.0, patience=2) is None
    assert fires("above", [1, NAN], value=0.5, patience=2) is None
    assert fires("above", [1, INF], value=10.0) == 1
    assert fires("below", [1, 0.1], value=0.5) == 1
    assert fires("below", [1, 0.6], value=0.5) is None
    assert fires("above", [1, 2]) is None, "without a threshold nothing is above it"


def test_rises() -> None:
    assert fires("rises", [4, 3, 2, 2, 2, 4.5, 5, 5, 5], factor=2.0) == 6  # medians of three lag by one record
    assert fires("rises", [4, 3, 2, 2, 9, 2, 2, 2], factor=2.0) is None, "one odd record"
    assert fires("rises", [4, 3, 2, 2, 0.1, 2, 2, 2], factor=2.0) is None, "one low record is no minimum"
    assert fires("rises", [-1, -2, -3, 5, 6, 7], factor=2.0) is None, "a ratio to a negative minimum means nothing"
    assert fires("rises", [8, 7, 6, 5, 4, 3, 2], factor=2.0) is None
    assert fires("rises", [1, 5, 5, 5, 5, 5], warmup=1, factor=2.0) is None
    assert fires("rises", [100, 50, 0.01, 0.01, 0.01, 0.05, 0.05, 0.05], factor=2.0) is None, "next to nothing"
    assert fires("rises", [2, 1, 4], factor=2.0) == 2, "short series are read as they are"


def test_falls() -> None:
    assert fires("falls", [8, 8, 8, 1, 1, 1], factor=4.0) == 4
    assert fires("falls", [8, 8, 8, 1, 8, 8, 8], factor=4.0) is None
    assert fires("falls", [1, 2, 3, 4, 5, 6], factor=4.0) is None


def test_spike() -> None:
    rng = random.Random(1)
    calm = [1 + 0.05 * rng.random() for _ in range(60)]
    assert fires("spike", calm) is None
    assert fires("spike", [*calm, 40.0, *calm]) == 60
    assert fires("spike", [*calm, 40.0, *calm], patience=2) is None
    assert fires("spike", [*calm, 40.0, 41.0, *calm], patience=2) == 60
    assert fires("spike", [*calm, INF]) == 60
    assert fires("spike", [*calm, NAN]) is None
    assert fires("spike", [1, 1, 1, 50]) is None, "too short to know its spread"
    assert fires("spike", [1.0] * 30 + [1.02], factor=1.5) is None, "a flat series has no spread"
    falling = [10 / (i + 1) for i in range(60)]
    assert fires("spike", falling) is None


def test_plateau() -> None:
    assert fires("plateau", [3, 2.5, *[2.0] * 10], records=10) == 2
    assert fires("plateau", [3 - 0.1 * i for i in range(20)], records=10) is None
    assert fires("plateau", [2.0] * 9, records=10) is None
    assert fires("plateau", [2.0] * 5 + [NAN] + [2.0] * 5, records=10) is None
    assert fires("plateau", [2.0, 2.01] * 6, records=10, tolerance=0.01) == 0
    assert fires("plateau", [2.0, 2.01] * 6, records=10, tolerance=0.001) is None


def test_equals() -> None:
    assert fires("equals", [0.8, 0.7, 0.693, 0.6931, 0.6932], ln_of=2, patience=3, tolerance=0.005) == 2
    assert fires("equals", [0.9, 0.6931, 0.5], ln_of=2, patience=2, tolerance=0.005) is None
    assert fires("equals", [87.3365], value=87.3365, tolerance=1e-4) == 0
    assert fires("equals", [0.0005, 1], value=0.0, tolerance=0.001) == 0
    assert fires("equals", [1.0]) is None


def test_zero() -> None:
    assert fires("zero", [1, 0, 0, 0], patience=3) == 1
    assert fires("zero", [1, 0, 1, 0], patience=2) is None
    assert fires("zero", [1e-9, 1e-9], patience=2) is None
    assert fires("zero", [1e-9, -1e-9], patience=2, tolerance=1e-6) == 0


def test_grows() -> None:
    assert fires("grows", [1, 1, 1, *(1 + 0.1 * i for i in range(12))], name="memory", records=10) is not None
    assert fires("grows", [1 + 0.1 * i for i in range(12)], name="memory", records=10) == 0
    assert fires("grows", [1, 1.5, *[1.6] * 20], name="memory", records=10) is None, "a cache that filled"
    assert fires("grows", [1 + 0.001 * i for i in range(12)], name="memory", records=10) is None, "less than 5 %"
    assert fires("grows", [1.0, 2.0] * 10, name="memory", records=10) is None


def ranks(columns: dict[int, Sequence[float]], name: str = "step_time") -> list[Series]:
    return [series(values, name, rank) for rank, values in columns.items()]


def between(test: str, columns: dict[int, Sequence[float]], **options: Any) -> tuple[int | None, int] | None:
    firing = evaluate(Predicate(series=("step_time",), test=test, **options), ranks(columns))  # type: ignore[arg-type]
    return None if firing is None else (firing.rank, firing.index)


def test_rank_ratio() -> None:
    assert between("rank_ratio", {0: [1, 1, 1], 1: [1, 1, 1], 2: [1, 4, 4]}, factor=2.0) == (2, 1)
    assert between("rank_ratio", {0: [1, 1, 1], 1: [1, 1, 1], 2: [1, 4, 1]}, factor=2.0, patience=2) is None
    assert between("rank_ratio", {0: [1, 1], 1: [1, 1], 2: [0.1, 0.1]}, factor=2.0) == (2, 0), "much less counts too"
    assert between("rank_ratio", {0: [1, 1], 1: [3, 3]}, factor=2.0) == (1, 0), "of two, the greater one"
    assert between("rank_ratio", {0: [1, 4], 1: [4, 1], 2: [1, 1]}, factor=2.0, patience=2) is None, "not one rank twice"
    assert between("rank_ratio", {0: [1, 1]}, factor=2.0) is None


def test_rank_differs() -> None:
    assert between("rank_differs", {0: [1, 1], 1: [1, 1], 2: [1, 1.5]}) == (2, 1)
    assert between("rank_differs", {0: [1, 1], 1: [1, NAN]}) == (1, 1)
    assert between("rank_differs", {0: [1, 1], 1: [1, 1.5]}) == (None, 1), "of two, neither is known to be wrong"
    assert between("rank_differs", {0: [1, 1], 1: [1.0001, 1.0001]}, tolerance=1e-3) is None
    assert between("rank_differs", {0: [NAN, NAN], 1: [NAN, NAN]}) is None


def test_ranks_are_compared_at_equal_steps() -> None:
    late = [series([1, 1, 1], "step_time", 0), series([1, 1, 1], "step_time", 1, start=2)]
    assert evaluate(Predicate(series=("step_time",), test="rank_differs"), late) is None
    late[1] = series([5, 1, 1], "step_time", 1, start=2)
    firing = evaluate(Predicate(series=("step_time",), test="rank_differs"), late)
    assert firing is not None and firing.step == 20


def megatron(*losses: float | None, norm: float = 1.0, skipped: int = 0) -> list[Series]:
    lines = []
    for i, loss in enumerate(losses, 1):
        middle = "" if loss is None else f" lm loss: {loss:.6E} |"
        lines.append(
            f" iteration {i:8d}/     500 | consumed samples: {64 * i:12d} | learning rate: 6.0E-06 |{middle} loss scale: "
            f"4096.0 | grad norm: {norm:.3f} | number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |"
        )
    return read_series(enumerate(lines, 1))


def test_missing() -> None:
    predicate = Predicate(series=("lm loss",), test="missing", patience=2)
    firing = evaluate(predicate, megatron(8.0, 7.0, 6.5, None, None))
    assert firing is not None and (firing.line, firing.step) == (4, 4.0)
    assert evaluate(predicate, megatron(8.0, 7.0, 6.5, None, 6.0)) is None
    assert evaluate(predicate, megatron(8.0, 7.0)) is None
    first = evaluate(predicate, megatron(None, None, None))
    assert first is not None and first.line == 1, "left out from the start"
    assert evaluate(predicate, [series([1.0, 2.0, 3.0])]) is None, "no Megatron line, no missing field"


def test_missing_is_not_an_evaluation_now_and_then() -> None:
    lines = [f"step {i} loss: 1.0" + (" val_loss: 0.9" if i % 5 == 0 else "") for i in range(20)]
    found = read_series(enumerate(lines, 1))
    assert evaluate(Predicate(series=("loss",), test="missing", patience=1), found) is None


# Choosing series. -----------------------------------------------------------------------------


def test_the_first_present_name_wins_and_names_are_folded() -> None:
    found = [series([5.0], "grad norm"), series([50.0], "gnorm")]
    firing = evaluate(Predicate(series=("grad_norm", "gnorm"), test="above", value=1.0), found)
    assert firing is not None and firing.series == "grad norm"
    firing = evaluate(Predicate(series=("absent", "gnorm"), test="above", value=1.0), found)
    assert firing is not None and firing.series == "gnorm"


def test_role_lookup_prefers_the_main_loss() -> None:
    found = [series([NAN] * 9, "avg_loss"), series([1.0] * 3, "loss")]
    assert evaluate(Predicate(series=("role:loss",), test="nonfinite"), found) is None
    assert evaluate(Predicate(series=("role:grad_norm",), test="nonfinite"), found) is None


# Signatures. ------------------------------------------------------------------------------------


def signature(**parts: Any) -> MetricSignature:
    return MetricSignature(kind="metric", id="s", role="root", observed_in="stock_log", **parts)


def nonfinite(name: str) -> Predicate:
    return Predicate(series=(name,), test="nonfinite")


def test_all_must_hold_on_one_rank() -> None:
    sig = signature(all=(nonfinite("loss"), nonfinite("grad_norm")))
    split = [series([NAN], "loss", 0), series([1.0], "grad_norm", 0), series([1.0], "loss", 1), series([NAN], "grad_norm", 1)]
    assert evaluate_signature(sig, split) is None
    match = evaluate_signature(sig, [*split, series([NAN], "loss", 2), series([NAN], "grad_norm", 2)])
    assert match is not None and match.rank == 2 and len(match.firings) == 2


def test_ordered() -> None:
    sig = signature(all=(nonfinite("grad_norm"), nonfinite("loss")), ordered=True)
    early, late = [1.0, NAN, NAN, NAN], [1.0, 1.0, NAN, NAN]
    assert evaluate_signature(sig, [series(early, "grad_norm"), series(late, "loss")]) is not None
    assert evaluate_signature(sig, [series(late, "grad_norm"), series(early, "loss")]) is None
    assert evaluate_signature(sig, [series(late, "grad_norm"), series(late, "loss")]) is not None, "same record"


def test_any_and_none() -> None:
    one = signature(any=(nonfinite("loss"), nonfinite("grad_norm")))
    assert evaluate_signature(one, [series([NAN], "grad_norm")]) is not None
    assert evaluate_signature(one, [series([1.0], "grad_norm")]) is None
    sig = signature(all=(nonfinite("grad_norm"),), none=(nonfinite("loss"),))
    match = evaluate_signature(sig, [series([NAN], "grad_norm")])
    assert match is not None and match.unknown == ("loss",), "absent is unknown, not false"
    match = evaluate_signature(sig, [series([NAN], "grad_norm"), series([1.0], "loss")])
    assert match is not None and match.unknown == ()
    assert evaluate_signature(sig, [series([NAN], "grad_norm"), series([NAN], "loss")]) is None


def test_the_earliest_rank_and_the_latest_attempt_are_named() -> None:
    sig = signature(all=(nonfinite("loss"),))
    found = [series([1, 1, NAN], rank=0), series([1, NAN, NAN], rank=3), series([1, 1, 1], rank=1)]
    match = evaluate_signature(sig, found)
    assert match is not None and match.rank == 3 and match.ranks == (3, 0)
    match = evaluate_signature(sig, [*found, series([1, 1, NAN], rank=1, attempt=1)])
    assert match is not None and (match.attempt, match.rank) == (1, 1)
    match = evaluate_signature(sig, [*found, series([1, 1, 1], rank=1, attempt=1)])
    assert match is not None and match.attempt == 0


def test_warmup_of_the_signature() -> None:
    assert evaluate_signature(signature(all=(nonfinite("loss"),), warmup=2), [series([NAN, NAN, 1.0])]) is None


def test_between_ranks_in_a_signature() -> None:
    sig = signature(all=(Predicate(series=("step_time",), test="rank_ratio", factor=2.0),))
    match = evaluate_signature(sig, ranks({0: [1, 1], 1: [1, 1], 2: [5, 5]}))
    assert match is not None and match.rank == 2


def test_an_empty_signature_never_holds() -> None:
    assert evaluate_signature(signature(none=(nonfinite("loss"),)), [series([1.0])]) is None
    assert evaluate_signature(signature(all=(nonfinite("loss"),)), []) is None


VALUES = st.lists(st.one_of(st.floats(), st.sampled_from([0.0, 1.0, NAN, INF])), max_size=40)


@given(st.sampled_from(sorted(DETECTORS)), VALUES, VALUES, st.integers(1, 4), st.integers(0, 5))
@settings(max_examples=400, deadline=None)
def test_no_values_make_a_detector_raise(test: str, a: list[float], b: list[float], patience: int, warmup: int) -> None:
    found = [series(a, "loss", 0), series(b, "loss", 1), series(b, "grad_norm", 1)]
    predicate = Predicate(series=("loss",), test=test, value=1.0, patience=patience)  # type: ignore[arg-type]
    firing = evaluate(predicate, found, warmup)
    assert firing is None or firing.line in found[0].lines + found[1].lines + found[2].lines


# Healthy logs. ----------------------------------------------------------------------------------

TYPICAL = (
    Predicate(series=("role:loss",), test="nonfinite", patience=3),
    Predicate(series=("role:loss",), test="rises", factor=5.0, patience=5),
    Predicate(series=("role:grad_norm",), test="nonfinite", patience=3),
    Predicate(series=("role:loss_scale",), test="below", value=1.0, patience=3),
    Predicate(series=("role:loss",), test="zero", patience=5),
)


@pytest.fixture(scope="module")
def healthy(shared: Path) -> dict[str, list[Series]]:
    rows = [json.loads(line) for line in (shared / "logs/manifest.jsonl").read_text().splitlines()]
    files = [r["file"] for r in rows if r["status"] == "healthy" and r["file"] not in LIKELIHOODS]
    texts = {file: (shared / "logs" / file).read_text(errors="replace") for file in files}
    return {file: read_series(enumerate(text.split("\n"), 1)) for file, text in texts.items()}


@pytest.mark.parametrize("predicate", TYPICAL, ids=lambda p: f"{p.series[0]}-{p.test}")
def test_typical_predicates_are_silent_on_healthy_logs(healthy: dict[str, list[Series]], predicate: Predicate) -> None:
    fired = {file: evaluate(predicate, found) for file, found in healthy.items()}
    assert {file: f.text for file, f in fired.items() if f is not None} == {}


LIKELIHOODS = ("healthy/e2dtc_healthy.out",)
"""Its loss goes below 0 by design: a ratio to a minimum near 0 means nothing there."""
