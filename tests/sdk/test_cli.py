"""The command as a person or a script meets it: exit codes, one clear line for bad input, never a traceback."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faultbook.model import Source
from faultbook.progress_line import ProgressLine
from faultbook.scan import Scanner
from faultbook.signatures import Pattern

FAILED = b"""step=1 loss=0.9
step=2 loss=0.8
Traceback (most recent call last):
  File "/app/train.py", line 10, in <module>
    main()
  File "/app/train.py", line 7, in main
    raise KeyError("widget")
KeyError: 'widget'
"""


def faultbook(*args: str, data: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "faultbook.cli", *args],
        input=data,
        capture_output=True,
        timeout=120,
        env={**os.environ, **(env or {})},
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode())


def test_stdin_and_json():
    done = faultbook("diagnose", "-", "--json", data=FAILED)
    answer = json.loads(done.stdout)
    assert done.returncode == 3
    assert answer["verdict"] == "unrecognised"
    assert "widget" in answer["first_abnormal"]["text"]


def test_a_log_that_just_ends_is_inconclusive_not_healthy(tmp_path: Path):
    log = tmp_path / "run.log"
    log.write_text("".join(f"step={n} loss={1 / (n + 1):.4f}\n" for n in range(50)))
    done = faultbook("diagnose", str(log), "--json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (3, "inconclusive")


def test_a_log_that_completes_is_healthy(tmp_path: Path):
    log = tmp_path / "run.log"
    log.write_text("".join(f"step={n} loss={1 / (n + 1):.4f}\n" for n in range(50)) + "Training completed.\n")
    assert faultbook("diagnose", str(log)).returncode == 0


BAD = {
    "missing": lambda p: str(p / "none.log"),
    "empty directory": lambda p: str(p),
    "unknown entry": None,
}


@pytest.mark.parametrize("case", ["missing", "empty directory"])
def test_bad_input_is_one_line_and_exit_2(case: str, tmp_path: Path):
    done = faultbook("diagnose", BAD[case](tmp_path))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_an_unknown_entry_gets_a_suggestion():
    done = faultbook("explain", "learned-temperture-collapse")
    assert done.returncode == 2
    assert "learned-temperature-collapse" in done.stderr


def test_usage_errors_exit_2():
    assert faultbook("diagnose").returncode == 2
    assert faultbook("nonsense").returncode == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 5000,
        bytes(range(256)) * 200,
        b"\xff\xfe" + "RuntimeError: boom\n".encode("utf-16-le"),
        b"\r\r\r\n" * 1000,
        b"[rank0]:" * 20000,
        b"(" * 70000,
        "ligne \u2028 s\u00e9par\u00e9e \x85 fin".encode("latin-1", "replace"),
    ],
    ids=["empty", "nuls", "binary", "utf-16", "line-ends", "prefix-bomb", "parens", "latin-1"],
)
def test_no_input_gives_a_traceback(content: bytes, tmp_path: Path):
    path = tmp_path / "odd.log"
    path.write_bytes(content)
    done = faultbook("diagnose", str(path))
    assert done.returncode in (0, 1, 2, 3, 4)
    assert "Traceback" not in done.stdout + done.stderr
    assert "internal error" not in done.stderr


def test_one_line_of_100_megabytes(tmp_path: Path):
    path = tmp_path / "one-line.log"
    with path.open("wb") as out:
        for _ in range(100):
            out.write(b"loss 0.1 " * 116508)  # 1 MiB
        out.write(b"\nTraceback (most recent call last):\nKeyError: 'widget'\n")
    done = faultbook("diagnose", str(path), "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["verdict"] == "unrecognised"


def test_gzip_is_read_like_the_file(tmp_path: Path):
    plain, packed = tmp_path / "a.log", tmp_path / "b.log.gz"
    plain.write_bytes(FAILED)
    packed.write_bytes(gzip.compress(FAILED))
    a, b = (json.loads(faultbook("diagnose", str(p), "--json").stdout) for p in (plain, packed))
    assert a["first_abnormal"]["line"] == b["first_abnormal"]["line"]
    assert a["verdict"] == b["verdict"]


@pytest.mark.parametrize("gate", ["python", "ahocorasick", "hyperscan"])
def test_every_gate_gives_the_same_json(gate: str, tmp_path: Path, root: Path):
    if gate != "python":
        pytest.importorskip({"ahocorasick": "ahocorasick_rs", "hyperscan": "hyperscan"}[gate])
    path = tmp_path / "a.log"
    path.write_bytes(FAILED + b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    reference = faultbook("diagnose", str(path), "--json", "--gate", "python").stdout
    assert faultbook("diagnose", str(path), "--json", "--gate", gate).stdout == reference


def test_import_is_light():
    code = (
        "import sys, faultbook; faultbook.diagnose; "
        "heavy = {'torch', 'pydantic', 'yaml', 'mkdocs', 'numpy', 'rich'} & set(sys.modules); print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_list_explain_search_and_catalog():
    listed = json.loads(faultbook("list", "--json").stdout)["entries"]
    assert {"learned-temperature-collapse", "attention-softmax-fp16-overflow"} <= {e["slug"] for e in listed}
    assert "Root cause" in faultbook("explain", "learned-temperature-collapse").stdout
    found = json.loads(faultbook("search", "temperature", "--json").stdout)["entries"]
    assert found[0]["slug"] == "learned-temperature-collapse"
    assert json.loads(faultbook("catalog", "--json").stdout)["schema"] == "faultbook.catalogue/1"


def test_a_closed_pipe_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m faultbook.cli catalog --json | head -c 10", shell=True, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""


def test_reading_that_takes_long_shows_how_far_it_is_and_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "train\x1b[31m.log"
    log.write_text("step 1 loss 0.5\n" * 100_000)
    source = Source(0, str(log), "log", str(log))
    scanner = Scanner([Pattern(pattern="CUDA out of memory")])
    shown, quick = io.StringIO(), io.StringIO()
    for line in (ProgressLine(shown, patience=0), ProgressLine(quick, patience=3600)):
        scanner.scan(source, told=line)
        line.wipe()
    assert re.match(r"\r\x1b\[Kreading train\[31m\.log: \d MB \(\d+ %\)", shown.getvalue())
    assert shown.getvalue().endswith("\r\x1b[K") and "\n" not in shown.getvalue()
    assert quick.getvalue() == ""
