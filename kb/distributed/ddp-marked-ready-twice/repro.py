"""Reentrant activation checkpointing under DDP: a parameter's gradient is ready twice in one backward pass.

Variant shared: one block is checkpointed twice in the same forward pass (a shared layer). Variant unused: each block is
checkpointed once, and DDP was told to look for unused parameters; behind a reentrant checkpoint it takes the block's parameters
for unused, marks them ready, and then the gradients come after all.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

VARIANTS = ("shared", "unused")
STEPS, BATCH, WIDTH = 8, 16, 12


# region broken
REENTRANT = {"use_reentrant": True}
# endregion


# region fixed
NOT_REENTRANT = {"use_reentrant": False}
# endregion


class Net(nn.Module):
    def __init__(self, repeats, mode):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.repeats, self.mode = repeats, mode

    def forward(self, x):
        x = self.first(x).relu()
        for _ in range(self.repeats):
            x = checkpoint(self.block, x, **self.mode).relu()
        return self.last(x)


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH, ranks=ctx.world_size, variant=ctx.variant)
    model = Net(2 if ctx.variant == "shared" else 1, NOT_REENTRANT if ctx.fixed else REENTRANT).to(ctx.device)
    ddp = DistributedDataParallel(model, find_unused_parameters=ctx.variant == "unused")
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(ctx.rank)
    for step in range(1, STEPS + 1):
        x = torch.randn(BATCH, WIDTH, generator=generator).to(ctx.device)
        loss = (ddp(x).squeeze(-1) - x[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step}/{STEPS} loss={loss.item():.4f}")
        ctx.result(steps=step)
    ctx.result(weight_sum=sum(p.double().sum().item() for p in model.parameters()))
    dist.barrier()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert all(r.ok and r.results["steps"] == STEPS for r in out.ranks), "a rank did not finish its steps"
    assert len({round(r.results["weight_sum"], 9) for r in out.ranks}) == 1, "replicas differ"
