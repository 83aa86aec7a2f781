"""Loss scale collapse: the forward pass overflows, no loss scale can help, and the scaler halves for ever.

A regression model squares its features in float16. Training drives them up until a square leaves the range
of float16; from that step on the loss is inf whatever the scale is. The scaler can only react by halving,
every step is skipped, and the run goes on without learning anything.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH = 120, 64, 16


# region broken
def energy(features: torch.Tensor) -> torch.Tensor:
    """Mean of squares in the precision of the features: float16 under autocast, inf above 255.9."""
    return (features * features).mean(-1)
# endregion


# region fixed
def energy_in_float32(features: torch.Tensor) -> torch.Tensor:
    """Mean of squares in float32; autocast does not narrow it again."""
    wide = features.float()
    return (wide * wide).mean(-1)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    form = energy_in_float32 if ctx.fixed else energy
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 64)).to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler(ctx.device)
    skipped = 0
    for step in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=generator)
        # The energy to be reproduced: sizes around 300, whose square float16 cannot hold.
        target = (300 * (1 + 0.1 * x[:, 0])).square()
        x, target = x.to(ctx.device), target.to(ctx.device)
        with torch.autocast(ctx.device, torch.float16):
            prediction = form(model(x))
        loss = F.mse_loss(prediction.float() / 9e4, target / 9e4)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        if step % 2 == 0:
            print(f"step={step} loss={loss.item():.4f} loss_scale={scaler.get_scale():g} skipped={skipped}")
    ctx.result(loss=loss.item(), scale=scaler.get_scale(), skipped=skipped)
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["scale"] >= 16, f"the loss scale ended at {out.results['scale']:g}"
    assert out.results["skipped"] <= 20, f"{out.results['skipped']} steps were skipped"
    assert out.results["loss"] < 0.2, f"final loss is {out.results['loss']}"
