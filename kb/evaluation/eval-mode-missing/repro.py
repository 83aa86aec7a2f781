"""Evaluation without model.eval(): dropout still drops, and BatchNorm takes its numbers from the batch it is shown.

A small classifier with BatchNorm and Dropout is trained on four classes and scored, in mixed
and in sorted order (one class after another, as a file list usually is). `torch.no_grad()` is there in both
halves; it switches gradients off and nothing else. The fixed half switches the model to
evaluation mode and back, and then the same weights give the same answer however the samples are batched.
"""

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, FEATURES, TRAIN, HELD_OUT, BATCH, STEPS, EVERY = 4, 16, 512, 256, 32, 120, 40


# region broken
@torch.no_grad()  # no gradients; dropout and BatchNorm go on as in training
def evaluate(model, x, y):
    return score(model, x, y)
# endregion


# region fixed
@torch.no_grad()
def evaluate_in_eval_mode(model, x, y):
    was_training = model.training
    model.eval()
    try:
        return score(model, x, y)
    finally:
        model.train(was_training)  # the caller's mode, so that training goes on with dropout
# endregion


def score(model, x, y) -> tuple[torch.Tensor, float, float, int]:
    logits = torch.cat([model(part) for part in x.split(BATCH)])
    accuracy = (logits.argmax(1) == y).double().mean().item()
    in_train_mode = sum(module.training for module in model.modules())
    return logits, F.cross_entropy(logits, y).item(), accuracy, in_train_mode


def samples(count: int, centres: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.arange(count) % CLASSES
    return centres[y] + torch.randn(count, FEATURES), y


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(train=TRAIN, held_out=HELD_OUT, batch=BATCH, steps=STEPS, every=EVERY)
    centres = 1.2 * torch.randn(CLASSES, FEATURES)
    x, y = (t.to(ctx.device) for t in samples(TRAIN, centres))
    held_x, held_y = (t.to(ctx.device) for t in samples(HELD_OUT, centres))
    by_class = held_y.argsort(stable=True)
    model = nn.Sequential(
        nn.Linear(FEATURES, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, CLASSES),
    ).to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    test = evaluate_in_eval_mode if ctx.fixed else evaluate
    for step in range(1, STEPS + 1):
        rows = torch.randint(TRAIN, (BATCH,)).to(ctx.device)
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY:
            continue
        before = model[1].running_mean.clone()
        first, val_loss, accuracy, in_train_mode = test(model, held_x, held_y)
        again = test(model, held_x, held_y)[0]
        ordered, _, sorted_accuracy, _ = test(model, held_x[by_class], held_y[by_class])
        moved = (model[1].running_mean - before).abs().max().item()
        print(
            f"step={step} loss={loss.item():.4f} val_loss={val_loss:.4f} val_acc={accuracy:.4f} "
            f"val_acc_sorted={sorted_accuracy:.4f} modules_in_training={in_train_mode}"
        )
    ctx.result(
        repeat_gap=(again - first).abs().max().item(), order_gap=(ordered - first[by_class]).abs().max().item(),
        statistics_moved=moved, accuracy=accuracy, sorted_accuracy=sorted_accuracy, val_loss=val_loss,
        training_afterwards=model.training,
    )
    print(f"training finished after {STEPS} steps")


def check(out):
    r = out.results
    assert r["repeat_gap"] == 0, f"the same weights and samples give logits {r['repeat_gap']:.3f} apart"
    assert r["order_gap"] < 1e-4, f"the order of the samples moves logits by {r['order_gap']:.3f}"
    assert r["statistics_moved"] == 0, f"evaluation moved BatchNorm's running mean by {r['statistics_moved']:.3f}"
    assert r["accuracy"] > 0.9 and r["training_afterwards"], f"accuracy {r['accuracy']:.3f}"
