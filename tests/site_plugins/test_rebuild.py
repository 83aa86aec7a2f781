"""A second build says and writes what the first would have, from what was kept and what lies in the site's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sample_entries as sample

pytest.importorskip("material", reason="the site extra is not installed")

SETTINGS = """\
site_name: Tiny
site_url: https://example.org/
theme: {name: material, font: false}
strict: true
plugins:
  - search
  - faultbook: {catalogue: catalogue, cache: CACHE, pyodide: none}
  - mkdocstrings: {handlers: {python: {paths: [code]}}}
markdown_extensions: [toc, tables]
validation: {anchors: warn, omitted_files: ignore}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    data = sample.catalogue(sample.temperature(), sample.hub())
    for path, text in {
        "mkdocs.yml": SETTINGS.replace("CACHE", json.dumps(str(tmp_path / "cache"))),
        "catalogue/catalog.json": json.dumps(data),
        "catalogue/signatures.json": json.dumps(sample.signatures(data)),
        "code/tinylib/__init__.py": 'def reckon() -> int:\n    """Reckons up."""\n    return 1\n',
        "docs/api.md": "# Code\n\n::: tinylib.reckon\n",
        "docs/links.md": "# Links\n\n[one](other.md#here) and [code](api.md#tinylib.reckon), and [tinylib.reckon][].\n",
        "docs/other.md": "# Other\n\n## Here\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


def build(project: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of a strict build: it fails exactly when there are any."""
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    caplog.clear()
    failed = False
    try:
        mkdocs_build(load_config(str(project / "mkdocs.yml")))
    except Abort:
        failed = True
    said = [r.getMessage() for r in caplog.records if r.levelname in ("WARNING", "ERROR")]
    assert failed == bool(said), said
    return said


def everything(site: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(site)): p.read_bytes() if p.is_file() else None for p in site.rglob("*")}


def test_a_second_build_writes_the_same_and_removes_what_is_left_over(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert build(project, caplog) == []
    site = project / "site"
    first = everything(site)
    assert first["assets/_mkdocstrings.css"] and first["objects.inv"] and b"Reckons up." in (first["api/index.html"] or b"")
    assert b'href="../api/#tinylib.reckon"' in (first["links/index.html"] or b"").replace(b"autorefs-internal", b"")

    (site / "entries" / "gone").mkdir()
    (site / "entries" / "gone" / "index.html").write_text("of an entry that is no more")
    (site / "llms.txt").write_text("damaged")
    (site / "browse" / "index.html").write_text("damaged")
    (site / "entries" / "learned-temperature-collapse.json").unlink()
    assert build(project, caplog) == []
    assert everything(site) == first


def test_a_kept_page_warns_and_follows_what_it_depends_on(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert build(project, caplog) == []
    source = project / "code" / "tinylib" / "__init__.py"
    source.write_text(source.read_text().replace("Reckons up.", "Reckons down."))
    (project / "docs" / "other.md").write_text("# Other\n\n## There\n")  # links.md itself is as it was
    [anchor] = build(project, caplog)
    assert "links.md" in anchor and "#here" in anchor
    assert "Reckons down." in (project / "site" / "api" / "index.html").read_text()
    assert build(project, caplog) == [anchor]

    (project / "docs" / "other.md").unlink()
    [missing] = build(project, caplog)
    assert "links.md" in missing and "other.md" in missing
    assert build(project, caplog) == [missing]


def test_folders_that_a_killed_build_left_aside_come_back(tmp_path: Path) -> None:
    from faultbook_site.outputs import Outputs

    (tmp_path / "entries").mkdir()
    (tmp_path / "entries" / "a.md").write_text("a")
    Outputs(tmp_path).hide()  # and no more
    assert not (tmp_path / "entries").exists()
    second = Outputs(tmp_path)
    second.hide()
    second.show()
    assert [p.name for p in tmp_path.iterdir()] == ["entries"] and (tmp_path / "entries" / "a.md").read_text() == "a"
    with pytest.raises(ValueError, match="outside"):
        second.put("../a.md", b"")
    second.put("entries/a.md", b"a")
    second.tidy()
    assert (tmp_path / "entries" / "a.md").exists()
