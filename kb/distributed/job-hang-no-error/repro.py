"""A job that hangs without a word: one rank waits for a batch that never comes, the others wait for that rank.

Every rank reads batches through a thread and a queue. On one rank the source of the thread ends two batches early
(here: a file list that is shorter), the thread returns, and the training loop waits in `queue.get()` for ever.
The others stand in the gradient exchange, whose time-out is longer than anybody waits here (a minute), so nobody prints anything. Both halves
ask `faulthandler` for all stacks when no step has ended for two seconds: the only thing that speaks.
"""

import faulthandler
import queue
import sys
import threading

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH, SILENCE = 5, 8, 8, 2.0


def batches(rank, guilty):
    count = STEPS - 2 if rank == guilty else STEPS
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(BATCH, WIDTH, generator=generator) for _ in range(count)]


# region broken
def read(source, line):
    """Fills the queue; ends when the source ends."""
    for batch in source:
        line.put(batch)
# endregion


# region fixed
def read_again(source, line):
    """Fills the queue with as many batches as there are steps; a short source starts again."""
    for index in range(STEPS):
        line.put(source[index % len(source)])
# endregion


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    torch.nn.utils.vector_to_parameters(flat, [p.grad for p in model.parameters()])


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH, ranks=ctx.world_size)
    line = queue.Queue(maxsize=2)
    reader = read_again if ctx.fixed else read
    threading.Thread(target=reader, args=(batches(ctx.rank, ctx.guilty), line), daemon=True).start()
    model = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for step in range(1, STEPS + 1):
        faulthandler.dump_traceback_later(SILENCE, file=sys.stderr)
        x = line.get()
        loss = F.mse_loss(model(x), x.flip(-1))
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        losses.append(loss.item())
        print(f"step={step}/{STEPS} loss={loss.item():.4f}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    ctx.result(steps=len(losses), losses=losses,
               weight_sum=sum(p.double().sum().item() for p in model.parameters()))
    dist.barrier()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert len(out.ranks) >= 3 and all(r.ok for r in out.ranks), "a rank did not finish"
    assert all(r.results["steps"] == STEPS for r in out.ranks)
    assert len({round(r.results["weight_sum"], 9) for r in out.ranks}) == 1, "ranks hold different weights"
