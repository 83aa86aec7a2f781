"""`faultbook run -- CMD…`: runs a launcher unchanged, and when it fails or hangs says why.

The command's output is mirrored byte for byte and kept, its exit code and signals are its own. When output
stalls, evidence is saved *before* anything is killed: stacks and flight-recorder dumps of every rank (by a
thread that `_hook/sitecustomize.py` starts in them; py-spy where it is installed), and `nvidia-smi`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from .catalog import Catalog
from .hang_evidence import save_evidence
from .model import Diagnosis
from .values import dataclass, field

HOOK = Path(__file__).parent / "_hook"
LINGER = 2.0
"""Seconds that processes which outlive the command may keep its output open."""
MOST_COPIED = 256 << 20
"""Bytes of logs that the ranks wrote elsewhere and that are copied into the bundle."""
LEAVE = 10.0
"""Seconds between asking a hanging job to stop and killing it."""


@dataclass(slots=True)
class Run:
    """What became of the command."""

    code: int
    folder: Path
    """The incident bundle: output, stacks, dumps, `run.json`, `diagnosis.json`."""
    hung: bool = False
    diagnosis: Diagnosis | None = None
    seconds: float = 0.0
    reported_after: list[float] = field(default_factory=list)
    """Seconds from the last output to the report, for each stall."""
    signals: list[str] = field(default_factory=list)
    """Sent to us and passed on to the command."""
    notes: list[str] = field(default_factory=list)


def run(
    command: Sequence[str],
    folder: Path,
    *,
    hang_after: float | None = None,
    stop_on_hang: bool = False,
    hook: bool = True,
    logs: Sequence[str] = (),
    rank_logs: bool = False,
    say: Callable[[str], None] = lambda text: None,
    report: Callable[[Diagnosis], None] = lambda diagnosis: None,
) -> Run:
    """Runs `command`; blocks until it ends.

    `hang_after`: seconds without output after which the job counts as hanging and evidence is saved
    (once per stall). `stop_on_hang`: then end it. `logs`: folders into which the ranks write; torchrun's --log-dir
    is found in the command. `rank_logs`: torchrun is asked to keep a log per rank in the bundle. Raises OSError when
    the command cannot be started.
    """
    folder = _unused(folder)
    elsewhere = _Elsewhere([*logs, *log_folders(command)])
    for name in ("stacks", "fr", "logs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    environment, pipe = _environment(folder, hook, rank_logs), subprocess.PIPE
    process = subprocess.Popen(list(command), stdout=pipe, stderr=pipe, env=environment, start_new_session=True)
    if hang_after is not None:  # a machine full of spinning ranks is slow at reading a catalogue: do it now
        threading.Thread(target=_prepare, daemon=True).start()
    result = Run(0, folder)
    clock = _Clock()
    outputs = ((process.stdout, sys.stdout.buffer, "stdout.log"), (process.stderr, sys.stderr.buffer, "stderr.log"))
    kept = folder / "logs"
    copies = [
        threading.Thread(target=_mirror, args=(pipe, to, kept / name, kept / "output.log", clock), daemon=True)
        for pipe, to, name in outputs
    ]
    with _forwarded(process, result.signals):
        for copy in copies:  # not before: who reads our output may signal us at once
            copy.start()
        _attend(process, clock, elsewhere, result, hang_after, stop_on_hang, say, report)
    until = time.monotonic() + LINGER
    for copy in copies:
        copy.join(timeout=max(0.0, until - time.monotonic()))
    result.code = process.returncode
    result.seconds = round(time.monotonic() - started, 3)
    if result.code != 0 and result.diagnosis is None:
        result.diagnosis = _diagnose(folder, elsewhere)
        _write_diagnosis(result)
        if result.signals and result.diagnosis.verdict in ("inconclusive", "healthy"):
            say(f"ended after {result.signals[-1]}, which was sent to it")
        else:
            report(result.diagnosis)
    _write(folder, command, result)
    return result


def exit_code(code: int) -> int:
    """As a shell reports it: 128 + n for a signal."""
    return 128 - code if code < 0 else code


class _Clock:
    """When the command last printed something."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.lock = threading.Lock()


def _unused(folder: Path) -> Path:
    """The folder, or one beside it where it holds the bundle of an earlier run: evidence is never written over or mixed."""
    number, chosen = 1, folder
    while (chosen / "logs").exists():
        number += 1
        chosen = folder.with_name(f"{folder.name}-{number}")
    return chosen


def log_folders(command: Sequence[str]) -> list[str]:
    """Where torchrun was told to put the ranks' logs."""
    found = []
    for position, word in enumerate(command):
        name, is_, value = word.partition("=")
        if name in ("--log-dir", "--log_dir"):
            found.append(value if is_ else next(iter(command[position + 1 : position + 2]), ""))
    return [f for f in found if f]


