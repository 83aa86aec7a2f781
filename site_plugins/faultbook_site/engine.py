"""The engine in the browser: the `faultbook` package itself, zipped, and Pyodide copied from its npm package."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEEDED = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
PINNED = Path(__file__).with_name("pyodide.sha256")
EPOCH = (1980, 1, 1, 0, 0, 0)


class BadPyodide(Exception):
    """The copy in node_modules is not the one that was tested."""


@dataclass(frozen=True, slots=True)
class Engine:
    """`manifest` is what the page's script reads; `files` are (path below the site, content or source)."""

    manifest: dict[str, Any]
    files: tuple[tuple[str, bytes | Path], ...]


def package_zip(signatures: bytes) -> bytes:
    """Sources of the installed `faultbook` with the compiled signatures, byte-identical on rebuild."""
    import faultbook

    root = Path(faultbook.__file__).parent
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*.py")):
            archive.writestr(_info(f"faultbook/{path.relative_to(root).as_posix()}"), path.read_bytes())
        archive.writestr(_info("faultbook/_catalogue/signatures.json"), signatures)
    return buffer.getvalue()


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def pinned() -> tuple[str, dict[str, str]]:
    """(version, file → SHA-256) of the Pyodide that was tested."""
    version, *lines = PINNED.read_text(encoding="ascii").splitlines()
    return version, {name: digest for digest, name in (line.split() for line in lines)}


def build(pyodide: Path, signatures: bytes) -> Engine:
    """Without the npm package the manifest says so and nothing is copied."""
    if not (pyodide / "package.json").is_file():
        return Engine({"included": False}, ())
    version, digests = pinned()
    found = json.loads((pyodide / "package.json").read_text(encoding="utf-8")).get("version")
    if found != version:
        raise BadPyodide(f"pyodide {found} is installed, {version} is pinned: run npm ci")
    for name in NEEDED:
        if hashlib.sha256((pyodide / name).read_bytes()).hexdigest() != digests[name]:
            raise BadPyodide(f"{pyodide / name} is not the pinned file: run npm ci")
    archive = package_zip(signatures)
    name = f"engine-{hashlib.sha256(archive).hexdigest()[:12]}.zip"
    folder = f"assets/pyodide/{version}"
    size = sum((pyodide / f).stat().st_size for f in NEEDED if f != "pyodide.mjs" and not f.endswith("asm.mjs"))
    manifest = {
        "included": True,
        "pyodide": f"{folder}/",
        "package": f"assets/faultbook/{name}",
        "bytes": size + len(archive),
    }
    copies: list[tuple[str, bytes | Path]] = [(f"{folder}/{f}", pyodide / f) for f in NEEDED]
    return Engine(manifest, (*copies, (f"assets/faultbook/{name}", archive)))
