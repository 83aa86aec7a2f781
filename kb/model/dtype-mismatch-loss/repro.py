"""A loss gets float32 predictions and float64 targets.

Targets come from numpy, whose arrays of Python floats are float64, and torch.from_numpy keeps that. The broken half
hands them to the loss as they are; the fixed half gives them the dtype of the prediction.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH = 12, 32, 4


# region broken
def targets(table, prediction):
    return torch.from_numpy(table).to(prediction.device)
# endregion


# region fixed
def targets_like(table, prediction):
    return torch.from_numpy(table).to(prediction)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    model = nn.Linear(WIDTH, 1).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    x = torch.randn(BATCH, WIDTH, device=ctx.device)
    table = np.array([[float(row[0])] for row in x.cpu()])
    for step in range(STEPS):
        prediction = model(x)
        loss = F.huber_loss(prediction, (targets_like if ctx.fixed else targets)(table, prediction))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["loss"] < 0.2, f"the loss ended at {out.results['loss']}"
