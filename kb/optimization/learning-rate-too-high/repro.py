"""The learning rate is warmed up to a value beyond the stability limit.

While the rate is small the loss falls; beyond the limit it rises and stays up. The program then makes the one
test that tells this cause from others: from the best state so far it trains on 40 batches never seen before, at
the present rate and at a tenth of it. Variant sgd: plain SGD. Variant adam: the same network with Adam.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("sgd", "adam")
STEPS, WARMUP, WIDTH, CLASSES = 240, 120, 128, 10

# region broken
PEAK = {"sgd": 12.0, "adam": 0.5}  # copied from a setting with another batch size and normalisation
# endregion


# region fixed
STABLE_PEAK = {"sgd": 0.8, "adam": 0.005}  # a third or less of the rate at which the range test turned
# endregion


def replay(model: nn.Module, optimizer, batches, rate: float) -> float:
    """Mean loss of the last ten of these batches, trained on copies of model and optimizer at this rate."""
    model, state = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict())
    again = type(optimizer)(model.parameters(), lr=rate)
    again.load_state_dict(state)
    again.param_groups[0]["lr"] = rate
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        again.zero_grad()
        loss.backward()
        again.step()
        losses.append(loss.item())
    return sum(losses[-10:]) / 10


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=128, widths=[32, WIDTH, WIDTH, CLASSES], warmup=WARMUP)
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    centres = torch.randn(CLASSES, 32, generator=generator)
    model = nn.Sequential(nn.Linear(32, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
    model = model.to(ctx.device)
    peak = (STABLE_PEAK if ctx.fixed else PEAK)[ctx.variant]
    kind = torch.optim.SGD if ctx.variant == "sgd" else torch.optim.Adam
    optimizer = kind(model.parameters(), lr=peak)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP))

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.randint(CLASSES, (128,), generator=generator)
        return (centres[y] + 1.2 * torch.randn(128, 32, generator=generator)).to(ctx.device), y.to(ctx.device)

    losses, best, kept, probed = [], float("inf"), None, False
    for step in range(STEPS):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        grad_norm = nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
        optimizer.step()
        losses.append(loss.item())
        rate = schedule.get_last_lr()[0]
        if step % 2 == 0:
            print(f"step={step} loss={loss.item():.4f} grad_norm={grad_norm:.3f} lr={rate:.4g}")
        recent = sum(losses[-10:]) / 10
        if step >= 10 and recent < best:  # the checkpoint to go back to
            best, kept = recent, (copy.deepcopy(model), copy.deepcopy(optimizer))
        if kept and not probed and recent > 4 * best + 0.2:  # the test: same state, other data, two rates
            probed, batches = True, [batch() for _ in range(40)]
            full, tenth = replay(*kept, batches, rate), replay(*kept, batches, rate / 10)
            print(f"step={step} fresh_loss_full={full:.4f} fresh_loss_tenth={tenth:.4f} full_over_tenth={full / tenth:.2f}")
        schedule.step()
    print(f"training finished after {STEPS} steps")
    ctx.result(best=min(losses), last=sum(losses[-20:]) / 20)


def check(out):
    result = out.results
    assert result["last"] < 0.5, f"loss ends at {result['last']:.3f}"
    assert result["last"] < 3 * result["best"] + 0.2, f"best {result['best']:.3f}, last {result['last']:.3f}"
