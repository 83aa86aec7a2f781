"""A checkpoint of an earlier version of the code: a module was renamed, so its tensors have other names.

Version 1 of the model called its classifier `top`; version 2 calls it `decoder`. The shapes
are equal. The broken half loads the old checkpoint as it is. The fixed half translates the old names, requires that
every tensor of the model is filled and every tensor of the file is used, and goes on training at the old loss.
"""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, CLASSES, STEPS = 16, 4, 30


def classifier():
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, CLASSES))


class Version1(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(WIDTH, WIDTH)
        self.top = classifier()

    def forward(self, x):
        return self.top(self.encoder(x))


class Version2(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(WIDTH, WIDTH)
        self.decoder = classifier()

    def forward(self, x):
        return self.decoder(self.encoder(x))


# region broken
def resume(model, path):
    model.load_state_dict(torch.load(path))
# endregion


# region fixed
RENAMED = {"top.": "decoder."}


def resume_translated(model, path):
    """Old names to new ones; strict loading then proves that nothing is missing or left over."""
    state = torch.load(path)
    for old, new in RENAMED.items():
        state = {new + name[len(old):] if name.startswith(old) else name: t for name, t in state.items()}
    model.load_state_dict(state)
# endregion


def train(model, steps, x, y, first=1):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for step in range(first, first + steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 0:
            print(f"step={step} loss={loss.item():.4f}")
    return losses


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, width=WIDTH, classes=CLASSES)
    x = torch.randn(64, WIDTH).to(ctx.device)
    y = x[:, :CLASSES].argmax(1)
    old = Version1().to(ctx.device)
    before = train(old, STEPS, x, y)
    torch.save(old.state_dict(), ctx.tmp / "step_30.pt")
    model = Version2().to(ctx.device)
    (resume_translated if ctx.fixed else resume)(model, ctx.tmp / "step_30.pt")
    after = train(model, STEPS, x, y, STEPS + 1)
    ctx.result(start=before[0], last_before=before[-1], first_after=after[0], end=after[-1])
    print(f"training finished after {2 * STEPS} steps")


def check(out):
    assert out.ranks[0].ok, f"the run died: {out.ranks[0].exception}"
    r = out.results
    assert r["first_after"] < 1.2 * r["last_before"] < r["start"], "training did not go on where it was"
    assert r["end"] < r["first_after"]
