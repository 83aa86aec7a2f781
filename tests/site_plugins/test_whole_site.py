"""The site of kb/, read as machines and link checkers read it: one build, every page."""

from __future__ import annotations

import gzip
import html
import json
import os
import re
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("pydantic")

BASE = "https://faultbook.github.io/"
LINK = re.compile(r"""<(a|link|script|img|source|iframe|form)\b[^>]*?\s(?:href|src|action)=(?:"([^"]*)"|'([^']*)'|([^\s>]+))""")
ID = re.compile(r"""\s(?:id|name)=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")


@cache
def pages(site: Path) -> dict[Path, str]:
    found = {p: p.read_text(encoding="utf-8") for p in sorted(site.rglob("*.html")) if "pyodide" not in p.parts}
    assert len(found) > 150
    return found


@cache
def anchors(site: Path, path: Path) -> set[str]:
    return {next(filter(None, groups)) for groups in ID.findall(pages(site)[path]) if any(groups)}


@cache
def entries(site: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((site / "catalog.json").read_text(encoding="utf-8"))["entries"]
    return found


def resolve(site: Path, page: Path, link: str) -> tuple[Path, str] | None:
    """The file and the anchor that an internal link leads to."""
    link = link.removeprefix(BASE) if link.startswith(BASE) else link
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    place = urllib.parse.unquote(parts.path)
    if page.name == "404.html" or link != parts.geturl():  # shown at any address, so its links begin at the root
        place = place.lstrip("/")
    start = site if page.name == "404.html" else page.parent
    target = Path(os.path.normpath(start / place)) if place else page
    return (target / "index.html" if target.is_dir() else target), urllib.parse.unquote(parts.fragment)


def test_no_internal_link_is_dead(real_site: Path) -> None:
    dead, checked = set(), 0
    for page, text in pages(real_site).items():
        for tag, *values in set(LINK.findall(text)):
            link = html.unescape(next(filter(None, values), ""))
            if link.startswith((BASE, "javascript:void", "data:", "#__")):
                continue  # the canonical address is tested below
            found = resolve(real_site, page, link)
            if found is None:
                continue
            checked += 1
            target, anchor = found
            alive = target.is_file() and (
                tag != "a" or not anchor or target.suffix != ".html" or anchor in anchors(real_site, target)
            )
            if not alive:
                dead.add((str(page.relative_to(real_site)), link))
    assert not dead, sorted(dead)[:20]
    assert checked > 10_000


def test_what_machines_are_told_to_fetch_is_there(real_site: Path) -> None:
    told = re.findall(r"<loc>([^<]+)</loc>", (real_site / "sitemap.xml").read_text(encoding="utf-8"))
    told += re.findall(r"\]\((https?://[^)]+)\)", (real_site / "llms.txt").read_text(encoding="utf-8"))
    told += re.findall(r'rel="canonical" href="([^"]+)"', "".join(pages(real_site).values()))
    assert len(told) > 3 * len(entries(real_site))
    for address in set(told):
        if address.startswith(BASE):
            place = real_site / address.removeprefix(BASE)
            assert (place / "index.html" if place.is_dir() else place).is_file(), address
        else:  # a redirect names its page from where it stands
            assert address.startswith("../"), address
    assert "/entries/" not in (real_site / "404.html").read_text(encoding="utf-8").split("<h1>")[1]


def test_every_external_reference_has_a_title_and_a_date(real_site: Path) -> None:
    count = 0
    for entry in entries(real_site):
        page = pages(real_site)[real_site / "entries" / entry["slug"] / "index.html"]
        for reference in entry.get("references", ()):
            count += 1
            assert reference["title"].strip() and reference["title"] != reference["url"], (entry["slug"], reference)
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", str(reference["date"])), (entry["slug"], reference)
            href = f'href="{html.escape(reference["url"])}"'
            shown = page.split(href, 1)[1].split("</li>")[0]
            assert str(reference["date"]) in shown, (entry["slug"], reference["url"])
    assert count > len(entries(real_site))


def test_every_page_has_a_title_a_description_and_a_preview(real_site: Path) -> None:
    titles: dict[str, Path] = {}
    for path, text in pages(real_site).items():
        if 'http-equiv="refresh"' in text:
            continue
        title = re.search(r"<title>([^<]+)</title>", text)
        assert title and titles.setdefault(title[1], path) == path, (path, title)
        for name in ("og:title", "og:description", "og:type", "og:site_name", *(() if path.name == "404.html" else ("og:url",))):
            assert re.search(f'<meta property="{name}" content="[^"]+">', text), (path, name)
        assert re.search(r'<meta name="description" content="[^"]+">', text), path


def test_every_entry_is_described_to_search_engines(real_site: Path) -> None:
    for entry in entries(real_site):
        page = pages(real_site)[real_site / "entries" / entry["slug"] / "index.html"]
        [block] = re.findall(r'<script type="application/ld\+json">(.*?)</script>', page, re.DOTALL)
        kinds = {item["@type"]: item for item in json.loads(block)["@graph"]}
        assert set(kinds) == {"TechArticle", "FAQPage"}, entry["slug"]
        assert kinds["TechArticle"]["url"] == f"{BASE}entries/{entry['slug']}/"
        assert all(q["acceptedAnswer"]["text"].strip() for q in kinds["FAQPage"]["mainEntity"])
    [home] = re.findall(
        r'<script type="application/ld\+json">(.*?)</script>', pages(real_site)[real_site / "index.html"], re.DOTALL
    )
    assert json.loads(home)["@type"] == "WebSite"


def test_data_is_whole_and_follows_its_schemas(real_site: Path, root: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    given = {name: json.loads((real_site / name).read_text(encoding="utf-8")) for name in ("catalog.json", "signatures.json")}
    schema = json.loads((real_site / "schema" / "signatures.schema.json").read_text(encoding="utf-8"))
    assert sorted(p.name for p in (real_site / "schema").iterdir()) == sorted(p.name for p in root.glob("schema/*.schema.json"))
    jsonschema.Draft202012Validator(schema).validate(given["signatures.json"])
    assert given["catalog.json"]["schema"] == "faultbook.catalogue/1"
    compiled = json.loads((real_site.parent / "catalogue" / "catalog.json").read_text(encoding="utf-8"))
    assert given["catalog.json"] == compiled
    llms = (real_site / "llms.txt").read_text(encoding="utf-8")
    aliases = 0
    for entry in entries(real_site):
        slug = entry["slug"]
        assert json.loads((real_site / "entries" / f"{slug}.json").read_text(encoding="utf-8")) == entry
        plain = (real_site / "entries" / f"{slug}.md").read_text(encoding="utf-8")
        assert plain.startswith("# ") and "## Symptoms" in plain
        assert f"{BASE}entries/{slug}.md" in llms
        page = pages(real_site)[real_site / "entries" / slug / "index.html"]
        assert f'href="../{slug}.json"' in page or f'href="../../entries/{slug}.json"' in page
        for alias in entry.get("aliases", ()):
            if re.fullmatch(r"[a-z0-9][a-z0-9-]*", alias) and not any(e["slug"] == alias for e in entries(real_site)):
                aliases += 1
                assert f"url=../{slug}/" in (real_site / "entries" / alias / "index.html").read_text(encoding="utf-8")
    assert aliases > 20
    assert ET.parse(real_site / "feed.xml").getroot().tag == "{http://www.w3.org/2005/Atom}feed"


def test_page_budgets(real_site: Path) -> None:
    """Beyond the assets that all pages share, which a browser keeps."""
    heavy = {p: len(gzip.compress(t.encode())) for p, t in pages(real_site).items() if p.parent.parent.name == "entries"}
    print(f"heaviest entry page: {max(heavy.values()) / 1000:.0f} kB gzipped")
    assert max(heavy.values()) < 60_000, max(heavy, key=lambda p: heavy[p])


def test_search_index_budget_at_a_thousand_entries(real_site: Path) -> None:
    import thousand

    from faultbook_site import search_rows

    looked_at = ("slug", "kind", "title", "aliases", "quick_answer", "signatures", "logs", "proofs", "symptoms")
    data = {"entries": [{k: e[k] for k in looked_at if k in e} for e in entries(real_site)]}
    index = json.loads((real_site / "search" / "search_index.json").read_text(encoding="utf-8"))
    index["docs"] = [d for d in index["docs"] if not d["location"].startswith("entries/")]
    index["docs"] += [search_rows.row(e, e["kind"] == "symptom") for e in thousand.enlarge(data, 1000)["entries"]]
    size = len(gzip.compress(json.dumps(index, ensure_ascii=False, separators=(",", ":")).encode()))
    print(f"search index at 1,000 entries: {size / 1000:.0f} kB gzipped")
    assert size < 300_000


def test_five_pages_without_mkdocs_hold_what_mkdocs_builds(real_site: Path, root: Path, tmp_path: Path) -> None:
    """`render()` belongs to no generator: a driver of thirty lines builds the same pages."""
    driver = Path(__file__).with_name("driver.py")
    assert len(driver.read_text(encoding="utf-8").splitlines()) <= 31
    kinds = {e["kind"]: e["slug"] for e in entries(real_site)}
    chosen = list(dict.fromkeys([*kinds.values(), *(e["slug"] for e in entries(real_site)[::40])]))[:5]
    path = os.pathsep.join(str(root / p) for p in ("site_plugins", "schema", "sdk"))
    command = [sys.executable, str(driver), str(real_site / "catalog.json"), str(tmp_path), *chosen]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
    assert len(chosen) == 5
    for slug in chosen:
        alone = (tmp_path / "entries" / slug / "index.html").read_text(encoding="utf-8")
        body = alone.split("<article>")[1].split("</article>")[0].strip()
        built = pages(real_site)[real_site / "entries" / slug / "index.html"]
        # mkdocs knows what was measured on labelled logs and where the sources are; the driver was not told.
        ours, theirs = (re.sub(r"\s+", " ", re.sub(r'<dl class="fb-measured">.*?</p>', "", t)) for t in (body, built))
        for section in ours.split("<h2 id=")[1:-1]:
            assert section.strip() in theirs, (slug, section[:200])


def test_the_example_for_machines_names_the_entry(real_site: Path, root: Path, tmp_path: Path) -> None:
    page = (root / "docs" / "for-machines.md").read_text(encoding="utf-8")
    [example] = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "signatures.json" in code]
    (tmp_path / "signatures.json").write_bytes((real_site / "signatures.json").read_bytes())
    (tmp_path / "run.log").write_text(
        "step 1\nRuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.\n", encoding="utf-8"
    )
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("dataloader-worker-killed RuntimeError"), done.stdout


def test_new_entries_are_in_the_feed_newest_first() -> None:
    from faultbook_site import catalogue, machine

    one = catalogue.from_json({"entries": [{"slug": s, "title": f"{s} & more", "quick_answer": "q"} for s in ("a", "b", "c")]})
    dates = {"a": ("2026-01-01T00:00:00Z", "2026-05-01T00:00:00Z"), "b": ("2026-02-01T00:00:00Z", "2026-02-01T00:00:00Z")}
    feed = ET.fromstring(machine.feed(one, BASE, dates))
    atom = "{http://www.w3.org/2005/Atom}"
    assert [e.findtext(f"{atom}title") for e in feed.findall(f"{atom}entry")] == ["b & more", "a & more"]
    assert feed.findtext(f"{atom}updated") == "2026-02-01T00:00:00Z"


def test_dates_come_from_version_control(tmp_path: Path) -> None:
    from faultbook_site import source

    def commit(day: str) -> None:
        when = {"GIT_AUTHOR_DATE": day, "GIT_COMMITTER_DATE": day}
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", day]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True, env={**os.environ, **when})

    entry = tmp_path / "kb" / "data" / "some-failure" / "entry.yaml"
    entry.parent.mkdir(parents=True)
    assert source.dates(tmp_path / "kb") == {} or "some-failure" not in source.dates(tmp_path / "kb")
    for day in ("2026-01-02T03:04:05+00:00", "2026-02-03T04:05:06+00:00"):
        entry.write_text(day, encoding="utf-8")
        commit(day)
    assert [d[:10] for d in source.dates(tmp_path / "kb")["some-failure"]] == ["2026-01-02", "2026-02-03"]
