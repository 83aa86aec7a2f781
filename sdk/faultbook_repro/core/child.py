"""One rank of one run: what happens in the forked (or fresh) process.

It writes a journal, one JSON line per fact and flushed at once, so that a rank that
hangs or is killed still leaves its workload and results behind.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import importlib.util
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from .records import outcome_from_dict
from .sandbox import limit


@dataclass
class Context:
    """What `run(ctx)` is given."""

    fixed: bool
    rank: int
    world_size: int
    guilty: int
    device: str
    tmp: Path
    seed: int
    variant: str
    _journal: Journal = field(repr=False)

    def workload(self, **asked: Any) -> None:
        """What work was asked for; must be equal in both halves."""
        self._journal.write(workload={k: plain(v) for k, v in asked.items()})

    def result(self, **numbers: Any) -> None:
        """Numbers for `check(out)`; a later value replaces an earlier one of the same name."""
        self._journal.write(results={k: plain(v) for k, v in numbers.items()})


class Journal:
    def __init__(self, path: Path) -> None:
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - lives as long as the process

    def write(self, **facts: Any) -> None:
        self._file.write(json.dumps(facts) + "\n")


def plain(value: Any) -> Any:
    """JSON-ready: tensors and arrays as numbers or lists, tuples as lists."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [plain(v) for v in value]
        return sorted(items, key=str) if isinstance(value, (set, frozenset)) else items
    for method in ("tolist", "item"):
        if callable(getattr(value, method, None)):
            with contextlib.suppress(Exception):
                return plain(getattr(value, method)())
    return str(value)


def main(job: dict[str, Any], rank: int, trigger: int | None = None) -> NoReturn:
    """Runs the job as this rank and ends the process. `trigger`: pipe that asks for a dump."""
    code = 1
    try:
        folder = Path(job["dir"])
        _own_process(job, folder, rank)
        journal = Journal(folder / f"rank_{rank}.jsonl")
        started = time.perf_counter()
        end = _check(job) if job["op"] == "check" else _run(job, rank, journal, folder, trigger)
        journal.write(end=end, seconds=time.perf_counter() - started)
        code = 0 if end["ok"] else int(end.get("exit_code") or 1)
        if end["ok"] and job["world_size"] > 1:
            _linger(folder, rank, job["world_size"])
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _own_process(job: dict[str, Any], folder: Path, rank: int) -> None:
    """Own process group, own log on fds 1 and 2, own limits, own folders, nothing inherited."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    log = os.open(folder / f"rank_{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    faulthandler.enable(file=2)
    stacks = open(folder / f"rank_{rank}.stacks", "w")  # noqa: SIM115 - kept open for the signal handler
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    tmp = folder / f"tmp_{rank}"
    for path in (tmp, folder / "home"):
        path.mkdir(exist_ok=True)
    os.chdir(tmp)
    os.environ.update(
        {
            "HOME": str(folder / "home"),
            "TMPDIR": str(tmp),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(job["world_size"]),
            "LOCAL_WORLD_SIZE": str(job["world_size"]),
        }
    )
    os.environ.update(job.get("env") or {})
    import tempfile

    tempfile.tempdir = None
    # multiprocessing's spawn would otherwise re-import the server as the child's main module.
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.path.insert(0, str(folder))
    sys.argv = ["repro.py"]
    limit(job["limits"], job["device"])


def _run(
    job: dict[str, Any], rank: int, journal: Journal, folder: Path, trigger: int | None
) -> dict[str, Any]:
    phase = "setup"
    try:
        recorder = None
        if job["flight_recorder"]:
            os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"  # read when the first process group is made
        _seed(job["seed"])
        if job["device"] == "cuda":
            import torch

            torch.cuda.set_device(rank % torch.cuda.device_count())
        if job["world_size"] > 1:
            _rendezvous(job, rank, folder)
        if job["flight_recorder"]:
            recorder = Recorder(folder / "fr", rank, trigger)
        context = Context(
            fixed=job["fixed"],
            rank=rank,
            world_size=job["world_size"],
            guilty=job["guilty"],
            device=job["device"],
            tmp=folder / f"tmp_{rank}",
            seed=job["seed"],
            variant=job["variant"],
            _journal=journal,
        )
        module = load(folder / "repro.py")
        for name, value in job["constants"].items():
            setattr(module, name, value)
        phase = "run"
        journal.write(phase=phase)
        try:
            returned = module.run(context)
            if isinstance(returned, dict):
                context.result(**returned)
        finally:
            if recorder:
                recorder.dump()
        return {"ok": True, "phase": phase}
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return {
            "ok": code == 0,
            "phase": phase,
            "exit_code": code,
            "exception": None if code == 0 else f"SystemExit: {error.code}",
        }
    except BaseException as error:
        _print(error, folder)
        return {"ok": False, "phase": phase, "exception": describe(error)}


def _check(job: dict[str, Any]) -> dict[str, Any]:
    """Runs the entry's `check(out)` here, since it is the entry's code as well."""
    outcome = outcome_from_dict(job["out"])
    module = load(Path(job["dir"]) / "repro.py")
    try:
        module.check(outcome)
    except BaseException as error:
        frame = next(
            (
                f
                for f in reversed(traceback.extract_tb(error.__traceback__))
                if f.filename.endswith("repro.py")
            ),
            None,
        )
        where = f"repro.py:{frame.lineno}: " if frame else ""
        text = describe(error) if str(error) or frame is None else f"{type(error).__name__}: {frame.line}"
        return {"ok": False, "phase": "run", "exception": where + text}
    return {"ok": True, "phase": "run"}


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:4000]


def _print(error: BaseException, folder: Path) -> None:
    """The traceback a script of its own would have printed: without the runner's frames."""
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(str(folder)):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)


