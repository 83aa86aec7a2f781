"""A checkpoint is cut because its writer is killed, and the run cannot be resumed.

Variant torch_save: the training process gets SIGKILL while torch.save is writing over the only checkpoint.
Variant torch_save_small: the stump is 39 kB, and torch words it in another way. Variant copy: a process that copies a safetensors file to local scratch gets SIGKILL half-way; the file
has the final name already, so the next start takes it for complete. Both processes are really killed, at a
chosen number of bytes.
"""

import os
import shutil
import signal

import torch
from safetensors.torch import load_file, save_file
from torch import nn

VARIANTS = ("torch_save", "torch_save_small", "copy")
STEPS, WIDTHS = 40, {"torch_save": 256, "torch_save_small": 128, "copy": 256}


class KilledAfter:
    """A file whose writer is killed by the scheduler once `limit` bytes are on disk."""

    def __init__(self, file, limit: int) -> None:
        self.file, self.left = file, limit

    def write(self, data) -> int:
        data = memoryview(data).cast("B")
        if len(data) >= self.left:
            self.file.write(data[: self.left])
            self.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= len(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def put(write, path, limit: int | None) -> None:
    """Runs `write(file)` on a new file at `path`; the writer dies after `limit` bytes if that is given."""
    with open(path, "wb") as file:
        write(KilledAfter(file, limit) if limit else file)
        file.flush()
        os.fsync(file.fileno())


# region broken
def publish(write, path, limit: int | None = None) -> None:
    """Writes to the final name: whoever is killed in here leaves a stump, and the old file is gone."""
    put(write, path, limit)
# endregion


# region fixed
def publish_atomically(write, path, limit: int | None = None) -> None:
    """Writes beside it, syncs, renames: the final name only ever holds a complete file."""
    partial = path.with_name(path.name + ".partial")
    put(write, partial, limit)
    os.replace(partial, path)
# endregion


def in_own_process(action) -> int:
    """Runs `action` in a child, as a job step of its own; returns the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        action()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, first: int, last: int) -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(first, last):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step={step} loss={loss.item():.4f}", flush=True)
    return loss.item()


def build(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def run(ctx):
    width = WIDTHS[ctx.variant]
    ctx.workload(steps=STEPS, widths=[16, width, width, 1], killed_at=0.5)
    save = publish_atomically if ctx.fixed else publish
    torch.manual_seed(ctx.seed)
    x = torch.randn(64, 16)
    y = x[:, :1] - x[:, 1:2]
    model = build(width)
    first_loss = train(model, x, y, 0, 20)

    if ctx.variant != "copy":
        path = ctx.tmp / "last.pt"
        save(lambda file: torch.save(model.state_dict(), file), path)
        size = path.stat().st_size
        train(model, x, y, 20, 30)
        write = lambda file: torch.save(model.state_dict(), file)  # noqa: E731
        code = in_own_process(lambda: save(write, path, size // 2))
        print(f"job step ended: signal {-code} while writing {path.name}; {path.stat().st_size} bytes of {size}")
        model, step = build(width), 20
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    else:
        remote, path = ctx.tmp / "bucket.safetensors", ctx.tmp / "scratch.safetensors"
        save_file(model.state_dict(), remote)
        size = remote.stat().st_size

        def fetch(file) -> None:
            with open(remote, "rb") as source:
                shutil.copyfileobj(source, file, 16384)

        code = in_own_process(lambda: save(fetch, path, size // 2))
        print(f"job step ended: signal {-code} while fetching {path.name}")
        if not path.exists():  # a start script fetches what is not there
            save(fetch, path)
        model, step = build(width), 20
        model.load_state_dict(load_file(path))

    last_loss = train(model, x, y, step, STEPS)
    print(f"training finished after {STEPS} steps")
    ctx.result(signal=-code, first_loss=first_loss, last_loss=last_loss)


def check(out):
    assert out.ranks[0].ok, out.ranks[0].exception
    assert out.results["signal"] == signal.SIGKILL, "the writer was not killed"
    assert out.results["last_loss"] < out.results["first_loss"], "the resumed run is not where it was"
