"""A company's own catalogue, built as docs/private-catalogue.md says; and what builds keep for the next one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("material", reason="the site extra is not installed")
pytest.importorskip("pydantic")


@pytest.fixture(scope="module")
def private(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder somewhere else, with the configuration that the page shows."""
    folder = tmp_path_factory.mktemp("our-failures")
    page = (root / "docs" / "private-catalogue.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"```yaml\n# mkdocs.yml\n(.*?)```", page, re.DOTALL)
    (folder / "mkdocs.yml").write_text(shown, encoding="utf-8")
    (folder / "docs").mkdir()
    (folder / "docs" / "on-call.md").write_text("# On call\n\n[The map](families/index.md)\n", encoding="utf-8")
    shutil.copytree(root / "tests" / "schema" / "good", folder / "kb")
    shutil.copy(root / "kb" / "taxonomy.yaml", folder / "kb")
    return folder


def build(root: Path, folder: Path) -> dict[str, str]:
    """Builds strictly; file → digest of everything in the site but the sitemap, which holds the day."""
    path = os.pathsep.join(str(root / p) for p in ("site_plugins", "sdk", "schema"))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": path, "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    files = [p for p in (folder / "site").rglob("*") if p.is_file() and not p.name.startswith("sitemap")]
    return {str(p.relative_to(folder / "site")): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_a_private_catalogue_is_built_and_built_again(root: Path, private: Path) -> None:
    first = build(root, private)
    slugs = {p.parent.name for p in private.glob("kb/*/*/entry.yaml")}
    assert {f"entries/{slug}/index.html" for slug in slugs} <= set(first) and len(slugs) == 3
    assert {"index.html", "browse/index.html", "proofs/index.html", "on-call/index.html", "llms.txt", "signatures.json"} <= set(
        first
    )
    listed = json.loads((private / "site" / "catalog.json").read_text(encoding="utf-8"))["entries"]
    assert {e["slug"] for e in listed} == slugs
    assert (private / "site" / "llms.txt").read_text(encoding="utf-8").startswith("# What breaks here\n")
    assert "What breaks here" in (private / "site" / "index.html").read_text(encoding="utf-8")

    pages = private / "cache" / "faultbook" / "site" / "pages"
    made = {p: p.stat().st_mtime_ns for p in pages.glob("*.json")}
    assert made and build(root, private) == first  # from what was kept: the same bytes, and nothing made again
    assert {p: p.stat().st_mtime_ns for p in pages.glob("*.json")} == made

    [entry] = private.glob("kb/*/batch-without-targets/entry.yaml")
    text = entry.read_text(encoding="utf-8")
    answer = re.search(r"^quick_answer: .*(?:\n[ \t]+.*)*", text, re.MULTILINE)
    assert answer
    entry.write_text(text.replace(answer[0], "quick_answer: Every batch needs its targets, said anew."), encoding="utf-8")
    changed = {name for name, digest in build(root, private).items() if first.get(name) != digest}
    assert {"entries/batch-without-targets/index.html", "catalog.json", "browse/index.html"} <= changed
    assert not [n for n in changed if n.startswith("entries/") and "batch-without-targets" not in n and n.endswith("index.html")]
    assert "said anew" in (private / "site" / "entries" / "batch-without-targets" / "index.html").read_text(encoding="utf-8")


def test_serving_watches_the_knowledge(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mkdocs.config import load_config

    monkeypatch.setenv("XDG_CACHE_HOME", str(private / "cache"))
    config = load_config(str(private / "mkdocs.yml"))
    watched = config.plugins.on_config(config).watch
    assert str(private / "kb") in watched


def test_wrong_knowledge_is_one_line_for_each_problem(private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mkdocs.config import load_config
    from mkdocs.exceptions import PluginError

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    broken = tmp_path / "broken"
    shutil.copytree(private, broken, ignore=shutil.ignore_patterns("site", "cache"))
    [entry] = broken.glob("kb/*/batch-without-targets/entry.yaml")
    entry.write_text(entry.read_text(encoding="utf-8").replace("severity: ", "severity: dreadful-"), encoding="utf-8")
    config = load_config(str(broken / "mkdocs.yml"))
    with pytest.raises(PluginError, match=r"entry\.yaml:\d+: .*severity") as caught:
        config.plugins.on_config(config)
    assert len(str(caught.value).splitlines()) == 2  # how many, and each
