"""One slow rank slows all: the step lasts as long as the slowest rank, and the fast ranks wait.

Four ranks train data-parallel on sequences of different lengths. The shards were cut from a list sorted by
length, so one rank always gets the long sequences and really computes longer. Every
rank's step takes the same time, because the averaging of gradients waits for the slowest; only the time each rank
spends on its own computing (here: processor time, so that a busy machine does not blur it) tells who
it is. The fixed half deals the same sequences round-robin.
"""

import time

import torch
import torch.distributed as dist
from torch import nn

STEPS, SEQUENCES, WIDTH = 16, 16, 64


# region broken
def shard(lengths: list[int], rank: int, world_size: int, guilty: int) -> list[int]:
    """A contiguous piece of the sorted list; the last piece, with the long sequences, is one rank's."""
    size = len(lengths) // world_size
    piece = (rank - guilty - 1) % world_size
    return sorted(lengths)[piece * size : (piece + 1) * size]
# endregion


# region fixed
def shard_dealt(lengths: list[int], rank: int, world_size: int, guilty: int) -> list[int]:
    """Dealt out like cards, forth and back, so that every rank gets long and short ones."""
    ordered = sorted(lengths)
    return [
        length for index, length in enumerate(ordered)
        if rank == (index % world_size if index // world_size % 2 == 0 else world_size - 1 - index % world_size)
    ]
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    lengths = [*range(80, 104, 2), 480, 500, 520, 540]
    ctx.workload(steps=STEPS, sequences=SEQUENCES, width=WIDTH, lengths=lengths)
    mine = (shard_dealt if ctx.fixed else shard)(lengths, ctx.rank, ctx.world_size, ctx.guilty)
    model = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True, dropout=0.0).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = [torch.randn(1, length, WIDTH).to(ctx.device) for length in mine]
    clock = time.process_time if ctx.device == "cpu" else time.perf_counter
    own, waited = 0.0, 0.0
    for step in range(STEPS):
        began = clock()
        loss = sum((model(x) - x).square().mean() for x in data) / len(data)
        optimizer.zero_grad()
        loss.backward()
        if ctx.device == "cuda":
            torch.cuda.synchronize()
        computed, ready = clock() - began, time.perf_counter()
        dist.barrier()  # so that the wait for the others is not hidden in the first all-reduce
        waiting = time.perf_counter() - ready
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= ctx.world_size
        optimizer.step()
        own, waited = own + computed, waited + waiting
        print(f"step={step} loss={loss.item():.4f} compute_ms={computed * 1e3:.1f} wait_ms={waiting * 1e3:.1f}")
    ctx.result(compute_s=own, wait_s=waited, tokens=sum(mine), steps=STEPS)
    dist.barrier()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert all(r.ok and r.results["steps"] == STEPS for r in out.ranks), "a rank did not finish"
    own = sorted(r.results["compute_s"] for r in out.ranks)
    assert own[-1] < 1.6 * own[0], f"the slowest rank computes {own[-1] / own[0]:.1f} times as long as the fastest"
