"""The forward pass is finite and the backward pass is not; anomaly mode names the operation.

The spread of each feature is its standard deviation over the batch. In one batch a feature is constant: its standard deviation
is 0, which is finite, and the derivative of the square root there is not. The run has anomaly mode on, as one switches
it on to look for a NaN. The fixed half keeps the square root away from 0.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BAD_STEP, BATCH, WIDTH = 12, 7, 16, 4


# region broken
def spread(features):
    return features.var(dim=0).sqrt()
# endregion


# region fixed
def spread_above_zero(features):
    """The small number stands inside the root, where the derivative needs it."""
    return (features.var(dim=0) + 1e-6).sqrt()
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, bad_step=BAD_STEP, batch=BATCH, width=WIDTH)
    model, gate = nn.Linear(WIDTH, 1).to(ctx.device), nn.Parameter(torch.ones(WIDTH, device=ctx.device))
    optimizer = torch.optim.SGD([*model.parameters(), gate], lr=0.05)
    with torch.autograd.set_detect_anomaly(True):
        for step in range(STEPS):
            x = torch.randn(BATCH, WIDTH, device=ctx.device)
            if step == BAD_STEP:
                x[:, 2] = 0.0
            gated = x * gate
            loss = F.mse_loss(model(gated), x[:, :1]) + 0.01 * spread_loss(ctx, gated)
            optimizer.zero_grad()
            print(f"step={step} loss={loss.item():.4f}")
            loss.backward()
            optimizer.step()
            ctx.result(steps=step + 1, loss=loss.item())
    ctx.result(finite=bool(gate.isfinite().all()))
    print(f"training finished after {STEPS} steps")


def spread_loss(ctx, features):
    return ((spread_above_zero if ctx.fixed else spread)(features) - 1).square().mean()


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["finite"], "the weights are not finite"
