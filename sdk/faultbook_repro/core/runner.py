"""The client: starts the server processes, sends them jobs, reads back what the runs left.

`Runner` is used from one thread; two at once are two runners.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from .masking import mask
from .records import DEADLINE, Outcome, RankRecord, merge
from .sandbox import DEFAULT_LIMITS, clean_environment
from .spec import Spec, load_spec

_READ_LIMIT = 8 * 1024 * 1024


class RunnerError(Exception):
    """The machinery failed, not the reproduction."""


class Skipped(Exception):
    """The run is not possible here; the message is the reason to show."""


class Runner:
    """Runs reproductions: `with Runner() as r: outcome = r.run(entry_dir)`."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, ...], _Server] = {}
        self._work: Path | None = None
        self._count = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for server in self._servers.values():
            server.stop()
        self._servers.clear()
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
            self._work = None

    def run(
        self,
        target: Path | str | Spec,
        *,
        fixed: bool = False,
        device: str = "cpu",
        variant: str | None = None,
        guilty: int | None = None,
        seed: int = 0,
        keep: Path | None = None,
        constants: dict[str, Any] | None = None,
    ) -> Outcome:
        """One half once. `target`: an entry's folder, a repro.py, or a spec already read.

        `constants` replaces module constants of the repro.py, for mutants.
        """
        spec = target if isinstance(target, Spec) else load_spec(target)
        if device == "cuda" and (reason := cuda_missing(spec.world_size)):
            raise Skipped(reason)
        if variant is None:
            variant = spec.variants[0]
        elif variant not in spec.variants:
            raise RunnerError(
                f"{spec.slug} has no variant {variant!r}; it has {', '.join(map(repr, spec.variants))}"
            )
        if guilty is None:
            guilty = spec.guilty_rank or 0
        folder = self._folder(spec)
        job = {
            "op": "run",
            "dir": str(folder),
            "fixed": fixed,
            "world_size": spec.world_size,
            "guilty": guilty,
            "device": device,
            "seed": seed,
            "variant": variant,
            "isolation": spec.isolation,
            "preload": list(spec.preload),
            "timeout_s": spec.timeout_s,
            "collective_timeout_s": spec.collective_timeout_s,
            "flight_recorder": spec.flight_recorder,
            "constants": constants or {},
            "limits": {**DEFAULT_LIMITS, "cpu": int(spec.timeout_s * 2) + 30, **spec.rlimits},
        }
        try:
            answer = self._server(spec.preload).ask(job, spec.timeout_s)
            ranks = [_record(folder, rank, end) for rank, end in enumerate(answer["ends"])]
            outcome = Outcome(
                ranks=ranks,
                log=merge([r.log for r in ranks], [(r, n) for r, n in answer["order"]]),
                seconds=answer["seconds"],
                fixed=fixed,
                device=device,
                variant=variant,
                guilty=guilty,
                seed=seed,
                directory=keep,
                threads_before_fork=answer["threads"],
            )
            if keep is not None:
                _keep(outcome, folder, keep)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def check(self, target: Path | str | Spec, outcome: Outcome) -> str | None:
        """Runs the entry's `check(out)` in a sandboxed child: what it objected to, or None."""
        spec = target if isinstance(target, Spec) else load_spec(target)
        folder = self._folder(spec)
        job = {
            "op": "check",
            "dir": str(folder),
            "world_size": 1,
            "device": "cpu",
            "isolation": "warm",
            "preload": list(spec.preload),
            "timeout_s": 20.0,
            "flight_recorder": False,
            "limits": dict(DEFAULT_LIMITS),
            "out": outcome.to_dict(),
        }
        try:
            answer = self._server(spec.preload).ask(job, 20.0)
            record = _record(folder, 0, answer["ends"][0])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if record.ok:
            return None
        return (
            record.exception or f"check() ended by {record.signal or record.exit_code}: {record.log[-500:]}"
        )

    def about(self, preload: tuple[str, ...] = ()) -> dict[str, Any]:
        """Versions, threads, import time and what the sandbox could do."""
        return self._server(preload).about

    def _server(self, preload: tuple[str, ...]) -> _Server:
        server = self._servers.get(preload)
        if server is None or not server.alive:
            server = self._servers[preload] = _Server(self._base(), preload)
        return server

    def _base(self) -> Path:
        if self._work is None:
            self._work = Path(tempfile.mkdtemp(prefix="faultbook-")).resolve()
            for name in ("home", "tmp", "inductor", "runs"):
                (self._work / name).mkdir()
        return self._work

    def _folder(self, spec: Spec) -> Path:
        self._count += 1
        folder = self._base() / "runs" / str(self._count)
        folder.mkdir()
        if spec.source is None:
            shutil.copyfile(spec.path, folder / "repro.py")
        else:
            (folder / "repro.py").write_text(spec.source, encoding="utf-8")
        return folder


