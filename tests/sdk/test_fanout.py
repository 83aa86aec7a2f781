"""`faultbook scan`: where known lines are in many files, the same whatever reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faultbook.catalog import Catalog
from faultbook.fanout import EngineMissing, batches, scan_folder, to_dict
from faultbook.model import Source

TOKEN = "hf_" + "a1B2" * 8


def scan(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "faultbook.cli", "scan", *args], capture_output=True, text=True, timeout=120)


@pytest.fixture
def folder(tmp_path: Path, root: Path) -> Path:
    broken = (root / "kb/model/fsdp-divergent-parameter-init-hang/logs/broken.log").read_text()
    for number in range(12):
        (tmp_path / f"run-{number:02}.log").write_text(broken if number == 7 else f"step={number} loss=0.5\n" * 50)
    (tmp_path / "weights.log").write_bytes(b"\x00\x01\x02\xff" * 5000)
    return tmp_path


def test_processes_give_the_answer_of_one_after_the_other(folder: Path):
    local = scan(str(folder), "--json")
    spread = scan(str(folder), "--json", "--engine", "process", "--workers", "2")
    assert (local.returncode, spread.returncode) == (0, 0), spread.stderr
    a, b = json.loads(local.stdout), json.loads(spread.stdout)
    assert (a.pop("engine"), b.pop("engine")) == ("local", "process")
    assert a == b
    assert a["schema"] == "faultbook.scan/1" and len(a["files"]) >= 12
    assert [f["file"] for f in a["files"] if f["signatures"]] == ["run-07.log"]
    (known,) = [f for f in a["files"] if f["signatures"]]
    for seen in known["signatures"]:
        text = (folder / "run-07.log").read_text().splitlines()[seen["first"]["line"] - 1]
        assert text.startswith(seen["first"]["text"][:50]) and seen["count"] >= 1


@pytest.mark.parametrize(("engine", "library"), [("dask", "distributed"), ("ray", "ray")])
def test_a_cluster_of_this_machine_gives_the_answer_of_one_after_the_other(engine: str, library: str, folder: Path):
    pytest.importorskip(library, reason=f"{library} is not installed: --engine {engine} is not run")
    local = scan(str(folder), "--json")
    spread = scan(str(folder), "--json", "--engine", engine, "--workers", "2")
    assert (local.returncode, spread.returncode) == (0, 0), spread.stderr
    assert "Traceback" not in spread.stderr
    a, b = json.loads(local.stdout), json.loads(spread.stdout)
    assert (a.pop("engine"), b.pop("engine")) == ("local", engine)
    assert a == b


@pytest.mark.parametrize("engine", ["local", "process"])
def test_a_line_that_must_not_be_there_is_looked_for_where_the_rest_is(engine: str, tmp_path: Path):
    row = {"entry": "e", "kind": "log", "id": "s", "role": "root",
           "all": [{"pattern": "disk is full", "literals": ["disk is full"]}],
           "none": [{"pattern": r"loss \d", "literals": ["loss "]}]}  # fmt: skip
    catalog = Catalog("", {"e": {"slug": "e"}}, [row], "")
    (tmp_path / "a.log").write_text("disk is full\n")
    (tmp_path / "b.log").write_text("loss 3\ndisk is full\n")
    (tmp_path / "c.log").write_text("loss 3\n")
    found = scan_folder([str(tmp_path)], catalog, engine, workers=2)
    assert [(f.file, [s.signature for s in f.seen]) for f in found] == [("a.log", ["e#s"]), ("b.log", []), ("c.log", [])]


def test_a_person_gets_a_table_and_totals(folder: Path):
    done = scan(str(folder))
    assert done.returncode == 0
    assert done.stdout and all(line.startswith("run-07.log\t") for line in done.stdout.splitlines())
    assert "1 with known lines" in done.stderr


def test_secrets_are_masked(tmp_path: Path):
    (tmp_path / "a.log").write_text(f"torch.OutOfMemoryError: CUDA out of memory. {TOKEN}\n")
    done = scan(str(tmp_path), "--json")
    assert done.returncode == 0 and TOKEN not in done.stdout


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_missing_library_is_one_clear_line(engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    from faultbook import load_catalog

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineMissing, match=f"--engine {engine} needs .*pip install"):
        scan_folder([str(folder)], load_catalog(), engine)


def test_bad_input_is_one_line(tmp_path: Path):
    for args in (["none"], ["."], [".", "--workers", "0"], [".", "--engine", "x"]):
        done = scan(str(tmp_path / args[0]), *args[1:])
        assert done.returncode == 2 and "Traceback" not in done.stderr


def test_batches_hold_every_file_once_and_about_equal_bytes():
    files = [Source(n, str(n), "log", data=b"x" * size) for n, size in enumerate([1000, 10, 10, 10, 500, 490])]
    parts = batches(files, 2)
    assert sorted(s.index for part in parts for s in part) == list(range(6))
    sizes = [sum(len(s.data or b"") for s in part) for part in parts]
    assert max(sizes) - min(sizes) <= 40
    assert batches([], 4) == []


def test_nothing_found_is_an_answer(tmp_path: Path):
    from faultbook import load_catalog

    (tmp_path / "a.log").write_text("fine\n")
    told = to_dict(scan_folder([str(tmp_path)], load_catalog()), "local")
    assert told["files"] == [{"file": "a.log", "lines": 1, "bytes": 5, "signatures": []}] and told["skipped"] == []
