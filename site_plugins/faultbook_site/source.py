"""Where the catalogue of a build comes from: compiled from a kb/ folder, or read from compiled files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

KEPT = 3  # compiled catalogues


def load(kb: Path | None, compiled: Path | None, cache: Path | None = None) -> tuple[dict[str, Any], bytes]:
    """(catalogue, the bytes of signatures.json as the engine reads them).

    Raises ValueError with a line for each problem of the knowledge. What was compiled is kept in `cache`.
    """
    if compiled is not None:
        return _read(compiled)
    if kb is None or not any(kb.glob("*/*/entry.yaml")):
        return {"schema": "faultbook.catalogue/1", "digest": "", "entries": []}, _no_signatures()
    from faultbook_schema.compiler import write_catalogue
    from faultbook_schema.problems import InvalidKnowledge

    kept = cache / "compiled" / _version(kb) if cache is not None else None
    if kept is not None and kept.is_dir():
        return _read(kept)
    with tempfile.TemporaryDirectory() as folder:
        try:
            write_catalogue(kb, Path(folder))
        except InvalidKnowledge as problems:
            raise ValueError(str(problems)) from None
        if kept is not None:
            _keep(Path(folder), kept)
        return _read(Path(folder))


def _keep(compiled: Path, kept: Path) -> None:
    """Whole or not at all: two builds may share the folder. A folder that cannot be written to costs time only."""
    beside = kept.with_name(f".{kept.name}.{os.getpid()}")
    try:
        shutil.copytree(compiled, beside)
        beside.rename(kept)
        for old in sorted(kept.parent.iterdir(), key=lambda p: p.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)


def _version(kb: Path) -> str:
    """Of the knowledge, and of all code that decides what is compiled from it."""
    import faultbook
    import faultbook_schema
    from faultbook.catalog import knowledge_digest
    from faultbook_schema.digest import source_digest

    packages = [Path(str(package.__file__)).parent for package in (faultbook, faultbook_schema)]
    runner = kb.resolve().parent / "sdk" / "faultbook_repro" / "core"
    parts = [knowledge_digest(str(kb)), *(source_digest(p) for p in (*packages, runner) if p.is_dir())]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:40]


def _read(folder: Path) -> tuple[dict[str, Any], bytes]:
    catalogue: dict[str, Any] = json.loads((folder / "catalog.json").read_text(encoding="utf-8"))
    return catalogue, (folder / "signatures.json").read_bytes()


def _no_signatures() -> bytes:
    return json.dumps({"schema": "faultbook.signatures/1", "digest": "", "entries": [], "signatures": []}).encode()


def dates(kb: Path | None) -> dict[str, tuple[str, str]]:
    """slug → when its entry was first and last committed; empty outside a git checkout."""
    if kb is None or not kb.is_dir():
        return {}
    command = ["git", "log", "--reverse", "--format=@%cI", "--name-only", "--", "."]
    try:
        done = subprocess.run(command, cwd=kb, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[str, tuple[str, str]] = {}
    now = ""
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            now = line[1:]
        elif line.endswith("/entry.yaml"):
            slug = line.split("/")[-2]
            found[slug] = (found.get(slug, (now, now))[0], now)
    return found


def measured(docs: Path) -> dict[str, Any]:
    """What tests/measure.py found on labelled logs; empty where it was not run."""
    try:
        found = json.loads((docs / "measured.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
