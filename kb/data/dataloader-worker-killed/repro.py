"""A DataLoader worker is ended by SIGKILL because its memory grows until it meets a limit.

Every worker decodes samples of 64 KiB. The broken dataset keeps each decoded sample for ever, per worker; the
fixed one keeps the last few. What the kernel does at a container's limit is done by a thread in the worker: it
reads the worker's own resident memory and sends SIGKILL when it has grown by more than BUDGET_MIB.
"""

import os
import signal
import threading
import time
from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, WORKERS, FEATURES = 4000, 20, 2, 16_384
BUDGET_MIB = 64


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory_limit(worker: int) -> None:
    """worker_init_fn: the stand-in for the kernel's out-of-memory killer."""
    start = resident_mib()

    def watch() -> None:
        while resident_mib() - start < BUDGET_MIB:
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def decode(index: int) -> torch.Tensor:
    """Stands for reading and decoding one file."""
    return torch.full((FEATURES,), float(index % 7) - 3.0)


# region broken
class Decoded(Dataset):
    """Caches what it has decoded. Each worker has a cache of its own, and nothing is ever dropped."""

    def __init__(self) -> None:
        self.cache: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self.cache:
            self.cache[index] = decode(index)
        return self.cache[index]
# endregion


# region fixed
class DecodedBounded(Dataset):
    """The same with a bound: the memory of a worker does not depend on the size of the dataset."""

    def __init__(self, keep: int = 100) -> None:
        self.cache: OrderedDict[int, torch.Tensor] = OrderedDict()
        self.keep = keep

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self.cache:
            self.cache[index] = decode(index)
            if len(self.cache) > self.keep:
                self.cache.popitem(last=False)
        return self.cache[index]
# endregion


def stack(samples: list[torch.Tensor]) -> np.ndarray:
    """A batch as an array, which goes through the queue whole. A tensor goes as a file descriptor that the reader asks
    the worker for, and one that died in that moment is told as ConnectionResetError instead."""
    return torch.stack(samples).numpy()


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(samples=SAMPLES, batch=BATCH, workers=WORKERS, features=FEATURES)
    dataset = DecodedBounded() if ctx.fixed else Decoded()
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, worker_init_fn=memory_limit, collate_fn=stack)
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    seen = 0
    for step, batch in enumerate(loader):
        batch = torch.from_numpy(batch)
        loss = (model(batch)[:, 0] - batch[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(batch)
        ctx.result(samples=seen)
        if step % 20 == 0:
            print(f"step={step} loss={loss.item():.4f} samples={seen}")
    print(f"training finished after {step + 1} steps")


def check(out):
    assert out.results["samples"] == SAMPLES, f"{out.results['samples']} of {SAMPLES} samples were delivered"
