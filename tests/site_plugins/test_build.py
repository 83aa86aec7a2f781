"""The built site: no warnings, no dead link, no third party, and all that machines read."""

from __future__ import annotations

import io
import json
import re
import shutil
import urllib.parse
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
import sample_entries as sample

pytest.importorskip("mkdocs")

from faultbook_site import engine, search_rows


class Page(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {k: v or "" for k, v in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(given.get("href", ""))


def pages(site: Path) -> dict[Path, Page]:
    return {p: Page(p.read_text(encoding="utf-8")) for p in sorted(site.rglob("*.html")) if "pyodide" not in p.parts}


def test_strict_build_prints_no_warning(built: tuple[Path, str]) -> None:
    assert "WARNING" not in built[1] and "ERROR" not in built[1], built[1]


def test_all_pages_are_there(site: Path) -> None:
    for path in (
        "index.html",
        "browse/index.html",
        "families/index.html",
        "tags/index.html",
        "tags/contrastive/index.html",
        "entries/learned-temperature-collapse/index.html",
        "entries/representation-collapse/index.html",
        "entries/omp-threads-notice/index.html",
        "entries/learned-temperature-collapse.json",
        "entries/learned-temperature-collapse.md",
        "entries/learned-temperature-collapse/broken.log",
        "catalog.json",
        "signatures.json",
        "llms.txt",
        "feed.xml",
        "sitemap.xml",
        "404.html",
    ):
        assert (site / path).is_file(), path


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path, page in pages(site).items():
        for address in page.loads:
            parts = urllib.parse.urlsplit(address)
            assert not parts.netloc, (path, address)


def test_an_alias_that_is_a_slug_redirects(site: Path) -> None:
    text = (site / "entries/logit-scale-collapse/index.html").read_text()
    assert 'url=../learned-temperature-collapse/"' in text
    assert not (site / "entries/Contrastive temperature divergence").exists()


def test_entry_head_has_previews_and_json_ld(site: Path) -> None:
    text = (site / "entries/learned-temperature-collapse/index.html").read_text()
    assert 'property="og:title" content="Learned Temperature Collapse in Contrastive Loss"' in text
    assert "<title>Learned Temperature Collapse in Contrastive Loss · Faultbook</title>" in text
    body = text.split('<script type="application/ld+json">')[1].split("</script>")[0]
    assert json.loads(body)["@graph"][0]["@type"] == "TechArticle"


def test_hostile_pages_hold_no_foreign_element(hostile_site: Path) -> None:
    plain = {"__md_scope", "__md_get", "fbBase", "fb-config", "__config", "application/ld+json", "__palette"}
    for path in (
        hostile_site / "entries/hostile-entry/index.html",
        hostile_site / "browse/index.html",
        hostile_site / "index.html",
    ):
        text = path.read_text()
        for chunk in text.split("<script")[1:]:
            head, _, body = chunk.partition(">")
            body = body.split("</script>")[0]
            assert "src=" in head or any(word in head + body for word in plain) or "localStorage" in body or "document" in body, (
                chunk[:200]
            )
            if "ld+json" not in head and "fb-config" not in head:
                assert "pwned" not in body, chunk[:200]
        page = Page(text)
        assert not [x for x in page.loads if "x.png" in x or x == "x"]


def test_search_index_holds_own_rows_only(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text())
    mine = [d for d in index["docs"] if d["location"].startswith("entries/")]
    assert len(mine) == 4 and all("#" not in d["location"] for d in mine)
    row = next(d for d in mine if "fsdp" in d["location"])
    assert "Timed out waiting 1000ms for recv operation" in row["text"]
    assert any(d["location"].startswith("how-it-is-proven/") for d in index["docs"])


def test_search_rows_are_escaped() -> None:
    row = search_rows.row(sample.hostile())
    assert "<" not in row["title"] + "".join(row["tags"]) + re.sub("</?p>", "", row["text"])


def test_engine_archive_is_complete_and_stable(root: Path) -> None:
    if not (root / "node_modules" / "pyodide").is_dir():
        pytest.skip("npm ci was not run")
    first, second = (engine.build(root / "node_modules" / "pyodide", b"{}") for _ in range(2))
    assert first == second
    archives = {path: zipfile.ZipFile(io.BytesIO(data)).namelist() for path, data in first.files if isinstance(data, bytes)}
    ours, standard = archives[first.manifest["package"]], archives[first.manifest["stdlib"]]
    assert engine.CATALOGUE in ours
    # Bytecode of the browser's own Python where Node could make it: sources would be compiled anew on each visit.
    end = "pyc" if shutil.which("node") else "py"
    assert f"faultbook/model.{end}" in ours and f"faultbook/scan.{end}" in ours and f"json/decoder.{end}" in standard


def test_a_tampered_pyodide_is_refused(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # without Node: the sources are packed as they are
    package = root / "node_modules" / "pyodide"
    if not package.is_dir():
        pytest.skip("npm ci was not run")
    copy = tmp_path / "pyodide"
    copy.mkdir()
    for name in (*engine.NEEDED, "package.json"):
        shutil.copy(package / name, copy / name)
    assert engine.build(copy, b"{}").manifest["included"]
    with (copy / "pyodide.mjs").open("a") as handle:
        handle.write("//")
    with pytest.raises(engine.BadPyodide, match="npm ci"):
        engine.build(copy, b"{}")
    (copy / "package.json").write_text('{"version": "0.0.1"}')
    with pytest.raises(engine.BadPyodide, match="pinned"):
        engine.build(copy, b"{}")


def test_without_pyodide_the_site_says_so(tmp_path: Path) -> None:
    made = engine.build(tmp_path, b"{}")
    assert made.manifest == {"included": False} and made.files == ()


def test_pinned_version_is_the_locked_one(root: Path) -> None:
    lock = json.loads((root / "package-lock.json").read_text())
    assert lock["packages"]["node_modules/pyodide"]["version"] == engine.pinned()[0]
    assert all("resolved" not in p for p in lock["packages"].values())
    assert all("integrity" in p for name, p in lock["packages"].items() if name)
