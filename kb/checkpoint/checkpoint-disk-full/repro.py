"""Checkpoints fill the disk, and the save that does not fit takes the run down.

A folder with a capacity of 4 MiB stands in for the disk. Variant path: torch.save opens the path itself; the rest of the
capacity is set as the greatest file size of the process (RLIMIT_FSIZE), so the write really fails where the disk would
be full. Variant file: the program opens the file; where the capacity is used up it is given /dev/full, on which the
kernel answers every write with ENOSPC. In both, what is printed is torch's or Python's own.
"""

import os
import resource
import signal
from pathlib import Path

import torch
from torch import nn

VARIANTS = ("path", "file")
CAPACITY = 4 * 2**20
STEPS, EVERY, WIDTH = 40, 5, 256


# region broken
def save(disk: "Disk", state: dict, step: int) -> None:
    """Writes the final name at once, and keeps every checkpoint there ever was."""
    disk.write(state, f"step-{step:06d}.pt")
# endregion


# region fixed
def save_rotating(disk: "Disk", state: dict, step: int, keep: int = 2) -> None:
    """Makes room first, writes beside, renames when complete: a failed save leaves the last good one."""
    for old in sorted(disk.folder.glob("step-*.pt"))[: -(keep - 1) or None]:
        old.unlink()
    disk.write(state, "part.tmp")
    os.replace(disk.folder / "part.tmp", disk.folder / f"step-{step:06d}.pt")
# endregion


class Disk:
    """Stand-in for a file system with little space left."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.variant = folder, variant
        folder.mkdir()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead, as on a full disk
        self.hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def used(self) -> int:
        return sum(file.stat().st_size for file in self.folder.iterdir())

    def write(self, state: dict, name: str) -> None:
        path = self.folder / name
        if self.variant == "path":
            resource.setrlimit(resource.RLIMIT_FSIZE, (CAPACITY - self.used(), self.hard))
            try:
                torch.save(state, path)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.hard, self.hard))
            return
        size = sum(t.nbytes for part in state.values() for t in part.values() if isinstance(t, torch.Tensor))
        with open(path if self.used() + size < CAPACITY else "/dev/full", "wb") as file:
            torch.save(state, file)


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, every=EVERY, width=WIDTH, capacity=CAPACITY)
    disk = Disk(ctx.tmp / "checkpoints", ctx.variant)
    model = nn.Linear(WIDTH, WIDTH)
    momentum = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    x = torch.randn(64, WIDTH)
    try:
        for step in range(1, STEPS + 1):
            loss = (model(x) - x.flip(-1)).square().mean()
            for (name, p), g in zip(model.named_parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
                momentum[name] = 0.9 * momentum[name] + g
                p.data -= 5.0 * momentum[name]
            if step % EVERY == 0:
                print(f"step={step} loss={loss.item():.4f} disk_used_mib={disk.used() / 2**20:.2f}")
                print(f"saving checkpoint step-{step:06d}.pt")
                state = {"model": dict(model.state_dict()), "momentum": momentum}
                (save_rotating if ctx.fixed else save)(disk, state, step)
                ctx.result(saved=step, loss=loss.item(), used_mib=disk.used() / 2**20)
    finally:
        newest = max(disk.folder.glob("step-*.pt"))
        try:
            torch.load(newest)
            ctx.result(newest=newest.name, newest_loads=True)
        except Exception as error:
            ctx.result(newest=newest.name, newest_loads=False, newest_error=str(error)[:120])
    print(f"training finished after {STEPS} steps")


def check(out):
    result = out.results
    assert result["saved"] == STEPS, f"the last complete save was at step {result['saved']}"
    assert result["newest"] == f"step-{STEPS:06d}.pt" and result["newest_loads"]
    assert result["used_mib"] < 3 and result["loss"] < 0.9
