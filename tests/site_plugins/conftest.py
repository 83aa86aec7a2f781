"""A built site of sample entries, served locally, and a Chromium to look at it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))
import host
import hostile_kb
import sample_entries
from browser import ARGS, CHROMIUM


def build_site(
    root: Path, folder: Path, data: dict[str, Any] | None, *, stub: bool = False, cache: str = "", repo: str = ""
) -> tuple[Path, str]:
    """Builds the project's own mkdocs.yml over the given entries (None: over kb/); returns the site and what was printed."""
    compiled = folder / "catalogue"
    compiled.mkdir(parents=True, exist_ok=True)
    if data is None:
        from faultbook_schema.compiler import write_catalogue

        write_catalogue(root / "kb", compiled)
    else:
        (compiled / "catalog.json").write_text(json.dumps(data), encoding="utf-8")
        (compiled / "signatures.json").write_text(json.dumps(sample_entries.signatures(data)), encoding="utf-8")
    text = (root / "mkdocs.yml").read_text(encoding="utf-8")
    options = {"catalogue": str(compiled), "cache": cache, "pyodide": str(root / "node_modules" / "pyodide")}
    if data is None:
        options["samples"] = str(root / "samples" / "samples.yml")
    assert "\n  - faultbook\n" in text
    text = text.replace("\n  - faultbook\n", f"\n  - faultbook: {json.dumps(options)}\n")
    text = text.replace("docs_dir: docs", f"docs_dir: {root / 'docs'}").replace("site_dir: site", f"site_dir: {folder / 'site'}")
    text = text.replace("paths: [sdk]", f"paths: [{root / 'sdk'}]")
    (folder / "mkdocs.yml").write_text(text, encoding="utf-8")
    path = [str(root / p) for p in ("site_plugins", "sdk", "schema")]
    if stub:
        path.insert(0, str(Path(__file__).parent / "stub"))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(folder / "mkdocs.yml")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join(path), "FAULTBOOK_REPO_URL": repo},
    )
    assert done.returncode == 0, done.stderr
    return folder / "site", done.stderr


@pytest.fixture(scope="session")
def needs_mkdocs() -> None:
    pytest.importorskip("material", reason="the site extra is not installed")


@pytest.fixture(scope="session")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory, needs_mkdocs: None) -> tuple[Path, str]:
    data = sample_entries.catalogue(
        sample_entries.temperature(),
        sample_entries.hang(),
        sample_entries.hub(),
        sample_entries.noise(),
    )
    return build_site(root, tmp_path_factory.mktemp("site"), data, stub=True, repo="https://github.com/faultbook/faultbook")


@pytest.fixture(scope="session")
def site(built: tuple[Path, str]) -> Path:
    return built[0]


@pytest.fixture(scope="session")
def hostile_knowledge(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """A kb/ whose entry does harm in every way that `faultbook check` accepts; see hostile_kb."""
    return hostile_kb.write(root, tmp_path_factory.mktemp("hostile-kb"))


@pytest.fixture(scope="session")
def real_site(root: Path, tmp_path_factory: pytest.TempPathFactory, needs_mkdocs: None) -> Path:
    """The site of kb/ itself; what was compiled for it lies in `catalogue` beside it."""
    return build_site(root, tmp_path_factory.mktemp("real"), None)[0]


@pytest.fixture(scope="session")
def hostile_site(
    root: Path, tmp_path_factory: pytest.TempPathFactory, needs_mkdocs: None, hostile_knowledge: tuple[Path, Path, int]
) -> Path:
    from faultbook_schema.compiler import compile_knowledge
    from faultbook_schema.loader import load_kb

    compiled = compile_knowledge(load_kb(hostile_knowledge[0]))["catalog.json"]["entries"]
    data = sample_entries.catalogue(sample_entries.hostile(), sample_entries.hub(), *compiled)
    return build_site(root, tmp_path_factory.mktemp("hostile"), data)[0]


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves a folder; returns its address."""
    servers = []

    def start(folder: Path) -> str:
        server, address = host.serve(folder)
        servers.append(server)
        return address

    yield start
    for server in servers:
        server.shutdown()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if not Path(CHROMIUM).exists():
        pytest.skip("no Chromium on this machine")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe(root: Path) -> str:
    path = root / "node_modules" / "axe-core" / "axe.min.js"
    if not path.is_file():
        pytest.skip("npm ci was not run")
    return path.read_text(encoding="utf-8")
