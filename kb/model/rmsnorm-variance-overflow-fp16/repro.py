"""RMSNorm that squares in fp16: one channel above 256 makes the whole row exactly zero.

A frozen half-precision embedding, as loaded from a bf16 checkpoint, carries one outlier channel
(a "massive activation"). A small fp32 network on top of the norm learns to classify tokens.
Variant all_tokens: every token has the outlier, the network is fed zeros and learns nothing.
Variant some_tokens: one token in four has it; the loss falls, and stops far too high.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("all_tokens", "some_tokens")
STEPS, BATCH, VOCABULARY, WIDTH, CLASSES = 120, 256, 64, 64, 8


# region broken
class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = (x * x).mean(-1, keepdim=True)  # fp16: 256 * 256 is already inf
        return x * torch.rsqrt(mean_square + self.eps) * self.weight.to(x.dtype)
# endregion


# region fixed
class RMSNormFloat32(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)
# endregion


def checkpoint(variant: str) -> torch.Tensor:
    """Embedding of a pretrained model: ordinary channels of size 8, and one outlier channel."""
    weight = 8 * torch.randn(VOCABULARY, WIDTH)
    tokens = torch.arange(VOCABULARY)
    rows = tokens >= 0 if variant == "all_tokens" else tokens < VOCABULARY // 4
    weight[:, 7] = torch.where(rows, 300.0, 200.0)  # 200 squared fits into fp16, 300 squared does not
    return weight.half()


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, vocabulary=VOCABULARY, width=WIDTH, classes=CLASSES)
    embedding = checkpoint(ctx.variant).to(ctx.device)
    norm = RMSNormFloat32(WIDTH) if ctx.fixed else RMSNorm(WIDTH)
    head = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, CLASSES))
    norm, head = norm.to(ctx.device), head.to(ctx.device)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2, weight_decay=0.0)  # the norm stays frozen
    classes = torch.randperm(VOCABULARY).to(ctx.device) % CLASSES

    for step in range(STEPS):
        tokens = torch.randint(VOCABULARY, (BATCH,)).to(ctx.device)
        normed = norm(embedding[tokens])
        loss = F.cross_entropy(head(normed.float()), classes[tokens])
        optimizer.zero_grad()
        loss.backward()
        grad_norm = nn.utils.get_total_norm([p.grad for p in head.parameters()])
        optimizer.step()
        if step % 5 == 0:
            rms = normed.detach().float().square().mean(-1).sqrt()
            print(f"step={step} loss={loss.item():.4f} grad_norm={grad_norm.item():.4f} "
                  f"norm_in_absmax={embedding[tokens].abs().max().item():.1f} "
                  f"norm_out_rms={rms.mean().item():.4f} norm_out_rms_min={rms.min().item():.4f}")

    with torch.no_grad():
        normed = norm(embedding)
        accuracy = (head(normed.float()).argmax(1) == classes).float().mean().item()
        rms = normed.float().square().mean(-1).sqrt()
    zero_rows = (normed == 0).all(-1).sum().item()
    print(f"accuracy={accuracy:.4f} zero_rows={zero_rows}/{VOCABULARY}")
    ctx.result(loss=loss.item(), accuracy=accuracy, rms_min=rms.min().item(), rms_max=rms.max().item())
    print(f"training finished after {STEPS} steps")


def check(out):
    result = out.results
    assert result["loss"] < 0.3, f"the network has not learned: loss {result['loss']}"
    assert result["accuracy"] >= 0.95, f"accuracy is {result['accuracy']}"
    assert result["rms_min"] > 0.99, f"a row comes out of the norm with rms {result['rms_min']}"
    assert result["rms_max"] < 1.01, f"a row comes out of the norm with rms {result['rms_max']}"
