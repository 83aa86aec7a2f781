"""While a run goes on: new findings once, rotation, numbers fed step by step."""

from __future__ import annotations

import math
import time
from pathlib import Path

from faultbook.live import Monitor, watch

FAILURE = "Traceback (most recent call last):\nKeyError: 'widget'\n"


class Clock:
    """A clock that a script of actions moves: each sleep runs the next action."""

    def __init__(self, *actions):
        self.now, self.actions = 0.0, list(actions)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.actions:
            self.actions.pop(0)()


def test_a_finding_is_reported_once(tmp_path: Path):
    log = tmp_path / "rank_0.log"
    log.write_text("step=1 loss=0.5\n")

    def append(text: str):
        return lambda: log.write_text(log.read_text() + text)

    clock = Clock(append("step=2 loss=0.4\n"), append(FAILURE), append("step=9 loss=9\n"), append("more\n"))
    found = list(watch([tmp_path], every=1, idle=5, sleep=clock.sleep, clock=clock))
    assert [d.verdict for d in found] == ["unrecognised"]


def test_a_last_line_without_line_end_is_seen(tmp_path: Path):
    log = tmp_path / "a.log"
    log.write_text("step=1 loss=0.5\n")
    clock = Clock(lambda: log.write_text("step=1 loss=0.5\n" + FAILURE.rstrip("\n")))
    assert [d.verdict for d in watch([log], every=1, idle=3, sleep=clock.sleep, clock=clock)] == ["unrecognised"]


def test_rotation_is_followed(tmp_path: Path):
    log = tmp_path / "a.log"
    log.write_text("step=1 loss=0.5\n")

    def rotate() -> None:
        log.rename(tmp_path / "old")
        log.write_text(FAILURE)

    clock = Clock(rotate)
    assert [d.verdict for d in watch([log], every=1, idle=3, sleep=clock.sleep, clock=clock)] == ["unrecognised"]


def test_a_copied_and_truncated_log_begins_anew(tmp_path: Path):
    """logrotate's copytruncate: the same file is emptied; when the restarted job fails again, that is news."""
    log = tmp_path / "a.log"
    log.write_text("step=1 loss=0.5\n" + FAILURE)

    def truncate() -> None:
        with log.open("r+") as file:
            file.truncate(0)

    def grow(text: str):
        def action() -> None:
            with log.open("a") as file:
                file.write(text)

        return action

    clock = Clock(truncate, grow("step=1 loss=0.6\n"), grow(FAILURE), grow("more\n"))
    found = list(watch([log], every=1, idle=4, sleep=clock.sleep, clock=clock))
    assert [d.verdict for d in found] == ["unrecognised", "unrecognised"]


def test_a_log_that_is_renamed_within_the_folder_is_not_reported_again(tmp_path: Path):
    log = tmp_path / "a.log"
    log.write_text("step=1 loss=0.5\n" + FAILURE)

    def rotate() -> None:
        log.rename(tmp_path / "a.log.1")
        log.write_text("step=2 loss=0.4\n")

    def compress() -> None:
        (tmp_path / "a.log.1").rename(tmp_path / "a.log.2")

    clock = Clock(rotate, compress, lambda: log.write_text("step=2 loss=0.4\nstep=3 loss=0.3\n"))
    assert len(list(watch([tmp_path], every=1, idle=4, sleep=clock.sleep, clock=clock))) == 1


def test_files_and_folders_may_appear_later(tmp_path: Path):
    folder = tmp_path / "logs"

    def make() -> None:
        folder.mkdir()
        (folder / "weights.pt").write_bytes(b"PK\x03\x04")  # no log yet

    def write() -> None:
        (folder / "attempt_0" / "0").mkdir(parents=True)
        (folder / "attempt_0" / "0" / "stderr.log").write_text(FAILURE)

    clock = Clock(lambda: None, make, write)
    found = list(watch([folder, tmp_path / "never.log"], every=1, idle=6, sleep=clock.sleep, clock=clock))
    assert [d.verdict for d in found] == ["unrecognised"]
    assert found[0].first_abnormal is not None and found[0].first_abnormal["file"] == "attempt_0/0/stderr.log"


def test_each_new_finding_is_reported_by_itself(tmp_path: Path):
    log = tmp_path / "a.log"
    log.write_text("step=1 loss=0.5\n")
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB\n"
    disk = "OSError: [Errno 28] No space left on device: '/ckpt/step_9.pt'\n"
    trace = 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\n    main()\n'

    def append(text: str):
        return lambda: log.write_text(log.read_text() + text)

    clock = Clock(append(trace + oom), append("more\n"), append("step=9 loss=0.5\n" + trace + disk), append("more\n"))
    found = list(watch([log], every=1, idle=5, sleep=clock.sleep, clock=clock))
    entries = [f.entry for d in found for f in d.diagnoses]
    assert len(entries) == len(set(entries)), entries
    assert "cuda-oom" in entries


def test_monitor_names_a_collapsing_temperature_while_it_happens():
    monitor = Monitor(every=5)
    alerts = []
    for step in range(60):
        temperature = 0.07 * 0.9**step
        loss = 3.0 * 0.8**step if step < 50 else 5000.0
        alerts += monitor.update(step, loss=loss, temperature=temperature, grad_norm=0.1)
    assert [a.entry for a in alerts if a.entry == "learned-temperature-collapse"] == ["learned-temperature-collapse"]


def test_monitor_survives_anything_and_is_quiet_on_a_healthy_run():
    monitor = Monitor(every=5)
    alerts = []
    for step in range(300):
        alerts += monitor.update(step, loss=2.0 / (1 + step / 50) + 0.01 * math.sin(step), lr=1e-4, note="text", odd=None)
    assert alerts == []


def test_monitor_is_cheap():
    monitor = Monitor(every=10)
    started = time.process_time()
    for step in range(2000):
        monitor.update(step, loss=1.0 + 0.01 * math.sin(step), grad_norm=1.0, lr=1e-4)
    print(f"\nMonitor: {(time.process_time() - started) / 2000 * 1e6:.0f} µs CPU a record")
