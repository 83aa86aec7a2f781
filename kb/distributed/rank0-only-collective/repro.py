"""A validation that averages over all ranks is called inside `if rank == 0`.

DistributedDataParallel training; after every fourth step the main rank validates and prints. `validate` ends
in a collective, because every rank holds a part of the validation set. The broken caller enters it on the
main rank only: that rank waits for partners who are already in the backward pass of the next step. `guilty`
is the rank that calls itself main.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, EVERY, BATCH, WIDTH = 8, 4, 16, 8


def validate(model, part):
    """Mean validation loss: each rank computes its part, then all parts are gathered."""
    with torch.no_grad():
        loss = F.mse_loss(model(part), part.flip(-1))
    parts = [torch.empty_like(loss) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, loss)
    return torch.stack(parts).mean().item()


# region broken
def report(model, part, step, main):
    if dist.get_rank() == main:
        print(f"validation_loss={validate(model, part):.4f} after step {step}")
# endregion


# region fixed
def report_all(model, part, step, main):
    loss = validate(model, part)  # a collective: every rank calls it
    if dist.get_rank() == main:
        print(f"validation_loss={loss:.4f} after step {step}")
    return loss
# endregion


def train(ctx, model, part):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(ctx.rank)
    validated = []
    for step in range(1, STEPS + 1):
        x = torch.randn(BATCH, WIDTH, generator=generator).to(ctx.device)
        loss = F.mse_loss(model(x), x.flip(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step}/{STEPS} loss={loss.item():.4f}")
        if step % EVERY == 0:
            # .module: the wrapper's forward has collectives of its own in some configurations
            validated.append((report_all if ctx.fixed else report)(model.module, part, step, ctx.guilty))
    return validated


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, every=EVERY, batch=BATCH, width=WIDTH, ranks=ctx.world_size)
    model = DistributedDataParallel(nn.Linear(WIDTH, WIDTH).to(ctx.device))
    part = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(100 + ctx.rank)).to(ctx.device)
    validated = train(ctx, model, part)
    ctx.result(steps=STEPS, validated=validated)
    dist.barrier()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert len(out.ranks) >= 3 and all(r.ok for r in out.ranks), "a rank did not finish"
    first, last = out.results["validated"]
    assert 0 < last < first, f"validation loss did not fall: {out.results['validated']}"
    assert all(r.results["validated"] == [first, last] for r in out.ranks), "ranks disagree about the validation loss"
