"""One rank returns early from a function that holds a collective, because its own batch has nothing to report.

Data-parallel training by hand: every step averages the gradients, then gathers (correct, counted) from all
ranks to print an accuracy. Labels of -100 are ignored. In step 2 every label of one rank's batch is ignored;
the broken function sees that there is nothing to count and returns before the gather. The others wait in it
while that rank is already in the gradient exchange of the next step.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, FEATURES, CLASSES = 4, 16, 8, 3


# region broken
def accuracy(correct, counted, device):
    """Share of right answers over all ranks."""
    if counted == 0:  # nothing to report for this batch
        return None
    mine = torch.tensor([float(correct), float(counted)], device=device)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    right, seen = torch.stack(parts).sum(0).tolist()
    return right / seen
# endregion


# region fixed
def accuracy_of_all(correct, counted, device):
    """Share of right answers over all ranks; a rank with nothing to report reports zeros."""
    mine = torch.tensor([float(correct), float(counted)], device=device)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    right, seen = torch.stack(parts).sum(0).tolist()
    return right / seen if seen else None
# endregion


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    torch.nn.utils.vector_to_parameters(flat, [p.grad for p in model.parameters()])


def batch_of(step, rank, guilty):
    """Features and labels; all labels of the guilty rank in step 2 are padding."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(BATCH, FEATURES, generator=generator)
    y = x[:, :CLASSES].argmax(1)
    if step == 2 and rank == guilty:
        y = torch.full_like(y, -100)
    return x, y


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, features=FEATURES, classes=CLASSES, ranks=ctx.world_size)
    report = accuracy_of_all if ctx.fixed else accuracy
    model = nn.Linear(FEATURES, CLASSES).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    gathered, counts = 0, []
    for step in range(1, STEPS + 1):
        x, y = (t.to(ctx.device) for t in batch_of(step, ctx.rank, ctx.guilty))
        loss = F.cross_entropy(model(x), y, reduction="sum", ignore_index=-100) / BATCH
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        kept = y != -100
        counts.append(int(kept.sum()))
        share = report(int((model(x).argmax(1) == y)[kept].sum()), counts[-1], ctx.device)
        gathered += share is not None
        print(f"step={step}/{STEPS} loss={loss.item():.4f} labels={counts[-1]} "
              f"accuracy={'-' if share is None else f'{share:.3f}'}")
    ctx.result(steps=STEPS, gathered=gathered, labels=sum(counts),
               weight_sum=sum(p.double().sum().item() for p in model.parameters()))
    dist.barrier()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert len(out.ranks) >= 3 and all(r.ok for r in out.ranks), "a rank did not finish"
    assert all(r.results["gathered"] == STEPS for r in out.ranks), "an accuracy is missing"
    assert len({round(r.results["weight_sum"], 9) for r in out.ranks}) == 1, "ranks hold different weights"
    assert sorted(r.results["labels"] for r in out.ranks)[0] == (STEPS - 1) * BATCH, "the padded batch was not there"
