"""A checkpoint holds more than tensors, and torch.load no longer unpickles arbitrary classes.

A trainer saves its command line (an argparse.Namespace) beside weights and step. Since PyTorch 2.6 torch.load reads with
weights_only=True and refuses the class. The fixed half allows that one class for this one load.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH = 8, 32, 4


# region broken
def load(path):
    return torch.load(path)
# endregion


# region fixed
def load_with_arguments(path):
    """One class, by name, for this load only; weights_only stays on for everything else."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(path)
# endregion


def train(model, x, first, lr, ctx):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(first, first + STEPS):
        loss = F.mse_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=2 * STEPS, batch=BATCH, width=WIDTH)
    x = torch.randn(BATCH, WIDTH, device=ctx.device)
    model = nn.Linear(WIDTH, 1).to(ctx.device)
    args = argparse.Namespace(lr=0.2)
    train(model, x, 0, args.lr, ctx)
    torch.save({"model": model.state_dict(), "step": STEPS, "args": args}, ctx.tmp / "last.pt")

    saved = (load_with_arguments if ctx.fixed else load)(ctx.tmp / "last.pt")
    model = nn.Linear(WIDTH, 1).to(ctx.device)
    model.load_state_dict(saved["model"])
    print(f"resumed at step {saved['step']} with lr={saved['args'].lr}")
    train(model, x, saved["step"], saved["args"].lr, ctx)
    print(f"training finished after {2 * STEPS} steps")


def check(out):
    assert out.results.get("steps") == 2 * STEPS, f"stopped at step {out.results.get('steps', 0)}"
    assert out.results["loss"] < 0.2, f"the loss ended at {out.results['loss']}"
