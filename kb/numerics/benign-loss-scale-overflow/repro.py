"""Benign overflow: the loss scaler starts too high on purpose, skips a few steps, and training is unharmed.

The same regression is trained twice under float16 autocast with a GradScaler. With the default initial
scale of 65536 the first scaled gradients overflow: those steps are skipped and the scale halves until they
fit. Started at 256, no step is skipped at all. Both runs end at the same loss, which is what
makes the skips harmless.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH = 80, 64, 16


# region broken
def make_scaler(device: str) -> torch.amp.GradScaler:
    """The default: start at 2**16 and search downward."""
    return torch.amp.GradScaler(device)
# endregion


# region fixed
def make_low_scaler(device: str) -> torch.amp.GradScaler:
    """Start where this model's gradients fit; nothing to search, nothing to skip."""
    return torch.amp.GradScaler(device, init_scale=256.0)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    truth = torch.randn(WIDTH, generator=generator)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 1)).to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = (make_low_scaler if ctx.fixed else make_scaler)(ctx.device)
    skipped = 0
    for step in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=generator)
        y = (x @ truth).to(ctx.device) * 2.5
        with torch.autocast(ctx.device, torch.float16):
            prediction = model(x.to(ctx.device)).squeeze(-1) * 10
        loss = F.mse_loss(prediction.float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        print(f"step={step} loss={loss.item():.4f} loss_scale={scaler.get_scale():g} skipped={skipped}")
    ctx.result(loss=loss.item(), scale=scaler.get_scale(), skipped=skipped)
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["loss"] < 2.0, f"final loss is {out.results['loss']}"
    assert out.results["skipped"] == 0, f"{out.results['skipped']} steps were skipped"
