"""Where the catalogue of a build comes from: compiled from a kb/ folder, or read from compiled files."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any


def load(kb: Path | None, compiled: Path | None) -> tuple[dict[str, Any], bytes]:
    """(catalogue, the bytes of signatures.json as the engine reads them).

    Raises ValueError with a line for each problem of the knowledge.
    """
    if compiled is not None:
        return _read(compiled)
    if kb is None or not any(kb.glob("*/*/entry.yaml")):
        return {"schema": "faultbook.catalogue/1", "digest": "", "entries": []}, _no_signatures()
    from faultbook_schema.compiler import write_catalogue
    from faultbook_schema.problems import InvalidKnowledge

    with tempfile.TemporaryDirectory() as folder:
        try:
            write_catalogue(kb, Path(folder))
        except InvalidKnowledge as problems:
            raise ValueError(str(problems)) from None
        return _read(Path(folder))


def _read(folder: Path) -> tuple[dict[str, Any], bytes]:
    catalogue: dict[str, Any] = json.loads((folder / "catalog.json").read_text(encoding="utf-8"))
    return catalogue, (folder / "signatures.json").read_bytes()


def _no_signatures() -> bytes:
    return json.dumps({"schema": "faultbook.signatures/1", "digest": "", "entries": [], "signatures": []}).encode()


def first_dates(kb: Path | None) -> dict[str, str]:
    """slug → when its entry was first committed; empty outside a git checkout."""
    if kb is None or not kb.is_dir():
        return {}
    command = ["git", "log", "--reverse", "--diff-filter=A", "--format=@%cI", "--name-only", "--", "."]
    try:
        done = subprocess.run(command, cwd=kb, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    dates: dict[str, str] = {}
    now = ""
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            now = line[1:]
        elif line.endswith("/entry.yaml"):
            dates.setdefault(line.split("/")[-2], now)
    return dates
