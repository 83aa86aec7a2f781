"""FP16 activation overflow: a sum over tokens that float16 cannot hold, once a long sequence comes.

A bag-of-tokens classifier adds up its token features over the sequence (mask @ tokens) and normalises the result. The
length of the sequences grows in stages (a curriculum): the sum stays below 65504 in the first stages, and
is inf from the first long sequence on; the normalisation turns inf into NaN.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH, CLASSES = 50, 8, 16, 4
LENGTHS = (512, 1024, 2048, 4096, 8192)  # ten steps each


# region broken
def pool(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sum over the tokens that count, as one product; autocast does it in float16."""
    return (mask[:, None] @ tokens).squeeze(1)
# endregion


# region fixed
def pool_in_float32(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The same product outside autocast, in float32: its result is normalised before anything narrows it."""
    with torch.autocast(tokens.device.type, enabled=False):
        return (mask[:, None].float() @ tokens.float()).squeeze(1)
# endregion


class Classifier(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.pool = pool_in_float32 if fixed else pool
        self.embed, self.norm, self.head = nn.Linear(WIDTH, 32), nn.LayerNorm(32), nn.Linear(32, CLASSES)
        self.largest = 0.0

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        pooled = self.pool(F.relu(self.embed(x)), mask)
        self.largest = pooled.detach().abs().max().item()
        return self.head(self.norm(pooled))


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, lengths=list(LENGTHS), width=WIDTH, classes=CLASSES)
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    means = torch.randn(CLASSES, WIDTH, generator=generator) * 8

    model = Classifier(ctx.fixed).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(STEPS):
        length = LENGTHS[step * len(LENGTHS) // STEPS]
        y = torch.randint(CLASSES, (BATCH,), generator=generator)
        x = means[y][:, None] + 4 * torch.randn(BATCH, length, WIDTH, generator=generator)
        x, y = x.to(ctx.device), y.to(ctx.device)
        with torch.autocast(ctx.device, torch.float16):
            logits = model(x, torch.ones(x.shape[:2], device=x.device))  # no padding in these batches
        loss = F.cross_entropy(logits.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            print(f"step={step} loss={loss.item():.4f} act_max={model.largest:.0f} seq_len={length}")
    finite = all(bool(torch.isfinite(p).all()) for p in model.parameters())
    ctx.result(loss=loss.item(), weights_finite=finite, largest=model.largest)
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["weights_finite"], "weights are not finite"
    assert out.results["loss"] < 0.2, f"final loss is {out.results['loss']}"
    assert out.results["largest"] > 65504, "the sum never left the range of float16: nothing was tested"
