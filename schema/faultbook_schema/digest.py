"""Digests that say what a proof was made of."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from . import yaml_nodes


def entry_digest(folder: Path) -> str:
    """Of an entry's signatures, its `repro:` field and its repro.py.

    Prose may change without a new run; what is run and what must match may not. The
    fields are digested as data, so that comments and layout of the YAML do not count.
    """
    folder = Path(folder)
    data: dict[str, object] = {"signatures": None, "repro": None, "recorded": None}
    path = folder / "entry.yaml"
    if path.is_file():
        node, _ = yaml_nodes.read(path.read_bytes(), path.name)
        plain = node.plain() if node is not None else None
        if isinstance(plain, dict):
            data = {name: plain.get(name) for name in data}
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode())
    repro = folder / "repro.py"
    digest.update(b"\0repro.py\0")
    if repro.is_file():
        digest.update(repro.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def source_digest(folder: Path) -> str:
    """Of the Python sources of a package, the runner's for instance."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        digest.update(f"{name}\0".encode())
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
        digest.update(b"\0")
    return digest.hexdigest()


def proof_digest(entry: str, runner: str) -> str:
    """The key of a proof: what was run and by what."""
    return hashlib.sha256(f"{entry}\n{runner}\n".encode()).hexdigest()
