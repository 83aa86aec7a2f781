"""What experiment trackers keep beside a run is read: TensorBoard, MLflow (both stores), W&B offline, HF, Lightning."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faultbook import diagnose, tracking
from faultbook.model import Series, Source
from faultbook.sources import SourceError, discover

RUN = "e4d0d074220d4a3aa4e68a137b3df939"
LOSS = [2.0 / (step + 1) if step < 20 else math.nan for step in range(30)]


def read(path: Path) -> dict[str, Series]:
    (source,) = [s for s in discover([path]) if s.kind == "metrics"]
    assert source.skipped == ""
    found, note = tracking.read(source)
    assert note == ""
    return {s.name: s for s in found}


def same(series: Series, values: list[float], role: str | None = "loss") -> None:
    assert series.role == role and series.steps == tuple(map(float, range(len(values))))
    assert [repr(round(v, 5)) for v in series.values] == [repr(round(v, 5)) for v in values]


# --- TensorBoard ---


def event_file(folder: Path) -> Path:
    """Written as SummaryWriter of torch writes it: old scalars, new ones (tensors), text and an image's summary."""
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for step, loss in enumerate(LOSS):
        old = Summary.Value(tag="train/loss", simple_value=loss)
        new = Summary.Value(tag="grad_norm", tensor=TensorProto(dtype=1, float_val=[1.5]))
        new.metadata.plugin_data.plugin_name = "scalars"
        packed = Summary.Value(tag="lr", tensor=TensorProto(dtype=1, tensor_content=struct.pack("<f", 0.25)))
        packed.metadata.plugin_data.plugin_name = "scalars"
        note = Summary.Value(tag="note", tensor=TensorProto(dtype=7, string_val=[b"hello"]))
        note.metadata.plugin_data.plugin_name = "text"
        writer.add_event(Event(wall_time=1.0, step=step, summary=Summary(value=[old, new, packed, note])))
    writer.close()
    (path,) = folder.iterdir()
    return path


def test_tensorboard_event_files(tmp_path: Path) -> None:
    path = event_file(tmp_path)
    assert "tfevents" in path.name
    found = read(tmp_path)
    assert set(found) == {"train/loss", "grad_norm", "lr"}
    same(found["train/loss"], LOSS)
    same(found["grad_norm"], [1.5] * 30, "grad_norm")
    same(found["lr"], [0.25] * 30, "lr")
    answer = diagnose(tmp_path)
    assert (answer.verdict, answer.diagnoses[0].entry) == ("diagnosed", "loss-nan")


def test_an_event_file_that_is_cut_or_damaged_is_read_up_to_there(tmp_path: Path) -> None:
    path = event_file(tmp_path)
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], whole[: len(whole) // 2] + b"\xff" * 500, b"\0" * 300, b""):
        path.write_bytes(data)
        found, _ = tracking.read(Source(0, path.name, "metrics", str(path)))
        assert all(len(s.values) < 30 for s in found)
        diagnose(tmp_path)


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "tensorboard" else known(name, *a))
    (tmp_path / "events.out.tfevents.1796072830.host.1.0").write_bytes(b"\0" * 8)
    with pytest.raises(SourceError, match=r"tfevents.* needs tensorboard: pip install 'faultbook\[tracking\]'"):
        discover([tmp_path])
    (tmp_path / "train.log").write_text("step=1 loss=2.0\n")
    (said,) = diagnose(tmp_path).not_examined
    assert said == "events.out.tfevents.1796072830.host.1.0: needs tensorboard: pip install 'faultbook[tracking]'"


# --- MLflow ---


def mlruns(root: Path) -> Path:
    run = root / "mlruns" / "185263431831877924" / RUN
    for folder in ("metrics/train", "params", "tags", "artifacts"):
        (run / folder).mkdir(parents=True)
    (run / "metrics/train/loss").write_text("".join(f"{1796072820675 + s} {v} {s}\n" for s, v in enumerate(LOSS)))
    (run / "metrics/grad_norm").write_text("".join(f"{1796072820675 + s} {'inf' if s == 20 else 1.0} {s}\n" for s in range(30)))
    (run / "metrics/old").write_text("1796072820675 1.0\n1796072820676 2.0\n")  # before steps were written
    (run / "params/lr").write_text("0.1")
    (run / "tags/mlflow.note").write_text("Traceback (most recent call last):\nKeyError: 'x'")
    (run / "meta.yaml").write_text("run_name: r1\n")
    return run


def test_mlflow_run_folders(tmp_path: Path) -> None:
    run = mlruns(tmp_path)
    names = [s.name for s in discover([tmp_path]) if not s.skipped]
    assert names == [f"mlruns/185263431831877924/{RUN}/metrics"], "parameters and tags are no logs"
    for path in (tmp_path, run, run / "metrics"):
        found = read(path)
        same(found["train/loss"], LOSS)
        assert found["grad_norm"].values[20] == math.inf
        assert found["old"].steps == (1.0, 2.0)
    same(read(run / "metrics" / "train" / "loss")["train/loss"], LOSS)
    answer = diagnose(tmp_path)
    assert answer.diagnoses[0].entry == "loss-nan" and answer.diagnoses[0].evidence[0].line == 21


