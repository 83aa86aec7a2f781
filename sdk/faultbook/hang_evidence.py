"""What is saved of a job that hangs, before anything is ended: stacks, flight recorder dumps, the GPUs' state."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from pathlib import Path

GRACE = 1.5
"""Seconds that ranks get to write their evidence."""
CAPTURE = 1.8
"""Seconds that py-spy and nvidia-smi get, all at once."""
MOST_PROCESSES = 128
"""Of the command's processes whose stacks py-spy takes."""


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
