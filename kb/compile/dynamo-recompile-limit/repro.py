"""A number that changes with every step is a constant to the compiler, which gives up after eight recompilations.

The module keeps a step counter as a Python int. torch.compile builds the value into each graph and guards on it,
so every new value is a new compilation, up to the limit; from then on the function runs uncompiled. The fixed half keeps
the counter in a tensor, whose value is no guard. The back end counts compilations and compiled calls.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH = 24, 8, 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.step = nn.Linear(WIDTH, 1), None

    def forward(self, x):
        return self.layer(x) * (1 - 0.5 ** (self.step + 1))


# region broken
def count(model, step):
    model.step = step
# endregion


# region fixed
def count_in_tensor(model, step):
    """Only dtype, shape and device of a tensor are guarded."""
    if model.step is None:
        model.step = torch.empty((), device=model.layer.weight.device)
    model.step.fill_(step)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    torch._dynamo.reset()
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    counts = {"graphs": 0, "calls": 0}

    def backend(graph, inputs):
        counts["graphs"] += 1

        def compiled(*args):
            counts["calls"] += 1
            return graph(*args)
        return compiled

    model = Model().to(ctx.device)
    step_fn = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(BATCH, WIDTH, device=ctx.device)
    for step in range(STEPS):
        (count_in_tensor if ctx.fixed else count)(model, step)
        loss = F.mse_loss(step_fn(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f} graphs={counts['graphs']} compiled_calls={counts['calls']}")
    ctx.result(loss=loss.item(), **counts)
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["graphs"] <= 2, f"{out.results['graphs']} graphs were compiled for one function"
    assert out.results["calls"] == STEPS, f"only {out.results['calls']} of {STEPS} calls ran compiled"