def test_rewards_in_a_tracker_say_that_the_loss_is_a_policys(tmp_path: Path) -> None:
    """The same rule as for a log's lines: such a loss has no good direction."""
    run = mlruns(tmp_path)
    (run / "metrics/reward").write_text("".join(f"{1796072820675 + s} 3.1 {s}\n" for s in range(30)))
    assert read(run)["train/loss"].role == "policy_loss"


def mlflow_db(path: Path, runs: int = 1) -> Path:
    """The tables of MLflow 3's tracking store that hold metrics, as far as they are read."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name VARCHAR(250), status VARCHAR(9), "
                   "start_time BIGINT, lifecycle_stage VARCHAR(20))")  # fmt: skip
        db.execute('CREATE TABLE metrics ("key" VARCHAR(250), value FLOAT, timestamp BIGINT, run_uuid VARCHAR(32), '
                   "step BIGINT, is_nan BOOLEAN)")  # fmt: skip
        for run in range(runs):
            db.execute("INSERT INTO runs VALUES (?, ?, 'FINISHED', ?, 'active')", (f"{run:032x}", f"r{run}", 1000 - run))
            for step, loss in enumerate(LOSS):
                nan = math.isnan(loss)
                db.execute("INSERT INTO metrics VALUES ('train/loss', ?, ?, ?, ?, ?)",
                           (0.0 if nan else loss, step, f"{run:032x}", step, nan))  # fmt: skip
                if run == 0:
                    largest = 1.7976931348623157e308 if step == 20 else 1.0
                    db.execute("INSERT INTO metrics VALUES ('grad_norm', ?, ?, ?, ?, 0)", (largest, step, f"{run:032x}", step))
    db.close()
    return path


def test_mlflows_data_base(tmp_path: Path) -> None:
    mlflow_db(tmp_path / "mlflow.db")
    found = read(tmp_path)
    same(found["train/loss"], LOSS)
    assert found["grad_norm"].values[20] == math.inf
    assert diagnose(tmp_path / "mlflow.db").diagnoses[0].entry == "loss-nan"


def test_of_many_runs_in_a_data_base_the_last_one_is_read_and_that_is_said(tmp_path: Path) -> None:
    mlflow_db(tmp_path / "mlflow.db", runs=3)
    (source,) = discover([tmp_path])
    found, note = tracking.read(source)
    assert {s.name for s in found} == {"train/loss", "grad_norm"} and [len(s.values) for s in found] == [30, 30]
    assert note == "of several runs only the last one started, r0, was read"
    assert diagnose(tmp_path).not_examined == (f"mlflow.db: {note}",)


def test_other_data_bases_are_no_logs_and_an_endless_view_is_not_asked(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "optuna.db") as db:
        db.execute("CREATE TABLE trials (number INTEGER)")
    with sqlite3.connect(tmp_path / "evil.db") as db:
        forever = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
        db.execute(f"CREATE VIEW runs AS {forever}")
        db.execute(f"CREATE VIEW metrics AS {forever}")
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4000)
    (tmp_path / "other.db").write_bytes(b"\0\x06\x15\x61" * 100)
    (tmp_path / "train.log").write_text("step=1 loss=2.0\n")
    started = time.monotonic()
    skipped = {s.name: s.skipped for s in discover([tmp_path]) if s.skipped}
    assert time.monotonic() - started < 2
    assert {n: skipped[n] for n in ("optuna.db", "evil.db", "other.db")} == dict.fromkeys(
        ("optuna.db", "evil.db", "other.db"), "not a log: data base"
    )
    assert skipped["broken.db"].startswith("cannot be read: ")


def test_a_data_base_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow_db(tmp_path / "mlflow.db")
    with sqlite3.connect(tmp_path / "mlflow.db") as db:  # an index on an expression, a generated column… can be slow; time is
        db.execute("CREATE TABLE big (x)")
        db.executemany("INSERT INTO metrics VALUES ('m', 1.0, 0, ?, 0, 0)", [(f"{0:032x}",)] * 40_000)
    db.close()
    monkeypatch.setattr(tracking, "PATIENCE", -1.0)
    (source,) = [Source(0, "mlflow.db", "metrics", str(tmp_path / "mlflow.db"))]
    found, note = tracking.read(source)
    assert note == "read only in part: OperationalError: interrupted" and found == []


# --- Weights & Biases ---


@pytest.fixture(scope="module")
def offline_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that the wandb package itself has written."""
    pytest.importorskip("wandb")
    root = tmp_path_factory.mktemp("wandb")
    script = """
import math, wandb
run = wandb.init(project="p", dir=".", config={"lr": 0.1})
for s in range(30):
    run.log({"train/loss": 2.0 / (s + 1) if s < 20 else math.nan, "grad_norm": math.inf if s == 20 else 1.5,
             "nested": {"acc": s / 30}, "text": "hello", "epoch": s // 10, "noise": wandb.Histogram(list(range(200)))})
run.finish()
"""
    quiet = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "WANDB_DISABLE_GIT": "true",
             "WANDB_DISABLE_CODE": "true", "WANDB_CONSOLE": "off"}  # fmt: skip
    folders = {name: str(root / "private") for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR", "HOME")}
    subprocess.run([sys.executable, "-c", script], cwd=root, env={**os.environ, **quiet, **folders}, check=True, timeout=120,
                   capture_output=True)  # fmt: skip
    return root / "wandb"


def test_an_offline_run_of_wandb(offline_run: Path) -> None:
    read_ = [s for s in discover([offline_run]) if not s.skipped]
    assert [Path(s.name).suffix for s in read_] == [".wandb"], "its own logs and lists are no logs of the run"
    found = read(offline_run)
    assert {"train/loss", "grad_norm", "nested/acc"} <= set(found) and not {"text", "epoch", "_runtime", "noise"} & set(found)
    same(found["train/loss"], LOSS)
    assert found["grad_norm"].values[19:22] == (1.5, math.inf, 1.5)
    assert diagnose(offline_run).diagnoses[0].entry == "loss-nan"


def test_a_killed_run_of_wandb_is_read_up_to_its_last_whole_record(offline_run: Path, tmp_path: Path) -> None:
    (path,) = offline_run.glob("offline-run-*/*.wandb")
    whole = path.read_bytes()
    assert len(whole) > 32768, "records across a block's end are part of this test"
    lengths = []
    for size in (7, 100, len(whole) // 2, len(whole) - 1, len(whole)):
        (tmp_path / "run-x.wandb").write_bytes(whole[:size])
        found, note = tracking.read(Source(0, "x", "metrics", str(tmp_path / "run-x.wandb")))
        lengths.append(max((len(s.values) for s in found), default=0))
        assert note == ""
    assert lengths == sorted(lengths) and lengths[0] == 0 and 0 < lengths[2] < 30 and lengths[-1] == 30


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=300), lengths=st.lists(st.integers(0, 70_000), max_size=4))
def test_no_wandb_file_raises_or_hangs(tmp_path: Path, data: bytes, lengths: list[int]) -> None:
    path = tmp_path / "x.wandb"
    records = b"".join(struct.pack("<IHB", 0, n & 0xFFFF, 1 + n % 5) + data for n in lengths)
    for head in (b":W&B\xe1\xbe\0", b""):
        path.write_bytes(head + records + data)
        tracking.read(Source(0, "x", "metrics", str(path)))
    list(tracking._fields(data))


