"""The diagnosis box, over a stand-in for the package that can be driven into every state."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import open_page, violations

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
ENTRY = "entries/learned-temperature-collapse/"


@pytest.fixture(scope="module")
def base(site: Path, serve: Callable[[Path], str]) -> str:
    return serve(site)


@pytest.fixture(scope="module")
def one_load(chromium: Any, base: str, root: Path) -> Any:
    if not (root / "node_modules" / "pyodide").is_dir():
        pytest.skip("npm ci was not run")
    page = open_page(chromium, base + ENTRY, permissions=["clipboard-read", "clipboard-write"], bypass_csp=True)
    page.wait_for_load_state("networkidle")
    page.locator(".fb-fold > summary").click()
    yield page
    page.context.close()


@pytest.fixture()
def box(one_load: Any, base: str) -> Any:
    """The same page for all, emptied: starting Python takes seconds."""
    if one_load.url != base + ENTRY:
        one_load.goto(base + ENTRY)
        one_load.locator(".fb-fold > summary").click()
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
        "line 48 · rank 0" in shown.inner_text()
        and "Fix the code" in shown.inner_text()
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


def test_result_view_is_accessible(box: Any, axe: str) -> None:
    """In both schemes and at both widths, over one diagnosis."""
    schemes = {"light": "default", "dark": "slate"}
    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "dark"), (390, "light")):
        box.set_viewport_size({"width": width, "height": 844})
        box.evaluate("name => document.body.setAttribute('data-md-color-scheme', name)", schemes[scheme])
        box.wait_for_timeout(300)  # colours change slowly
        if width == 1280 and scheme == "light":
            diagnose(box, "step 47 loss nan temperature nan")
            box.locator(".fb-result summary").first.click()
        assert violations(box, axe, ".fb-paste") == [], (width, scheme)
        assert box.evaluate("document.documentElement.scrollWidth") <= width
    box.set_viewport_size({"width": 1280, "height": 844})


def test_the_page_of_an_entry_says_whether_it_matches(box: Any) -> None:
    for text, answer in (
        ("temperature nan", "Yes: this entry matches (the cause)."),
        ("another entry", "This entry does not match. What does:"),
        ("odd", "This entry does not match, and no other does."),
    ):
        diagnose(box, text)
        assert box.locator(".fb-here").inner_text() == answer


def test_box_error_is_one_line_and_leaves_it_usable(box: Any) -> None:
    text = diagnose(box, "BOOM").inner_text()
    assert text == "ValueError: bad input: boom"
    assert "Looks healthy" in diagnose(box, "fine").inner_text()


def test_box_can_be_cancelled_or_runs_out_of_time_and_starts_again(box: Any) -> None:
    diagnose(box, "fine")
    box.locator(".fb-drop textarea").fill("SLEEP")
    box.get_by_role("button", name="Diagnose").click()
    box.get_by_role("button", name="Cancel").click()
    box.get_by_text("Cancelled.").wait_for(timeout=2000)
    assert "Looks healthy" in diagnose(box, "fine").inner_text()
    box.evaluate("window.faultbook.engine.limit = 500")
    assert "No answer within 1 seconds; the engine was restarted." in diagnose(box, "SLEEP").inner_text()
    box.evaluate("window.faultbook.engine.limit = 60000")


def test_box_takes_several_files(box: Any, tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank_{rank}.log").write_text("fine\n" * 10)
    box.get_by_label("Log files").set_input_files([str(p) for p in sorted(tmp_path.glob("*.log"))])
    expect(box.locator(".fb-given li")).to_have_count(3)
    box.get_by_role("button", name="Diagnose").click()
    box.locator(".fb-verdict").wait_for()
    assert "150 characters in 3" in box.locator(".fb-verdict").inner_text()
    box.locator(".fb-given button").first.click()
    expect(box.locator(".fb-given li")).to_have_count(2)
    dropped = """(names) => {
      const data = new DataTransfer();
      for (const name of names) data.items.add(new File(["fine\\n"], name));
      const event = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
      document.querySelector(".fb-drop").dispatchEvent(event);
    }"""
    box.evaluate(dropped, ["rank_3.log", "rank_4.log"])
    expect(box.locator(".fb-given li")).to_have_count(4)
    many = [{"name": f"rank_{n}.log", "mimeType": "text/plain", "buffer": b"fine\n"} for n in range(300)]
    box.get_by_label("Log files").set_input_files(many)
    expect(box.locator(".fb-given li").last).to_contain_text("and 298 more files")
    box.get_by_role("button", name="Diagnose").click()
    expect(box.locator(".fb-verdict")).to_contain_text("1610 characters in 304")
    box.get_by_role("button", name="remove all").click()
    expect(box.locator(".fb-given li")).to_have_count(0)


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
    assert link.startswith(base + ENTRY + "#result=") and len(link) < 4000
    before = len(box.requested)
    box.goto("about:blank")
    box.goto(link)
    box.locator(".fb-verdict").wait_for()
    seen = box.locator(".fb-lines").inner_text()
    assert "masked" in seen and "loss nan" not in seen
    assert "someone else" in box.locator(".fb-result").inner_text() and box.evaluate("window.pwned") is None
    assert not any("pyodide" in url or "result=" in url.split("#")[0] for url in box.requested[before:])
    box.goto("about:blank")
    box.goto(base + ENTRY + "#result=AAAA")
    expect(box.locator(".fb-result")).to_have_text("This share link is damaged.")


def test_text_for_an_issue_is_masked(box: Any) -> None:
    diagnose(box, "odd")
    box.get_by_role("button", name="Copy for an issue").click()
    expect(box.get_by_role("button", name="Copied, names masked")).to_be_visible()
    assert box.evaluate("navigator.clipboard.readText()") == "## masked 3 characters in 1"


def test_a_failure_that_is_not_known_becomes_a_report(box: Any) -> None:
    """The masked text is shown before it goes anywhere; where the project has a tracker, a link carries it there."""
    diagnose(box, "odd")
    box.get_by_role("button", name="Report this failure").click()
    report = box.get_by_label("The report, names masked")
    expect(report).to_have_value("## masked 3 characters in 1")
    link = box.get_by_role("link", name="Open it as an issue")
    sent = urllib.parse.parse_qs(urllib.parse.urlsplit(link.get_attribute("href")).query)
    assert sent == {
        "template": ["run-failed.yml"],
        "title": ["Not recognised: Odd"],
        "report": ["## masked 3 characters in 1"],
    }
