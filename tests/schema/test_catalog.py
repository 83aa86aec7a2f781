"""The runtime side: reading a catalogue, looking names up, keeping a checkout's catalogue current."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faultbook import catalog
from faultbook.catalog import CatalogError, load_catalog, refresh
from faultbook.signatures import LogSignature
from faultbook_schema.compiler import write_catalogue

Edit = Callable[..., Path]


@pytest.fixture
def folder(kb: Path) -> Path:
    target = kb.parent / "out"
    write_catalogue(kb, target)
    return target


def test_reads_signatures_at_once_and_prose_on_demand(folder: Path) -> None:
    loaded = load_catalog(folder)
    (folder / "catalog.json").rename(folder / "hidden.json")
    assert loaded.signatures[0].name == "batch-without-targets#zero-division"
    assert isinstance(loaded.by_name["batch-without-targets#zero-division"].signature, LogSignature)
    with pytest.raises(CatalogError, match="No such file"):
        loaded.load_entries()
    (folder / "hidden.json").rename(folder / "catalog.json")
    entry = loaded.full_entry("every label ignored")
    assert entry is not None and len(entry["symptoms"]) == 3
    assert json.loads(loaded.full_json())["digest"] == loaded.digest


def test_names(folder: Path) -> None:
    loaded = load_catalog(folder / "signatures.json")
    for name in ("batch-without-targets", "Batch without targets", "ALL_LABELS_MASKED", "every label ignored"):
        entry = loaded.get(name)
        assert entry is not None and entry["slug"] == "batch-without-targets", name
    assert loaded.get("nothing of the kind") is None
    assert loaded.near_misses("batch-without-target") == ["batch-without-targets"]
    assert loaded.aliases["all-labels-masked"] == "batch-without-targets"


def test_search_by_words_and_by_pasted_line(folder: Path) -> None:
    loaded = load_catalog(folder)
    assert loaded.search("scale settles")[0]["slug"] == "first-step-scale-skip"
    line = "[rank3]: ZeroDivisionError: float division by zero"
    assert loaded.search(line)[0]["slug"] == "batch-without-targets"
    assert loaded.search("zzz") == []


def test_environment_overrides_and_argument_wins(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAULTBOOK_CATALOGUE", str(folder))
    assert len(load_catalog().entries) == 3
    with pytest.raises(CatalogError):
        load_catalog(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a compiled catalogue"),
        ("[1]", "not a compiled catalogue"),
        ('{"schema": "faultbook.signatures/2"}', "this version reads"),
        ('{"schema": "faultbook.signatures/1"}', "not a compiled catalogue"),
        ('{"schema": "faultbook.signatures/1", "digest": "", "entries": 3, "signatures": []}', "not a compiled"),
        ("[" * 100_000, "not a compiled catalogue"),
    ],
)
def test_foreign_files_are_one_clear_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "signatures.json"
    path.write_text(content)
    with pytest.raises(CatalogError, match=message) as caught:
        load_catalog(path)
    assert "\n" not in str(caught.value)


def test_refresh_compiles_once_and_notices_changes(kb: Path, edit: Edit, tmp_path: Path) -> None:
    target = str(tmp_path / "catalogue")
    assert refresh(str(kb), target) is True
    first = (Path(target) / "signatures.json").stat().st_mtime_ns
    assert refresh(str(kb), target) is False
    os.utime(kb / "taxonomy.yaml", (1, 1))  # touched, not changed
    assert refresh(str(kb), target) is False
    assert (Path(target) / "signatures.json").stat().st_mtime_ns == first
    time.sleep(0.01)
    edit("data/batch-without-targets/entry.yaml", "title: Batch", "title: A Batch")
    assert refresh(str(kb), target) is True
    assert load_catalog(target).entries["batch-without-targets"]["title"].startswith("A Batch")
    os.remove(Path(target) / "catalog.json")
    assert refresh(str(kb), target) is True


def test_one_unusable_entry_does_not_stop_a_checkout(
    kb: Path, edit: Edit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit("numerics/first-step-scale-skip/entry.yaml", "severity: low", "severity: lwo")
    assert refresh(str(kb), str(tmp_path / "catalogue")) is True
    assert len(load_catalog(tmp_path / "catalogue").entries) == 2
    assert "1 unusable entries left out (first-step-scale-skip)" in capsys.readouterr().err


def test_missing_compiler_is_one_clear_line(kb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    with pytest.raises(CatalogError, match=r"pip install -e '\.\[schema\]'"):
        refresh(str(kb), str(tmp_path / "catalogue"))


def test_runtime_needs_the_standard_library_only(folder: Path) -> None:
    """Reading a catalogue imports neither pydantic nor yaml nor the compiler."""
    code = (
        "import sys; from faultbook.catalog import load_catalog; c = load_catalog(sys.argv[1]); c.signatures;"
        "c.search('zero division'); c.load_entries();"
        "print([m for m in ('pydantic', 'yaml', 'faultbook_schema', 'importlib.metadata') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_digest_covers_names_and_bytes(tmp_path: Path) -> None:
    kb = tmp_path / "kb"
    (kb / "a").mkdir(parents=True)
    (kb / "a" / "x").write_text("1")
    first = catalog.knowledge_digest(str(kb))
    (kb / ".hidden").write_text("2")
    assert catalog.knowledge_digest(str(kb)) == first
    (kb / "a" / "x").rename(kb / "a" / "y")
    assert catalog.knowledge_digest(str(kb)) != first
