"""A job reaches the time limit of its allocation while it is training.

A thread plays Slurm: at the limit it prints slurmstepd's line and sends SIGTERM, and SIGKILL after the kill wait. The broken
job knows nothing of its limit and saves at its usual interval. The fixed job reads the end time, as SLURM_JOB_END_TIME
gives it, saves while there is still time, leaves, and its second job does the rest.

The printed line is quoted from https://github.com/SchedMD/slurm/blob/master/src/slurmd/slurmstepd/req.c
"""

import os
import signal
import threading
import time

import torch
from torch import nn

STEPS, BATCH, WIDTH, SAVE_EVERY, LIMIT_S, KILL_WAIT_S, MARGIN_S = 40, 8, 4, 100, 1.0, 0.3, 0.3


# region broken
def should_leave(end):
    return False
# endregion


# region fixed
def should_leave_before(end):
    """Early enough to write a checkpoint: the margin is a multiple of what a save takes."""
    return time.time() > end - MARGIN_S
# endregion


class Slurm(threading.Thread):
    """The time limit of one job."""

    def __init__(self, end: float) -> None:
        super().__init__(daemon=True)
        self.end, self.gone = end, threading.Event()

    def run(self) -> None:
        if not self.gone.wait(self.end - time.time()):
            when = time.strftime("%Y-%m-%dT%H:%M:%S")
            print(f"slurmstepd: error: *** JOB 494583 ON node-0 CANCELLED AT {when} DUE TO TIME LIMIT ***", flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
        if not self.gone.wait(KILL_WAIT_S):
            os.kill(os.getpid(), signal.SIGKILL)


def job(ctx, end: float) -> int:
    torch.manual_seed(ctx.seed)
    model = nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    checkpoint, first = ctx.tmp / "last.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        first = state["step"]
        print(f"resumed at step {first}")
    for step in range(first, STEPS):
        x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
        loss = (model(x)[:, 0] - x[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} step={step} loss={loss.item():.4f}", flush=True)
        ctx.result(done=step + 1)
        leave = (should_leave_before if ctx.fixed else should_leave)(end)
        if leave or (step + 1) % SAVE_EVERY == 0:
            torch.save({"model": model.state_dict(), "step": step + 1}, checkpoint)
            ctx.result(saved=step + 1)
            if leave:
                print(f"saved step {step + 1}, leaving before the end of the allocation")
                return step + 1
    return STEPS


def run(ctx):
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH, limit_s=LIMIT_S)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    done = 0
    while done < STEPS:
        end = time.time() + LIMIT_S
        slurm = Slurm(end)
        slurm.start()
        done = job(ctx, end)
        slurm.gone.set()
        slurm.join()
    print(f"training finished after {done} steps")


def check(out):
    results = out.results
    assert results["done"] == STEPS, f"{results['done']} of {STEPS} steps were done, saved: {results.get('saved', 0)}"
    assert results.get("saved"), "nothing was saved before the limit"
