"""What is released is complete, is the same bytes whoever builds it, and runs on every Python it claims to."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import faultbook

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = None  # type: ignore[assignment]


@pytest.fixture(scope="module")
def sdist(snapshot: Path, tmp_path_factory: pytest.TempPathFactory, build: Callable[..., Path]) -> Path:
    return build(snapshot, tmp_path_factory.mktemp("sdist"), "--sdist")


def test_the_wheel_from_the_sdist_is_the_wheel_from_the_checkout(
    wheel: Path, sdist: Path, tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Two builds in different folders, byte for byte: reproducible, and the sdist lacks nothing."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again = build(source, tmp_path / "dist", "--wheel")
    assert again.name == wheel.name
    if again.read_bytes() != wheel.read_bytes():
        ours, theirs = ({i.filename: (i.CRC, i.date_time) for i in zipfile.ZipFile(p).infolist()} for p in (wheel, again))
        pytest.fail(f"differ in {sorted(dict(ours.items() ^ theirs.items()))}")


def test_the_sdist_twice_is_the_same_bytes(snapshot: Path, sdist: Path, tmp_path: Path, build: Callable[..., Path]) -> None:
    assert build(snapshot, tmp_path, "--sdist").read_bytes() == sdist.read_bytes()


def test_the_sdist_carries_tests_and_samples_and_nothing_of_this_machine(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = {m.name.partition("/")[2] for m in members}
    wanted = {"tests/conftest.py", "samples/README.md", "docs/speed.md", "kb/taxonomy.yaml", "CHANGELOG.md", "action.yml"}
    assert not wanted - names
    assert not [n for n in names if "__pycache__" in n or n.startswith((".venv", "node_modules", "site/", "build/"))]
    assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "", "")}


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def interpreter(minor: int) -> str:
    """Path of a Python 3.<minor>, from the path or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(pyenv.glob(f"3.{minor}.*/bin/python3")) if pyenv.is_dir() else []
    path = str(found[-1]) if found else shutil.which(f"python3.{minor}")
    if path is None:
        pytest.skip(f"no Python 3.{minor} on this machine")
    return path


CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from faultbook.cli import main; sys.exit(main())"


@pytest.mark.parametrize("minor", [10, 11, 12, 13, 14])
def test_on_each_python_the_wheel_answers_like_the_checkout(minor: int, unpacked: Path, root: Path) -> None:
    """No site-packages at all: the standard library and the wheel."""
    python = interpreter(minor)
    samples = sorted(str(path) for path in (root / "samples").iterdir() if path.is_dir())
    assert samples
    for sample in samples:
        done = subprocess.run(
            [python, "-I", "-S", "-c", CODE, str(unpacked), "diagnose", sample, "--json"],
            capture_output=True,
            text=True,
            timeout=120,
            cwd="/",
        )
        assert done.returncode == 1, done.stderr
        assert json.loads(done.stdout) == json.loads(json.dumps(faultbook.diagnose(sample).to_dict()))


@pytest.mark.skipif(tomllib is None, reason="tomllib came with Python 3.11")
def test_the_version_is_said_once_and_the_changelog_has_it(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert re.search(rf"^## {re.escape(project['version'])}\b", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert project["version"] == faultbook.__version__
    assert project["requires-python"] == ">=3.10" and project["license"] == "Apache-2.0"


def test_every_package_is_typed(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"{p}/py.typed" for p in ("faultbook", "faultbook_schema", "faultbook_repro", "faultbook_site")} <= names