class _Server:
    """One server process and its two pipes."""

    def __init__(self, work: Path, preload: tuple[str, ...]) -> None:
        imports = [str(Path(__file__).resolve().parents[2]), *_python_path()]
        env = clean_environment(work, imports) | {"FAULTBOOK_CALLER_HOME": str(Path.home())}
        self._errors = work / f"server{'-'.join(('', *preload))}.log"
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "faultbook_repro.core.server", str(work), *preload],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=env,
                cwd=work,
                start_new_session=True,
            )
        self._buffer = b""
        self.about = self._answer(120.0)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, job: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise RunnerError(self._why("the reproduction server is gone")) from None
        answer = self._answer(timeout_s + 90.0)
        if "error" in answer:
            raise RunnerError(answer["error"])
        return answer

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        until = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self.stop()
                raise RunnerError(
                    self._why(f"the reproduction server did not answer within {timeout_s:.0f} s")
                )
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                self.stop()
                raise RunnerError(self._why("the reproduction server ended"))
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _why(self, what: str) -> str:
        try:
            lines = self._errors.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return f"{what}{': ' + lines[-1] if lines else ''}"

    def stop(self) -> None:
        """Closing its input ends it; the group is killed in any case."""
        process = self._process
        if process.stdin is not None:
            try:
                process.stdin.close()
                process.wait(timeout=1.0)
            except (OSError, subprocess.TimeoutExpired):
                pass
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _python_path() -> list[str]:
    """What the caller could import, the server can."""
    return [str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]


def _record(folder: Path, rank: int, end: dict[str, Any]) -> RankRecord:
    """A rank's record, from its journal and from how its process ended."""
    workload: dict[str, Any] = {}
    results: dict[str, Any] = {}
    last: dict[str, Any] = {}
    phase, seconds = "setup", float(end["seconds"])
    for line in _read(folder / f"rank_{rank}.jsonl").splitlines():
        try:
            fact = json.loads(line)
        except ValueError:
            continue  # killed while writing it
        workload.update(fact.get("workload") or {})
        results.update(fact.get("results") or {})
        phase = fact.get("phase", phase)
        last = fact.get("end") or last
        seconds = fact.get("seconds", seconds)
    status = int(end["status"])
    name: str | None = end.get("killed_for")
    code = None
    if name is None and os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
    elif os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
    return RankRecord(
        rank=rank,
        ok=name is None and code == 0 and bool(last.get("ok")),
        exception=_masked(last.get("exception"), folder) or _unspoken(name, code, last),
        signal=name,
        exit_code=code,
        seconds=seconds,
        results=results,
        workload=workload,
        phase=str(last.get("phase", phase)),
        log=mask(_read(folder / f"rank_{rank}.log"), folder),
        stacks=mask(_read(folder / f"rank_{rank}.stacks"), folder) if name == DEADLINE else "",
    )


def _masked(text: str | None, folder: Path) -> str | None:
    return mask(text, folder) if text else None


def _unspoken(name: str | None, code: int | None, last: dict[str, Any]) -> str | None:
    if name is not None or last.get("ok"):
        return None
    return f"exit status {code} without an exception"


def _read(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_READ_LIMIT).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _keep(outcome: Outcome, folder: Path, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    for record in outcome.ranks:
        (keep / f"rank_{record.rank}.log").write_text(record.log, encoding="utf-8")
        if record.stacks:
            (keep / f"rank_{record.rank}.stacks").write_text(record.stacks, encoding="utf-8")
    data = {**outcome.to_dict(), "outcome": outcome.outcome}
    (keep / "records.json").write_text(json.dumps(data, indent=1), encoding="utf-8")
    if (folder / "fr").is_dir():
        (keep / "fr").mkdir(exist_ok=True)
        for path in sorted((folder / "fr").glob("fr_trace_rank*.json")):
            (keep / "fr" / path.name).write_text(mask(_read(path), folder), encoding="utf-8")


_cuda: int | str | None = None


def cuda_missing(world_size: int = 1) -> str | None:
    """Why a cuda run is not possible here, or None; asked of a short-lived child, once."""
    global _cuda
    if _cuda is None:
        code = (
            "import torch\n"
            "if not torch.backends.cuda.is_built(): print('torch', torch.__version__, 'has no CUDA')\n"
            "elif not torch.cuda.is_available(): print('no CUDA device')\n"
            "else: print(torch.cuda.device_count())\n"
        )
        env = {**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120
        )
        answer = done.stdout.strip() or "torch could not be imported"
        _cuda = int(answer) if answer.isdigit() else answer
    if isinstance(_cuda, str):
        return _cuda
    return None if _cuda >= world_size else f"needs {world_size} CUDA devices, this machine has {_cuda}"