# --- what HF's Trainer and Lightning write ---


def test_a_trainer_state_is_read_in_a_diagnosis(tmp_path: Path) -> None:
    history = [{"epoch": s / 10, "grad_norm": 1.0, "learning_rate": 1e-4, "loss": v, "step": s} for s, v in enumerate(LOSS)]
    state = {"best_metric": None, "best_model_checkpoint": None, "epoch": 3.0, "global_step": 29, "log_history": history}
    (tmp_path / "checkpoint-29").mkdir()
    (tmp_path / "checkpoint-29" / "trainer_state.json").write_text(json.dumps(state, indent=2, sort_keys=True))
    answer = diagnose(tmp_path)
    assert answer.diagnoses[0].entry == "loss-nan"
    line = answer.diagnoses[0].evidence[0].line
    assert '"loss": NaN' in "".join((tmp_path / "checkpoint-29/trainer_state.json").read_text().splitlines()[line - 1 : line + 6])


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.tsv", "metrics.jsonl", "metrics.csv.gz"])
def test_tables_of_metrics_are_read_in_a_diagnosis(name: str, tmp_path: Path) -> None:
    """Columns as Lightning's CSVLogger writes them: each row fills only those that were logged at its step."""
    if name.endswith("jsonl"):
        text = "".join(json.dumps({"step": s, "train_loss": v, "epoch": s // 10}) + "\n" for s, v in enumerate(LOSS))
    else:
        text = "epoch,lr,step,train_loss,val_loss\n" + "".join(f"{s // 10},0.1,{s},{v},\n" for s, v in enumerate(LOSS))
        text = text.replace(",", "\t") if name.endswith("tsv") else text
    data = text.encode()
    if name.endswith(".gz"):
        import gzip

        data = gzip.compress(data)
    (tmp_path / "lightning_logs" / "version_0").mkdir(parents=True)
    (tmp_path / "lightning_logs" / "version_0" / name).write_bytes(data)
    answer = diagnose(tmp_path)
    assert [d.entry for d in answer.diagnoses] == ["loss-nan"] and answer.diagnoses[0].evidence[0].line in (21, 22)