def load(path: Path) -> types.ModuleType:
    """The module under its own name, so that a spawned DataLoader worker can import it too."""
    spec = importlib.util.spec_from_file_location("repro", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["repro"] = module
    spec.loader.exec_module(module)
    return module


def _seed(seed: int) -> None:
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def _rendezvous(job: dict[str, Any], rank: int, folder: Path) -> None:
    import torch.distributed as dist
    from torch._C import _distributed_c10d as c10d

    dist.init_process_group(
        "nccl" if job["device"] == "cuda" else "gloo",
        store=c10d.FileStore(str(folder / "store"), job["world_size"]),
        rank=rank,
        world_size=job["world_size"],
        timeout=datetime.timedelta(seconds=job["collective_timeout_s"]),
    )


def _linger(folder: Path, rank: int, world_size: int, longest: float = 0.25) -> None:
    """Keeps the sockets of a finished rank open until its peers have ended, for a moment.

    Without it the last bytes of the final barrier race with the reset of the connection.
    """
    (folder / f"done.{rank}").touch()
    until = time.monotonic() + longest
    while time.monotonic() < until:
        if all((folder / f"done.{r}").exists() for r in range(world_size)):
            return
        time.sleep(0.002)


class Recorder:
    """Writes the flight recorder's buffer of this rank to `fr_trace_rankN.json`.

    A rank that raises or ends dumps it itself. A rank that waits in a collective cannot,
    so a thread does when the server asks through a pipe (just before it kills), and
    every 50 ms, which is what a rank that aborts leaves behind.
    """

    def __init__(self, folder: Path, rank: int, trigger: int | None, period: float = 0.05) -> None:
        folder.mkdir(exist_ok=True)
        self._path = folder / f"fr_trace_rank{rank}.json"
        self._trigger = trigger
        self._period = period
        self._lock = threading.Lock()
        self._last = b""
        threading.Thread(target=self._watch, daemon=True, name="flight-recorder").start()

    def dump(self) -> None:
        from torch._C import _distributed_c10d as c10d

        with self._lock:
            data: bytes = c10d._dump_fr_trace_json(  # type: ignore[attr-defined]
                includeCollectives=True, onlyActive=False
            )
            if data == self._last:
                return
            part = self._path.with_suffix(".part")
            part.write_bytes(data)
            part.replace(self._path)
            self._last = data

    def _watch(self) -> None:
        import select

        pipe = [] if self._trigger is None else [self._trigger]
        while True:
            asked = select.select(pipe, [], [], self._period)[0]
            with contextlib.suppress(Exception):
                self.dump()
            if asked:
                return


if __name__ == "__main__":
    # A fresh process: the job on the command line, imports paid here.
    _job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    _rank = int(sys.argv[2])
    _trigger = int(sys.argv[3]) if len(sys.argv) > 3 else None
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    if _job["op"] == "run":
        from .server import import_modules

        # One rank alone needs no distributed modules, whose import costs twice that of torch.
        import_modules(_job["preload"], *([("torch", "numpy")] if _job["world_size"] == 1 else []))
    main(_job, _rank, _trigger)
