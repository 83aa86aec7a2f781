"""The loss is taken out of the graph as a number and wrapped again, so nothing is trained and nothing complains.

The loss is combined from Python numbers (`.item()`), put into a new tensor, and that tensor is told to require a gradient
because backward() refused it otherwise. backward() then runs, ends at once, and leaves every parameter without a gradient.
The fixed half adds the tensors themselves.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH = 40, 32, 4


# region broken
def combined(fit, penalty):
    return torch.tensor(fit.item() + 0.01 * penalty.item(), requires_grad=True)
# endregion


# region fixed
def combined_in_graph(fit, penalty):
    return fit + 0.01 * penalty
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    model = nn.Linear(WIDTH, 1).to(ctx.device)
    start = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(ctx.seed)
    for step in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=generator).to(ctx.device)
        fit, penalty = F.mse_loss(model(x), 3 * x[:, :1]), model.weight.square().sum()
        loss = (combined_in_graph if ctx.fixed else combined)(fit, penalty)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f} grad_norm={float(norm):.4f} lr=0.05")
    ctx.result(loss=loss.item(), moved=(model.weight.detach() - start).norm().item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["moved"] > 0.5, f"the weights moved by {out.results['moved']}"
    assert out.results["loss"] < 2, f"the loss ended at {out.results['loss']}"
