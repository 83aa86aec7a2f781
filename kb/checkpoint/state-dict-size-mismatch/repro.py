"""A checkpoint whose head has another number of classes than the model it is loaded into.

A backbone was pre-trained with 10 classes and is fine-tuned with 4. The broken half loads the whole checkpoint
with strict=False, which forgives missing and surplus names and not other shapes. The fixed half loads what fits by
name and shape, refuses if anything but the head is left out, and trains the new head from scratch.
"""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, OLD_CLASSES, CLASSES, STEPS = 16, 10, 4, 20


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH))
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


# region broken
def load(model, path):
    model.load_state_dict(torch.load(path), strict=False)
# endregion


# region fixed
def load_backbone(model, path):
    """Everything that has the same name and shape; only the head may be left out."""
    saved, own = torch.load(path), model.state_dict()
    fitting = {name: t for name, t in saved.items() if name in own and own[name].shape == t.shape}
    left_out = sorted(own.keys() - fitting.keys())
    if any(not name.startswith("head.") for name in left_out):
        raise ValueError(f"the checkpoint does not fit: {left_out}")
    model.load_state_dict(fitting, strict=False)
    print(f"loaded {len(fitting)} of {len(own)} tensors, new: {', '.join(left_out)}")
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, width=WIDTH, classes=CLASSES, old_classes=OLD_CLASSES)
    pretrained = Net(OLD_CLASSES)
    torch.save(pretrained.state_dict(), ctx.tmp / "pretrained.pt")
    model = Net(CLASSES).to(ctx.device)
    (load_backbone if ctx.fixed else load)(model, ctx.tmp / "pretrained.pt")
    same = torch.equal(model.backbone[0].weight.cpu(), pretrained.backbone[0].weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    x = torch.randn(64, WIDTH).to(ctx.device)
    y = x[:, :CLASSES].argmax(1)
    for step in range(1, STEPS + 1):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step={step} loss={loss.item():.4f}")
    ctx.result(backbone_loaded=same, steps=step, loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.ranks[0].ok, f"the run died: {out.ranks[0].exception}"
    assert out.results["backbone_loaded"], "the backbone was not loaded"
    assert out.results["steps"] == STEPS and out.results["loss"] < 0.9
