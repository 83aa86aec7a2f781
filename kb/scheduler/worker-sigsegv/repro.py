"""A worker dies by a segmentation fault in native code: there is no traceback, only an exit code.

Two workers, started by torchelastic. Worker 1 prepares a buffer through a C function called with ctypes. Without
declared argument types ctypes passes a Python integer as a 32-bit int, so the 64-bit address is cut off and
the C function writes where nothing is mapped. The fixed half declares the types. Worker 0 does the same
work in plain Python, so that it is alive and healthy when the other one dies.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

RANKS, STEPS, SIZE = 2, 12, 1 << 20


# region broken
def clear(buffer):
    libc = ctypes.CDLL(None)
    libc.memset(ctypes.addressof(buffer), 0, SIZE)
# endregion


# region fixed
def clear_declared(buffer):
    memset = ctypes.CDLL(None).memset
    memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    memset.restype = ctypes.c_void_p
    memset(ctypes.addressof(buffer), 0, SIZE)
# endregion


def train(fixed, folder):
    rank = int(os.environ["RANK"])
    buffer = (ctypes.c_ubyte * SIZE)(1, 2, 3)
    slope, x = 0.0, [i / 64 for i in range(64)]
    for step in range(1, STEPS + 1):
        if rank == 0:
            buffer[:] = bytes(SIZE)
        elif step == 3:
            (clear_declared if fixed else clear)(buffer)
        loss = sum((slope * v - 2 * v) ** 2 for v in x) / len(x)
        slope -= 0.5 * sum(2 * (slope * v - 2 * v) * v for v in x) / len(x)
        time.sleep(0.05)
        if rank == 0:
            print(f"step={step}/{STEPS} loss={loss:.4f}", flush=True)
    (folder / f"cleared_{rank}").write_text(str(not any(buffer[:4])))
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
    elastic_launch(config, sys.executable)(
        "-u", "-X", "faulthandler", __file__, "fixed" if ctx.fixed else "broken", str(ctx.tmp))
    ctx.result(cleared=[file.read_text() == "True" for file in sorted(ctx.tmp.glob("cleared_*"))])


def check(out):
    assert all(r.ok for r in out.ranks), "the launcher failed"
    assert out.results["cleared"] == [True] * RANKS, "a worker did not finish, or its buffer is not cleared"


if __name__ == "__main__":
    train(sys.argv[1] == "fixed", Path(sys.argv[2]))
