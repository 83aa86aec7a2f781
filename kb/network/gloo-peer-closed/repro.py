"""One rank leaves without a word; the others report that gloo lost its connection.

Four ranks, seven shard files. A file holds what one rank reads in an epoch, and a rank takes every fourth file, so
in the second round only rank 0 has one. In the broken half a rank that has nothing to read exits with status 0,
as a script does that "has nothing to do"; the others lose it in the next all-reduce. In the fixed half
the records of the round are dealt out to all ranks.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

FILES, PER_FILE, BATCH, WIDTH, CLASSES = 7, 32, 8, 8, 4


def shard(number):
    return torch.randn(PER_FILE, WIDTH, generator=torch.Generator().manual_seed(number))


# region broken
def read(rank, world_size, round_number):
    """This rank's file of the round; a rank without one is done."""
    number = round_number * world_size + rank
    if number >= FILES:
        sys.exit(0)
    return shard(number)
# endregion


# region fixed
def read_dealt(rank, world_size, round_number):
    """The records of all files of the round, dealt out to all ranks."""
    first = round_number * world_size
    return torch.cat([shard(n) for n in range(first, min(first + world_size, FILES))])[rank::world_size]
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    rounds = -(-FILES // ctx.world_size)
    ctx.workload(files=FILES, per_file=PER_FILE, batch=BATCH, rounds=rounds, ranks=ctx.world_size)
    model = nn.Linear(WIDTH, CLASSES).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    step, records, losses = 0, 0, []
    for round_number in range(rounds):
        for x in (read_dealt if ctx.fixed else read)(ctx.rank, ctx.world_size, round_number).split(BATCH):
            x = x.to(ctx.device)
            loss = F.cross_entropy(model(x), x[:, :CLASSES].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= ctx.world_size
            optimizer.step()
            step, records = step + 1, records + len(x)
            losses.append(loss.item())
            print(f"step={step} loss={loss.item():.4f}")
    ctx.result(records=records, steps=step, losses=losses)
    dist.barrier()
    print(f"training finished after {step} steps")


def check(out):
    assert len(out.ranks) == 4 and all(r.ok for r in out.ranks), "a rank did not finish"
    assert sum(r.results["records"] for r in out.ranks) == FILES * PER_FILE, "records were lost"
    assert len({r.results["steps"] for r in out.ranks}) == 1, "ranks did different numbers of steps"
    assert all(r.results["losses"][-1] < r.results["losses"][0] for r in out.ranks)
