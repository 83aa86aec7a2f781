"""Three ways to a NaN loss that look alike in the last line of a log and differ in the first bad one.

The same small classifier is trained three times, each with one fault. Variant rate: the learning rate is
far above the stability limit; the loss climbs for some steps, is inf, then nan. Variant batch: one row of
one batch holds a NaN; the loss is healthy until that step and nan in every later one. Variant half: the
inputs are too large for float16; the loss is nan from the first record on. The fixed half takes away that
one fault and nothing else.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("rate", "batch", "half")
STEPS, BATCH, WIDTH, CLASSES, BAD_STEP = 60, 64, 32, 4, 30


# region broken
FAULTS = {
    "rate": {"lr": 20.0},
    "batch": {"drop_nonfinite_rows": False},
    "half": {"dtype": torch.float16},
}
# endregion


# region fixed
REPAIRS = {
    "rate": {"lr": 0.5},
    "batch": {"drop_nonfinite_rows": True},
    "half": {"dtype": torch.bfloat16},
}
# endregion


class Classifier(nn.Module):
    """Standardised inputs and their log-energy, which is computed in the given precision."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.standardise = nn.BatchNorm1d(WIDTH + 1, affine=False)
        self.layers = nn.Sequential(nn.Linear(WIDTH + 1, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raw = x.to(self.dtype)
        energy = (raw * raw).sum(-1, keepdim=True).log()
        return self.layers(self.standardise(torch.cat([x, energy.float()], -1)))


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH, classes=CLASSES, bad_step=BAD_STEP)
    setting = {"lr": 0.5, "drop_nonfinite_rows": False, "dtype": torch.float32}
    setting |= (REPAIRS if ctx.fixed else FAULTS)[ctx.variant]
    size = 60.0 if ctx.variant == "half" else 1.0  # a row's energy is then 115,000; float16 ends at 65,504
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    truth = torch.randn(WIDTH, CLASSES, generator=generator)

    model = Classifier(setting["dtype"]).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=setting["lr"])
    for step in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=generator)
        y = (x @ truth).argmax(1)
        x = x * size
        if ctx.variant == "batch" and step == BAD_STEP:
            x[5, 7] = float("nan")
        if setting["drop_nonfinite_rows"]:
            good = torch.isfinite(x).all(1)
            x, y = x[good], y[good]
        x, y = x.to(ctx.device), y.to(ctx.device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        grad_norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        optimizer.step()
        if step % 2 == 0:
            print(f"step={step} loss={loss.item():.4f} grad_norm={grad_norm.item():.4g} lr={setting['lr']}")
    finite = all(bool(torch.isfinite(p).all()) for p in model.parameters())
    ctx.result(loss=loss.item(), weights_finite=finite)
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["weights_finite"], "weights are not finite"
    assert out.results["loss"] < 1.2, f"final loss is {out.results['loss']}"
