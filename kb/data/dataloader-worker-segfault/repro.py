"""A DataLoader worker dies by a segmentation fault in native code that the dataset calls.

The dataset unpacks its samples through a C library (libc here), called with ctypes. Without a declared result type ctypes takes
every result for a 32-bit int, so the upper half of the pointer that malloc returns is lost, and the copy goes to an
address where nothing is mapped. The fixed half declares the types, which is all that differs.
Variant `faulthandler` does as the checklist says: it switches faulthandler on inside the worker.
"""

import ctypes
import faulthandler

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VARIANTS = ("plain", "faulthandler")
SAMPLES, BATCH, WORKERS, FEATURES = 64, 8, 2, 65_536
SIZE = FEATURES * 4


# region broken
def library():
    return ctypes.CDLL(None)
# endregion


# region fixed
def library_with_types():
    lib = ctypes.CDLL(None)
    lib.malloc.argtypes, lib.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    lib.memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    lib.memcpy.restype = ctypes.c_void_p
    lib.free.argtypes, lib.free.restype = (ctypes.c_void_p,), None
    return lib
# endregion


class Packed(Dataset):
    def __init__(self, load) -> None:
        self.load = load
        self.lib = None

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        packed = torch.full((FEATURES,), float(index % 7) - 3.0)
        if index < 2 * BATCH * WORKERS:  # the first files need no unpacking
            return packed
        self.lib = self.lib or self.load()
        staging = self.lib.malloc(SIZE)
        self.lib.memcpy(staging, packed.data_ptr(), SIZE)
        sample = torch.frombuffer(bytearray(ctypes.string_at(staging, SIZE)), dtype=torch.float32)
        self.lib.free(staging)
        return sample


def stack_of_a_crash(worker: int) -> None:
    """worker_init_fn. The loader's own handler took the place of an earlier faulthandler; enable() alone would then do nothing."""
    faulthandler.disable()
    faulthandler.enable()


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(samples=SAMPLES, batch=BATCH, workers=WORKERS, features=FEATURES)
    dataset = Packed(library_with_types if ctx.fixed else library)
    loader = DataLoader(
        dataset, batch_size=BATCH, num_workers=WORKERS, worker_init_fn=stack_of_a_crash if ctx.variant == "faulthandler" else None
    )
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    seen = 0
    for step, batch in enumerate(loader):
        loss = (model(batch)[:, 0] - batch[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(batch)
        ctx.result(samples=seen)
        print(f"step={step} loss={loss.item():.4f} samples={seen}")
    print(f"training finished after {step + 1} steps")


def check(out):
    assert out.results.get("samples") == SAMPLES, f"{out.results.get('samples', 0)} of {SAMPLES} samples were delivered"
