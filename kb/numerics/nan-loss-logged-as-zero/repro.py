"""The HF Trainer prints a loss of 0.0 while the loss is NaN, because it filters what it logs.

A one-layer regression is trained by transformers.Trainer on 320 rows, the 81st of which holds a NaN. From
step 10 on every loss is NaN and so are all weights, but the default `logging_nan_inf_filter=True` leaves
non-finite losses out of the average: the log says 0.0. The fixed half switches the filter
off, so that the log tells the truth, and keeps rows that are not finite out of the batches.
"""

import os

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

ROWS, BATCH, STEPS, BAD_ROW = 320, 8, 40, 80


# region broken
def arguments(folder: str, **common) -> TrainingArguments:
    """The defaults: losses that are not finite are left out of the logged average."""
    return TrainingArguments(folder, **common)


def collate(rows: list[dict]) -> dict:
    """Stacks the rows as they are."""
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
# endregion


# region fixed
def honest_arguments(folder: str, **common) -> TrainingArguments:
    """Logs the loss that was computed."""
    return TrainingArguments(folder, logging_nan_inf_filter=False, **common)


def collate_finite(rows: list[dict]) -> dict:
    """Leaves out rows that hold a NaN or an infinity."""
    good = [row for row in rows if all(bool(torch.isfinite(value).all()) for value in row.values())]
    return {key: torch.stack([row[key] for row in good]) for key in rows[0]}
# endregion


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 1)
        self.losses: list[float] = []

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> dict:
        prediction = self.linear(features).squeeze(-1)
        loss = (prediction - labels).square().mean()
        self.losses.append(loss.item())  # what was really computed
        return {"loss": loss, "logits": prediction}


class PrintLogs(TrainerCallback):
    def __init__(self) -> None:
        self.logged: list[float] = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.logged.append(float(logs["loss"]))


def run(ctx):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):  # one process, not a job of one rank
        os.environ.pop(name, None)
    torch.manual_seed(ctx.seed)
    ctx.workload(rows=ROWS, batch=BATCH, steps=STEPS)
    features = torch.randn(ROWS, 8)
    labels = features @ torch.randn(8) + 2.0
    features[BAD_ROW, 3] = float("nan")
    rows = [{"features": f, "labels": y} for f, y in zip(features, labels, strict=True)]

    model, printed = Regression(), PrintLogs()
    make = honest_arguments if ctx.fixed else arguments
    settings = make(
        str(ctx.tmp), max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=0.3, optim="sgd",
        logging_steps=2, save_strategy="no", report_to=[], train_sampling_strategy="sequential",
        use_cpu=ctx.device == "cpu", disable_tqdm=True, remove_unused_columns=False,
    )
    trainer = Trainer(
        model, settings, train_dataset=rows, data_collator=collate_finite if ctx.fixed else collate,
        callbacks=[printed],
    )
    trainer.train()
    pairs = torch.tensor(model.losses).view(-1, 2).mean(1).tolist()
    wrong = sum(not abs(a - b) <= 1e-3 for a, b in zip(printed.logged, pairs, strict=True))
    finite = all(bool(torch.isfinite(p).all()) for p in model.parameters())
    ctx.result(logged=printed.logged[-1], computed=model.losses[-1], wrong_records=wrong, weights_finite=finite)
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["wrong_records"] == 0, f"{out.results['wrong_records']} logged losses are not the computed ones"
    assert out.results["weights_finite"], "weights are not finite"
    assert out.results["computed"] < 0.1, f"final loss is {out.results['computed']}"
