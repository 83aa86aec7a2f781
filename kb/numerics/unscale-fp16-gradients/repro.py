"""The trainable weights themselves are float16, and a GradScaler is asked to unscale their gradients.

A base model is loaded in float16 to save memory and a small adapter is trained on top, under autocast with a
GradScaler and gradient clipping. In the broken half the adapter inherits the float16 of the base, so its gradients
are float16 too. In the fixed half only the frozen base is float16; what the optimizer steps is float32.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH, RANK = 12, 32, 16, 4


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH)
        self.down, self.up = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, 1, bias=False)

    def forward(self, x):
        return self.up(self.down(torch.tanh(self.base(x))))


# region broken
def prepare(model):
    """Everything in the precision of the checkpoint, adapter included."""
    model = model.half()
    model.base.requires_grad_(False)
    return model
# endregion


# region fixed
def prepare_float32_adapter(model):
    """The frozen base may be float16; every parameter the optimizer steps is float32."""
    model = model.half()
    model.base.requires_grad_(False)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return model
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH, rank=RANK)
    model = (prepare_float32_adapter if ctx.fixed else prepare)(Adapted().to(ctx.device))
    trained = [p for p in model.parameters() if p.requires_grad]
    print(f"training {len(trained)} tensors in {sorted({str(p.dtype) for p in trained})}")
    optimizer = torch.optim.AdamW(trained, lr=0.02)
    scaler = torch.amp.GradScaler(ctx.device)
    x = torch.randn(BATCH, WIDTH, device=ctx.device)
    y = x[:, :1]
    for step in range(STEPS):
        with torch.autocast(ctx.device, torch.float16):
            prediction = model(x)
        loss = F.mse_loss(prediction.float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(trained, 1.0)
        scaler.step(optimizer)
        scaler.update()
        print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["loss"] < 1.0, f"the loss ended at {out.results['loss']}"
