"""Attention scores overflow fp16 before they are scaled, and softmax turns inf - inf into NaN.

The projections carry the large query and key bias of many pretrained models: it adds the same
amount to all scores of a query, which softmax ignores, but fp16 does not. One rare token has a
query norm twice as large as the others; the first batch that holds it overflows.
Variant clip: the gradient norm is checked when clipping, as careful trainers do. Variant anomaly: the
pooling leaves the rare token out and the value projection is frozen, so the loss stays finite while
the gradient does not; autograd's anomaly mode is on.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("clip", "anomaly")
STEPS, BATCH, LENGTH, WIDTH, VOCABULARY, CLASSES = 100, 64, 16, 64, 32, 4
RARE, FIRST_RARE = VOCABULARY, 40  # id of the rare token, and the step of the first batch that holds it


# region broken
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    raw = q @ k.transpose(-2, -1)  # fp16: inf above 65504, and here the scale is still missing
    scores = raw / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v, raw
# endregion


# region fixed
def attention_float32(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.autocast(q.device.type, enabled=False):
        raw = (q.float() / math.sqrt(q.shape[-1])) @ k.float().transpose(-2, -1)
        weights = raw.softmax(-1)  # subtracts the row maximum, which is finite now
    return weights.to(v.dtype) @ v, raw
# endregion


class Classifier(nn.Module):
    """One attention layer, mean pooling, a linear head; token vectors are given and frozen."""

    def __init__(self, fixed: bool, pool_all: bool) -> None:
        super().__init__()
        self.pool_all = pool_all
        self.attend = attention_float32 if fixed else attention
        self.register_buffer("tokens", torch.randn(VOCABULARY + 1, WIDTH))
        self.tokens[:, 0] = 0.0
        self.tokens[RARE, 0] = 1.0
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, CLASSES)
        with torch.no_grad():
            self.q.bias[0] = self.k.bias[0] = 200.0  # 200 * 200 on every score
            self.q.weight[0, 0] = 150.0              # 350 * 200 on the scores of the rare token

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        embedded = self.tokens[x]
        mixed, raw = self.attend(self.q(embedded), self.k(embedded), self.v(embedded))
        if self.pool_all:
            pooled = mixed.mean(1)
        else:
            keep = (x != RARE).unsqueeze(-1)
            pooled = torch.where(keep, mixed, 0.0).sum(1) / keep.sum(1)
        return self.head(pooled), raw


def batch(step: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Three in four tokens of a sequence are of its class (id mod 4); late batches hold one rare token."""
    labels = torch.randint(CLASSES, (BATCH, 1), generator=generator)
    tokens = torch.randint(VOCABULARY // CLASSES, (BATCH, LENGTH), generator=generator) * CLASSES
    other = torch.randint(CLASSES, (BATCH, LENGTH), generator=generator)
    tokens = tokens + torch.where(torch.arange(LENGTH) % 4 > 0, labels, other)
    if step >= FIRST_RARE:
        tokens[0, 1] = RARE
    return tokens, labels[:, 0]


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, length=LENGTH, width=WIDTH)
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    anomaly = ctx.variant == "anomaly"
    model = Classifier(ctx.fixed, pool_all=not anomaly).to(ctx.device)
    model.v.requires_grad_(not anomaly)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    with torch.autograd.set_detect_anomaly(anomaly):
        for step in range(STEPS):
            tokens, labels = (t.to(ctx.device) for t in batch(step, generator))
            with torch.autocast(ctx.device, torch.float16):
                logits, raw = model(tokens)
                loss = F.cross_entropy(logits.float(), labels)
            losses.append(loss.item())
            if step % 4 == 0:
                print(f"step={step} loss={loss.item():.4f} attn_logit_max={raw.abs().max().item():.1f}")
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=not anomaly)
            optimizer.step()

    with torch.no_grad(), torch.autocast(ctx.device, torch.float16):
        held_out = [batch(STEPS, generator) for _ in range(8)]
        tokens, labels = (torch.cat(part).to(ctx.device) for part in zip(*held_out, strict=True))
        logits, _ = model(tokens)
    accuracy = (logits.argmax(1) == labels).float().mean().item()
    loss = sum(losses[-10:]) / 10
    print(f"accuracy={accuracy:.4f} mean_loss={loss:.4f}")
    ctx.result(loss=loss, accuracy=accuracy, finite=bool(logits.isfinite().all()), steps=len(losses))
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.ranks[0].ok, f"the run died: {out.ranks[0].exception}"
    assert out.results["steps"] == STEPS
    assert out.results["finite"], "class logits are not finite"
    assert out.results["loss"] < 0.5, f"the loss of the last ten steps is {out.results['loss']}"
    assert out.results["accuracy"] >= 0.9, f"accuracy is {out.results['accuracy']}"
