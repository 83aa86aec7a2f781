"""Gradient recording is switched off by an evaluation and never switched on again.

The broken evaluation calls torch.set_grad_enabled(False) and returns; the next training step computes a loss that no
graph leads to. The fixed one uses a context, which restores what was before, also when an exception leaves it.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, EVERY, BATCH, WIDTH = 12, 4, 32, 4


# region broken
def evaluate(model, x, y):
    torch.set_grad_enabled(False)
    return F.mse_loss(model(x), y).item()
# endregion


# region fixed
@torch.no_grad()
def evaluate_in_context(model, x, y):
    return F.mse_loss(model(x), y).item()
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, every=EVERY, batch=BATCH, width=WIDTH)
    model = nn.Linear(WIDTH, 1).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    x = torch.randn(BATCH, WIDTH, device=ctx.device)
    y = x[:, :1]
    for step in range(1, STEPS + 1):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step, loss=loss.item())
        if step % EVERY == 0:
            print(f"step={step} eval_loss={(evaluate_in_context if ctx.fixed else evaluate)(model, x, y):.4f}")
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"stopped after {out.results.get('steps', 0)} of {STEPS} steps"
    assert out.results["loss"] < 0.1, f"the loss ended at {out.results['loss']}"
