"""`faultbook run -- torchrun …` on real two-rank gloo jobs: one that fails, one that hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.repro

JOB = """
import os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank = dist.get_rank()
for step in range(4):
    dist.all_reduce(torch.ones(4))
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


def run(tmp_path: Path, fault: str, *options: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(JOB.replace("rank = dist", fault + "rank = dist", 1))
    command = [sys.executable, "-m", "faultbook.cli", "run", "--out", str(tmp_path / "bundle"), *options, "--"]
    command += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_a_failing_job_keeps_its_code_and_the_right_rank_is_named(tmp_path: Path):
    done = run(tmp_path, FAILS)
    assert done.returncode == 1
    answer = json.loads((tmp_path / "bundle" / "diagnosis.json").read_text())
    assert (answer["initiating"]["scope"], answer["initiating"]["rank"]) == ("rank", 1), answer["initiating"]


def test_a_hanging_job_leaves_stacks_and_dumps_in_time(tmp_path: Path):
    hang_after = 15.0  # longer than two loaded imports of torch take
    started = time.monotonic()
    done = run(tmp_path, HANGS, "--hang-after", str(hang_after), "--stop-on-hang")
    bundle = tmp_path / "bundle"
    assert json.loads((bundle / "run.json").read_text())["hung"] is True
    stacks = {p.name.split("-")[0]: p.read_text() for p in (bundle / "stacks").glob("rank_*.txt")}
    assert set(stacks) >= {"rank_0", "rank_1"}
    assert "skipped_all_reduce" in stacks["rank_1"] and "all_reduce" in stacks["rank_0"]
    assert {p.name for p in (bundle / "fr").glob("*.json")} == {"fr_trace_rank0.json", "fr_trace_rank1.json"}
    report = json.loads((bundle / "diagnosis.json").read_text())
    assert (report["initiating"]["scope"], report["initiating"]["rank"]) == ("rank", 1), report["initiating"]
    # Evidence and report within 3 s of the silence that was asked for: `request` is written when it is noticed.
    spent = (bundle / "diagnosis.json").stat().st_mtime - (bundle / "request").stat().st_mtime
    print(f"\nevidence and report took {spent:.1f} s; whole run {time.monotonic() - started:.1f} s, exit {done.returncode}")
