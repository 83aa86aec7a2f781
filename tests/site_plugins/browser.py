"""How the tests look at a page: which Chromium, with which switches, and what they ask of it."""

from __future__ import annotations

from typing import Any

CHROMIUM = "/usr/bin/chromium"
ARGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


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


def violations(page: Any, axe: str, within: str = "html") -> list[str]:
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.evaluate(axe + "\n;0")
    found = page.evaluate("within => axe.run(within, {resultTypes: ['violations']})", within)
    return [f"{v['id']}: {n['html'][:160]}" for v in found["violations"] for n in v["nodes"]]
