"""`faultbook run`: the command behaves as it would alone; at failure there is a diagnosis, at a hang there is evidence first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FAULTBOOK = [sys.executable, "-m", "faultbook.cli"]


def faultbook_run(tmp_path: Path, *args: str, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "job.py"
    script.write_text(code)
    command = [*FAULTBOOK, "run", "--out", str(tmp_path / "bundle"), *args, "--", sys.executable, str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **env})


def test_output_and_exit_code_are_the_commands_own(tmp_path: Path):
    done = faultbook_run(tmp_path, code="import sys; print('step=1 loss=0.5'); print('warn', file=sys.stderr); sys.exit(7)")
    assert done.returncode == 7
    assert done.stdout == "step=1 loss=0.5\n"
    assert done.stderr.startswith("warn\n")
    assert (tmp_path / "bundle" / "logs" / "stdout.log").read_text() == "step=1 loss=0.5\n"


def test_a_success_is_silent(tmp_path: Path):
    done = faultbook_run(tmp_path, code="print('Training completed.')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Training completed.\n", "")


def test_a_failure_is_diagnosed(tmp_path: Path):
    done = faultbook_run(tmp_path, code="raise RuntimeError('widget 7 is broken')")
    assert done.returncode == 1
    assert "UNRECOGNISED" in done.stderr and "widget 7" in done.stderr
    answer = json.loads((tmp_path / "bundle" / "diagnosis.json").read_text())
    assert answer["schema"] == "faultbook.diagnosis/1"


def test_death_by_signal_is_reported_as_a_shell_would(tmp_path: Path):
    done = faultbook_run(tmp_path, code="import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == 128 + signal.SIGKILL


def test_a_missing_command_is_one_line(tmp_path: Path):
    done = subprocess.run([*FAULTBOOK, "run", "--out", str(tmp_path), "--", "no-such-launcher"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "no-such-launcher" in done.stderr


def test_sigterm_reaches_the_command(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *a: (print('saving', flush=True), sys.exit(3)))\n"
        "print('ready', flush=True)\ntime.sleep(30)\n"
    )
    process = subprocess.Popen(
        [*FAULTBOOK, "run", "--out", str(tmp_path / "bundle"), "--", sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.stdout.readline() == "saving\n"
    assert process.wait(timeout=20) == 3


HANGING = """
import time
def wait_for_peers():
    time.sleep(8)
print("step=1 loss=0.5", flush=True)
wait_for_peers()
"""


def test_a_hang_leaves_stacks_and_does_not_end_the_job(tmp_path: Path):
    started = time.monotonic()
    done = faultbook_run(tmp_path, "--hang-after", "1.5", code=HANGING, RANK="3")
    assert done.returncode == 0  # it went on and came to its end
    assert time.monotonic() - started > 8
    (stacks,) = (tmp_path / "bundle" / "stacks").glob("rank_3-*.txt")
    assert "wait_for_peers" in stacks.read_text()
    assert "no output for" in done.stderr


def test_a_hang_is_ended_only_when_told_to(tmp_path: Path):
    started = time.monotonic()
    done = faultbook_run(tmp_path, "--hang-after", "1", "--stop-on-hang", code=HANGING.replace("sleep(8)", "sleep(60)"), RANK="0")
    assert done.returncode == 128 + signal.SIGTERM
    assert time.monotonic() - started < 40
    assert json.loads((tmp_path / "bundle" / "run.json").read_text())["hung"] is True


def test_the_hook_keeps_the_jobs_own_sitecustomize(tmp_path: Path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins; builtins.from_site = 'mine'\n")
    done = faultbook_run(tmp_path, code="print(from_site)", PYTHONPATH=str(tmp_path / "site"))
    assert done.stdout == "mine\n"
