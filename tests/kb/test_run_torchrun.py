"""`faultbook run -- torchrun …` on real two-rank gloo jobs: one that fails, one that hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.repro

JOB = """
import os, sys, threading, time
loaded = threading.Event()
def say():  # importing torch in silence takes longer than a short --hang-after on a loaded machine
    while not loaded.wait(1):
        print("loading", flush=True)
threading.Thread(target=say, daemon=True).start()
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank = dist.get_rank()
for step in range(4):
    dist.all_reduce(torch.ones(4))
    loaded.set()
    print(f"step={step} loss={1 / (step + 1):.3f}", flush=True)
    fault(rank, step)
dist.barrier()
dist.destroy_process_group()
"""
FAILS = "def fault(rank, step):\n    if rank == 1 and step == 2:\n        raise KeyError('shard-7')\n"
HANGS = """def fault(rank, step):
    if rank == 1 and step == 2:
        skipped_all_reduce()

def skipped_all_reduce():
    time.sleep(600)
"""


def run(tmp_path: Path, fault: str, *options: str, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(JOB.replace("rank = dist", fault + "rank = dist", 1))
    command = [sys.executable, "-m", "faultbook.cli", "run", "--out", str(tmp_path / "bundle"), *options, "--"]
    command += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *launcher, str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_a_failing_job_keeps_its_code_and_the_right_rank_is_named(tmp_path: Path):
    """The ranks write into files of their own, so that nothing but the launcher's summary reaches the terminal."""
    old = tmp_path / "logs" / "before" / "attempt_0" / "0"
    old.mkdir(parents=True)
    (old / "stderr.log").write_text("Traceback (most recent call last):\nKeyError: 'of yesterday'\n")
    os.utime(old / "stderr.log", (1e9, 1e9))
    done = run(tmp_path, FAILS, launcher=("--log-dir", str(tmp_path / "logs"), "--redirects", "3"))
    assert done.returncode == 1
    assert "step=2" not in done.stdout and "shard-7" in done.stderr, "the report shows what stands in the rank's file"
    answer = json.loads((tmp_path / "bundle" / "diagnosis.json").read_text())
    assert (answer["initiating"]["scope"], answer["initiating"]["rank"]) == ("rank", 1), answer["initiating"]
    assert "yesterday" not in json.dumps(answer)
    kept = sorted("/".join(p.parts[-3:]) for p in (tmp_path / "bundle" / "ranks").rglob("*.log"))
    assert kept == [f"attempt_0/{rank}/{name}.log" for rank in (0, 1) for name in ("stderr", "stdout")]


def test_a_hanging_job_leaves_stacks_and_dumps_in_time(tmp_path: Path):
    hang_after = 12.0  # torchrun itself imports torch in silence first
    done = run(tmp_path, HANGS, "--hang-after", str(hang_after), "--stop-on-hang")
    bundle = tmp_path / "bundle"
    assert json.loads((bundle / "run.json").read_text())["hung"] is True
    stacks = {p.name.split("-")[0]: p.read_text() for p in (bundle / "stacks").glob("rank_*.txt")}
    assert set(stacks) >= {"rank_0", "rank_1"}
    assert "skipped_all_reduce" in stacks["rank_1"] and "all_reduce" in stacks["rank_0"]
    assert {p.name for p in (bundle / "fr").glob("*.json")} == {"fr_trace_rank0.json", "fr_trace_rank1.json"}
    report = json.loads((bundle / "diagnosis.json").read_text())
    assert (report["initiating"]["scope"], report["initiating"]["rank"]) == ("rank", 1), report["initiating"]
    (took,) = json.loads((bundle / "run.json").read_text())["reported_after"]
    print(f"\nreported {took:.1f} s after the last output (--hang-after {hang_after:.0f}), exit {done.returncode}")
    if os.getloadavg()[0] <= 2 * (os.cpu_count() or 1):  # a machine with four times its work is slow at everything
        assert hang_after <= took <= hang_after + 3
