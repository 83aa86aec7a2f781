"""A worker waits for something that never comes, and the trainer waits for the worker.

Sample 37 is read from a source that accepts the request and does not answer (a pipe without data stands in the
place of a stuck network mount). The fixed reader waits 0.2 s and takes the copy instead. In both halves the loader
has a time-out of 2 s, and each worker arms a watchdog of 1 s per sample that prints where it stands.
"""

import faulthandler
import os
import select
import time

import torch
import torch.utils.data._utils
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, WORKERS, FEATURES, STUCK = 96, 4, 2, 8, 37


def remote(index: int) -> int:
    """Opens a sample on the shared storage: a file descriptor to read from."""
    reader, writer = os.pipe()
    if index != STUCK:
        os.write(writer, bytes(range(index % 7, index % 7 + FEATURES)))
    return reader


def copy_of(index: int) -> bytes:
    return bytes(range(index % 7, index % 7 + FEATURES))


# region broken
def read(index: int) -> bytes:
    """Blocks until the storage answers, however long that takes."""
    return os.read(remote(index), FEATURES)
# endregion


# region fixed
def read_with_limit(index: int, seconds: float = 0.2) -> bytes:
    """A read that gives up: the copy is used, and the log says so."""
    source = remote(index)
    if not select.select([source], [], [], seconds)[0]:
        print(f"sample {index}: no answer in {seconds} s, reading the copy", flush=True)
        return copy_of(index)
    return os.read(source, FEATURES)
# endregion


class Samples(Dataset):
    def __init__(self, reader) -> None:
        self.reader = reader

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        faulthandler.dump_traceback_later(1.0)
        values = list(self.reader(index))
        faulthandler.cancel_dump_traceback_later()
        return torch.tensor(values, dtype=torch.float32) / FEATURES


def say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", flush=True)


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(samples=SAMPLES, batch=BATCH, workers=WORKERS, features=FEATURES)
    # How long a loader waits for a stuck worker when it shuts down; 5 s by default.
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.5
    reader = read_with_limit if ctx.fixed else read
    loader = DataLoader(Samples(reader), batch_size=BATCH, num_workers=WORKERS, timeout=2)
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    seen = 0
    for step, batch in enumerate(loader):
        loss = (model(batch)[:, 0] - batch.mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(batch)
        ctx.result(samples=seen)
        say(f"step={step} loss={loss.item():.4f}")
    say(f"training finished after {step + 1} steps")


def check(out):
    assert out.results["samples"] == SAMPLES, f"{out.results['samples']} of {SAMPLES} samples were delivered"
