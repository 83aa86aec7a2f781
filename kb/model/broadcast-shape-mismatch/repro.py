"""A skip connection adds two feature maps whose sizes differ by one pixel.

A small U-shaped network halves its input twice and doubles it twice; on the way up the map of the same level is added. With 48 pixels
the levels are 48, 24, 12 and 12, 24, 48. With 50 they are 50, 25, 12 and 12, 24: pooling rounded 12.5 down, and 24 does not broadcast
against 25. The stream of images has 48-pixel batches first, as a data set with a few odd images has. The fixed half
upsamples to the size of the map that is waiting.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH = 12, 4, 8
SIDES = (48,) * 5 + (50,) + (48,) * 6


# region broken
def join(deep, skip):
    return F.interpolate(deep, scale_factor=2) + skip
# endregion


# region fixed
def join_at_size(deep, skip):
    return F.interpolate(deep, size=skip.shape[-2:]) + skip
# endregion


class Net(nn.Module):
    def __init__(self, join):
        super().__init__()
        self.join = join
        self.enter = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(2))
        self.leave = nn.Conv2d(WIDTH, 1, 1)

    def forward(self, x):
        levels = [self.enter(x)]
        for layer in self.down:
            levels.append(layer(F.max_pool2d(levels[-1].relu(), 2)))
        deep = levels.pop()
        while levels:
            deep = self.join(deep.relu(), levels.pop())
        return self.leave(deep)


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH, sides=SIDES)
    model = Net(join_at_size if ctx.fixed else join).to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, side in enumerate(SIDES):
        clean = torch.linspace(0, 1, side).expand(BATCH, 1, side, side).to(ctx.device)
        noisy = clean + 0.1 * torch.randn_like(clean)
        loss = F.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["loss"] < 0.2, f"loss {out.results['loss']:.4f} after {STEPS} steps"
