"""A few rows of garbage in one batch throw a trained model off its course.

Variant inputs: eight rows whose features were stored in another unit (x 1000). Variant targets: eight rows
whose missing target is coded as -9999. One such batch comes at step 120; nothing else is wrong.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("inputs", "targets")
STEPS, BATCH, WIDTH, BAD_STEP, BAD_ROWS = 240, 64, 64, 120, 8


# region broken
def clean(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, y
# endregion


# region fixed
def clean_by_range(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Drops rows outside what the statistics of the training set allow (here: 20 standard deviations)."""
    good = x.isfinite().all(1) & y.isfinite().all(1) & (x.abs().amax(1) < 20) & (y.abs().amax(1) < 20)
    return x[good], y[good]
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, widths=[16, WIDTH, 1], bad_rows=BAD_ROWS, bad_step=BAD_STEP)
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    rule = torch.randn(16, 1, generator=generator) / 4
    rows_x = torch.randn(STEPS * BATCH, 16, generator=generator)
    rows_y = (rows_x @ rule).sin() + 0.1 * torch.randn(STEPS * BATCH, 1, generator=generator)
    bad = slice(BAD_STEP * BATCH, BAD_STEP * BATCH + BAD_ROWS)
    if ctx.variant == "inputs":
        rows_x[bad] *= 1000
    else:
        rows_y[bad] = -9999.0

    model = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses, dropped = [], 0
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        x, y = (clean_by_range if ctx.fixed else clean)(rows_x[rows], rows_y[rows])
        dropped += BATCH - len(x)
        x, y = x.to(ctx.device), y.to(ctx.device)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
        optimizer.step()
        losses.append(loss.item())
        if step % 4 == 0:
            largest = max(x.abs().max().item(), y.abs().max().item())
            print(f"step={step} loss={loss.item():.4f} grad_norm={norm:.4g} batch_absmax={largest:.4g} batch_id={step}")
    print(f"training finished after {STEPS} steps")
    ctx.result(before=sum(losses[BAD_STEP - 20:BAD_STEP]) / 20, last=sum(losses[-20:]) / 20, dropped=dropped)


def check(out):
    result = out.results
    assert result["dropped"] == BAD_ROWS, f"{result['dropped']} rows dropped, {BAD_ROWS} are bad"
    assert result["last"] < 0.05, f"loss {result['before']:.4f} before, {result['last']:.4f} at the end"
