"""A checkpoint saved from a GPU is read on a machine that has none.

torch.save writes beside every storage where it lay, and torch.load puts it back there unless told otherwise. There is no GPU here to
save from: while the trainer saves, torch's own function that names a storage's place is told that it is cuda:0. File, loader and
what the loader says are the real ones. Fixed: the reader names the device that it has.
"""

import os
from unittest import mock

import torch
from torch import nn

STEPS, BATCH, WIDTH = 40, 32, 8


# region broken
def load_as_saved(path, device):
    return torch.load(path)
# endregion


# region fixed
def load_for_device(path, device):
    return torch.load(path, map_location=device)
# endregion


def train(model, optimizer, first, last):
    for step in range(first, last):
        x = torch.randn(BATCH, WIDTH)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step={step} loss={loss.item():.4f}")
    return loss.item()


def run(ctx):
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # this program has no GPU, whatever the machine has
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=2 * STEPS, batch=BATCH, width=WIDTH)
    path = ctx.tmp / "last.pt"

    model = nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    train(model, optimizer, 0, STEPS)
    with mock.patch("torch.serialization.location_tag", lambda storage: "cuda:0"):  # as the job on the GPU node saves it
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": STEPS}, path)
    print(f"saved {path.name} at step {STEPS}")

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"resuming on {device}")
    model = nn.Linear(WIDTH, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    saved = (load_for_device if ctx.fixed else load_as_saved)(path, device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loss = train(model, optimizer, saved["step"], 2 * STEPS)
    ctx.result(steps=2 * STEPS, loss=loss, where=str(model.weight.device))
    print(f"training finished after {2 * STEPS} steps")


def check(out):
    assert out.results.get("steps") == 2 * STEPS, "the resumed half was not done"
    assert out.results["where"] == "cpu", "the weights are not where the model is"
    assert out.results["loss"] < 0.01, f"the resumed run did not go on from the saved weights: {out.results['loss']:.4f}"
