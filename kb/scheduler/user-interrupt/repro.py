"""Somebody presses Ctrl-C while the run is moving.

A timer sends the SIGINT that the terminal would send. In the broken half the run ends with the traceback of the
exception, wherever it was, and what it did since the last checkpoint is lost. In the fixed half the signal only sets
a flag; the loop saves at the end of the step and leaves, and the second launch continues there.
"""

import os
import signal
import threading
import time

import torch
from torch import nn

STEPS, BATCH, WIDTH, SAVE_EVERY = 40, 8, 4, 16
asked = {"stop": False}


# region broken
def prepare() -> None:
    """Python's default: SIGINT becomes an exception in the middle of whatever is running."""
    asked["stop"] = False
    signal.signal(signal.SIGINT, signal.default_int_handler)
# endregion


# region fixed
def prepare_flag() -> None:
    """The first Ctrl-C asks for a stop at the end of the step, the second one is the default again."""
    asked["stop"] = False

    def ask(number, frame):
        asked["stop"] = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, ask)
# endregion


def train(ctx, prepare) -> int:
    prepare()
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
        time.sleep(0.03)
        if asked["stop"] or (step + 1) % SAVE_EVERY == 0:
            torch.save({"model": model.state_dict(), "step": step + 1}, checkpoint)
            ctx.result(saved=step + 1)
            if asked["stop"]:
                print(f"asked to stop: saved step {step + 1} and leaving")
                return step + 1
    return STEPS


def run(ctx):
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    way = prepare_flag if ctx.fixed else prepare
    threading.Timer(0.8, os.kill, (os.getpid(), signal.SIGINT)).start()
    done = train(ctx, way)
    if done < STEPS:
        done = train(ctx, way)
    print(f"training finished after {done} steps")


def check(out):
    results = out.results
    assert results["saved"] == results["done"] or results["done"] == STEPS, (
        f"{results['done'] - results['saved']} steps since the last checkpoint are lost"
    )
    assert results["done"] == STEPS, f"{results['done']} of {STEPS} steps were done"
