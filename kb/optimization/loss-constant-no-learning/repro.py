"""A loss that stays where it began, for three reasons that leave three different traces.

Variant stale_optimizer: the optimizer was built for a copy of the model that is not the one in use. Variant dead_units: all
hidden units are switched off for every input. Variant shuffled_labels: inputs were shuffled, labels were not.
Gradient norm and the norm of the update tell them apart.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("stale_optimizer", "dead_units", "shuffled_labels")
STEPS, BATCH, WIDTH, CLASSES = 120, 512, 64, 4


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    nn.init.zeros_(model[2].weight)  # so that all three begin at ln(4)
    nn.init.zeros_(model[2].bias)
    return model


# region broken
def build(variant: str, device: str) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    model = network().to(device)
    if variant == "dead_units":
        nn.init.constant_(model[0].bias, -20.0)  # a bias meant for another layer
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    if variant == "stale_optimizer":
        model = copy.deepcopy(model)  # wrapped, converted or reloaded after the optimizer was built
    return model, optimizer


def pair(variant: str, x: torch.Tensor, y: torch.Tensor, order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (x[order], y) if variant == "shuffled_labels" else (x[order], y[order])
# endregion


# region fixed
def build_in_order(variant: str, device: str) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    model = copy.deepcopy(network()).to(device)
    nn.init.zeros_(model[0].bias)
    return model, torch.optim.Adam(model.parameters(), lr=3e-3)  # last of all


def pair_together(variant: str, x: torch.Tensor, y: torch.Tensor, order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[order], y[order]
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, widths=[16, WIDTH, CLASSES])
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    centres = torch.randn(CLASSES, 16, generator=generator)
    model, optimizer = (build_in_order if ctx.fixed else build)(ctx.variant, ctx.device)
    for step in range(STEPS):
        y = torch.randint(CLASSES, (BATCH,), generator=generator)
        x = centres[y] + torch.randn(BATCH, 16, generator=generator)
        order = torch.randperm(BATCH, generator=generator)
        x, y = (pair_together if ctx.fixed else pair)(ctx.variant, x, y, order)
        x, y = x.to(ctx.device), y.to(ctx.device)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        model.zero_grad()
        loss.backward()
        weights = [m.weight for m in model if isinstance(m, nn.Linear)]
        before = [w.detach().clone() for w in weights]
        grad_norm = nn.utils.get_total_norm([w.grad for w in weights]).item()
        optimizer.step()
        update = nn.utils.get_total_norm([w.detach() - b for w, b in zip(weights, before, strict=True)]).item()
        if step % 2 == 0:
            accuracy = (logits.argmax(1) == y).float().mean().item()
            print(f"step={step} loss={loss.item():.4f} grad_norm={grad_norm:.4g} update_norm={update:.4g} accuracy={accuracy:.3f}")
    print(f"training finished after {STEPS} steps")
    ctx.result(loss=loss.item(), grad_norm=grad_norm, update_norm=update, accuracy=accuracy)


def check(out):
    assert out.results["loss"] < 0.5, f"loss is {out.results['loss']:.4f}, ln(4) is 1.3863"
    assert out.results["accuracy"] > 0.85
