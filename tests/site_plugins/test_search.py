"""The search box of the real site, in a real Chromium: a raw line of a real failure finds its entry."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("pydantic")
pytestmark = pytest.mark.browser

ENOUGH = 0.9  # of the lines: 45 of 50
EXCEPTION = re.compile(r"^\s*(?:\[?(?:rank|default)\d+\]?:\s*)?[\w.]*(?:Error|Exception|Interrupt|Exit|Killed|Abort)\w*\s*:")
# Keeps what Material's worker answers, so that the test knows which answer belongs to which question.
LISTEN = """
const Real = window.Worker;
window.fbAnswers = [];
window.Worker = class extends Real {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", (m) => { if (m.data.type === 3) window.fbAnswers.push(m.data.data.items); });
  }
};
"""


def error_line(log: str, catalog: Any) -> str | None:
    """Where the engine sees the failure, else the last exception; chosen by this rule and never by hand."""
    import faultbook

    lines = log.splitlines()
    found = faultbook.diagnose(text=log, catalog=catalog).diagnoses
    seen = [lines[e.line - 1] for e in (found[0].evidence if found else ()) if 0 < e.line <= len(lines)]
    raised = [line for line in lines if EXCEPTION.search(line)]
    return next((line for line in [*seen[:1], *raised[-1:]] if line.strip()), None)


@pytest.fixture(scope="module")
def search(real_site: Path, serve: Callable[[Path], str], chromium: Any) -> Any:
    context = chromium.new_context()
    page = context.new_page()
    page.add_init_script(LISTEN)
    page.goto(serve(real_site))
    page.locator("label.md-search__icon, label[for=__search]").first.evaluate("e => document.getElementById('__search').click()")
    box = page.locator(".md-search__input")

    known: dict[str, list[str]] = {}  # the page does not ask again what it has just asked

    def ask(text: str) -> list[str]:
        if text.strip() in known:
            return known[text.strip()]
        before = page.evaluate("window.fbAnswers.length")
        box.fill(text)
        box.press("End")
        page.wait_for_function("n => window.fbAnswers.length > n", arg=before, timeout=20_000)
        hits: list[str] = page.evaluate("window.fbAnswers.at(-1).map((page) => page[0].location)")
        known[text.strip()] = [hit.split("#")[0].removeprefix("entries/").strip("/") for hit in hits]
        return known[text.strip()]

    ask.page = page  # type: ignore[attr-defined]
    yield ask
    context.close()


def test_a_raw_error_line_finds_its_entry_first(real_site: Path, search: Any, shared: Path) -> None:
    import faultbook

    catalog = faultbook.load_catalog(real_site.parent / "catalogue")
    asked, missed = 0, []
    for case in map(json.loads, (shared / "cases" / "dev.jsonl").read_text(encoding="utf-8").splitlines()):
        right = set(case["exact"]) & set(catalog.entries)
        line = error_line(case["log"], catalog) if right else None
        if line is None:
            continue
        right |= {up for slug in right for up in catalog.entries[slug]["ancestors"]}
        asked += 1
        hits = search(line)
        if not hits or hits[0] not in right:
            missed.append((case["id"], line[:120], hits[:3]))
    print(f"raw error lines: the right entry or its hub is first for {asked - len(missed)} of {asked}")
    assert asked >= 50 and asked - len(missed) >= ENOUGH * asked, missed


def test_what_is_shown_first_is_what_was_found_first(search: Any) -> None:
    hits = search("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.")
    link = search.page.locator(".md-search-result__link").first
    link.wait_for()
    search.page.wait_for_function(
        "slug => document.querySelector('.md-search-result__link').href.includes(`/entries/${slug}/`)", arg=hits[0], timeout=5_000
    )
    assert hits[0] == "dataloader-worker-killed"


def test_titles_and_few_words_find_their_entry(real_site: Path, search: Any) -> None:
    entries = json.loads((real_site / "catalog.json").read_text(encoding="utf-8"))["entries"][::6]
    missed = [e["slug"] for e in entries if search(e["title"])[:1] != [e["slug"]]]
    assert len(missed) <= len(entries) // 10, missed
    assert "cuda-oom" in search("out of memory")[:3]
    assert search("cud")  # what is being typed is looked for as a beginning
    assert search("xyzzyplugh") == []


@pytest.mark.parametrize("line", ["a:b ^2 ~", "-- + - *", "[[[", '"', "title:^", "x" * 5000, "\\", "+", "é" * 200])
def test_no_line_stops_the_search(search: Any, line: str) -> None:
    search(line)
    assert search("cuda out of memory")


def test_a_wrong_address_is_searched_for(real_site: Path, serve: Callable[[Path], str], chromium: Any) -> None:
    context = chromium.new_context()
    page = context.new_page()
    answer = page.goto(serve(real_site) + "entries/cuda-out-of-memry/")
    assert answer.status == 404 and page.title().startswith("Nothing at this address")
    box = page.locator("#fb-find")
    assert box.input_value() == "cuda out of memry"
    box.press("Enter")
    page.locator(".md-search-result__link").first.wait_for()
    assert "/entries/cuda-oom" in page.locator(".md-search-result__link").first.get_attribute("href")
    context.close()
