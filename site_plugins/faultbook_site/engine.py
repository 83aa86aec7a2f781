"""The engine in the browser: the `faultbook` package itself, zipped, and Pyodide copied from its npm package."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEEDED = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
STDLIB = "python_stdlib.zip"
PINNED = Path(__file__).with_name("pyodide.sha256")
PRECOMPILE = Path(__file__).with_name("precompile.mjs")
EPOCH = (1980, 1, 1, 0, 0, 0)
KEPT = 6  # compiled engines beside the npm packages, about 4 MB each
CATALOGUE = "faultbook/_catalogue/signatures.json"
NO_SIGNATURES = b'{"schema": "faultbook.signatures/1", "digest": "", "entries": [], "signatures": []}'
# What a diagnosis imports, whatever the catalogue: a failure with numbers, one with a traceback, several ranks, a report.
WARM = """
import json, os, shutil, faultbook
from faultbook.render import as_markdown
text = "step 1 loss 2.0\\nstep 2 loss nan\\nTraceback (most recent call last):\\nRuntimeError: CUDA error\\n"
names = ["/rank_0.log", "/rank_1.log"]
for name in names:
    with open(name, "w") as handle:
        handle.write(text)
json.dumps(faultbook.diagnose(text=text).to_dict())
as_markdown(faultbook.diagnose(*names, share=True))
"""


class BadPyodide(Exception):
    """The copy in node_modules is not the one that was tested."""


@dataclass(frozen=True, slots=True)
class Engine:
    """`manifest` is what the page's script reads; `files` are (path below the site, content or source)."""

    manifest: dict[str, Any]
    files: tuple[tuple[str, bytes | Path], ...]


def sources() -> dict[str, bytes]:
    """The Python files of the installed `faultbook`, by their path in the archive."""
    import faultbook

    root = Path(faultbook.__file__).parent
    return {f"faultbook/{p.relative_to(root).as_posix()}": p.read_bytes() for p in sorted(root.rglob("*.py"))}


def archive(files: dict[str, bytes]) -> bytes:
    """A zip file, byte-identical on rebuild."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(info, content)
    return buffer.getvalue()


def pinned() -> tuple[str, dict[str, str]]:
    """(version, file → SHA-256) of the Pyodide that was tested."""
    version, *lines = PINNED.read_text(encoding="ascii").splitlines()
    return version, {name: digest for digest, name in (line.split() for line in lines)}


def precompiled(pyodide: Path, version: str, files: dict[str, bytes]) -> tuple[dict[str, bytes], bytes]:
    """(the files of the engine, the standard library), what a diagnosis imports as bytecode: a cold start takes half the time.

    Kept beside the npm packages, by the content of the sources. Without Node: everything as it was.
    """
    plain = (pyodide / STDLIB).read_bytes()
    node = shutil.which("node")
    if node is None:
        return files, plain
    digest = hashlib.sha256(b"\0".join([version.encode(), PRECOMPILE.read_bytes(), WARM.encode(), archive(files)])).hexdigest()
    kept = pyodide.parent / ".cache" / "faultbook"
    known = kept / f"stdlib-{version}.zip"
    if not (kept / digest / "engine.zip").is_file():
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            (work / "engine.zip").write_bytes(archive(files | {CATALOGUE: NO_SIGNATURES}))
            paths = {"pyodide": pyodide, "stdlib": pyodide / STDLIB, "engine": work / "engine.zip", "out": work / "out"}
            job = {"warm": WARM, "known": str(known) if known.is_file() else None} | {k: str(v) for k, v in paths.items()}
            (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
            done = subprocess.run([node, str(PRECOMPILE), str(work / "job.json")], capture_output=True, timeout=300)
            if done.returncode:
                said = re.findall(r"^\w*(?:Error|Exception)\b.*", done.stderr.decode(errors="replace"), re.MULTILINE)
                raise BadPyodide(f"the engine could not be compiled for the browser: {(said or ['no message'])[-1][:300]}")
            kept.mkdir(parents=True, exist_ok=True)
            _replace(work / "out" / "stdlib.zip", known)
            (kept / digest).mkdir(exist_ok=True)
            for name in ("stdlib.zip", "engine.zip"):  # the engine last: its presence means that both are there
                _replace(work / "out" / name, kept / digest / name)
            for old in sorted((p for p in kept.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)[:-KEPT]:
                shutil.rmtree(old, ignore_errors=True)
    with zipfile.ZipFile(kept / digest / "engine.zip") as made:
        code = {i.filename: made.read(i) for i in made.infolist() if i.filename != CATALOGUE}
    return code, (kept / digest / "stdlib.zip").read_bytes()


def _replace(source: Path, target: Path) -> None:
    """Whole or not at all: two builds may share the folder."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, beside)
    beside.replace(target)


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
    code, stdlib = precompiled(pyodide, version, sources())
    package = archive(code | {CATALOGUE: signatures})
    folder = f"assets/pyodide/{version}"
    ours = {"engine": package, "stdlib": stdlib}
    paths = {name: f"assets/faultbook/{name}-{hashlib.sha256(content).hexdigest()[:12]}.zip" for name, content in ours.items()}
    copied = [name for name in NEEDED if name != STDLIB]
    counted = ("pyodide.asm.wasm", "pyodide-lock.json")  # modules are not fetched by the worker's own `fetch`
    manifest = {
        "included": True,
        "pyodide": f"{folder}/",
        "package": paths["engine"],
        "stdlib": paths["stdlib"],
        "bytes": sum((pyodide / f).stat().st_size for f in counted) + len(package) + len(stdlib),
    }
    copies: list[tuple[str, bytes | Path]] = [(f"{folder}/{name}", pyodide / name) for name in copied]
    return Engine(manifest, (*copies, *((paths[name], content) for name, content in ours.items())))
