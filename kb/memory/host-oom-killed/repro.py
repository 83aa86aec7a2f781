"""Host out of memory: a rank caches every sample it has decoded, and the kernel kills it.

Two ranks of a small data-parallel job are started by torch.multiprocessing. Each really fills memory with decoded
samples (about 100 MiB). The kernel's out-of-memory killer is stood in for by a thread of the launcher that
adds up the job's resident memory and sends SIGKILL to its largest process once the limit is passed. What the launcher
then prints is torch's own.
"""

import os
import signal
import threading
import time

import torch
import torch.multiprocessing as mp

RANKS, STEPS, SAMPLES, SAMPLE_MIB = 2, 24, 2, 2
LIMIT_MIB = 120  # on top of what the processes share and had at the start


# region broken
class Cache:
    """Every decoded sample stays: memory is the size of the data set, once per process."""

    def __init__(self) -> None:
        self.samples: dict[int, torch.Tensor] = {}

    def get(self, index: int) -> torch.Tensor:
        if index not in self.samples:
            self.samples[index] = decode(index)
        return self.samples[index]
# endregion


# region fixed
class BoundedCache:
    """The last few decoded samples stay: memory is the size of the cache."""

    def __init__(self, capacity: int = 8) -> None:
        self.samples: dict[int, torch.Tensor] = {}
        self.capacity = capacity

    def get(self, index: int) -> torch.Tensor:
        sample = self.samples.pop(index, None)
        self.samples[index] = decode(index) if sample is None else sample
        if len(self.samples) > self.capacity:
            del self.samples[next(iter(self.samples))]  # the one used longest ago
        return self.samples[index]
# endregion


def decode(index: int) -> torch.Tensor:
    return torch.full((SAMPLE_MIB * 2**18,), 1.0 + index % 3)


def train(rank: int, fixed: bool, folder: str) -> None:
    cache = BoundedCache() if fixed else Cache()
    weight = 0.0
    print(f"[rank{rank}]: training starts, pid {os.getpid()}", flush=True)
    for step in range(1, STEPS + 1):
        batch = torch.stack([cache.get((step * SAMPLES + i) * RANKS + rank) for i in range(SAMPLES)])
        loss = (batch.mean().item() - weight) ** 2
        weight += 0.2 * (batch.mean().item() - weight)
        time.sleep(0.02 + 0.01 * rank)
        if step % 3 == 0:
            print(f"[rank{rank}]: step={step} loss={loss:.4f} rss_mib={own_mib(os.getpid()):.0f}", flush=True)
    with open(os.path.join(folder, f"done.{rank}"), "w") as done:
        done.write(f"{loss} {own_mib(os.getpid())}")


def own_mib(pid: int) -> float:
    """Private resident memory, so that pages shared with the launcher count once."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            _, resident, shared, *_ = (int(n) for n in statm.read().split())
        return (resident - shared) * 4096 / 2**20
    except (OSError, ValueError):
        return 0.0


class Killer(threading.Thread):
    """Stand-in for the kernel: when the job is above its limit, the largest process gets SIGKILL."""

    def __init__(self, pids: list[int], limit: float) -> None:
        super().__init__(daemon=True)
        self.pids, self.limit, self.start_mib = pids, limit, {pid: own_mib(pid) for pid in pids}
        self.peak = 0.0

    def run(self) -> None:
        while True:
            grown = {pid: own_mib(pid) - self.start_mib[pid] for pid in self.pids}
            self.peak = max(self.peak, sum(grown.values()))
            if sum(grown.values()) > self.limit:
                os.kill(max(grown, key=grown.get), signal.SIGKILL)
                return
            time.sleep(0.002)


def run(ctx):
    ctx.workload(ranks=RANKS, steps=STEPS, samples=SAMPLES, sample_mib=SAMPLE_MIB, limit_mib=LIMIT_MIB)
    processes = mp.start_processes(train, (ctx.fixed, str(ctx.tmp)), nprocs=RANKS, join=False, start_method="fork")
    killer = Killer(processes.pids(), LIMIT_MIB)
    killer.start()
    try:
        while not processes.join(timeout=5):
            pass
    finally:
        finished = [open(ctx.tmp / f"done.{r}").read() for r in range(RANKS) if (ctx.tmp / f"done.{r}").exists()]
        ctx.result(finished=len(finished), peak_mib=killer.peak, losses=[float(f.split()[0]) for f in finished])
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results["finished"] == RANKS, f"{out.results['finished']} of {RANKS} ranks finished"
    assert out.results["peak_mib"] < LIMIT_MIB, f"peak {out.results['peak_mib']:.0f} MiB"
    assert all(loss < 1.0 for loss in out.results["losses"]), out.results["losses"]
