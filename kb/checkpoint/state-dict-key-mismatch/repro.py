"""A checkpoint whose names are not the model's names.

Variant module_prefix: saved from a DataParallel wrapper, loaded into the bare model. Variant nested: the
weights lie one level down, beside optimizer and step. Variant renamed: a submodule was renamed since.
The values are the same in all three; only the names have to be brought together.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("module_prefix", "nested", "renamed")
STEPS, CLASSES, WIDTH = 20, 4, 16


class OldNet(nn.Module):
    """As it was when the checkpoint was written."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.fc = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.encoder(x))


class Net(OldNet):
    """As it is now: the head has another name."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = self.fc
        del self.fc

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.encoder(x))


# region broken
def load(model: nn.Module, path) -> None:
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
# endregion


# region fixed
def load_renamed(model: nn.Module, path) -> None:
    """Unwraps, strips wrappers' prefixes, applies the known renames, and stays strict."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    weights = next((checkpoint[k] for k in ("state_dict", "model") if isinstance(checkpoint.get(k), dict)), checkpoint)
    renames = {"fc.": "classifier."}  # what changed in this repository since the checkpoint
    wanted = model.state_dict().keys()
    state = {}
    for name, tensor in weights.items():
        for prefix in ("module.", "_orig_mod.", "model."):
            name = name.removeprefix(prefix)
        for old, new in renames.items():
            if name not in wanted and name.startswith(old):
                name = new + name.removeprefix(old)
        state[name] = tensor
    model.load_state_dict(state)
# endregion


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, first: int) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(first, first + STEPS):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step={step} loss={loss.item():.4f}")
    return loss.item()


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=2 * STEPS, batch=64, widths=[8, WIDTH, CLASSES])
    x = torch.randn(64, 8).to(ctx.device)
    y = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()

    saved = (OldNet() if ctx.variant == "renamed" else Net()).to(ctx.device)
    before = train(saved, x, y, 0)
    path = ctx.tmp / "last.pt"
    state = {
        "module_prefix": lambda: nn.DataParallel(saved).state_dict(),
        "nested": lambda: {"state_dict": saved.state_dict(), "step": STEPS},
        "renamed": saved.state_dict,
    }[ctx.variant]()
    torch.save(state, path)

    model = Net().to(ctx.device)
    print(f"loading {path.name} ({len(model.state_dict())} tensors expected)")
    (load_renamed if ctx.fixed else load)(model, path)
    gap = (model(x) - saved(x)).abs().max().item()
    after = train(model, x, y, STEPS)
    print(f"training finished after {2 * STEPS} steps")
    ctx.result(output_gap=gap, loss_before=before, loss_after=after)


def check(out):
    assert out.ranks[0].ok, out.ranks[0].exception
    assert out.results["output_gap"] == 0.0, "the loaded model computes something else than the saved one"
    assert out.results["loss_after"] < out.results["loss_before"]
