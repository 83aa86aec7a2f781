"""Worker processes hand over batches through /dev/shm, and it is too small for them.

Images are 64 x 64 x 3, four to a batch. The broken dataset returns float32 (192 KiB per batch), the fixed one bytes
(48 KiB), and the trainer converts. A /dev/shm with room for 64 KiB is stood in for by two things:
variants `reserve` and `feeder`: RLIMIT_FSIZE in the worker, so that making the segment fails with error number 27
where a full tmpfs gives 28. In `feeder` a collate function of its own leaves the copy to the queue's feeder thread.
variant `sigbus`: SIGBUS sent to itself by a worker whose batch is larger, as the kernel does on the first write to
a page that was promised and is not there (torch before posix_fallocate).
"""

import os
import resource
import signal

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

VARIANTS = ("reserve", "feeder", "sigbus")
SAMPLES, BATCH, WORKERS, SIDE = 96, 4, 2, 64
SHM_BYTES = 64 * 1024


def decode(index: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(index)
    return torch.randint(0, 256, (3, SIDE, SIDE), dtype=torch.uint8, generator=generator)


class Images(Dataset):
    def __init__(self, prepare) -> None:
        self.prepare = prepare

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.prepare(decode(index))


# region broken
def in_worker(image: torch.Tensor) -> torch.Tensor:
    """Normalised in the worker: four bytes per value go through shared memory."""
    return image.float() / 255


def in_trainer(batch: torch.Tensor) -> torch.Tensor:
    return batch
# endregion


# region fixed
def in_worker_bytes(image: torch.Tensor) -> torch.Tensor:
    """One byte per value goes through shared memory, a quarter of it."""
    return image


def in_trainer_normalised(batch: torch.Tensor) -> torch.Tensor:
    return batch.float() / 255
# endregion


def small_files(worker: int) -> None:
    """worker_init_fn: no file larger than the stand-in /dev/shm."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (SHM_BYTES, SHM_BYTES))


def collate_or_bus_error(images: list[torch.Tensor]) -> torch.Tensor:
    batch = torch.stack(images)
    if batch.nbytes > SHM_BYTES:
        os.kill(os.getpid(), signal.SIGBUS)
    return batch


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(samples=SAMPLES, batch=BATCH, workers=WORKERS, side=SIDE)
    prepare, convert = (in_worker_bytes, in_trainer_normalised) if ctx.fixed else (in_worker, in_trainer)
    dataset = Images(prepare)
    print(f"batches of {BATCH * dataset[0].nbytes} bytes, {WORKERS} workers")
    loader = DataLoader(
        dataset,
        batch_size=BATCH,
        num_workers=WORKERS,
        timeout=3,
        worker_init_fn=None if ctx.variant == "sigbus" else small_files,
        collate_fn={"reserve": default_collate, "feeder": torch.stack, "sigbus": collate_or_bus_error}[ctx.variant],
    )
    model = nn.Linear(3 * SIDE * SIDE, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    seen = 0
    for step, batch in enumerate(loader):
        images = convert(batch)
        loss = (model(images.flatten(1))[:, 0] - images.mean((1, 2, 3))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(batch)
        ctx.result(samples=seen, loss=loss.item())
        if step % 4 == 0:
            print(f"step={step} loss={loss.item():.4f}")
    print(f"training finished after {step + 1} steps")


def check(out):
    delivered = out.results.get("samples", 0)
    assert delivered == SAMPLES, f"{delivered} of {SAMPLES} samples were delivered"
    assert out.results["loss"] < 0.5, f"final loss is {out.results['loss']}"
