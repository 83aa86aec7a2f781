"""Series from lines: attempts, ranks, roles, files, and that short cuts change nothing."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultbook import metrics
from faultbook.lines import parse
from faultbook.metrics import has_table, read_series, role_of, series_from_file, step_of
from faultbook.model import Series
from faultbook.rankmap import rank_map


def read(lines: list[str], **options: object) -> list[Series]:
    return read_series(enumerate(lines, 1), **options)  # type: ignore[arg-type]


def attempts(series: list[Series], name: str = "loss") -> list[tuple[int, list[float]]]:
    return [(s.attempt, list(s.steps)) for s in series if s.name == name]


ROLES = {
    "loss": "loss", "train_loss": "loss", "lm loss": "loss", "train/loss": "loss", "total_loss": "loss",
    "avr_loss": "loss", "Training Loss": "loss", "train/CrossEntropyLoss": "loss", "L": None,
    "d0.loss_cls": "loss_term",
    "loss_bbox": "loss_term", "kd loss": "loss_term", "cls_loss": "loss_term", "SoftmaxWithLoss1": "loss_term",
    "eval_loss": "eval_loss", "val loss": "eval_loss", "Validation Loss": "eval_loss", "test/loss": "eval_loss",
    "actor/entropy_loss": "entropy", "entropy": "entropy", "cross_entropy": "loss", "policy_entropy": "entropy",
    "actor/pg_loss": "policy_loss", "policy loss": "policy_loss", "vf_loss": "value_loss", "critic/vf_loss": "value_loss",
    "d_loss": "gan_loss", "g_loss": "gan_loss", "moe_aux_loss": "aux_loss", "z_loss": "aux_loss",
    "grad_norm": "grad_norm", "grad norm": "grad_norm", "gnorm": "grad_norm", "optim/total_grad_norm": "grad_norm",
    "actor/grad_norm": "grad_norm", "learning_rate": "lr", "lr": "lr", "LearningRate": "lr", "lr_model": "lr",
    "loss scale": "loss_scale", "loss_scale": "loss_scale", "Fp16 Grad Scale": "loss_scale",
    "Logit Scale": "logit_scale", "temperature": "temperature", "gpu_temp": "gpu_temperature",
    "objective/kl": "kl", "kl_loss": "kl", "approxkl": "kl", "reward": "reward", "rewards/chosen": "reward",
    "critic/score/mean": "reward", "reward_std": "reward_std", "ppl": "perplexity", "accuracy": "accuracy",
    "val_acc": "eval_accuracy", "mIoU": "accuracy", "valid WER": "eval_error", "number of nan iterations": "counter",
    "number of skipped iterations": "counter", "tok/sec": "throughput", "samples/sec": "throughput", "mfu": "throughput",
    "Tokens/s/device": "throughput", "gen throughput (token/s)": "throughput", "dt": "step_time", "Time": "step_time",
    "elapsed time per iteration (ms)": "step_time", "data_time": "data_time", "Data (t)": "data_time",
    "MaxMemAllocated": "memory", "Peak mem": "memory", "GPU_mem": "memory", "token usage": "cache_usage",
    "expert_load": "router_load", "batch_size": None, "kl_loss_coef": None, "max_grad_norm": None, "global_step": None,
    "loss_weight": None, "reward_model_type": None,
}  # fmt: skip


@pytest.mark.parametrize(("name", "role"), ROLES.items())
def test_role(name: str, role: str | None) -> None:
    assert role_of(name) == role


def test_counter_that_falls_back_to_its_start_is_a_new_attempt() -> None:
    lines = [f"step {n} loss: 1.0" for n in (10, 20, 30, 40)]
    assert attempts(read(lines + lines)) == [(0, [10, 20, 30, 40]), (1, [10, 20, 30, 40])]


def test_resume_from_a_checkpoint_is_a_new_attempt() -> None:
    steps = [*range(10, 1000, 10), *range(610, 700, 10)]
    found = attempts(read([f"iter {n}: loss 2.0" for n in steps]))
    assert [a for a, _ in found] == [0, 1]
    assert found[1][1][0] == 610


def test_epoch_counters_restart_within_one_attempt() -> None:
    lines = [f"Epoch: [{e}][{b}/100]\tLoss 0.5 (0.6)" for e in (0, 1, 2) for b in (0, 50)]
    assert attempts(read(lines), "Loss") == [(0, [0, 50, 100, 150, 200, 250])]


def test_another_number_of_batches_continues_the_axis() -> None:
    lines = [f"Epoch: [{e}][{b}/{n}]\tLoss 0.5 (0.6)" for e, n in ((0, 100), (1, 60)) for b in (0, 50)]
    assert attempts(read(lines), "Loss") == [(0, [0, 50, 50, 100])]


def test_batch_counters_without_an_epoch_roll_over_when_complete() -> None:
    lines = [f"batch {b}/100 loss: 0.5" for b in (50, 100, 50, 100)]
    assert attempts(read(lines)) == [(0, [50, 100, 150, 200])]


def test_steps_in_an_epoch_roll_over_with_the_epoch() -> None:
    lines = [f"Epoch {e}, step {s}, loss: 0.5" for e in (1, 2) for s in (25, 50, 75)]
    assert attempts(read(lines)) == [(0, [25, 50, 75, 100, 125, 150])]


def test_bars_restart_with_each_epoch() -> None:
    lines = []
    for epoch in (43, 44, 45):
        lines += ["  0%|  | 0/221 [00:00<?, ?it/s]", "100%|██| 221/221 [02:20<00:00,  1.58it/s]"]
        lines += [f"epoch: {epoch}   step: 221   recon_loss: 4.87", "\t\tcommit_loss:  0.05  total_loss:  4.92"]
    assert {s.attempt for s in read(lines)} == {0}


def test_epochs_that_fall_back_are_a_new_attempt() -> None:
    lines = [f"Epoch: [{e}][{b}/100]\tLoss 0.5 (0.6)" for e in (0, 1, 0, 1) for b in (0, 50)]
    assert attempts(read(lines), "Loss") == [(0, [0, 50, 100, 150]), (1, [0, 50, 100, 150])]


def test_a_run_of_one_record_at_a_time_from_several_ranks_is_one_attempt() -> None:
    lines = [f"step {s} loss: 1.0" for s in (1, 1, 2, 2, 3, 4, 3, 4, 5, 5)]
    assert {s.attempt for s in read(lines)} == {0}


def test_kernel_and_scheduler_numbers_are_no_metrics() -> None:
    assert read(["[ 1843.308145] Memory cgroup out of memory: Killed process 4288 (python3) anon-rss:900kB"]) == []


def test_a_record_printed_over_several_lines() -> None:
    lines = ["    {", '      "epoch": 0.5,', '      "loss": 14.5,', '      "loss_scale": 0,', '      "step": 10', "    },"]
    assert [(s.name, s.values) for s in read(lines)] == [("loss", (14.5,))]


def test_a_banner_opens_an_attempt_only_after_records() -> None:
    banner = "***** Running training *****"
    lines = [banner, banner, "{'loss': 1.0, 'epoch': 0.1}", "{'loss': 0.9, 'epoch': 0.2}"]
    assert {s.attempt for s in read(lines)} == {0}
    assert {s.attempt for s in read([*lines, banner, "{'loss': 0.9, 'epoch': 0.3}"])} == {0, 1}


def test_the_caller_can_say_where_attempts_begin() -> None:
    lines = [f"loss: {v}" for v in (3.0, 2.0, 3.0, 2.0)]
    found = read(lines, attempt_starts=[1, 3], first_attempt=2)
    assert [(s.attempt, s.values) for s in found] == [(2, (3.0, 2.0)), (3, (3.0, 2.0))]


def test_ranks_are_series_of_their_own_and_the_default_fills_in() -> None:
    lines = ["[rank1]: step 1 loss: 1.0", "[rank0]: step 1 loss: 2.0", "step 1 loss: 3.0"]
    assert [(s.rank, s.values) for s in read(lines, default_rank=7)] == [(1, (1.0,)), (0, (2.0,)), (7, (3.0,))]


def test_resolve_turns_local_ranks_into_global_ones() -> None:
    known = rank_map(["[default1]:[rank9]: hello"])
    lines = [f"[default1]:step {n} loss: 1.5" for n in range(3)]
    assert [(s.rank, len(s.values)) for s in read(lines, resolve=known.resolve)] == [(9, 3)]


def test_first_numbers_printed_once_as_a_setting_are_no_series() -> None:
    assert read(["learning rate: 0.001", "temperature: 0.7"]) == []


def test_records_under_a_step_line_take_its_step() -> None:
    lines = [
        "[step=10/500,epoch=0]",
        "    train/CrossEntropyLoss=3.5",
        "[step=20/500,epoch=0]",
        "    train/CrossEntropyLoss=3.25",
    ]
    assert attempts(read(lines), "train/CrossEntropyLoss") == [(0, [10, 20])]


def test_line_numbers_are_those_of_the_lines_read() -> None:
    found = read_series([(17, "step 1 loss: 1.0"), (99, "step 2 loss: 0.5")])
    assert found[0].lines == (17, 99)


def test_table_header_is_seen() -> None:
    assert has_table(["hello", "epoch,acc,loss,val_acc,val_loss"])
    assert not has_table(["hello, world", "step 1 loss 0.5", "the loss, which is high, and some other things"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" 42%|████      | 42/100 [00:10<00:14,  4.1it/s]", ("batch", 42, 100)),
        ("step 17 done", ("step", 17, None)),
        ("Epoch [3/12] finished", ("epoch", 3, 12)),
        ("nothing here", None),
    ],
)
def test_step_of_reads_progress_without_metrics(text: str, expected: tuple[str, float, float | None] | None) -> None:
    assert step_of(text) == expected


# Files. -------------------------------------------------------------------------------------


def test_trainer_state() -> None:
    state = {
        "global_step": 20,
        "log_history": [
            {"epoch": 0.1, "grad_norm": 1.5, "loss": 2.0, "step": 10},
            {"epoch": 0.2, "grad_norm": math.nan, "loss": 0.0, "step": 20},
            {"epoch": 0.2, "eval_loss": 1.9, "step": 20},
        ],
    }
    found = {s.name: s for s in series_from_file(json.dumps(state, indent=2), "auto")}
    assert found["loss"].steps == (10, 20) and found["loss"].values == (2.0, 0.0)
    assert math.isnan(found["grad_norm"].values[1])
    assert found["eval_loss"].role == "eval_loss"
    text = json.dumps(state, indent=2).splitlines()
    assert "grad_norm" in "".join(text[found["loss"].lines[1] - 1 : found["loss"].lines[1] + 4])


def test_csv_and_jsonl() -> None:
    csv_series = {s.name: s for s in series_from_file(b"epoch,acc,loss\n0,0.1,2.5\n1,0.2,nan\n", "auto", rank=3)}
    assert csv_series["loss"].steps == (0, 1) and math.isnan(csv_series["loss"].values[1])
    assert csv_series["acc"].rank == 3
    jsonl = (
        '{"step": 1, "train": {"loss": 2.5}}\nbroken\n{"step": 2, "train": {"loss": null}}\n{"step": 3, "train": {"loss": 1.5}}\n'
    )
    found = {s.name: s for s in series_from_file(jsonl, "auto")}
    assert found["train/loss"].steps == (1, 3)


@pytest.mark.parametrize("kind", ["trainer_state", "csv", "jsonl", "auto"])
@given(data=st.binary(max_size=400))
@settings(max_examples=60, deadline=None)
def test_no_file_raises(kind: str, data: bytes) -> None:
    series_from_file(data, kind)


def test_a_counter_that_falls_back_a_thousand_times_is_no_thousand_jobs() -> None:
    """64 KiB of two lines in turn took two seconds: each fall opened an attempt, and each attempt was judged by itself."""
    lines = [f"step={9000 if n % 2 else 4} loss=0.5" for n in range(2000)]
    found = read(lines)
    assert 1 < len({s.attempt for s in found}) <= 101
    assert sum(len(s.values) for s in found) == 2000


# Short cuts change nothing. -------------------------------------------------------------------

NUMBERS = st.one_of(
    st.floats(-1e6, 1e6).map(lambda v: f"{v:.4f}"),
    st.integers(0, 10**7).map(str),
    st.sampled_from(["nan", "inf", "-inf", "1.5e-07", "12,345", "0.0", "-nan", "3.2e+4"]),
)
TEMPLATES = st.sampled_from(
    [
        "step {} loss: {} grad_norm: {}",
        "[rank{r}]: step {} | loss {} | lr {}",
        "{{'loss': {}, 'grad_norm': {}, 'epoch': {}}}",
        "Epoch: [{}][{}/100]\tLoss {} (0.5)",
        "{}/{} [00:10<00:20, 1.5it/s, loss={}]",
        "2031-05-06 10:00:00,123 - INFO - [rank{r}] iter {}: loss {}",
        "{} | loss {} | lr {}",
        "[1,{r}]<stdout>:step={} loss={} mem={}GB",
        "Attempted loss scale: {}, reducing to {}",
        "no metrics here {} {}",
    ]
)


@given(st.lists(st.tuples(TEMPLATES, st.lists(NUMBERS, min_size=3, max_size=3), st.integers(0, 12)), max_size=30))
@settings(max_examples=150, deadline=None)
def test_plans_read_what_the_full_reader_reads(rows: list[tuple[str, list[str], int]]) -> None:
    lines = [template.format(*numbers, r=rank) for template, numbers, rank in rows]
    lines = [line for line in lines for _ in (0, 1)]
    fast = read(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics.Plans, "key", lambda self, text: None)
        slow = read(lines)
    assert repr(fast) == repr(slow)


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_no_text_raises(text: str) -> None:
    read([text, text + "\r" + text, "step 1 loss " + text])
    step_of(text)
    parse(text)


@pytest.mark.parametrize(
    "unit", ["loss: ", "a b c d e f g ", "1/2 [", "loss 1", "|", "0", "step ", "'loss': nan, ", "Epoch", "=" * 9, "\t1,"]
)
def test_reading_is_linear_in_garbage(unit: str) -> None:
    def seconds(size: int) -> float:
        text = (unit * (size // len(unit) + 1))[:size]
        start = time.process_time()
        read([text])
        return time.process_time() - start

    seconds(1 << 10)
    small, large = min(seconds(1 << 13) for _ in range(3)), min(seconds(1 << 16) for _ in range(2))
    assert large < 24 * small + 0.05


# Real logs. -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "name", "records"),
    [
        ("healthy/nanogpt_healthy.log", "loss", 501),
        ("healthy/hf_chatmd_healthy.out", "grad_norm", 1272),
        ("healthy/gpt2_shakespeare_healthy.log", "loss", 457),
        ("failed/olmo_1b_tied.log", "train/CrossEntropyLoss", 3000),
        ("failed/keras_voice_overfit.log", "val_loss", 50),
        ("healthy/t5_finetune_healthy.log", "Batch loss", 7760),
    ],
)
def test_real_logs(shared: object, file: str, name: str, records: int) -> None:
    text = (shared / "logs" / file).read_text(errors="replace")  # type: ignore[operator]
    found = [s for s in read(text.split("\n")) if s.name == name]
    assert [len(s.values) for s in found] == [records]


def test_a_line_that_begins_with_the_phase_is_of_that_phase() -> None:
    lines = [f"Epoch: [79][{i}/250]\tTime 1.1 (1.2)\tLoss 0.{300 - i % 7:03d} (0.43)" for i in range(0, 250, 10)]
    lines += [f"Test: [{i}/242]\tTime 0.6 (0.6)\tLoss 5.2655 (4.0611)" for i in range(0, 242, 10)]
    lines += [f"Epoch: [80][{i}/250]\tTime 1.1 (1.2)\tLoss 0.{300 - i % 7:03d} (0.43)" for i in range(0, 250, 10)]
    series = read_series(list(enumerate(lines, 1)))
    train = [s for s in series if s.role == "loss"]
    assert [(s.name, s.attempt, len(s.values)) for s in train] == [("Loss", 0, 50)]
    assert max(train[0].values) < 1
    assert [len(s.values) for s in series if s.role == "eval_loss"] == [25]
    (line,) = read_series([(1, "Test Loss: 0.5 Train Loss: 0.4")][:1])[:1]
    assert (line.role, line.values) == ("eval_loss", (0.5,))


POLICIES = ["Episode {i}/90 | Loss: {x}", "step={i} return=-97.3 loss={x} entropy=1.9", "update {i}: reward 3.1 loss {x}"]


@pytest.mark.parametrize("head", POLICIES)
def test_a_policys_loss_has_no_direction(head: str) -> None:
    series = read_series([(i, head.format(i=i, x=1.5 + i)) for i in range(1, 20)])
    assert {s.role for s in series if "oss" in s.name} == {"policy_loss"}


def test_preference_training_has_a_loss() -> None:
    series = read_series([(i, f"{{'loss': 0.{693 - i}, 'rewards/chosen': 0.1, 'step': {i}}}") for i in range(1, 20)])
    assert {s.role for s in series if s.name == "loss"} == {"loss"}
