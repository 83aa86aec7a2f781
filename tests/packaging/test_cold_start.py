"""Cold start as ratios to a bare interpreter start, by CPU time, measured in one run."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest


def cpu_seconds(*args: str) -> float:
    """Best of several, by CPU time: another process's load does not count."""
    best = float("inf")
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def test_cold_start_ratios(root: Path, tmp_path: Path):
    log = tmp_path / "small.log"
    log.write_text("".join(f"step={n} loss={1 / (n + 1):.4f}\n" for n in range(100)) + "RuntimeError: boom\n")
    best = (float("inf"), float("inf"))
    for _ in range(6):
        bare = cpu_seconds(sys.executable, "-c", "pass")
        imported = cpu_seconds(sys.executable, "-c", "import faultbook") / bare
        diagnosed = cpu_seconds(sys.executable, "-m", "faultbook.cli", "diagnose", str(log)) / bare
        best = min(best, (diagnosed, imported))
        if imported < 4 and diagnosed < 10:
            break
    diagnosed, imported = best
    told = f"cold start, bare interpreter = 1: import faultbook {imported:.1f}, diagnose a small log {diagnosed:.1f}"
    print(f"\n{told}")
    if (imported >= 4 or diagnosed >= 10) and os.getloadavg()[0] > 1.5:
        pytest.skip(f"{told}; not judged while other processes share caches and cores")
    assert imported < 4
    assert diagnosed < 10
