"""What building the site costs, with the entries of kb/ again and again in other words until there are enough.

    python tests/benchmarks/bench_site.py                  # 1,000 entries: some minutes
    python tests/benchmarks/bench_site.py --entries 300

CPU seconds of the whole `mkdocs build` process and its children, first with nothing kept from earlier builds, then
again. A bare Python loop is timed beside it: on a busy machine both take longer, so their ratio is what travels.
pytest builds a small one and judges bytes only, never time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site_plugins"))
import sample_entries
import thousand

ROOT = Path(__file__).resolve().parents[2]
LOOP = "s = 0\nfor i in range(3_000_000): s += i * i"


def prepare(folder: Path, count: int) -> Path:
    """A configuration like the project's own over `count` entries; returns its file."""
    from faultbook_schema.compiler import write_catalogue

    write_catalogue(ROOT / "kb", folder / "kb")
    data = thousand.enlarge(json.loads((folder / "kb" / "catalog.json").read_text(encoding="utf-8")), count)
    (folder / "catalogue").mkdir()
    (folder / "catalogue" / "catalog.json").write_text(json.dumps(data), encoding="utf-8")
    (folder / "catalogue" / "signatures.json").write_text(json.dumps(sample_entries.signatures(data)), encoding="utf-8")
    pyodide = ROOT / "node_modules" / "pyodide"
    options = {"catalogue": str(folder / "catalogue"), "cache": str(folder / "cache"), "pyodide": str(pyodide)}
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for ours, its in (
        ("\n  - faultbook\n", f"\n  - faultbook: {json.dumps(options)}\n"),
        ("docs_dir: docs", f"docs_dir: {ROOT / 'docs'}"),
        ("site_dir: site", f"site_dir: {folder / 'site'}"),
        ("paths: [sdk]", f"paths: [{ROOT / 'sdk'}]"),
    ):
        assert ours in text
        text = text.replace(ours, its)
    (folder / "mkdocs.yml").write_text(text, encoding="utf-8")
    return folder / "mkdocs.yml"


def cpu(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    path = os.pathsep.join(str(ROOT / p) for p in ("site_plugins", "sdk", "schema"))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(folder: Path, count: int) -> dict[str, Any]:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(prepare(folder, count))]
    # What is made once per version of the engine, and kept beside the npm packages, is no part of a build.
    from faultbook_site import engine

    engine.build(ROOT / "node_modules" / "pyodide", (folder / "catalogue" / "signatures.json").read_bytes())
    found: dict[str, Any] = {"loop": cpu([sys.executable, "-c", LOOP]), "cold": cpu(build), "warm": cpu(build)}
    if count > 100:  # the better of two
        found["warm"] = min(found["warm"], cpu(build))
    site = folder / "site"
    pages = [len(gzip.compress(p.read_bytes())) for p in (site / "entries").glob("*/index.html")]
    found["index"] = len(gzip.compress((site / "search" / "search_index.json").read_bytes()))
    found["browse"] = len(gzip.compress((site / "browse" / "index.html").read_bytes()))
    return found | {"heaviest page": max(pages), "pages": len(pages)}


def say(found: dict[str, Any], count: int) -> None:
    times = f"CPU cold {found['cold']:.1f} s, warm {found['warm']:.1f} s; a loop of 3 million {found['loop']:.2f} s"
    print(f"\n{count} entries: {times}")
    print(", ".join(f"{k} {found[k] / 1000:.0f} kB gzipped" for k in ("index", "browse", "heaviest page")))


@pytest.mark.benchmark
def test_site(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the site extra is not installed")
    found = measure(tmp_path, 10)
    say(found, 10)
    assert found["pages"] >= 10 and found["heaviest page"] < 60_000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1000)
    wanted = parser.parse_args().entries
    temporary = Path(tempfile.mkdtemp())
    try:
        say(measure(temporary, wanted), wanted)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
