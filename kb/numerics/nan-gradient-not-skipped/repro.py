"""A NaN gradient is applied: one bad gradient, one clip, one step, and every weight is NaN.

A metric-learning loss takes the square root of squared distances. At step 24 a batch holds a pair
of equal items: the distance is 0, the loss is finite, and the derivative of sqrt at 0 is inf, times 0 is
NaN. There is no loss scaler to skip the step (fp32 or bf16), and clipping multiplies all gradients by
NaN. Variant fp32, variant bf16 (autocast).
"""

import torch
from torch import nn

VARIANTS = ("fp32", "bf16")
STEPS, BATCH, WIDTH, BAD_STEP = 60, 64, 16, 24


# region broken
def clip_and_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[torch.Tensor, int]:
    """Clips to 1.0 and steps, whatever the norm is. Returns the norm and how many steps were skipped."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return norm, 0
# endregion


# region fixed
def clip_and_step_if_finite(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[torch.Tensor, int]:
    """Clips to 1.0 and steps; a step whose gradient is not finite is left out and counted."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):
        optimizer.zero_grad()
        return norm, 1
    optimizer.step()
    return norm, 0
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH, bad_step=BAD_STEP)
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    truth = torch.randn(WIDTH, WIDTH, generator=generator) / 4
    update = clip_and_step_if_finite if ctx.fixed else clip_and_step
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, WIDTH)).to(ctx.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    skipped = 0
    for step in range(STEPS):
        a = torch.randn(BATCH, WIDTH, generator=generator)
        b = torch.randn(BATCH, WIDTH, generator=generator)
        if step == BAD_STEP:
            b[3] = a[3]  # a duplicate: this pair's distance is exactly 0
        wanted = ((a - b) @ truth).norm(dim=-1).to(ctx.device)
        with torch.autocast(ctx.device, torch.bfloat16, enabled=ctx.variant == "bf16"):
            difference = model(a.to(ctx.device)) - model(b.to(ctx.device))
        distance = difference.float().square().sum(-1).sqrt()
        loss = (distance - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm, left_out = update(model, optimizer)
        skipped += left_out
        print(f"step={step} loss={loss.item():.4f} grad_norm={norm.item():.4f} skipped={skipped}")
    finite = sum(int(torch.isfinite(p).all()) for p in model.parameters())
    ctx.result(loss=loss.item(), finite_tensors=finite, tensors=len(list(model.parameters())), skipped=skipped)
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["finite_tensors"] == out.results["tensors"], "weights are not finite"
    assert out.results["loss"] < 0.3, f"final loss is {out.results['loss']}"
    assert out.results["skipped"] == 1, f"{out.results['skipped']} steps were skipped, not one"
