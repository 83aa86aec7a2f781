"""An optimizer is built over other parameters than the one whose state is loaded into it.

The first run trains all of a small network. The second resumes with the backbone frozen. In the broken half its optimizer
gets only what is trainable, so its group has two parameters where the checkpoint has four. In the fixed half the
optimizer is built as it was saved; frozen parameters get no gradient and are not stepped.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH = 10, 32, 8


def network():
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.Linear(16, 1))


# region broken
def resumed_optimizer(model):
    return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
# endregion


# region fixed
def resumed_optimizer_as_saved(model):
    """The same parameters in the same order as when the state was saved."""
    return torch.optim.Adam(model.parameters(), lr=0.01)
# endregion


def train(model, optimizer, x, first, ctx):
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
    model = network().to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train(model, optimizer, x, 0, ctx)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, ctx.tmp / "last.pt")

    saved = torch.load(ctx.tmp / "last.pt")
    model = network().to(ctx.device)
    model.load_state_dict(saved["model"])
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = (resumed_optimizer_as_saved if ctx.fixed else resumed_optimizer)(model)
    optimizer.load_state_dict(saved["optimizer"])
    print(f"resumed at step {STEPS}")
    train(model, optimizer, x, STEPS, ctx)
    moments = optimizer.state[model[1].weight]["step"].item()
    ctx.result(frozen_unchanged=torch.equal(before, model[0].weight), head_steps=moments)
    print(f"training finished after {2 * STEPS} steps")


def check(out):
    assert out.results.get("steps") == 2 * STEPS, f"stopped at step {out.results.get('steps', 0)}"
    assert out.results["frozen_unchanged"], "the frozen layer was changed"
    assert out.results["head_steps"] == 2 * STEPS, "the moments of the head were not carried over"
