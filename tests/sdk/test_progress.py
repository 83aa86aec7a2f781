"""Completion, last steps and phases as frameworks print them."""

# ruff: noqa: E501 - log lines are quoted whole

from __future__ import annotations

import pytest

from faultbook import attribution, progress
from faultbook.model import Source


def of(text: str) -> progress.Progress:
    source = Source(index=0, name="train.log", kind="log")
    found = attribution.parse_all([source], {0: list(enumerate(text.splitlines(), 1))})
    known = attribution.learn(found, {0: source})
    return progress.of_records(attribution.resolve(found, known, {0: source}))


@pytest.mark.parametrize(("line", "step"), [
    ("step=11/40 loss=2.07 grad_norm=1.87", (11, 40)),
    (" iteration 3383/ 8000 | consumed samples: 216512 | lm loss: 7.3E-01", (3383, 8000)),
    ("iter 2920: loss 3.9883, time 1099.34ms, mfu 15.34%", (2920, None)),
    ("train:  18%|#8        | 7/40 [00:00<00:01, 21.02it/s, loss=2.57]", (7, 40)),
    ("Epoch: [0][16/5005]\tTime 67.619 (11.054)\tLoss 6.9076 (6.9079)", (16, 5005)),
    ("completed step: 9, seconds: 5.667, loss: 10.374", (9, None)),
    ("{'loss': 0.91, 'grad_norm': 1.2, 'epoch': 0.25}", (0.25, None)),
    ("step 00004/21400 (0.02%) | loss: 8.89 | dt: 989.44ms", (4, 21400)),
])
def test_steps(line: str, step: tuple[float, int | None]) -> None:
    assert progress.step_of(line) == step


@pytest.mark.parametrize("line", ["loading step-by-step guide", "rank 3 of 8", "Traceback (most recent call last):", "took 3/4 of an hour"])
def test_what_is_no_step(line: str) -> None:
    assert progress.step_of(line) is None


@pytest.mark.parametrize("line", [
    "training complete", "Training completed. Do not forget to share your model on huggingface.co/models =)",
    "{'train_runtime': 812.4, 'train_loss': 0.91, 'epoch': 3.0}", "***** train metrics *****",
    "`Trainer.fit` stopped: `max_epochs=3` reached.", "Finished training in 3 h", "Saving final model to out/",
    "Job finished", "process exited with code 0",
])
def test_completions(line: str) -> None:
    assert progress.is_completion(line)


@pytest.mark.parametrize("line", [
    "training was not completed", "waiting until training finishes", "step 9 completed", "failed to complete training",
    "destroy_process_group() was not called before the job finished", "epoch 3 done",
])
def test_what_is_no_completion(line: str) -> None:
    assert not progress.is_completion(line)


def test_progress_of_each_rank() -> None:
    text = "".join(f"2026-11-30 17:05:{n:02d},000 INFO train: step={n}/40 loss=2.0 rank={r}\n" for n in range(1, 6) for r in range(2))
    text += "2026-11-30 17:05:06,000 INFO train: saving checkpoint at step 5 rank=0\n"
    found = of(text)
    assert (found.last_step(0), found.last_step(1)) == (5, 5)
    assert found.ranks[0].step_seconds == 1.0
    assert "saving checkpoint" in found.ranks[0].phase and found.ranks[1].phase == ""
    assert found.ends_mid_run and not found.completed


def test_a_phase_that_progress_followed_is_over() -> None:
    found = of("saving checkpoint at step 5\nstep=6/40 loss=2.0\n")
    assert found.ranks[None].phase == ""


def test_a_full_bar_is_no_completion_by_itself() -> None:
    found = of("100%|##########| 40/40 [00:10<00:00, 4.0it/s, loss=0.1]\n")
    assert found.reached_total and not found.completed


@pytest.mark.parametrize(("text", "seconds"), [("29:55", 1795), ("1:02:03", 3723), ("00:07", 7), ("abc", None)])
def test_elapsed(text: str, seconds: float | None) -> None:
    assert progress.elapsed_seconds(text) == seconds


def test_two_numbers_glued_together_are_no_crash():
    """Two writers in one line: found by the fuzzer."""
    from faultbook.progress import step_of

    assert step_of("{'loss': 1.0, 'epoch': 0.10.5403485}") == (0.1, None)
    assert step_of("{'loss': 1.0, 'epoch': '2.5'}") == (2.5, None)
