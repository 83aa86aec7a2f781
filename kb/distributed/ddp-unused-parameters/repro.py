"""Parameters that get no gradient in a step stop DistributedDataParallel at the next one.

Variant `head`: the model has an auxiliary head whose output is not part of the loss, on all ranks.
Variant `branch`: a branch is used only for batches that hold a certain kind of sample, and from step 3 on only the
batches of the guilty rank lack it.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VARIANTS = ("head", "branch")
STEPS, BATCH, WIDTH = 12, 8, 16


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 1)
        self.auxiliary = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor, use_auxiliary: bool) -> torch.Tensor:
        hidden = torch.tanh(self.body(x))
        out = self.head(hidden)
        return out + self.auxiliary(hidden) if use_auxiliary else out


# region broken
def wrap(model: nn.Module) -> DistributedDataParallel:
    """The default: every parameter is expected to get a gradient in every step on every rank."""
    return DistributedDataParallel(model)
# endregion


# region fixed
def wrap_conditional(model: nn.Module) -> DistributedDataParallel:
    """DDP walks the graph after each forward pass and marks what was not used as ready."""
    return DistributedDataParallel(model, find_unused_parameters=True)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    generator = torch.Generator().manual_seed(100 + ctx.rank)
    model = (wrap_conditional if ctx.fixed else wrap)(Model().to(ctx.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=generator).to(ctx.device)
        used = ctx.variant == "branch" and (step < 3 or ctx.rank != ctx.guilty)
        loss = (model(x, used)[:, 0] - x[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}", flush=True)
        ctx.result(steps=step + 1, loss=loss.item())
    weight = torch.stack([p.detach().double().sum() for p in model.parameters()]).sum()
    total = weight.clone()
    dist.all_reduce(total)
    ctx.result(spread=abs(total.item() / ctx.world_size - weight.item()))
    print(f"training finished after {STEPS} steps")
    dist.barrier()


def check(out):
    for record in out.ranks:
        assert record.results.get("steps") == STEPS, f"rank {record.rank} did {record.results.get('steps')} of {STEPS} steps"
        assert record.results["spread"] < 1e-9, f"replicas differ by {record.results['spread']}"
        assert record.results["loss"] < 1.0, f"rank {record.rank} ended with loss {record.results['loss']}"
