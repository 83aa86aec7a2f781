"""The main rank writes a checkpoint for longer than the collective time-out of the ranks that wait for it.

Data-parallel training with an average of the gradients in every step. After step 3 the main rank saves the
model and Adam's moments, compressed with LZMA, which takes seconds of real work; the process group's time-out is one second. The
other ranks are in the gradient exchange of step 4 meanwhile. In the fixed half the state is copied and a
thread writes it while training goes on. `guilty` is the rank that saves.
"""

import copy
import datetime
import lzma
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

STEPS, SAVE_AFTER, BATCH, WIDTH = 6, 3, 8, 700


def write(state, path, step):
    started = time.monotonic()
    with lzma.open(path, "wb", preset=9 | lzma.PRESET_EXTREME) as file:
        torch.save(state, file)
    print(f"wrote {path.stat().st_size / 2**20:.1f} MiB in {time.monotonic() - started:.1f} s (step {step})", flush=True)


# region broken
def save(state, path, step):
    print(f"writing checkpoint {path.name}", flush=True)
    write(state, path, step)
    return None
# endregion


# region fixed
def save_in_background(state, path, step):
    print(f"writing checkpoint {path.name}", flush=True)
    frozen = copy.deepcopy(state)  # the optimizer will change the originals meanwhile
    writer = threading.Thread(target=write, args=(frozen, path, step))
    writer.start()
    return writer
# endregion


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, save_after=SAVE_AFTER, batch=BATCH, width=WIDTH, ranks=ctx.world_size)
    patient = dist.new_group(backend="gloo", timeout=datetime.timedelta(minutes=5))  # for the last meeting only
    model = nn.Linear(WIDTH, WIDTH).to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    generator = torch.Generator().manual_seed(ctx.rank)
    path, writer, saved = ctx.tmp / "step_3.pt.xz", None, None
    for step in range(1, STEPS + 1):
        x = torch.randn(BATCH, WIDTH, generator=generator).to(ctx.device)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        print(f"step={step}/{STEPS} loss={loss.item():.4f}", flush=True)
        if step == SAVE_AFTER and ctx.rank == ctx.guilty:
            saved = model.weight.double().sum().item()
            writer = (save_in_background if ctx.fixed else save)(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path, step)
    if writer is not None:
        writer.join()
    dist.barrier(group=patient)
    read = None
    if ctx.rank == ctx.guilty:
        with lzma.open(path, "rb") as file:
            read = torch.load(file)["model"]["weight"].double().sum().item()
    ctx.result(steps=STEPS, saved=saved, read=read, loss=loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert len(out.ranks) >= 3 and all(r.ok for r in out.ranks), "a rank did not finish"
    assert all(r.results["steps"] == STEPS and r.results["loss"] < 2.0 for r in out.ranks)
    (writer,) = [r for r in out.ranks if r.results["saved"] is not None]
    assert writer.results["read"] == writer.results["saved"], "the file does not hold the weights of step 3"
