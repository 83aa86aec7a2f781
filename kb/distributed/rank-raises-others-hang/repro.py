"""One rank raises an exception of its own; the others only lose the connection and report that instead.

Data-parallel training in which every rank reads its own shard. One record of one shard carries a label that
does not exist. The broken reader checks a record when it is due, so one rank raises in the middle of training
while the others wait for its gradients. The fixed reader checks the shard before training starts and leaves
the bad record out.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH, CLASSES, BAD = 6, 8, 8, 4, 3


def shard(rank, guilty):
    """Records (features, labels); one record of the guilty rank has a label that does not exist."""
    generator = torch.Generator().manual_seed(rank)
    records = []
    for index in range(STEPS + 1):
        x = torch.randn(BATCH, WIDTH, generator=generator)
        y = x[:, :CLASSES].argmax(1)
        if rank == guilty and index == BAD:
            y[0] = CLASSES
        records.append((index, x, y))
    return records


def valid(y):
    return bool((y < CLASSES).all())


# region broken
def read(records):
    """Records as they come."""
    for index, x, y in records:
        if not valid(y):
            raise ValueError(f"record {index}: label {int(y.max())} outside [0, {CLASSES})")
        yield x, y
# endregion


# region fixed
def read_checked(records):
    """Records that were checked before the first step; a bad one is named and left out."""
    bad = [index for index, _, y in records if not valid(y)]
    if bad:
        print(f"leaving out records {bad} of this shard")
    return [(x, y) for index, x, y in records if index not in bad]
# endregion


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    torch.nn.utils.vector_to_parameters(flat, [p.grad for p in model.parameters()])


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH, classes=CLASSES, ranks=ctx.world_size)
    records = (read_checked if ctx.fixed else read)(shard(ctx.rank, ctx.guilty))
    model = nn.Linear(WIDTH, CLASSES).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for step, (x, y) in zip(range(1, STEPS + 1), records):
        loss = F.cross_entropy(model(x.to(ctx.device)), y.to(ctx.device))
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        losses.append(loss.item())
        print(f"step={step}/{STEPS} loss={loss.item():.4f}")
    ctx.result(steps=len(losses), losses=losses)
    dist.barrier()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert len(out.ranks) >= 3 and all(r.ok for r in out.ranks), "a rank did not finish"
    assert all(r.results["steps"] == STEPS for r in out.ranks), "a rank ran out of records"
    assert all(r.results["losses"][-1] < r.results["losses"][0] for r in out.ranks), "loss did not fall"
