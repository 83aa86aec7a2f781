"""None of the parameters that the optimizer holds has a gradient, so the scaler has nothing to check.

The head of a model is replaced for a new task after the optimizer was built. The optimizer still holds the old head, which
no forward pass uses any more. The fixed half builds the optimizer last.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH = 12, 32, 8


def frozen_backbone():
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.Linear(16, 10))
    model[0].requires_grad_(False)
    return model


# region broken
def build(device):
    model = frozen_backbone().to(device)
    optimizer = torch.optim.Adam(model[1].parameters(), lr=0.02)
    model[1] = nn.Linear(16, 1).to(device)
    return model, optimizer
# endregion


# region fixed
def build_optimizer_last(device):
    model = frozen_backbone()
    model[1] = nn.Linear(16, 1)
    model.to(device)
    return model, torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=0.02)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    model, optimizer = (build_optimizer_last if ctx.fixed else build)(ctx.device)
    scaler = torch.amp.GradScaler(ctx.device)
    x = torch.randn(BATCH, WIDTH, device=ctx.device)
    for step in range(STEPS):
        with torch.autocast(ctx.device, torch.float16):
            prediction = model(x)
        loss = F.mse_loss(prediction.float(), x[:, :1])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["loss"] < 1.5, f"the loss ended at {out.results['loss']}"
