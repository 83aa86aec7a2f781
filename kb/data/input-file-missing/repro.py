"""A shard that the manifest lists is not where the program looks for it.

The manifest names its shards relative to itself, and one shard lies in a folder of its own. The broken reader
joins every name to the folder of the first shard, so the run trains until that shard is due, and dies in the
middle of the epoch. The fixed reader resolves names against the manifest's folder and looks at all of them
before the first step.
"""

import json
from pathlib import Path

import torch
from torch import nn

WIDTH, PER_SHARD, BATCH = 8, 32, 16
SHARDS = ("train/shard-00000.pt", "train/shard-00001.pt", "extra/shard-00002.pt")


def write_data(root, seed):
    generator = torch.Generator().manual_seed(seed)
    for name in SHARDS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.randn(PER_SHARD, WIDTH, generator=generator), root / name)
    (root / "manifest.json").write_text(json.dumps({"shards": SHARDS}))
    return root / "manifest.json"


# region broken
def shards(manifest: Path) -> list[Path]:
    """Shards by name, all in the folder of the first one."""
    names = [Path(name) for name in json.loads(manifest.read_text())["shards"]]
    folder = manifest.parent / names[0].parent
    return [folder / name.name for name in names]
# endregion


# region fixed
def shards_checked(manifest: Path) -> list[Path]:
    """Shards as the manifest gives them, relative to it; all are opened once before training."""
    paths = [manifest.parent / name for name in json.loads(manifest.read_text())["shards"]]
    for path in paths:
        with path.open("rb") as file:
            if not file.read(1):
                raise ValueError(f"empty shard: {path}")
    return paths
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(shards=len(SHARDS), per_shard=PER_SHARD, batch=BATCH)
    manifest = write_data(ctx.tmp / "data", ctx.seed)
    model = nn.Linear(WIDTH, WIDTH).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step, records = 0, 0
    for path in (shards_checked if ctx.fixed else shards)(manifest):
        for x in torch.load(path).to(ctx.device).split(BATCH):
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step, records = step + 1, records + len(x)
            print(f"step={step} loss={loss.item():.4f}")
    ctx.result(steps=step, records=records, loss=loss.item())
    print(f"training finished after {step} steps")


def check(out):
    assert out.ranks[0].ok, f"the run died: {out.ranks[0].exception}"
    assert out.results["records"] == len(SHARDS) * PER_SHARD, "records were lost"
    assert out.results["loss"] < 1.5
