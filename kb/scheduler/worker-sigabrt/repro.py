"""A worker aborts itself: the C library finds that its heap is damaged and raises SIGABRT.

Two workers, started by torchelastic. Worker 1 holds a buffer of the C library (as an extension module would) and
hands it back when a step is done. In the broken half the buffer of step 3 is handed back twice, by the step and by
the clean-up; the allocator notices and aborts the process. In the fixed half only the clean-up owns it.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

RANKS, STEPS, SIZE = 2, 12, 256


def c_library():
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    libc.free.argtypes, libc.free.restype = (ctypes.c_void_p,), None
    return libc


# region broken
def native_step(libc):
    """Both the step and the clean-up hand the buffer back."""
    buffer = libc.malloc(SIZE)
    try:
        ctypes.memset(buffer, 0, SIZE)
        libc.free(buffer)
    finally:
        libc.free(buffer)
    return SIZE
# endregion


# region fixed
def native_step_owned(libc):
    """One owner: the clean-up, on every way out."""
    buffer = libc.malloc(SIZE)
    try:
        ctypes.memset(buffer, 0, SIZE)
    finally:
        libc.free(buffer)
    return SIZE
# endregion


def train(fixed, folder):
    rank, libc, used = int(os.environ["RANK"]), c_library(), 0
    slope, x = 0.0, [i / 64 for i in range(64)]
    for step in range(1, STEPS + 1):
        if rank == 1 and step >= 3:
            used += (native_step_owned if fixed else native_step)(libc)
        loss = sum((slope * v - 2 * v) ** 2 for v in x) / len(x)
        slope -= 0.5 * sum(2 * (slope * v - 2 * v) * v for v in x) / len(x)
        time.sleep(0.05)
        if rank == 0:
            print(f"step={step}/{STEPS} loss={loss:.4f}", flush=True)
    (folder / f"used_{rank}").write_text(str(used))
    if rank == 0:
        time.sleep(0.2)
        print(f"training finished after {STEPS} steps", flush=True)


def run(ctx):
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    ctx.workload(ranks=RANKS, steps=STEPS, size=SIZE)
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=RANKS, run_id="train", rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.1,
    )
    elastic_launch(config, sys.executable)("-u", __file__, "fixed" if ctx.fixed else "broken", str(ctx.tmp))
    ctx.result(used=[int(file.read_text()) for file in sorted(ctx.tmp.glob("used_*"))])


def check(out):
    assert all(r.ok for r in out.ranks), "the launcher failed"
    assert out.results["used"] == [0, (STEPS - 2) * SIZE], "a worker did not do all its steps"


if __name__ == "__main__":
    train(sys.argv[1] == "fixed", Path(sys.argv[2]))
