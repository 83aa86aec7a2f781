"""A run was started with nohup, the terminal closes, and the launcher ends all the same.

A pseudo-terminal is opened, as ssh does, and a shell in it starts the command in the background. Once training is under way
the terminal is closed; what follows is the kernel's doing: it sends SIGHUP to the shell, and to the
shell's process group when the shell is gone. nohup had set that signal to be
ignored, but torchrun installs a handler of its own over it. In the fixed half setsid takes the command out of the terminal's
session first. The two workers of torchrun run this very file and fit a line in plain Python.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

RANKS, STEPS, CLOSE_AT = 2, 40, 10


# region broken
def command(torchrun):
    return ["nohup", *torchrun]
# endregion


# region fixed
def command_in_its_own_session(torchrun):
    return ["setsid", "nohup", *torchrun]
# endregion


def train(folder):
    rank = int(os.environ["RANK"])
    slope = 0.0
    for step in range(1, STEPS + 1):
        pairs = [(i / 64, 2.0 * i / 64) for i in range(rank, 64, RANKS)]
        loss = sum((slope * x - y) ** 2 for x, y in pairs) / len(pairs)
        slope -= 0.3 * sum(2 * (slope * x - y) * x for x, y in pairs) / len(pairs)
        (folder / f"step_{rank}").write_text(str(step))
        if rank == 0:
            print(f"step={step}/{STEPS} loss={loss:.4f}", flush=True)
        time.sleep(0.05)
    (folder / f"result_{rank}.json").write_text(json.dumps({"steps": STEPS, "loss": loss}))
    if rank == 0:
        print(f"training finished after {STEPS} steps", flush=True)


def as_a_login_does():
    """The shell gets the terminal, and signals as they are by default: whoever started this may be ignoring SIGHUP."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def run(ctx):
    ctx.workload(ranks=RANKS, steps=STEPS, terminal_closed_at=CLOSE_AT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", __file__, str(ctx.tmp)]
    master, slave = os.openpty()
    ended, held = os.pipe()  # torchrun holds one end: the other reads its end of file when torchrun is gone
    shell = subprocess.Popen(
        ["sh", "-c", '"$@" & wait', "sh", *(command_in_its_own_session if ctx.fixed else command)(torchrun)],
        stdin=slave, pass_fds=[held], start_new_session=True, preexec_fn=as_a_login_does,
    )
    os.close(slave)
    os.close(held)
    steps = [ctx.tmp / f"step_{rank}" for rank in range(RANKS)]
    while shell.poll() is None and not all(file.exists() and int(file.read_text() or 0) >= CLOSE_AT for file in steps):
        time.sleep(0.02)
    os.close(master)  # the window is closed, the connection is lost
    os.read(ended, 1)
    done = [json.loads(file.read_text()) for file in sorted(ctx.tmp.glob("result_*.json"))]
    ctx.result(workers=len(done), loss=max((r["loss"] for r in done), default=None), shell=shell.wait())


def check(out):
    assert out.results["workers"] == RANKS, f"{out.results['workers']} of {RANKS} workers came to the end after the terminal was closed"
    assert out.results["loss"] < 0.1, "the fit did not get better"


if __name__ == "__main__":
    train(Path(sys.argv[1]))
