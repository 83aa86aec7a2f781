"""A single failed write of a checkpoint takes the whole run down, although the next attempt would have gone through.

A file object that answers one write of the third save with EIO, and all others normally, stands in for a remote file
system with a short fault. The exception and its text are Python's and torch's own.
"""

import errno
import io
import os
import time
from pathlib import Path

import torch
from torch import nn

STEPS, EVERY, WIDTH, BAD_SAVE = 20, 5, 128, 3


# region broken
def save(storage: "RemoteStorage", state: dict, path: Path) -> int:
    """One attempt, under the final name."""
    with storage.open(path) as file:
        torch.save(state, file)
    return 1
# endregion


# region fixed
def save_with_retry(storage: "RemoteStorage", state: dict, path: Path, attempts: int = 4) -> int:
    """Serialize once, write beside with growing pauses, rename when complete."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    part = path.with_suffix(".tmp")
    for attempt in range(1, attempts + 1):
        try:
            with storage.open(part) as file:
                file.write(buffer.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
            return attempt
        except OSError as error:
            if attempt == attempts:
                raise
            print(f"warning: saving {path.name} failed ({type(error).__name__} {error.errno}), attempt {attempt}", flush=True)
            time.sleep(0.05 * 2**attempt)
    return attempts
# endregion


class FlakyFile(io.FileIO):
    """Fails one write."""

    def __init__(self, path: Path, storage: "RemoteStorage") -> None:
        super().__init__(path, "wb")
        self.storage = storage

    def write(self, data) -> int:
        if self.storage.opened == BAD_SAVE and not self.storage.failed:
            self.storage.failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().write(data)


class RemoteStorage:
    """Stand-in for a network file system."""

    def __init__(self) -> None:
        self.opened, self.failed = 0, False

    def open(self, path: Path) -> FlakyFile:
        self.opened += 1
        return FlakyFile(path, self)


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, every=EVERY, width=WIDTH)
    folder = ctx.tmp / "checkpoints"
    folder.mkdir()
    storage, attempts = RemoteStorage(), []
    model = nn.Linear(WIDTH, WIDTH)
    x = torch.randn(64, WIDTH)
    try:
        for step in range(1, STEPS + 1):
            loss = (model(x) - x.flip(-1)).square().mean()
            for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
                p.data -= 5.0 * g
            if step % EVERY == 0:
                print(f"step={step} loss={loss.item():.4f}")
                print(f"saving checkpoint step-{step:06d}.pt", flush=True)
                attempts.append((save_with_retry if ctx.fixed else save)(storage, dict(model.state_dict()), folder / f"step-{step:06d}.pt"))
                ctx.result(saved=step, loss=loss.item(), attempts=sum(attempts))
    finally:
        newest = max(folder.glob("step-*.pt"))
        try:
            torch.load(newest)
            ctx.result(newest=newest.name, newest_loads=True, newest_bytes=newest.stat().st_size)
        except Exception as error:
            ctx.result(newest=newest.name, newest_loads=False, newest_bytes=newest.stat().st_size, newest_error=str(error)[:80])
    print(f"training finished after {STEPS} steps")


def check(out):
    result = out.results
    assert result["saved"] == STEPS, f"the last save that went through was at step {result['saved']}"
    assert result["newest"] == f"step-{STEPS:06d}.pt" and result["newest_loads"]
    assert result["attempts"] == STEPS // EVERY + 1, "the fault did not occur"
