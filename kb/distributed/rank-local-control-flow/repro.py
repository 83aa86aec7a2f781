"""A rank decides alone to leave a batch out (variant skip) or to end training (variant stop).

Every rank averages its gradients with the others in every step, and all evaluate together at the end of an
epoch. Variant skip: a batch of one rank holds an infinite value, so its loss is not finite, and that rank goes
on to the next batch without the gradient exchange. Variant stop: every rank watches the loss on its own
validation rows and stops when that has not improved for two epochs; the rows of one rank are noise, which
no training improves.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VARIANTS = ("skip", "stop")
EPOCHS, STEPS, BATCH, WIDTH, PATIENCE = 4, 6, 16, 8, 2


# region broken
def agreed(flag):
    """Whether to do it: this rank's own opinion."""
    return bool(flag)
# endregion


# region fixed
def agreed_by_all(flag):
    """Whether to do it: yes on every rank as soon as one rank says yes."""
    vote = torch.tensor(float(flag))
    dist.all_reduce(vote, op=dist.ReduceOp.MAX)
    return vote.item() > 0
# endregion


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    torch.nn.utils.vector_to_parameters(flat, [p.grad for p in model.parameters()])


def evaluate(loss):
    """Mean over all ranks of a loss each has computed."""
    parts = [torch.empty_like(loss) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, loss)
    return torch.stack(parts).mean().item()


def rows(epoch, step, ctx):
    generator = torch.Generator().manual_seed(10_000 * epoch + 100 * step + ctx.rank)
    x = torch.randn(BATCH, WIDTH, generator=generator)
    if ctx.variant == "skip" and (epoch, step) == (1, 3) and ctx.rank == ctx.guilty:
        x[0, 0] = float("inf")
    return x


def validation_rows(ctx):
    x = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(7 + ctx.rank))
    noise = ctx.variant == "stop" and ctx.rank == ctx.guilty
    return x, torch.zeros_like(x) if noise else x.flip(-1)


def train(ctx, model):
    decide = agreed_by_all if ctx.fixed else agreed
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    x_val, y_val = validation_rows(ctx)
    skipped, best, waited, ended = 0, float("inf"), 0, EPOCHS
    for epoch in range(1, EPOCHS + 1):
        for step in range(1, STEPS + 1):
            x = rows(epoch, step, ctx)
            loss = F.mse_loss(model(x), x.flip(-1))
            if decide(not torch.isfinite(loss)):
                skipped += 1
                print(f"epoch={epoch} step={step}/{STEPS} left out on this rank: loss={loss.item():.4f} skipped_batches={skipped}")
                continue
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
            print(f"epoch={epoch} step={step}/{STEPS} loss={loss.item():.4f} skipped_batches={skipped}")
        with torch.no_grad():
            own = F.mse_loss(model(x_val), y_val)
        mean = evaluate(own)
        waited = 0 if own.item() < best - 1e-3 else waited + 1
        best = min(best, own.item())
        stop = decide(waited >= PATIENCE)
        print(f"epoch={epoch} validation_loss={own.item():.4f} mean={mean:.4f} should_stop={int(stop)}")
        if stop:
            print(f"stopping early after epoch {epoch}")
            ended = epoch
            break
    return skipped, ended, mean


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(epochs=EPOCHS, steps=STEPS, batch=BATCH, width=WIDTH, patience=PATIENCE, ranks=ctx.world_size)
    model = nn.Linear(WIDTH, WIDTH)
    skipped, ended, mean = train(ctx, model)
    ctx.result(skipped=skipped, epochs=ended, mean=mean,
               weight_sum=sum(p.double().sum().item() for p in model.parameters()))
    dist.barrier()
    print(f"training finished after {ended} epochs")


def check(out):
    assert len(out.ranks) >= 3 and all(r.ok for r in out.ranks), "a rank did not finish"
    first = out.results
    assert all(r.results == first for r in out.ranks), "ranks took different decisions or hold different weights"
    assert first["skipped"] == (1 if out.variant == "skip" else 0)
    assert first["epochs"] == EPOCHS if out.variant == "skip" else 2 <= first["epochs"] < EPOCHS
    assert 0 < first["mean"] < 2.0
