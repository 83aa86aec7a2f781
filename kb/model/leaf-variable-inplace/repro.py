"""A parameter is written to in place while autograd is recording.

Variant `init`: part of a weight is overwritten by assignment to a slice. Variant `update`: a hand-written gradient step
says `p -= lr * p.grad`. Both halves do the same arithmetic; the fixed one does it without recording.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("init", "update")
STEPS, BATCH, WIDTH = 12, 32, 4


# region broken
def start_from(layer, column):
    layer.weight[:, 0] = column


def descend(parameters, lr):
    for p in parameters:
        p -= lr * p.grad
# endregion


# region fixed
@torch.no_grad()
def start_from_unrecorded(layer, column):
    layer.weight[:, 0] = column


@torch.no_grad()
def descend_unrecorded(parameters, lr):
    for p in parameters:
        p -= lr * p.grad
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    begin = start_from_unrecorded if ctx.fixed or ctx.variant != "init" else start_from
    descend_by = descend_unrecorded if ctx.fixed or ctx.variant != "update" else descend
    layer = nn.Linear(WIDTH, 1).to(ctx.device)
    begin(layer, torch.tensor(0.5, device=ctx.device))
    x = torch.randn(BATCH, WIDTH, device=ctx.device)
    for step in range(STEPS):
        loss = F.mse_loss(layer(x), x[:, :1])
        layer.zero_grad()
        loss.backward()
        descend_by(layer.parameters(), 0.2)
        print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["loss"] < 0.1, f"the loss ended at {out.results['loss']}"
