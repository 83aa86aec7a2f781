"""The loader is slower than the step: most of the step time is spent waiting for the next batch.

A small convolutional network is trained for five epochs on 64 compressed images. The broken half inflates and shrinks
each image again whenever it is asked for, 320 times in all; the fixed half does it once per image before
training and reads small arrays from then on. Batches, losses and steps are the same in both; the
two durations that are printed are those that mmengine, detectron2 and torchvision's scripts print.
"""

import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

IMAGES, SIDE, SMALL, BATCH, EPOCHS, EVERY = 64, 320, 32, 16, 5, 2
decoded = 0


def decode(packed: bytes) -> torch.Tensor:
    """Inflates one image and shrinks it to what the network takes."""
    global decoded
    decoded += 1
    pixels = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(1, 3, SIDE, SIDE)
    small = F.interpolate(torch.from_numpy(pixels.copy()).float(), size=(SMALL, SMALL), mode="bilinear", antialias=True)
    return small[0] / 255 - 0.5


# region broken
class DecodeEachTime(Dataset):
    """Decodes a full-size image whenever a batch asks for it, in every epoch."""

    def __init__(self, packed: list[bytes], folder) -> None:
        self.packed = packed

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, index: int) -> torch.Tensor:
        return decode(self.packed[index])
# endregion


# region fixed
class DecodedOnce(Dataset):
    """Decodes and shrinks once, before training, into one file that is then mapped."""

    def __init__(self, packed: list[bytes], folder) -> None:
        np.save(folder / "small.npy", np.stack([decode(p).numpy() for p in packed]))
        self.images = np.load(folder / "small.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.images[index].copy())
# endregion


def run(ctx):
    global decoded
    decoded = 0
    torch.manual_seed(ctx.seed)
    ctx.workload(images=IMAGES, side=SIDE, batch=BATCH, epochs=EPOCHS)
    noise = np.random.default_rng(ctx.seed)
    packed = [zlib.compress(noise.integers(0, 32, (3, SIDE, SIDE), dtype=np.uint8).tobytes(), 1) for _ in range(IMAGES)]
    loader = DataLoader((DecodedOnce if ctx.fixed else DecodeEachTime)(packed, ctx.tmp), batch_size=BATCH)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 3, 3, padding=1),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    total, waited, steps = 0.0, 0.0, 0
    for epoch in range(1, EPOCHS + 1):
        spent, waiting = 0.0, 0.0
        began = time.perf_counter()
        for index, images in enumerate(loader, 1):
            ready = time.perf_counter()
            loss = (model(images) - images).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ended = time.perf_counter()
            spent, waiting, steps = spent + ended - began, waiting + ready - began, steps + 1
            began = ended
            if index % EVERY == 0:  # averages over the interval, as mmengine prints them
                print(
                    f"Epoch(train) [{epoch}][{index}/{len(loader)}]  lr: 5.0000e-02  time: {spent / EVERY:.4f}  "
                    f"data_time: {waiting / EVERY:.4f}  loss: {loss.item():.4f}  data_share: {waiting / spent:.3f}"
                )
                total, waited, spent, waiting = total + spent, waited + waiting, 0.0, 0.0
    ctx.result(
        decoded=decoded, steps=steps, loss=loss.item(), step_ms=1e3 * total / steps, data_ms=1e3 * waited / steps,
        data_share=waited / total,
    )
    print(f"training finished after {steps} steps")


def check(out):
    r = out.results
    assert r["steps"] == EPOCHS * IMAGES // BATCH, f"{r['steps']} steps"
    assert r["decoded"] == IMAGES, f"{r['decoded']} images decoded for {IMAGES} different ones"
    assert r["data_share"] < 0.5, f"{r['data_share']:.0%} of the step time is waiting for data"
