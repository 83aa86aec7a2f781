"""strict=False, meant for a new head, loads nothing at all.

A backbone is pretrained under a wrapper (DataParallel, or a LightningModule-like container that keeps it
as `self.model`), so that every name in the file has a prefix. Fine-tuning replaces the head, which needs
strict=False, and strict=False hides that no other name matches either: it fine-tunes random weights.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("data_parallel", "container")
PRETRAIN, FINETUNE, WIDTH, SHOTS = 300, 80, 64, 96


class Net(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Linear(32, WIDTH)
        self.block = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.block(torch.relu(self.stem(x)))))


class Container(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


# region broken
def load_backbone(model: nn.Module, path) -> object:
    weights = torch.load(path, map_location="cpu", weights_only=True)
    weights = {k: v for k, v in weights.items() if not k.startswith("head.")}  # 16 classes there, 4 here
    return model.load_state_dict(weights, strict=False)  # the head is new
# endregion


# region fixed
def load_backbone_checked(model: nn.Module, path) -> object:
    weights = torch.load(path, map_location="cpu", weights_only=True)
    weights = {k.removeprefix("module.").removeprefix("model."): v for k, v in weights.items()}
    weights = {k: v for k, v in weights.items() if not k.startswith("head.")}
    result = model.load_state_dict(weights, strict=False)
    wrong = [k for k in result.missing_keys if not k.startswith("head.")] + result.unexpected_keys
    if wrong:
        raise RuntimeError(f"{len(wrong)} names other than the new head did not match: {wrong[:5]}")
    return result
# endregion


def train(model, x, y, optimizer, first: int, last: int, every: int) -> float:
    for step in range(first, last):
        index = torch.randint(len(x), (min(64, len(x)),), device=x.device)
        loss = F.cross_entropy(model(x[index]), y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            print(f"step={step} loss={loss.item():.4f}")
    return loss.item()


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(pretrain=PRETRAIN, finetune=FINETUNE, shots=SHOTS, widths=[32, WIDTH])
    with torch.device(ctx.device):
        centres = torch.randn(16, 6)
        mix = torch.randn(6, 32)

        def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.randint(16, (count,))
            return (centres[y] + 0.25 * torch.randn(count, 6)) @ mix + 1.5 * torch.randn(count, 32), y

        x, y = draw(4096)
        few, held = draw(SHOTS), draw(1024)
        pretrained = Net(16)
        train(pretrained, x, y, torch.optim.Adam(pretrained.parameters(), lr=3e-3), 0, PRETRAIN, 100)
        wrapper = nn.DataParallel(pretrained) if ctx.variant == "data_parallel" else Container(pretrained)
        path = ctx.tmp / "pretrained.pt"
        torch.save(wrapper.state_dict(), path)

        model = Net(4)
        fresh = {k: v.clone() for k, v in model.state_dict().items()}
        print("loaded pretrained.pt:", (load_backbone_checked if ctx.fixed else load_backbone)(model, path))
        old = pretrained.state_dict()
        same = sum(torch.equal(v, old[k]) for k, v in model.state_dict().items() if v.shape == old[k].shape)
        print(f"step=0 loaded_share={same / len(fresh):.3f}")
        # Fine-tuning on few examples, backbone frozen: what was learned before has to carry it.
        for module in (model.stem, model.block):
            module.requires_grad_(False)
        optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
        loss = train(model, few[0], few[1] % 4, optimizer, 0, FINETUNE, 10)
        accuracy = (model(held[0]).argmax(1) == held[1] % 4).float().mean().item()
        print(f"step={FINETUNE} eval_accuracy={accuracy:.3f}")
        print(f"training finished after {FINETUNE} steps")
        ctx.result(loaded=same, tensors=len(fresh), accuracy=accuracy, loss=loss)


def check(out):
    result = out.results
    assert result["loaded"] == result["tensors"] - 2, f"{result['loaded']} of {result['tensors']} tensors loaded"
    assert result["accuracy"] > 0.8, f"held-out accuracy {result['accuracy']}"
