"""A class label lies outside [0, number of outputs).

Variant `one-based`: the annotation file counts classes from 1, so the last class is one too large, and it is
rare enough to appear at step 7 only. Variant `void`: a segmentation mask marks unlabelled pixels with 255.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("one-based", "void")
STEPS, BATCH, CLASSES, FEATURES, SIDE = 20, 8, 5, 12, 6
RARE_STEP = 7


def batches(variant: str, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(features, raw labels as annotated)"""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for step in range(STEPS):
        shape = (BATCH, SIDE, SIDE) if variant == "void" else (BATCH,)
        classes = torch.randint(0, CLASSES - 1, shape, generator=generator)
        if step >= RARE_STEP:
            classes.view(-1)[0] = CLASSES - 1
        features = torch.randn(*shape, FEATURES, generator=generator)
        features[..., :CLASSES] += 4 * F.one_hot(classes, CLASSES)
        labels = classes + 1 if variant == "one-based" else classes
        if variant == "void" and step >= RARE_STEP:
            labels[:, 0] = 255
        found.append((features, labels))
    return found


# region broken
def loss_of(logits: torch.Tensor, labels: torch.Tensor, variant: str) -> torch.Tensor:
    """The numbers of the annotation file go into the loss as they are."""
    return F.cross_entropy(logits, labels)
# endregion


# region fixed
IDS = {"one-based": [1, 2, 3, 4, 5], "void": [0, 1, 2, 3, 4]}
VOID = {"one-based": -100, "void": 255}


def loss_of_mapped(logits: torch.Tensor, labels: torch.Tensor, variant: str) -> torch.Tensor:
    """Annotated ids become the indices 0 … C-1; what has no class is named to the loss."""
    void = VOID[variant]
    table = torch.full((256,), -1, device=labels.device)
    table[IDS[variant]] = torch.arange(logits.shape[1], device=labels.device)
    mapped = torch.where(labels == void, void, table[labels.clamp(0, 255)])
    unknown = labels[mapped == -1]
    if unknown.numel():
        raise ValueError(f"labels {sorted(set(unknown.tolist()))[:10]} are no class of this dataset")
    return F.cross_entropy(logits, mapped, ignore_index=void)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    data = batches(ctx.variant, ctx.seed)
    ctx.workload(steps=STEPS, classes=CLASSES, rare_step=RARE_STEP, shapes=[list(labels.shape) for _, labels in data])
    model = nn.Linear(FEATURES, CLASSES).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    done = 0
    for step, (features, labels) in enumerate(data):
        features, labels = features.to(ctx.device), labels.to(ctx.device)
        logits = model(features).movedim(-1, 1)
        loss = (loss_of_mapped if ctx.fixed else loss_of)(logits, labels, ctx.variant)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f} labels={int(labels.min())}..{int(labels.max())}")
        done += 1
        ctx.result(steps=done, loss=loss.item())
    print(f"training finished after {done} steps")


def check(out):
    assert out.results["steps"] == STEPS, f"{out.results['steps']} of {STEPS} steps were done"
    assert out.results["loss"] < 0.6, f"final loss is {out.results['loss']}"
