"""FSDP hang because one rank built another module tree.

Every rank seeds its generator alike, but one rank draws a random number more before the model is
built (here: it shuffles a shard that only this rank holds). The model chooses at random which blocks
get an adapter, so that rank's tree differs, and with it the list of collectives that FSDP issues.
All blocks are of one size, so collectives pair up by order without an error until the ranks reach
different kinds of collective. Variant fewer: that rank builds a block less than the others (9 against
10). Variant more: a block more (9 against 8).
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

VARIANTS = ("fewer", "more")
BLOCKS, WIDTH, STEPS = 6, 32, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(x))


# region broken
def choose_adapters(blocks: int) -> list[bool]:
    """Which blocks get an adapter: drawn by every rank from its own generator."""
    return [bool(torch.rand(()) < 0.5) for _ in range(blocks)]
# endregion


# region fixed
def choose_adapters_once(blocks: int) -> list[bool]:
    """Which blocks get an adapter: drawn by rank 0, and told to all before anything is built."""
    choice = [[bool(torch.rand(()) < 0.5) for _ in range(blocks)] if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(choice, src=0)
    return choice[0]
# endregion


def build(adapters: list[bool]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for adapter in adapters:
        layers.append(Block())
        if adapter:
            layers.append(Block())
    return nn.Sequential(*layers)


def run(ctx):
    torch.manual_seed(0 if ctx.variant == "fewer" else 2)  # the same on every rank
    ctx.workload(steps=STEPS, blocks=BLOCKS, width=WIDTH, batch=8)
    if ctx.rank == ctx.guilty:
        torch.randperm(5)  # shuffles a shard that only this rank holds

    adapters = choose_adapters_once(BLOCKS) if ctx.fixed else choose_adapters(BLOCKS)
    model = build(adapters).to(ctx.device)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    print(f"step=0 parameter_tensors={len(list(model.parameters()))} "
          f"parameters={sum(p.numel() for p in model.parameters())}")

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(ctx.rank)).to(ctx.device)
    for step in range(STEPS):
        loss = (model(x) - x.flip(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step + 1} loss={loss.item():.4f}")
    ctx.result(blocks=len(model), steps=STEPS, loss=loss.item(),
               weight_sum=sum(p.full_tensor().double().sum().item() for p in model.parameters()))
    dist.barrier()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert len(out.ranks) >= 2 and all(r.ok for r in out.ranks), "a rank did not finish"
    assert all(r.results["steps"] == STEPS for r in out.ranks)
    assert len({r.results["blocks"] for r in out.ranks}) == 1, "ranks built different trees"
    assert len({round(r.results["weight_sum"], 9) for r in out.ranks}) == 1, "ranks hold different weights"
    assert all(r.results["loss"] < 5.0 for r in out.ranks)
