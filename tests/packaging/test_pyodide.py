"""The browser's engine is this package: Pyodide in Node gives the same JSON as CPython."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

import faultbook

MEGABYTES = 5


def archive(root: Path, target: Path) -> Path:
    """The runtime package alone, as the site ships it."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted((root / "sdk" / "faultbook").glob("*.py")):
            out.write(path, f"faultbook/{path.name}")
    return target


def run(root: Path, folder: Path, texts: list[str]) -> dict[str, Any]:
    pyodide = root / "node_modules" / "pyodide"
    if shutil.which("node") is None or not (pyodide / "pyodide.asm.wasm").is_file():
        pytest.skip("needs node and the npm package pyodide (`npm ci`)")
    inputs = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.log"
        path.write_text(text, "utf-8")
        inputs.append(str(path))
    job = {
        "archive": str(archive(root, folder / "faultbook.zip")),
        "signatures": str(Path(faultbook.load_catalog().folder) / "signatures.json"),
        "inputs": inputs,
    }
    (folder / "job.json").write_text(json.dumps(job))
    script = root / "tests" / "packaging" / "pyodide_run.mjs"
    done = subprocess.run(
        ["node", str(script), str(folder / "job.json"), str(pyodide)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def here(text: str) -> str:
    return json.dumps(faultbook.diagnose(text=text, gate="python").to_dict(), sort_keys=True)


def entry_logs(root: Path) -> list[str]:
    return [p.read_text("utf-8") for p in sorted((root / "kb").glob("*/*/logs/broken.log"))][:20]


def test_same_json_for_every_entrys_log_and_a_large_one(root: Path, tmp_path: Path):
    logs = entry_logs(root)
    assert logs
    line = "step={n} loss={x:.4f} grad_norm=0.5 lr=0.0001 throughput=1234.5\n"
    large = "".join(line.format(n=n, x=1 / (n + 1)) for n in range(MEGABYTES * 1_000_000 // 60))
    texts = [*logs, large + "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"]
    answer = run(root, tmp_path, texts)
    median = sorted(answer["seconds"][:-1])[len(logs) // 2]
    print(
        f"\nPyodide: load {answer['load']:.1f} s, import {answer['import']:.1f} s, median entry log {median:.2f} s, "
        f"{len(large) / 1e6:.1f} MB log {answer['seconds'][-1]:.1f} s"
    )
    assert answer["answers"] == [here(text) for text in texts]


def test_same_json_for_real_cases(root: Path, shared: Path, tmp_path: Path):
    lines = (shared / "cases" / "dev.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["log"] for line in lines[:: max(1, len(lines) // 50)]][:50]
    assert run(root, tmp_path, texts)["answers"] == [here(text) for text in texts]
