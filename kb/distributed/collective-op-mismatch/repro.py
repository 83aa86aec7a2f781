"""Ranks run the same collectives in another order, so different operations meet.

After each epoch every rank synchronises its metrics: means by all-reduce, the per-class counts by all-gather. The
metrics stand in a dictionary that is filled as they occur, so its order is that of the rank's own data. One rank
sees a rare class first and has "classes" before "loss"; its all-gather meets the all-reduce of the others. The fixed
half goes through the names in sorted order, after all ranks have agreed on them.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

EPOCHS, STEPS, BATCH, WIDTH, CLASSES = 3, 4, 8, 8, 4


GATHERED = ("classes",)


def synchronise_one(name, value):
    """The mean over the ranks, or the sum of counts with every rank's part kept for the report."""
    if name in GATHERED:
        parts = [torch.zeros_like(value) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, value)
        return torch.stack(parts).sum(0)
    value = value.clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


# region broken
def synchronise(metrics):
    """One collective per metric, in the order in which this rank filled the dictionary."""
    return {name: synchronise_one(name, value) for name, value in metrics.items()}
# endregion


# region fixed
def synchronise_sorted(metrics):
    """One collective per metric, in an order that is the same on all ranks, for names that all ranks have."""
    names = [None] * dist.get_world_size()
    dist.all_gather_object(names, sorted(metrics))
    common = set(names[0]).intersection(*names)
    return {name: synchronise_one(name, metrics[name]) for name in sorted(common)}
# endregion


def train_epoch(model, optimizer, generator, rare_first):
    device = next(model.parameters()).device
    metrics = {}
    for step in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=generator).to(device)
        y = x[:, :CLASSES].argmax(1)
        if rare_first and step == 0 and (y == CLASSES - 1).any():
            metrics["classes"] = torch.zeros(CLASSES, device=device)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        metrics["loss"] = metrics.get("loss", torch.zeros(1, device=device)) + loss.detach() / STEPS
        metrics["accuracy"] = metrics.get("accuracy", torch.zeros(1, device=device)) + (logits.argmax(1) == y).float().mean() / STEPS
        metrics["classes"] = metrics.get("classes", torch.zeros(CLASSES, device=device)) + torch.bincount(y, minlength=CLASSES)
    return metrics


def run(ctx):
    torch.manual_seed(0)
    ctx.workload(epochs=EPOCHS, steps=STEPS, batch=BATCH, width=WIDTH, ranks=ctx.world_size)
    model = nn.Linear(WIDTH, CLASSES).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(ctx.rank)
    means = []
    for epoch in range(1, EPOCHS + 1):
        metrics = train_epoch(model, optimizer, generator, rare_first=ctx.rank == ctx.guilty and epoch == 2)
        total = (synchronise_sorted if ctx.fixed else synchronise)(metrics)
        means.append(total["loss"].item())
        counted = int(total["classes"].sum())
        print(f"epoch={epoch} loss={total['loss'].item():.4f} accuracy={total['accuracy'].item():.4f} samples={counted}")
    ctx.result(losses=means, counted=counted)
    dist.barrier()
    print(f"training finished after {EPOCHS} epochs")


def check(out):
    assert len(out.ranks) >= 3 and all(r.ok for r in out.ranks), "a rank did not finish"
    assert all(r.results["losses"] == out.ranks[0].results["losses"] for r in out.ranks), "ranks report other means"
    assert all(r.results["counted"] == STEPS * BATCH * len(out.ranks) for r in out.ranks), "samples miscounted"
    assert out.results["losses"][-1] < out.results["losses"][0]
