"""A column of predictions against a row of targets: the loss compares every prediction with every target.

A small network regresses a number from eight features. One side has the shape `[64, 1]`, the other `[64]`. `MSELoss`
broadcasts both to `[64, 64]`, warns once and goes on: the best answer is now the mean of the batch, whatever the features
say. The fixed half gives both sides one shape and raises if they still differ. Variants: which side is the column.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VARIANTS = ("row_of_targets", "column_of_targets")
STEPS, BATCH, ROWS, FEATURES = 120, 64, 1024, 8


# region broken
def loss_of(criterion, predictions, targets):
    return criterion(predictions, targets)
# endregion


# region fixed
def loss_of_pairs(criterion, predictions, targets):
    predictions, targets = predictions.flatten(), targets.flatten()
    if predictions.shape != targets.shape:
        raise ValueError(f"{len(predictions)} predictions for {len(targets)} targets")
    return criterion(predictions, targets)
# endregion


def batches(rows, seed):
    """STEPS batches of an endless shuffled pass over the rows."""
    loader = DataLoader(rows, batch_size=BATCH, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(seed))
    passes = STEPS // len(loader) + 1
    return [batch for _ in range(passes) for batch in loader][:STEPS]


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, rows=ROWS, features=FEATURES)
    features = torch.randn(ROWS, FEATURES)
    targets = features @ torch.linspace(-2.0, 2.0, FEATURES) + 0.1 * torch.randn(ROWS)
    column = ctx.variant == "column_of_targets"
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1))
    model = nn.Sequential(model, nn.Flatten(0)).to(ctx.device) if column else model.to(ctx.device)
    data = TensorDataset(features, targets[:, None] if column else targets)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    criterion, loss_of_batch = nn.MSELoss(), loss_of_pairs if ctx.fixed else loss_of
    for step, (x, y) in enumerate(batches(data, ctx.seed)):
        loss = loss_of_batch(criterion, model(x.to(ctx.device)), y.to(ctx.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == STEPS - 1:
            print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())
    with torch.no_grad():
        predicted = model(features.to(ctx.device)).flatten().cpu()
    variance = targets.var().item()
    r2 = 1 - (predicted - targets).pow(2).mean().item() / variance
    ctx.result(r2=r2, target_variance=variance, prediction_std=predicted.std().item())
    print(f"target_variance={variance:.4f} prediction_std={predicted.std().item():.4f} r2={r2:.4f}")
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["r2"] > 0.95, f"the model explains {out.results['r2']:.3f} of the variance"
