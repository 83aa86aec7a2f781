"""What a reader meets, in a real Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
ENTRY = "entries/learned-temperature-collapse/"
PAGES = (
    "",
    "browse/",
    ENTRY,
    "entries/fsdp-divergent-parameter-init-hang/",
    "entries/representation-collapse/",
    "families/",
    "how-it-is-proven/",
)


@pytest.fixture(scope="module")
def base(site: Path, serve: Callable[[Path], str]) -> str:
    return serve(site)


def open_page(chromium: Any, address: str, width: int = 1280, scheme: str = "light", **options: Any) -> Any:
    context = chromium.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme, **options)
    page = context.new_page()
    page.problems = []
    page.requested = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda m: page.problems.append(m.text) if m.type == "error" else None)
    page.on("request", lambda request: page.requested.append(request.url))
    page.goto(address)
    return page


@pytest.fixture(scope="module")
def axe(root: Path) -> str:
    path = root / "node_modules" / "axe-core" / "axe.min.js"
    if not path.is_file():
        pytest.skip("npm ci was not run")
    return path.read_text(encoding="utf-8")


def violations(page: Any, axe: str) -> list[str]:
    page.evaluate(axe + "\n;0")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{v['id']}: {n['html'][:160]}" for v in found["violations"] for n in v["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_and_nothing_overflows(chromium: Any, base: str, axe: str, width: int, scheme: str) -> None:
    # Every page at two of the four combinations, the three that matter most at all four.
    for path in PAGES if (width == 1280) == (scheme == "light") else PAGES[:3]:
        page = open_page(chromium, base + path, width, scheme, bypass_csp=True)
        assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
        assert violations(page, axe) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.problems == [], path
        page.context.close()


def test_no_third_party_request(chromium: Any, base: str) -> None:
    for path in PAGES:
        page = open_page(chromium, base + path)
        page.wait_for_load_state("networkidle")
        assert page.requested and all(url.startswith((base, "data:", "blob:")) for url in page.requested), page.requested
        page.context.close()


def test_content_policy_forbids_sending(chromium: Any, base: str) -> None:
    page = open_page(chromium, base)
    blocked = page.evaluate("fetch('https://third.example/').then(() => false, () => true)")
    assert blocked and any("Content Security Policy" in p for p in page.problems)
    page.context.close()


def test_reading_works_without_javascript(chromium: Any, base: str) -> None:
    page = open_page(chromium, base + ENTRY, java_script_enabled=False)
    assert page.locator("text=class BoundedTemperature").first.is_visible()
    fixed = page.locator(".fb-tabs").first.locator(".fb-tabs__panel").nth(1)
    assert not fixed.is_visible()
    page.locator("label", has_text=re.compile("^Fixed$")).click()
    assert fixed.is_visible()
    assert page.locator(".fb-paste__nojs").is_visible()
    page.context.close()
    page = open_page(chromium, base + "browse/", java_script_enabled=False)
    assert page.locator(".fb-row").count() == 4 and page.locator(".fb-row").first.is_visible()
    page.context.close()


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_first_screen_holds_answer_lines_and_fix(chromium: Any, base: str, size: tuple[int, int]) -> None:
    page = open_page(chromium, base + ENTRY, size[0])
    page.set_viewport_size({"width": size[0], "height": size[1]})
    for selector in (".fb-answer", ".fb-see pre", ".fb-do > p"):
        box = page.locator(selector).first.bounding_box()
        assert box and box["y"] + box["height"] <= size[1], selector
    assert page.locator(".fb-do pre").bounding_box()["y"] < size[1]
    page.context.close()


def test_fix_can_be_copied(chromium: Any, base: str) -> None:
    page = open_page(chromium, base + ENTRY, permissions=["clipboard-read", "clipboard-write"])
    page.locator(".fb-do .fb-copy").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("class BoundedTemperature(nn.Module):") and "\n\n    def __init__" in copied
    page.context.close()


def test_checklist_is_remembered(chromium: Any, base: str) -> None:
    page = open_page(chromium, base + ENTRY)
    page.locator(".fb-check input").nth(1).check()
    page.reload()
    assert page.locator(".fb-check input").nth(1).is_checked() and not page.locator(".fb-check input").nth(0).is_checked()
    page.context.close()


def test_facets_live_in_the_address(chromium: Any, base: str) -> None:
    page = open_page(chromium, base + "browse/")
    shown = page.locator(".fb-row:visible")
    assert shown.count() == 4
    page.get_by_label(re.compile(r"^hang\b")).check()
    assert shown.count() == 1 and "visibility=hang" in page.url
    assert page.locator(".fb-browse__count").inner_text() == "1 of 4 failures"
    page.get_by_label(re.compile(r"^silent\b")).check()  # values of one facet add up
    assert shown.count() == 3
    page.get_by_label("Filter by words").fill("temperature")
    assert shown.count() == 1 and "q=temperature" in page.url
    page.reload()
    assert shown.count() == 1 and page.get_by_label(re.compile(r"^hang\b")).is_checked()
    page.goto(base + "browse/?sort=title")
    titles = page.locator(".fb-row__title").all_inner_texts()
    assert titles == sorted(titles, key=str.lower)
    page.context.close()


def test_facets_work_by_keyboard(chromium: Any, base: str) -> None:
    page = open_page(chromium, base + "browse/")
    page.get_by_label("Filter by words").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page).to_have_url(re.compile("category="))
    assert page.locator(".fb-row:visible").count() < 4
    page.context.close()


def test_pasted_error_line_finds_its_entry(chromium: Any, base: str) -> None:
    page = open_page(chromium, base, permissions=["clipboard-read", "clipboard-write"])
    line = "[rank0]: 2026-11-30 10:00:00 RuntimeError: Timed out waiting 73214ms for recv operation to complete ~^*:"
    page.evaluate("text => navigator.clipboard.writeText(text)", line)
    page.locator(".md-search__input").click()
    page.keyboard.press("Control+V")
    first = page.locator(".md-search-result__link").first
    first.wait_for()
    assert "fsdp-divergent-parameter-init-hang" in first.get_attribute("href")
    page.context.close()


def test_home_search_opens_the_results(chromium: Any, base: str) -> None:
    page = open_page(chromium, base)
    page.locator("#fb-find").press_sequentially("temperature collapse", delay=20)
    page.locator(".md-search-result__link").first.wait_for()
    assert "learned-temperature-collapse" in page.locator(".md-search-result__link").first.get_attribute("href")
    assert page.locator(".md-search__input").input_value() == "temperature collapse"
    page.context.close()


def test_lost_page_searches_for_what_was_named(chromium: Any, base: str) -> None:
    page = open_page(chromium, base + "404.html")
    page.evaluate("history.replaceState(null, '', '/entries/temperature-colapse/')")
    assert page.locator("#fb-find").count() == 1
    page.context.close()


def test_hostile_entry_runs_nothing(chromium: Any, hostile_site: Path, serve: Callable[[Path], str]) -> None:
    address = serve(hostile_site)
    for path in ("", "browse/", "families/", "entries/hostile-entry/", "entries/representation-collapse/"):
        page = open_page(chromium, address + path, bypass_csp=True)
        assert page.evaluate("window.pwned") is None, path
        assert all(url.startswith((address, "data:", "blob:")) for url in page.requested), path
        page.locator(".md-search__input").click()
        page.keyboard.type("pwned script")
        page.locator(".md-search-result__link").first.wait_for()
        page.wait_for_timeout(200)
        assert page.evaluate("window.pwned") is None, f"search on {path}"
        page.context.close()


# --- the diagnosis box, over a stand-in for the package --------------------------------------------


@pytest.fixture(scope="module")
def one_load(chromium: Any, base: str, root: Path) -> Any:
    if not (root / "node_modules" / "pyodide").is_dir():
        pytest.skip("npm ci was not run")
    page = open_page(chromium, base, permissions=["clipboard-read", "clipboard-write"])
    page.wait_for_load_state("networkidle")
    yield page
    page.context.close()


@pytest.fixture()
def box(one_load: Any, base: str) -> Any:
    """The same page for all, emptied: starting Python takes seconds."""
    if one_load.url != base:
        one_load.goto(base)
    for _ in range(one_load.locator(".fb-given button").count()):
        one_load.locator(".fb-given button").first.click()
    expect(one_load.locator(".fb-given li")).to_have_count(0)
    one_load.locator(".fb-result").evaluate("e => e.replaceChildren()")
    return one_load


def diagnose(page: Any, text: str, timeout: float = 60_000) -> Any:
    page.locator(".fb-result").evaluate("e => e.replaceChildren()")
    page.locator(".fb-drop textarea").fill(text)
    page.get_by_role("button", name="Diagnose").click()
    page.locator(".fb-result > *").first.wait_for(timeout=timeout)
    return page.locator(".fb-result")


def test_box_shows_a_diagnosis(box: Any, base: str) -> None:
    assert not any("pyodide" in url for url in box.requested)  # first use of this page: nothing was loaded before
    shown = diagnose(box, "step 47 loss nan temperature nan")
    assert "Known failure" in shown.inner_text() and "rank 0" in shown.inner_text() and "first to print" in shown.inner_text()
    assert "Learned <b>Temperature</b> Collapse" in shown.inner_text() and "90 %" in shown.inner_text()
    assert (
        "line 48" in shown.inner_text()
        and "fix code" in shown.inner_text()
        and "peer closed × 3"
        in shown.locator("details").inner_text() + shown.locator("details ul").evaluate("e => e.textContent")
    )
    assert shown.locator("a").first.get_attribute("href") == base + ENTRY
    assert box.evaluate("window.pwned") is None
    before = len(box.requested)
    assert "Looks healthy" in diagnose(box, "all fine").inner_text()
    assert len(box.requested) == before, box.requested[before:]  # nothing leaves, nothing more is loaded
    assert (
        "First abnormal line" in diagnose(box, "odd").inner_text() and "look at rank 1" in box.locator(".fb-result").inner_text()
    )


def test_result_view_is_accessible(chromium: Any, base: str, axe: str, root: Path) -> None:
    if not (root / "node_modules" / "pyodide").is_dir():
        pytest.skip("npm ci was not run")
    page = open_page(chromium, base + ENTRY, bypass_csp=True)
    shown = diagnose(page, "step 47 loss nan temperature nan")
    assert "Yes: this entry matches" in shown.inner_text()
    assert violations(page, axe) == []
    page.evaluate("document.querySelector('label[for=__palette_1]')?.click()")
    page.context.close()


def test_box_error_is_one_line_and_leaves_it_usable(box: Any) -> None:
    text = diagnose(box, "BOOM").inner_text()
    assert text == "ValueError: bad input: boom"
    assert "Looks healthy" in diagnose(box, "fine").inner_text()


def test_box_can_be_cancelled_and_starts_again(box: Any) -> None:
    diagnose(box, "fine")
    box.locator(".fb-drop textarea").fill("SLEEP")
    box.get_by_role("button", name="Diagnose").click()
    box.get_by_role("button", name="Cancel").click()
    box.get_by_text("Cancelled.").wait_for(timeout=2000)
    assert "Looks healthy" in diagnose(box, "fine").inner_text()


def test_box_takes_several_files(box: Any, tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank_{rank}.log").write_text("fine\n" * 10)
    box.locator("input[type=file]").set_input_files([str(p) for p in sorted(tmp_path.glob("*.log"))])
    expect(box.locator(".fb-given li")).to_have_count(3)
    box.get_by_role("button", name="Diagnose").click()
    box.locator(".fb-verdict").wait_for()
    assert "150 characters in 3" in box.locator(".fb-verdict").inner_text()
    box.locator(".fb-given button").first.click()
    expect(box.locator(".fb-given li")).to_have_count(2)


def test_a_five_megabyte_paste_does_not_freeze_the_page(box: Any) -> None:
    diagnose(box, "fine")
    box.evaluate(
        """() => {
          window.gap = 0; let last = performance.now();
          (function tick() {
            const now = performance.now();
            window.gap = Math.max(window.gap, now - last);
            last = now;
            requestAnimationFrame(tick);
          })();
          const data = new DataTransfer();
          data.setData('text', 'step 1 loss 2.0 all fine here\\n'.repeat(175000));
          const event = new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true });
          window.gap = 0; last = performance.now();
          document.querySelector('.fb-drop textarea').dispatchEvent(event);
        }"""
    )
    box.locator(".fb-given li").wait_for()
    assert "5.3 MB" in box.locator(".fb-given").inner_text()
    box.locator(".fb-result").evaluate("e => e.replaceChildren()")
    box.get_by_role("button", name="Diagnose").click()
    box.locator(".fb-verdict").wait_for(timeout=20_000)
    assert "5250000 characters" in box.locator(".fb-verdict").inner_text()
    assert box.evaluate("window.gap") < 200


def test_samples_lead_to_a_result(box: Any) -> None:
    box.get_by_role("button", name="Learned Temperature Collapse").click()
    box.locator(".fb-verdict").wait_for(timeout=60_000)
    assert json.loads(box.evaluate("window.fbLast"))["verdict"] == "diagnosed"


def test_a_share_link_carries_the_masked_result(box: Any, base: str) -> None:
    diagnose(box, "step 47 loss nan temperature nan")
    box.get_by_role("button", name="Copy share link").click()
    expect(box.get_by_role("button", name="Copied, names masked")).to_be_visible()
    link = box.evaluate("navigator.clipboard.readText()")
    assert link.startswith(base + "#result=") and len(link) < 4000
    before = len(box.requested)
    box.goto("about:blank")
    box.goto(link)
    box.locator(".fb-verdict").wait_for()
    assert "masked 32 characters" in box.locator(".fb-result").inner_text()
    assert "someone else" in box.locator(".fb-result").inner_text() and box.evaluate("window.pwned") is None
    assert not any("pyodide" in url or "result" in url.split("#")[0] for url in box.requested[before:])
    box.goto("about:blank")
    box.goto(base + "#result=AAAA")
    expect(box.locator(".fb-result")).to_have_text("This share link is damaged.")


def test_text_for_an_issue_is_masked(box: Any) -> None:
    diagnose(box, "odd")
    box.get_by_role("button", name="Copy for an issue").click()
    expect(box.get_by_role("button", name="Copied, names masked")).to_be_visible()
    assert box.evaluate("navigator.clipboard.readText()") == "## masked 3 characters in 1"