class _Elsewhere:
    """Logs that the ranks write into files of their own; what was there before the run does not count."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = [Path(f) for f in folders]
        self.since = time.time() - 1

    def files(self) -> list[tuple[Path, Path, os.stat_result]]:
        """(file, its name in the folder, what stat says), sorted."""
        found = []
        for folder in self.folders:
            for path in sorted(folder.rglob("*")):
                with contextlib.suppress(OSError):
                    seen = path.stat()
                    if path.is_file() and seen.st_mtime >= self.since:
                        found.append((path, path.relative_to(folder), seen))
        return found

    def silence(self) -> float:
        """Seconds since one of them grew; very many where there are none."""
        return min((time.time() - seen.st_mtime for _, _, seen in self.files()), default=1e9)

    def copy(self, to: Path) -> None:
        """Into the bundle, as far as they are not very large."""
        left = MOST_COPIED
        for path, name, seen in self.files():
            if seen.st_size <= left:
                left -= seen.st_size
                with contextlib.suppress(OSError):
                    (to / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, to / name)


def _environment(folder: Path, hook: bool, rank_logs: bool = False) -> dict[str, str]:
    environment = dict(os.environ)
    # Only where the user has not chosen: the recorder is off by default, and nothing can be dumped from it then.
    defaults = {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / "fr" / "nccl_trace_rank_"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / "fr" / "nccl_trace_rank_"),
        "PYTHONUNBUFFERED": "1",
    }
    if rank_logs:  # torchrun reads its options from these too
        defaults |= {"PET_LOG_DIR": str((folder / "ranks").resolve()), "PET_TEE": "3"}
    for name, value in defaults.items():
        environment.setdefault(name, value)
    if hook:
        environment["FAULTBOOK_EVIDENCE"] = str(folder.resolve())
        rest = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = str(HOOK) + (os.pathsep + rest if rest else "")
    return environment


def _mirror(pipe: IO[bytes], to: IO[bytes], path: Path, both: Path, clock: _Clock) -> None:
    """Copies a pipe to the terminal, to its own file and, whole lines only, to the common one."""
    held = b""
    gone = False
    with open(path, "ab", buffering=0) as own, open(both, "ab", buffering=0) as common:
        while chunk := os.read(pipe.fileno(), 1 << 16):
            try:
                if not gone:
                    to.write(chunk)
                    to.flush()
            except (OSError, ValueError):  # whoever read our output has left; the job goes on
                gone = True
            own.write(chunk)
            held += chunk
            with clock.lock:
                clock.last = time.monotonic()
                cut = held.rfind(b"\n") + 1 or (len(held) if len(held) > 1 << 20 else 0)
                common.write(held[:cut])
            held = held[cut:]
        with clock.lock:
            common.write(held)


@contextlib.contextmanager
def _forwarded(process: subprocess.Popen[bytes], passed: list[str]) -> Iterator[None]:
    """Signals sent to us go to the command's process group, which decides what they mean."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def forward(number: int, frame: Any) -> None:
        passed.append(signal.Signals(number).name)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)

    wanted = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
    before = {number: signal.signal(number, forward) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _attend(
    process: subprocess.Popen[bytes],
    clock: _Clock,
    elsewhere: _Elsewhere,
    result: Run,
    hang_after: float | None,
    stop_on_hang: bool,
    say: Callable[[str], None],
    report: Callable[[Diagnosis], None],
) -> None:
    stall = 0.0
    while True:
        try:
            process.wait(timeout=0.1)
            return
        except subprocess.TimeoutExpired:
            pass
        with clock.lock:
            last = clock.last
        silent = time.monotonic() - last
        if hang_after is None or silent < hang_after or last == stall:
            continue
        if elsewhere.folders and (grew := elsewhere.silence()) < silent:
            with clock.lock:
                clock.last = max(clock.last, time.monotonic() - grew)
            continue
        stall = last
        result.hung = True
        say(f"no output for {silent:.0f} s: saving evidence to {result.folder}")
        result.notes += save_evidence(process.pid, result.folder)
        result.diagnosis = _diagnose(result.folder, elsewhere, silent)
        _write_diagnosis(result)
        report(result.diagnosis)
        result.reported_after.append(round(time.monotonic() - last, 3))
        if stop_on_hang:
            say("stopping the job (--stop-on-hang)")
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=LEAVE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@functools.cache
def _catalog() -> Catalog:
    from .catalog import load_catalog

    return load_catalog()


def _prepare() -> None:
    from . import diagnosis, render  # noqa: F401

    with contextlib.suppress(Exception):  # it will be said when there is something to report
        _catalog()


def _diagnose(folder: Path, elsewhere: _Elsewhere, stalled: float | None = None) -> Diagnosis:
    from .diagnosis import diagnose

    elsewhere.copy(folder / "ranks")
    inputs = [folder / "logs" / "output.log", folder / "ranks", folder / "fr", folder / "nvidia-smi.txt"]
    inputs += [folder / "stacks"] if stalled is not None else []
    there = [str(p) for p in inputs if p.is_file() or (p.is_dir() and any(p.iterdir()))]
    return diagnose(*there, catalog=_catalog(), stalled=stalled)


def _write(folder: Path, command: Sequence[str], result: Run) -> None:
    facts = {
        "command": list(command),
        "code": result.code,
        "hung": result.hung,
        "seconds": result.seconds,
        "reported_after": result.reported_after,
        "signals": result.signals,
        "notes": result.notes,
        "host": os.uname().nodename,
        "python": sys.version.split()[0],
    }
    (folder / "run.json").write_text(json.dumps(facts, indent=2) + "\n")


def _write_diagnosis(result: Run) -> None:
    assert result.diagnosis is not None
    (result.folder / "diagnosis.json").write_text(json.dumps(result.diagnosis.to_dict(), indent=2) + "\n")
