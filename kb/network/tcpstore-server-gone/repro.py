"""The process that hosts the TCPStore ends while others still use the store.

Rank 0 hosts the store, as it does with env:// and torchrun's static rendezvous. It has less to do and returns first; the others
still report their progress through the store.
"""

import datetime
import socket
import time

import torch
import torch.distributed as dist

STEPS = 4


# region broken
def leave(store, rank, world_size):
    """The end of the program: nothing to do here."""
# endregion


# region fixed
def leave_together(store, rank, world_size):
    """Everybody says goodbye; the host of the store leaves last."""
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < world_size:
        time.sleep(0.02)
# endregion


def connect(ctx):
    """A TCPStore on rank 0; its port is told through the runner's process group."""
    port = [0]
    if ctx.rank == 0:
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = [probe.getsockname()[1]]
    timeout = datetime.timedelta(seconds=3)
    dist.broadcast_object_list(port, src=0)
    return dist.TCPStore("localhost", port[0], ctx.world_size, ctx.rank == 0, timeout)


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, ranks=ctx.world_size)
    store = connect(ctx)
    steps = 1 if ctx.rank == 0 else STEPS
    for step in range(1, steps + 1):
        loss = torch.rand(8).square().mean() / step
        store.set(f"progress/{ctx.rank}", str(step))
        print(f"step={step}/{steps} loss={loss.item():.4f}", flush=True)
        ctx.result(reported=step)
        time.sleep(0.25)
    (leave_together if ctx.fixed else leave)(store, ctx.rank, ctx.world_size)
    del store
    print(f"training finished after {steps} steps")


def check(out):
    assert all(r.ok for r in out.ranks), "a rank lost the store"
    assert [r.results["reported"] for r in out.ranks] == [1] + [STEPS] * (len(out.ranks) - 1)
