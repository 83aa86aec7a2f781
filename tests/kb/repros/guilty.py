import time

import torch
import torch.distributed as dist


def run(ctx):
    ctx.workload(steps=2)
    for step in range(2):
        value = torch.ones(4)
        if ctx.fixed or ctx.rank != ctx.guilty or step == 0:
            dist.all_reduce(value)
        else:
            time.sleep(30)
        print(f"step={step} sum={value.sum().item()}")
    ctx.result(sum=value.sum().item())
    dist.barrier()


def check(out):
    assert all(r.ok for r in out.ranks), [r.exception for r in out.ranks]
    assert {r.results["sum"] for r in out.ranks} == {4.0 * len(out.ranks)}
