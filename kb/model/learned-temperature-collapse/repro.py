"""Learned temperature collapse: the contrastive loss is lowered by shrinking the temperature for ever.

Two linear towers embed 256 paired views of the same latent vectors; the loss is the symmetric InfoNCE
of CLIP. Variant fp32: the temperature is stepped across zero, the logits change sign and the loss
jumps. Variant fp16: similarities are computed under fp16 autocast, and the gradient of the
temperature overflows before the temperature reaches zero.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("fp32", "fp16")
STEPS, PAIRS, BATCH, LATENT, WIDTH = 100, 256, 64, 32, 32


# region broken
class Temperature(nn.Module):
    """Free parameter: nothing keeps it positive, and below 0.01 it only buys a prettier loss."""

    def __init__(self, start: float = 0.07) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(start))

    def forward(self, similarity: torch.Tensor) -> torch.Tensor:
        return similarity / self.value

    def after_step(self) -> None:
        pass
# endregion


# region fixed
class BoundedTemperature(nn.Module):
    """Learns log(1/temperature): always positive, relative steps, floor 0.01 kept after each step."""

    def __init__(self, start: float = 0.07, floor: float = 0.01) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / start)))
        self.max_log_scale = math.log(1 / floor)

    @property
    def value(self) -> torch.Tensor:
        return (-self.log_scale).exp()

    def forward(self, similarity: torch.Tensor) -> torch.Tensor:
        return similarity.float() * self.log_scale.exp()

    @torch.no_grad()
    def after_step(self) -> None:
        self.log_scale.clamp_(0.0, self.max_log_scale)
# endregion


def pairs(count: int, views: list[torch.Tensor], generator: torch.Generator) -> list[torch.Tensor]:
    latent = torch.randn(count, LATENT, generator=generator)
    return [latent @ view for view in views]


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, pairs=PAIRS, batch=BATCH, widths=[48, 40, WIDTH])
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    views = [torch.randn(LATENT, width, generator=generator) / LATENT**0.5 for width in (48, 40)]
    images, texts = (x.to(ctx.device) for x in pairs(PAIRS, views, generator))
    held_images, held_texts = (x.to(ctx.device) for x in pairs(PAIRS, views, generator))

    towers = nn.ModuleList([nn.Linear(48, WIDTH, bias=False), nn.Linear(40, WIDTH, bias=False)])
    temperature = BoundedTemperature() if ctx.fixed else Temperature()
    model = nn.ModuleList([towers, temperature]).to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-2, betas=(0.9, 0.95))
    labels = torch.arange(BATCH, device=ctx.device)

    def embed(images: torch.Tensor, texts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.normalize(towers[0](images), dim=-1), F.normalize(towers[1](texts), dim=-1)

    for step in range(STEPS):
        batch = torch.randperm(PAIRS, generator=generator)[:BATCH].to(ctx.device)
        with torch.autocast(ctx.device, torch.float16, enabled=ctx.variant == "fp16"):
            u, v = embed(images[batch], texts[batch])
            logits = temperature(u @ v.T)
            loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        grad_norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        if step % 2 == 0:
            now = temperature.value.item()
            print(f"step={step} loss={loss.item():.6f} grad_norm={grad_norm.item():.4g} "
                  f"temperature={now:.6f} logit_scale={1 / now:.2f}")
        optimizer.step()
        temperature.after_step()

    with torch.no_grad():
        u, v = embed(held_images, held_texts)
        accuracy = ((u @ v.T).argmax(1) == torch.arange(PAIRS, device=ctx.device)).float().mean().item()
    print(f"held_out_recall_at_1={accuracy:.3f} temperature={temperature.value.item():.6f}")
    ctx.result(recall=accuracy, temperature=temperature.value.item(), loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    result = out.results
    assert result["recall"] >= 0.95, f"held-out recall@1 is {result['recall']}"
    assert 0.01 <= result["temperature"] <= 0.06, f"temperature ended at {result['temperature']}"
    assert result["loss"] < 0.05, f"final loss is {result['loss']}"
