"""A float32 tensor meets bfloat16 weights, or half of an attention's inputs, in one matrix product.

Variant `linear`: the model was converted to bfloat16, its input was not. Variant `attention`: rotary positions are
computed in float32, so queries and keys leave the rotation in float32 while the values stay in bfloat16.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("linear", "attention")
STEPS, BATCH, LENGTH, WIDTH = 12, 8, 6, 16


def rotary(length, device):
    """Tables in float32, as they should be: positions do not fit bfloat16."""
    angle = torch.arange(length, device=device)[:, None] / 100 ** (torch.arange(WIDTH // 2, device=device) / WIDTH)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


# region broken
def enter(x, weight):
    return x


def rotated(x, cos, sin):
    """bfloat16 times float32 is float32: the result has another dtype than x."""
    return rotate(x, cos, sin)
# endregion


# region fixed
def enter_in_weight_dtype(x, weight):
    return x.to(weight.dtype)


def rotated_and_cast_back(x, cos, sin):
    """Computed in float32, returned in the dtype that came in."""
    return rotate(x, cos, sin).to(x.dtype)
# endregion


class Attention(nn.Module):
    def __init__(self, turn):
        super().__init__()
        self.turn, self.qkv, self.out = turn, nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x):
        cos, sin = rotary(x.shape[1], x.device)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out(F.scaled_dot_product_attention(self.turn(q, cos, sin), self.turn(k, cos, sin), v))


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, length=LENGTH, width=WIDTH)
    cast = enter_in_weight_dtype if ctx.fixed or ctx.variant != "linear" else enter
    turn = rotated_and_cast_back if ctx.fixed or ctx.variant != "attention" else rotated
    model = Attention(turn).to(ctx.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    x = torch.randn(BATCH, LENGTH, WIDTH, device=ctx.device)
    y = x.mean(dim=(1, 2))[:, None, None].expand(BATCH, LENGTH, 1)
    for step in range(STEPS):
        loss = F.mse_loss(model(cast(x, model.qkv.weight)).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["loss"] < 0.5, f"the loss ended at {out.results['loss']}"
