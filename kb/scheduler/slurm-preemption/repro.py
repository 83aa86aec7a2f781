"""Slurm takes the nodes of a running job for one of higher priority.

A thread plays slurmstepd: at a quarter of the steps it sends SIGTERM, waits the grace time, and if the job is still
there prints the line below and sends SIGKILL. The broken job bypasses the signal, as libraries' default handlers do,
and saves at its usual interval. The fixed job saves at once and exits; the requeued job continues from there.

The printed line is quoted from https://github.com/SchedMD/slurm/blob/master/src/slurmd/slurmstepd/req.c
"""

import os
import signal
import threading
import time

import torch
from torch import nn

STEPS, BATCH, WIDTH, SAVE_EVERY, GRACE_S = 60, 8, 4, 100, 1.0
asked = {"stop": False}


# region broken
def on_sigterm(number, frame):
    """Keeps the process alive through the grace time, and uses it for nothing."""
    print("Bypassing signal 15", flush=True)
# endregion


# region fixed
def on_sigterm_save(number, frame):
    """Only a flag: the loop saves at the end of the step it is in, on all ranks at the same step."""
    asked["stop"] = True
# endregion


class Slurm(threading.Thread):
    """slurmstepd of one job step."""

    def __init__(self, quarter: threading.Event) -> None:
        super().__init__(daemon=True)
        self.quarter, self.gone = quarter, threading.Event()

    def run(self) -> None:
        self.quarter.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        if not self.gone.wait(GRACE_S):
            when = time.strftime("%Y-%m-%dT%H:%M:%S")
            print(f"slurmstepd: error: *** JOB 37361369 ON node-0 CANCELLED AT {when} DUE TO PREEMPTION ***", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def train(ctx, quarter: threading.Event) -> int:
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
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(BATCH, WIDTH, generator=generator)
        loss = (model(x)[:, 0] - x[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} step={step} loss={loss.item():.4f}", flush=True)
        ctx.result(done=step + 1)
        if step == STEPS // 4:
            quarter.set()
        time.sleep(0.05)
        if asked["stop"] or (step + 1) % SAVE_EVERY == 0:
            torch.save({"model": model.state_dict(), "step": step + 1}, checkpoint)
            ctx.result(saved=step + 1)
            if asked["stop"]:
                print(f"SIGTERM: saved step {step + 1}, leaving for the requeue")
                return step + 1
    return STEPS


def run(ctx):
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    asked["stop"] = False
    signal.signal(signal.SIGTERM, on_sigterm_save if ctx.fixed else on_sigterm)
    quarter = threading.Event()
    slurm = Slurm(quarter)
    slurm.start()
    done = train(ctx, quarter)
    slurm.gone.set()
    if done < STEPS:
        asked["stop"] = False
        done = train(ctx, quarter)
    print(f"training finished after {done} steps")


def check(out):
    results = out.results
    assert results["done"] == STEPS, f"{results['done']} of {STEPS} steps were done, saved: {results.get('saved', 0)}"
    assert results["saved"] >= STEPS // 4, f"only {results['saved']} steps were saved when the job was told to go"
