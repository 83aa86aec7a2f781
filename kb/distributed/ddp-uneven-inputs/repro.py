"""One rank has fewer batches than the others under DistributedDataParallel.

Every rank reads a shard of its own, as a data set split by files does, and one shard is shorter: three batches
against five. That rank leaves the loop and goes on to the end of the epoch, while the others wait in the
backward pass of step 4 for its gradients. In the fixed half `Join` lets the rank that is out of data answer
the collectives of the others with zeros.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

BATCHES, SHORT, BATCH, WIDTH = 5, 3, 16, 8


def shard(rank, guilty):
    """This rank's rows; the shard of the guilty rank is shorter."""
    count = BATCH * (SHORT if rank == guilty else BATCHES)
    return TensorDataset(torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(rank)))


# region broken
def one_epoch(model, optimizer, loader):
    return train(model, optimizer, loader)
# endregion


# region fixed
def one_epoch_joined(model, optimizer, loader):
    with Join([model]):  # a rank out of data takes part in the others' collectives until they are done
        return train(model, optimizer, loader)
# endregion


def train(model, optimizer, loader):
    steps = 0
    for (x,) in loader:
        loss = F.mse_loss(model(x), x.flip(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        print(f"step={steps} loss={loss.item():.4f}")
    print(f"no more batches after step {steps}")
    return steps


def finish_epoch(model):
    """All ranks meet, then compare their weights."""
    dist.barrier()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    parts = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, weights)
    return max((part - weights).abs().max().item() for part in parts)


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(batches=BATCHES, short=SHORT, batch=BATCH, width=WIDTH, ranks=ctx.world_size)
    loader = DataLoader(shard(ctx.rank, ctx.guilty), batch_size=BATCH)
    print(f"step=0 loader_batches={len(loader)}")
    model = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = (one_epoch_joined if ctx.fixed else one_epoch)(model, optimizer, loader)
    apart = finish_epoch(model)
    ctx.result(steps=steps, apart=apart)
    print(f"training finished after {steps} steps")


def check(out):
    assert len(out.ranks) >= 3 and all(r.ok for r in out.ranks), "a rank did not finish"
    steps = sorted(r.results["steps"] for r in out.ranks)
    assert steps == [SHORT] + [BATCHES] * (len(steps) - 1), f"not every batch was used: {steps}"
    assert all(r.results["apart"] == 0.0 for r in out.ranks), "ranks hold different weights"
