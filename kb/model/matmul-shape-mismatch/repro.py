"""The flattened features do not have the length that the first linear layer was written for.

A small convolutional network has `Linear(512, 4)` behind its flatten, counted by hand for images of 32 x 32. The data
set holds 28 x 28. The broken half keeps the counted number; the fixed half asks the convolutions with one dry pass.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, CLASSES, SIDE = 12, 32, 4, 28


def convolutions():
    return nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU(),
                         nn.Flatten())


# region broken
def head(features, image):
    """8 channels of 8 x 8, for images of 32 x 32."""
    return nn.Linear(8 * 8 * 8, CLASSES)
# endregion


# region fixed
def head_for(features, image):
    """As many inputs as one real image gives."""
    with torch.no_grad():
        return nn.Linear(features(image[None]).shape[1], CLASSES)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, classes=CLASSES, side=SIDE)
    images = torch.randn(BATCH, 1, SIDE, SIDE)
    labels = torch.arange(BATCH) % CLASSES
    images += labels[:, None, None, None] * 0.5
    features = convolutions()
    model = nn.Sequential(features, (head_for if ctx.fixed else head)(features, images[0])).to(ctx.device)
    images, labels = images.to(ctx.device), labels.to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["loss"] < 1.2, f"the loss ended at {out.results['loss']}"
