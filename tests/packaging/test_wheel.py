"""The wheel alone, in a clean environment without any other package, answers like the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import faultbook


@pytest.fixture(scope="session")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment that holds the wheel and nothing else: as on a platform without any accelerator's wheel."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    options = ["--quiet", "--no-index", "--no-deps", "--only-binary", ":all:"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)], check=True, timeout=120
    )
    return python


def run(python: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FAULTBOOK"))}
    return subprocess.run(
        [str(python), "-I", "-m", "faultbook.cli", *args], capture_output=True, text=True, timeout=120, env=environment, cwd="/"
    )


def test_the_wheel_carries_the_catalogue_and_no_test_or_kb_source(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"faultbook/_catalogue/signatures.json", "faultbook/_catalogue/catalog.json"} <= set(names)
    assert "faultbook/py.typed" in names
    assert not [n for n in names if n.startswith(("tests/", "kb/")) or n.endswith("repro.py")]


def test_nothing_else_is_installed(clean: Path):
    wanted = ("rich", "hyperscan", "ahocorasick_rs", "yaml", "torch")
    code = f"import importlib.util as u; print([n for n in {wanted} if u.find_spec(n)])"
    done = subprocess.run([str(clean), "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_it_diagnoses_the_sample_like_the_checkout(clean: Path, root: Path):
    sample = str(root / "samples" / "fsdp-hang-4-ranks")
    done = run(clean, "diagnose", sample, "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(faultbook.diagnose(sample).to_dict()))


def test_commands_of_the_extras_name_the_extra(clean: Path):
    for command, extra in (("check", "schema"), ("verify", "repro")):
        done = run(clean, command)
        assert done.returncode == 2
        assert f"faultbook[{extra}]" in done.stderr
        assert done.stderr.count("\n") == 1


def test_list_and_explain_work_from_the_wheel(clean: Path):
    listed = json.loads(run(clean, "list", "--json").stdout)["entries"]
    assert [e["slug"] for e in listed] == sorted(faultbook.load_catalog().entries)
    assert run(clean, "explain", "fsdp-divergent-parameter-init-hang").returncode == 0
