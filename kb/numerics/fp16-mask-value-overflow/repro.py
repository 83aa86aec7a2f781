"""A causal mask is filled with a number that float16 does not have.

A one-layer language model computes its attention scores by hand, under float16 autocast. Scores are float16 there, and the value that
marks a position as forbidden was chosen for float32. Variant `constant`: -1e9, as many published models write it. Variant
`finfo_of_weights`: the smallest number of the weights' dtype, which is float32 under autocast. The fixed half asks the scores.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("constant", "finfo_of_weights")
STEPS, BATCH, LENGTH, WIDTH, VOCABULARY = 40, 16, 12, 32, 16


# region broken
def forbidden(scores, weight, variant):
    return -1e9 if variant == "constant" else torch.finfo(weight.dtype).min
# endregion


# region fixed
def forbidden_by_scores(scores, weight, variant):
    return torch.finfo(scores.dtype).min
# endregion


class TinyLM(nn.Module):
    def __init__(self, forbidden, variant):
        super().__init__()
        self.forbidden, self.variant = forbidden, variant
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / WIDTH**0.5
        future = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=ids.device).triu(1)
        scores = scores.masked_fill(future, self.forbidden(scores, self.qkv.weight, self.variant))
        return self.head(x + scores.softmax(-1) @ v)


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, length=LENGTH, width=WIDTH)
    model = TinyLM(forbidden_by_scores if ctx.fixed else forbidden, ctx.variant).to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        start = torch.randint(0, VOCABULARY, (BATCH, 1))
        ids = ((start + 3 * torch.arange(LENGTH + 1)) % VOCABULARY).to(ctx.device)
        with torch.autocast(ctx.device, dtype=torch.float16):
            logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0 or step == STEPS - 1:
            print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["loss"] < 0.1, f"loss {out.results['loss']:.4f} after {STEPS} steps"
