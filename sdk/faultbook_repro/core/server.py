"""The warm parent: `python -m faultbook_repro.core.server`, JSON lines over stdin and stdout.

It imports torch once, has exactly one thread, and forks a process per rank for each
request. It must be a process of its own: forking a process with threads (pytest with
a timeout plugin, a notebook) deadlocks sooner or later. It never calls torch.cuda.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from . import child
from .records import DEADLINE, OUTPUT
from .sandbox import isolate, kill_strays

MODULES = (
    "torch",
    "numpy",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.checkpoint",
    "torch.distributed.pipelining",
    "torch.utils.data",
    "torch.utils.checkpoint",
)
LOG_LIMIT = 16 * 1024 * 1024
SETUP_S = 60.0
"""How long a fresh process may import before its own deadline starts to count."""


def import_modules(preload: list[str], modules: tuple[str, ...] = MODULES) -> None:
    for name in modules:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    for name in preload:
        importlib.import_module(name)
    if "transformers" in preload:
        import transformers

        _ = transformers.Trainer, transformers.GPT2LMHeadModel  # resolves the lazy modules that cost seconds


def threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def main() -> int:
    work, preload = Path(sys.argv[1]), sys.argv[2:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    requests = os.fdopen(os.dup(0), "r")
    os.dup2(2, 1)  # a stray print must not end up among the answers
    sandbox = isolate(work)
    started = time.perf_counter()
    import_modules(preload)
    import torch

    _warm_up()
    gc.collect()
    gc.freeze()  # children then share these pages instead of copying them
    ready = {
        "ready": True,
        "sandbox": sandbox,
        "threads": threads(),
        "import_seconds": time.perf_counter() - started,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "can_fork": can_fork(),
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    answers.write(json.dumps(ready) + "\n")
    keep = [answers.fileno(), requests.fileno()]
    # RLIMIT_NPROC counts a user's processes: only in a namespace of its own are those the run's.
    counts_own = sandbox["processes"] == "own namespace"
    for line in requests:
        job = json.loads(line)
        if not counts_own:
            job["limits"].pop("nproc", None)
        try:
            answer = serve(job, keep)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
    return 0


def can_fork() -> bool:
    """Forking is safe with one thread; on macOS frameworks forbid it whatever the count."""
    return sys.platform == "linux" and threads() == 1


def _warm_up() -> None:
    """The first optimizer step and backward import and allocate; do it once, not in every child."""
    import torch

    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def serve(job: dict[str, Any], close: list[int]) -> dict[str, Any]:
    """Starts every rank, watches them to their end, and says how each ended."""
    folder = Path(job["dir"])
    before = threads()
    warm = job["isolation"] == "warm" and can_fork()
    pipes = [os.pipe() if job["flight_recorder"] else None for _ in range(job["world_size"])]
    started = time.monotonic()
    pids = []
    for rank, pipe in enumerate(pipes):
        trigger = pipe[0] if pipe else None
        if warm:
            if threads() != 1:
                raise RuntimeError(f"the warm parent has {threads()} threads; forking it is unsafe")
            pid = os.fork()
            if pid == 0:
                for fd in close:
                    os.close(fd)
                child.main(job, rank, trigger)
        else:
            pid = _fresh(job, folder, rank, trigger)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        pids.append(pid)
    ends, order = watch(job, folder, pids, pipes, started, warm)
    for pipe in pipes:
        if pipe:
            for fd in pipe:
                with contextlib.suppress(OSError):
                    os.close(fd)
    return {
        "ends": ends,
        "order": order,
        "strays": kill_strays(),
        "seconds": time.monotonic() - started,
        "threads": before if warm else None,
    }


def _fresh(job: dict[str, Any], folder: Path, rank: int, trigger: int | None) -> int:
    path = folder / "job.json"
    if not path.exists():
        path.write_text(json.dumps(job), encoding="utf-8")
    command = [sys.executable, "-m", "faultbook_repro.core.child", str(path), str(rank)]
    log = os.open(folder / f"rank_{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    process = subprocess.Popen(
        command + ([str(trigger)] if trigger is not None else []),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=[trigger] if trigger is not None else [],
    )
    os.close(log)
    process.returncode = 0  # reaped by watch(), not by Popen
    return process.pid


def watch(
    job: dict[str, Any],
    folder: Path,
    pids: list[int],
    pipes: list[tuple[int, int] | None],
    started: float,
    warm: bool,
) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """Reaps every rank; kills the groups of those that pass the deadline or the log limit."""
    ends: dict[int, dict[str, Any]] = {}
    order: list[tuple[int, int]] = []
    sizes = [0] * len(pids)
    logs = [folder / f"rank_{rank}.log" for rank in range(len(pids))]
    deadline = started + job["timeout_s"] + (0.0 if warm else SETUP_S)
    counting = warm
    while len(ends) < len(pids):
        with contextlib.suppress(InterruptedError):
            signal.sigtimedwait([signal.SIGCHLD], 0.02)
        now = time.monotonic()
        if not counting and all((folder / f"rank_{r}.jsonl").exists() for r in range(len(pids))):
            counting, deadline = True, now + job["timeout_s"]
        for rank, pid in enumerate(pids):
            if rank not in ends:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    ends[rank] = {"status": status, "seconds": now - started}
                    _kill_group(pid)  # grandchildren of a finished rank
        for rank, log in enumerate(logs):
            with contextlib.suppress(OSError):
                size = log.stat().st_size
                if size != sizes[rank]:
                    sizes[rank] = size
                    order.append((rank, size))
        alive = [rank for rank in range(len(pids)) if rank not in ends]
        flooding = [rank for rank in alive if sizes[rank] > LOG_LIMIT]
        if now > deadline and alive:
            _last_words(alive, pids, pipes, folder)
            for rank in alive:
                _end(rank, pids[rank], DEADLINE, now - started, ends)
        for rank in flooding:
            if rank not in ends:
                _end(rank, pids[rank], OUTPUT, now - started, ends)
    return [ends[rank] for rank in range(len(pids))], order


def _last_words(alive: list[int], pids: list[int], pipes: list[tuple[int, int] | None], folder: Path) -> None:
    """Asks the ranks that hang for their stacks and their flight recorder, and waits a moment."""
    for rank in alive:
        with contextlib.suppress(OSError):
            os.kill(pids[rank], signal.SIGUSR1)
        pipe = pipes[rank]
        if pipe:
            os.write(pipe[1], b"d")
    time.sleep(0.15 if any(pipes) else 0.03)


def _end(rank: int, pid: int, why: str, seconds: float, ends: dict[int, dict[str, Any]]) -> None:
    _kill_group(pid)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    ends[rank] = {"status": status, "seconds": seconds, "killed_for": why}


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
