"""Makes the pictures of docs/what-it-looks-like.md from a built site, in a real Chromium.

    make site && python tests/site_plugins/screenshots.py [SITE] [OUT]

Needs playwright, Chromium and Pillow. Each picture is a WebP file below 150 kB.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import host
from browser import ARGS, CHROMIUM
from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent.parent
MOST = 150_000
SAMPLE = "Four ranks hang"
# name → (address, selector to bring to the top, or "")
VIEWS = {
    "home": ("", ""),
    "browse": ("browse/?visibility=silent", ""),
    "families": ("families/", ""),
    "entry": ("entries/learned-temperature-collapse/", ""),
    "runs": ("entries/learned-temperature-collapse/", "#runs"),
    "hub": ("entries/collective-desync/", ""),
    "decision-table": ("entries/collective-desync/", "#routes"),
    "diagnosis": ("", ".fb-result"),
}
DESKTOP_ONLY = ("families", "runs")
# Desktop in the light scheme, phone in the dark one: every view in both costs the reader more than it shows.
SCREENS = ((1280, 800, "light"), (390, 844, "dark"))


def main() -> int:
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "assets" / "screenshots"
    out.mkdir(parents=True, exist_ok=True)
    _, base = host.serve(site)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        for width, height, scheme in SCREENS:
            size = {"width": width, "height": height}
            context = browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=1.5 if width < 600 else 1)
            page = context.new_page()
            for name, (address, top) in VIEWS.items():
                if width < 600 and name in DESKTOP_ONLY:
                    continue
                show(page, base + address, name, top)
                path = out / f"{name}-{width}.webp"
                path.write_bytes(compressed(page.screenshot()))
                print(f"{path.name}  {path.stat().st_size / 1000:.0f} kB")
            context.close()
        browser.close()
    return 0


def show(page: Page, address: str, name: str, top: str) -> None:
    page.goto(address)
    if name == "diagnosis":
        page.get_by_role("button", name=SAMPLE).click()
        page.locator(".fb-verdict").wait_for(timeout=90_000)
    if top:
        # From the top in one go: a scroll upwards would bring up the button that leads there.
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(400)
        page.locator(top).evaluate("e => scrollTo(0, e.getBoundingClientRect().top + scrollY - 70)")
    page.evaluate("document.fonts.ready.then(() => 0)")
    page.wait_for_timeout(600)


def compressed(png: bytes) -> bytes:
    image = Image.open(io.BytesIO(png)).convert("RGB")
    for quality in (88, 80, 70, 60):
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", quality=quality, method=6)
        if buffer.tell() < MOST:
            return buffer.getvalue()
    raise ValueError("a picture does not fit into 150 kB")


if __name__ == "__main__":
    raise SystemExit(main())
