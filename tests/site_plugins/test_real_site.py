"""The site of the real kb/, and the real engine in a real browser: the same answers as in this Python."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import build_site

pytest.importorskip("mkdocs")
pytest.importorskip("pydantic")

CASES = 25


@pytest.fixture(scope="module")
def real(root: Path, tmp_path_factory: pytest.TempPathFactory, needs_mkdocs: None) -> Path:
    return build_site(root, tmp_path_factory.mktemp("real"), None)[0]


def entries(site: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((site / "catalog.json").read_text(encoding="utf-8"))["entries"]
    return found


def test_every_entry_has_its_page_and_its_files(real: Path) -> None:
    assert entries(real)
    for entry in entries(real):
        page = (real / "entries" / entry["slug"] / "index.html").read_text(encoding="utf-8")
        proven = any(p["mode"] == "real" for p in entry["proofs"])
        assert ("fb-proof--real" in page) == proven, entry["slug"]
        assert (real / "entries" / f"{entry['slug']}.md").stat().st_size > 500
        for name in entry["logs"]:
            if name.startswith(("broken", "fixed")):
                assert (real / "entries" / entry["slug"] / name).is_file()


@pytest.mark.browser
def test_the_browser_gives_the_same_json(
    real: Path, serve: Callable[[Path], str], chromium: Any, root: Path, request: pytest.FixtureRequest
) -> None:
    if not (root / "node_modules" / "pyodide").is_dir():
        pytest.skip("npm ci was not run")
    import faultbook

    catalog = faultbook.load_catalog(real.parent / "catalogue")
    texts = [text for entry in entries(real) for name, text in sorted(entry["logs"].items()) if not name.startswith("recorded")]
    dev = Path(request.getfixturevalue("shared")) / "cases" / "dev.jsonl" if _has_shared(request) else None
    if dev is not None:
        texts += [json.loads(line)["log"] for line in dev.read_text(encoding="utf-8").splitlines()[:CASES]]
    page = chromium.new_context(bypass_csp=True).new_page()  # the test's own scripts; the policy is tested elsewhere
    requested: list[str] = []
    page.on("request", lambda r: requested.append(r.url))
    page.goto(serve(real))
    times, loaded = [], 0
    for text in texts:
        page.evaluate("t => { window.fbLast = null; document.querySelector('.fb-drop textarea').value = t }", text)
        begun = time.monotonic()
        page.get_by_role("button", name="Diagnose").click()
        page.wait_for_function("window.fbLast !== null || document.querySelector('.fb-result > p:only-child')", timeout=90_000)
        times.append(time.monotonic() - begun)
        loaded = loaded or len(requested)
        given = page.evaluate("window.fbLast")
        assert given is not None, page.locator(".fb-result").inner_text()
        # A text area has no carriage returns; the same text is what is compared.
        want = faultbook.diagnose(text=page.locator(".fb-drop textarea").input_value(), catalog=catalog).to_dict()
        assert json.loads(given) == json.loads(json.dumps(want))
    assert len(requested) == loaded, "something was requested after the engine had loaded"
    print(f"{len(texts)} logs: first {times[0]:.1f} s with loading, then at most {max(times[1:]):.2f} s")
    page.context.close()


def _has_shared(request: pytest.FixtureRequest) -> bool:
    try:
        request.getfixturevalue("shared")
    except pytest.skip.Exception:
        return False
    return True
