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
from .model import Diagnosis
from .values import dataclass, field

HOOK = Path(__file__).parent / "_hook"
GRACE = 1.5
"""Seconds that ranks get to write their evidence."""
CAPTURE = 1.8
"""Seconds that py-spy and nvidia-smi get, all at once."""
LINGER = 2.0
"""Seconds that processes which outlive the command may keep its output open."""
MOST_COPIED = 256 << 20
"""Bytes of logs that the ranks wrote elsewhere and that are copied into the bundle."""
MOST_PROCESSES = 128
"""Of the command's processes whose stacks py-spy takes."""
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
    for copy in copies:
        copy.start()
    with _forwarded(process, result.signals):
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


def save_evidence(pid: int, folder: Path) -> list[str]:
    """Stacks and dumps of `pid` and all processes below it, and the GPUs' state. Returns what could not be had."""
    request = folder / "request"
    count = int(request.read_text()) + 1 if request.exists() else 1
    request.write_text(str(count))
    notes = []
    captures: list[tuple[list[str], Path]] = []
    spy = shutil.which("py-spy")
    if spy is not None:
        pids = [pid, *descendants(pid)][:MOST_PROCESSES]
        captures += [([spy, "dump", "--pid", str(p)], folder / "stacks" / f"py-spy-{p}.txt") for p in pids]
    else:
        notes.append("py-spy is not installed: stacks come from the ranks' own thread only")
    smi = shutil.which("nvidia-smi")
    if smi is not None:
        captures.append(([smi, "-q"], folder / "nvidia-smi.txt"))
    begun = time.monotonic()
    running = [c for c in (_started(*capture) for capture in captures) if c is not None]
    while time.monotonic() < begun + GRACE and not any((folder / "stacks").glob("rank_*")):
        time.sleep(0.05)
    time.sleep(0.4)
    notes += [note for note in (_finished(*one, begun + CAPTURE) for one in running) if note]
    if not any((folder / "stacks").iterdir()):
        notes.append("no process wrote its stacks: none of them is Python with RANK set, or it cannot run")
    return notes


def descendants(pid: int) -> list[int]:
    """Process ids below `pid`, from /proc; empty where there is none."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = entry.read_text().rsplit(")", 1)[1].split()
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return sorted(found)


def _started(command: list[str], path: Path) -> tuple[subprocess.Popen[bytes], Path] | None:
    """All are started at once: each has to be done by the same moment."""
    try:
        with open(path, "wb") as out:
            return subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL), path
    except OSError:
        return None


def _finished(process: subprocess.Popen[bytes], path: Path, deadline: float) -> str:
    """What it wrote stays, if anything; a note when it took too long."""
    note = ""
    try:
        process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        note = f"{' '.join(process.args[:2])} took too long" if isinstance(process.args, list) else ""
    with contextlib.suppress(OSError):
        if not path.stat().st_size:
            path.unlink()  # no Python process, or not ours to look at
    return note


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
