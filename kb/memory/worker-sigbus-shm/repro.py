"""A rank dies by SIGBUS when it first touches a shared-memory page that /dev/shm has no room for.

Two ranks of a small job exchange gradients through memory-mapped segments, as NCCL's shared-memory transport does: create
the file, ftruncate it to full size, map it, write. A folder with a capacity stands in for the container's /dev/shm: what
does not fit is cut from the file after it was mapped, so that touching it has no page behind it - which is what a
full tmpfs does. The signal and all messages are real. 1 MiB here is 64 KiB, to be quick.
"""

import faulthandler
import mmap
import os
import threading

import torch
import torch.multiprocessing as mp

RANKS, STEPS, CHANNELS = 2, 6, 8
MIB = 2**16
SEGMENT = 9 * MIB  # NCCL's are 5.9 to 9.6 MB each


# region broken
def container() -> str:
    """/dev/shm has Docker's default of 64 MiB, whatever the host has."""
    return "docker run --gpus all IMAGE torchrun --nproc-per-node 2 train.py"
# endregion


# region fixed
def container_with_room() -> str:
    """Room for all segments of a node; --ipc=host would give the host's /dev/shm."""
    return "docker run --gpus all --shm-size=8g IMAGE torchrun --nproc-per-node 2 train.py"
# endregion


class Shm:
    """Stand-in for the tmpfs at /dev/shm: a folder, and a capacity shared by all who write there."""

    def __init__(self, folder: str, command: str) -> None:
        self.folder = folder
        self.capacity = 8192 * MIB if "--shm-size=8g" in command else 64 * MIB

    def segment(self, name: str, used: int) -> mmap.mmap:
        """ftruncate promises the size without taking the pages; only the write would."""
        path = os.path.join(self.folder, name)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
        os.ftruncate(descriptor, SEGMENT)
        mapped = mmap.mmap(descriptor, SEGMENT)
        os.ftruncate(descriptor, max(0, min(SEGMENT, self.capacity - used)))  # what there are pages for
        os.close(descriptor)
        return mapped


def start(rank: int, *arguments) -> None:
    """As in NCCL, a helper thread of the rank touches the segments."""
    faulthandler.enable(all_threads=False)
    thread = threading.Thread(target=train, args=(rank, *arguments))
    thread.start()
    thread.join()


def train(rank: int, folder: str, command: str, done: str) -> None:
    print(f"[rank{rank}]: {CHANNELS} channels of {SEGMENT // MIB} MiB", flush=True)
    shm = Shm(folder, command)
    weight, gradient = torch.zeros(1), torch.zeros(1)
    # Segments are made in turn by the ranks, so number k of rank r is the (k * RANKS + r)-th in /dev/shm.
    segments = [shm.segment(f"nccl-{rank}-{k}", (k * RANKS + rank) * SEGMENT) for k in range(CHANNELS)]
    for step in range(1, STEPS + 1):
        gradient = 2 * (weight - 1)
        for segment in segments:  # a ring writes all channels, each a part of the gradient
            segment[:] = bytes([step]) * SEGMENT
        weight = weight - 0.2 * gradient
        print(f"[rank{rank}]: step={step} loss={(weight - 1).square().item():.4f}", flush=True)
    with open(f"{done}.{rank}", "w") as finished:
        finished.write(str((weight - 1).square().item()))


def run(ctx):
    ctx.workload(ranks=RANKS, steps=STEPS, channels=CHANNELS, segment=SEGMENT)
    command = container_with_room() if ctx.fixed else container()
    folder = ctx.tmp / "shm"
    folder.mkdir()
    done = str(ctx.tmp / "done")
    try:
        mp.start_processes(start, (str(folder), command, done), nprocs=RANKS, start_method="fork")
    finally:
        finished = [open(f"{done}.{r}").read() for r in range(RANKS) if os.path.exists(f"{done}.{r}")]
        ctx.result(finished=len(finished), losses=[float(loss) for loss in finished])
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["finished"] == RANKS, f"{out.results['finished']} of {RANKS} ranks finished"
    assert all(loss < 0.01 for loss in out.results["losses"]), out.results["losses"]
