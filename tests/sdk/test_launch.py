"""`faultbook run`: the command behaves as it would alone; at failure there is a diagnosis, at a hang there is evidence first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from faultbook.launch import log_folders

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


def test_a_flood_of_lines_is_mirrored_whole_and_its_last_line_needs_no_end(tmp_path: Path):
    code = "import sys\nfor i in range(100_000): print(f'step={i} loss=0.5')\nprint('no line end', end='', flush=True)"
    started = time.monotonic()
    done = faultbook_run(tmp_path, code=code)
    assert done.returncode == 0 and time.monotonic() - started < 50
    assert done.stdout.count("\n") == 100_000 and done.stdout.endswith("loss=0.5\nno line end")
    for name in ("stdout.log", "output.log"):
        assert (tmp_path / "bundle" / "logs" / name).read_text().endswith("loss=0.5\nno line end")


def test_a_reader_that_leaves_does_not_end_the_job(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text("import sys\nfor i in range(20_000): print(f'step={i} loss=0.5')\nsys.exit(7)")
    command = [*FAULTBOOK, "run", "--out", str(tmp_path / "bundle"), "--", sys.executable, str(script)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert b"internal error" not in process.stderr.read()
    assert process.wait(timeout=30) == 7
    assert (tmp_path / "bundle" / "logs" / "stdout.log").read_text().endswith("step=19999 loss=0.5\n")


def test_a_process_that_outlives_its_launcher_delays_nothing(tmp_path: Path):
    started = time.monotonic()
    code = "import subprocess, sys\nsubprocess.Popen(['sleep', '30'])\nprint('left'); sys.exit(4)"
    done = faultbook_run(tmp_path, code=code)
    assert (done.returncode, done.stdout) == (4, "left\n")
    assert time.monotonic() - started < 25


def test_an_interrupt_reaches_the_job_and_is_not_called_a_failure(tmp_path: Path):
    script = tmp_path / "job.py"
    script.write_text(
        "import signal, sys, time\nsignal.signal(signal.SIGINT, lambda *a: (print('saving', flush=True), sys.exit(5)))\n"
        "print('step=1 loss=0.5', flush=True)\ntime.sleep(30)\n"
    )
    command = [*FAULTBOOK, "run", "--out", str(tmp_path / "bundle"), "--", sys.executable, str(script)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (out, process.returncode) == ("saving\n", 5)
    assert "ended after SIGINT, which was sent to it" in err and "INCONCLUSIVE" not in err
    assert json.loads((tmp_path / "bundle" / "run.json").read_text())["signals"] == ["SIGINT"]


def test_logs_that_ranks_write_into_files_count_as_output_and_as_evidence(tmp_path: Path):
    """Nothing is printed for longer than --hang-after, but a file grows; it then holds what broke."""
    (tmp_path / "logs").mkdir()
    code = (
        "import sys, time\nfor step in range(8):\n    time.sleep(0.4)\n"
        f"    print(f'step={{step}} loss=0.5', file=open({str(tmp_path / 'logs' / 'rank_0.log')!r}, 'a'))\n"
        f"print('Traceback (most recent call last):\\nKeyError: 7', file=open({str(tmp_path / 'logs' / 'rank_0.log')!r}, 'a'))\n"
        "sys.exit(1)"
    )
    done = faultbook_run(tmp_path, "--hang-after", "2", "--logs", str(tmp_path / "logs"), code=code)
    assert done.returncode == 1 and "no output for" not in done.stderr and "KeyError: 7" in done.stderr
    assert (tmp_path / "bundle" / "ranks" / "rank_0.log").exists()


def test_where_torchrun_puts_its_logs_is_read_from_the_command():
    assert log_folders(["torchrun", "--log-dir", "a", "--log_dir=b/c", "train.py", "--log-dir"]) == ["a", "b/c"]
    assert log_folders(["srun", "python", "train.py"]) == []


def test_tools_that_hang_with_the_job_do_not_delay_the_report(tmp_path: Path):
    """py-spy sees the command itself too; nvidia-smi hangs where a GPU is lost."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "py-spy").write_text('#!/bin/sh\necho "Process $3: python train.py"\n')
    (tools / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    code = HANGING.replace("sleep(8)", "sleep(60)")
    faultbook_run(tmp_path, "--hang-after", "1", "--stop-on-hang", code=code, RANK="0", PATH=path)
    told = json.loads((tmp_path / "bundle" / "run.json").read_text())
    assert any(note.endswith("nvidia-smi -q took too long") for note in told["notes"]), told
    assert len(list((tmp_path / "bundle" / "stacks").glob("py-spy-*.txt"))) == 1
    assert not (tmp_path / "bundle" / "nvidia-smi.txt").exists()
    assert told["reported_after"][0] < 15


def test_the_bundle_of_an_earlier_run_is_left_alone(tmp_path: Path):
    faultbook_run(tmp_path, code="raise RuntimeError('widget 7 is broken')")
    done = faultbook_run(tmp_path, code="raise RuntimeError('gadget 8 is broken')")
    assert done.stderr.rstrip().endswith("bundle-2") and "widget" not in done.stderr
    for name, said in (("bundle", "widget 7"), ("bundle-2", "gadget 8")):
        assert said in (tmp_path / name / "logs" / "stderr.log").read_text()


def test_a_log_per_rank_is_asked_of_torchrun_by_its_environment(tmp_path: Path):
    code = "import os; print(os.environ['PET_TEE'], os.environ['PET_LOG_DIR'])"
    assert faultbook_run(tmp_path, "--rank-logs", code=code).stdout == f"3 {tmp_path / 'bundle' / 'ranks'}\n"
    plain = faultbook_run(tmp_path, code="import os; print([k for k in os.environ if k.startswith('PET_')])")
    assert plain.stdout == "[]\n"
