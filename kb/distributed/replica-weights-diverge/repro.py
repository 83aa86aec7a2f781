"""Replicas of one model that are no longer one model: gradients are averaged, weights are not equal.

Three ranks train data-parallel with hand-written averaging of gradients. Variant start: each rank draws its
own initial weights and nobody broadcasts rank 0's. Variant drift: all start alike, but one rank changes
its weights outside the optimizer at step 12 (it loads an EMA copy of the head for an evaluation and
never puts the weights back). In both, every rank's loss goes on falling, and rank 0 saves a model that no
gradient belongs to.
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VARIANTS = ("start", "drift")
STEPS, BATCH, WIDTH, CLASSES, EVAL_STEP = 40, 32, 16, 4, 12


# region broken
def build(seed: int, device: str) -> nn.Module:
    """Every rank draws its own weights."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, CLASSES)).to(device)


def evaluate(model: nn.Module, ema: dict[str, torch.Tensor]) -> None:
    """Looks at the averaged weights, and leaves them in the model."""
    model.load_state_dict(ema)
# endregion


# region fixed
def build_and_broadcast(seed: int, device: str) -> nn.Module:
    """Every rank ends up with rank 0's weights and buffers, as DistributedDataParallel does at construction."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, CLASSES)).to(device)
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    return model


def evaluate_a_copy(model: nn.Module, ema: dict[str, torch.Tensor]) -> None:
    """Looks at the averaged weights in a copy of the model."""
    copy.deepcopy(model).load_state_dict(ema)
# endregion


def run(ctx):
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH, classes=CLASSES, eval_step=EVAL_STEP)
    seed = ctx.seed + (ctx.rank if ctx.variant == "start" else 0)
    model = (build_and_broadcast if ctx.fixed else build)(seed, ctx.device)
    truth = torch.randn(WIDTH, CLASSES, generator=torch.Generator().manual_seed(ctx.seed + 100))
    shard = torch.Generator().manual_seed(ctx.seed + 200 + ctx.rank)  # each rank its own data, as it should
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    ema = {name: t.detach().clone() for name, t in model.state_dict().items()}
    for step in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=shard)
        loss = F.cross_entropy(model(x.to(ctx.device)), (x @ truth).argmax(1).to(ctx.device))
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= ctx.world_size
        optimizer.step()
        for name, t in model.state_dict().items():
            ema[name].lerp_(t, 0.2)
        if ctx.variant == "drift" and step == EVAL_STEP and ctx.rank == ctx.guilty:
            (evaluate_a_copy if ctx.fixed else evaluate)(model, ema)
        if step % 4 == 0 or step == STEPS - 1:
            total = sum(p.double().sum().item() for p in model.parameters())
            print(f"step={step} loss={loss.item():.4f} param_sum={total:.9g}")
    held = torch.randn(512, WIDTH, generator=torch.Generator().manual_seed(ctx.seed + 300))
    logits = model(held.to(ctx.device))
    accuracy = (logits.argmax(1).cpu() == (held @ truth).argmax(1)).float().mean().item()
    ctx.result(param_sum=total, held_out_accuracy=accuracy, logit=logits[0, 0].item(), steps=STEPS)
    dist.barrier()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert len(out.ranks) >= 2 and all(r.ok for r in out.ranks), "a rank did not finish"
    for name in ("param_sum", "logit"):
        assert len({round(r.results[name], 6) for r in out.ranks}) == 1, f"{name} differs between ranks"
    assert out.results["held_out_accuracy"] > 0.75, f"held-out accuracy is {out.results['held_out_accuracy']}"
