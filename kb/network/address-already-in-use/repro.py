"""The port that rank 0 wants to listen on is taken by another job of the same node.

The other job is a store that listens already. The broken job uses the port it was told; the fixed one lets the
system choose a free port and publishes it, as `torchrun --rdzv-endpoint=localhost:0` does. Variant `libuv` is the
store of torch 2.4 and later, variant `sockets` the older one, whose text differs.
"""

import datetime

import torch
import torch.distributed as dist
from torch import nn

VARIANTS = ("libuv", "sockets")
STEPS, BATCH, WIDTH = 10, 8, 4


# region broken
def listen(port: int, libuv: bool) -> dist.TCPStore:
    """Whatever MASTER_PORT says, free or not."""
    return dist.TCPStore("127.0.0.1", port, 1, True, datetime.timedelta(seconds=5), use_libuv=libuv)
# endregion


# region fixed
def listen_on_free_port(port: int, libuv: bool) -> dist.TCPStore:
    """Port 0 asks the system for a free one; the other ranks are told which it became."""
    store = dist.TCPStore("127.0.0.1", 0, 1, True, datetime.timedelta(seconds=5), use_libuv=libuv)
    print(f"rendezvous at 127.0.0.1:{store.port}", flush=True)
    return store
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    libuv = ctx.variant == "libuv"
    other_job = dist.TCPStore("127.0.0.1", 0, 1, True, datetime.timedelta(seconds=5))
    store = (listen_on_free_port if ctx.fixed else listen)(other_job.port, libuv)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=datetime.timedelta(seconds=5))
    model = nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x = torch.randn(BATCH, WIDTH)
        loss = (model(x)[:, 0] - x[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}")
    ctx.result(steps=STEPS, ports_differ=store.port != other_job.port)
    dist.destroy_process_group()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, "the job did not get through its steps"
    assert out.results["ports_differ"], "both jobs use one port"
