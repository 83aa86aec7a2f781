"""An entry as plain text for the terminal: the same words as on its page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

Entry = Mapping[str, Any]


def entry_text(entry: Entry) -> str:
    """The whole entry; sections that it lacks are left out."""
    return "\n".join(_lines(entry)).rstrip() + "\n"


def _lines(entry: Entry) -> Iterator[str]:
    yield entry["title"]
    yield "=" * len(entry["title"])
    yield f"{entry['slug']} · {entry['category']} · severity {entry['severity']} · {entry['visibility']}"
    yield ""
    yield from _wrap(entry["quick_answer"])
    yield from _section("Symptoms", [f"{s['observe']} ({s['why']})" for s in entry.get("symptoms", ())])
    yield from _text("Root cause", entry.get("root_cause"))
    yield from _section("Confirm", [_step(c) for c in entry.get("confirm", ())], numbered=True)
    yield from _section("Where next", [_route(r) for r in entry.get("routes", ())])
    yield from _text("Harmless unless", entry.get("harmless_unless"))
    fix = entry.get("fix") or {}
    yield from _text("Fix", fix.get("summary"))
    code = (entry.get("code") or {}).get("fixed")
    if code:
        yield ""
        yield textwrap.indent(code.rstrip(), "    ")
    if fix.get("why"):
        yield ""
        yield from _wrap("Why it works: " + fix["why"])
    if fix.get("risk"):
        yield from _wrap("Risk: " + fix["risk"])
    action = entry.get("action") or {}
    yield from _text("Action", f"{action['do']}: {action['when']}" if action else None)
    verify = entry.get("verify") or {}
    yield from _text("Verify", f"{verify['command']}\n  expect: {verify['expect']}" if verify else None)
    yield from _section("Not this if", [f"{n['entry']}: {n['because']}" for n in entry.get("not_this_if", ())])
    for when, items in (entry.get("prevention") or {}).items():
        yield from _section(f"Prevention, {when.replace('_', ' ')}", list(items))
    yield from _section("References", [f"{r['title']} ({r['date']}) {r['url']}" for r in entry.get("references", ())])


def _step(step: Mapping[str, str]) -> str:
    return f"{step['step']} {step['how']} Expect: {step['expect']}"


def _route(route: Mapping[str, Any]) -> str:
    test = f" (to decide: {route['test']})" if route.get("test") else ""
    return f"{route['when']} → {route['to']}{test}"


def _text(title: str, body: str | None) -> Iterator[str]:
    if body:
        yield ""
        yield title
        yield "-" * len(title)
        for paragraph in body.strip().split("\n"):
            yield from _wrap(paragraph)


def _section(title: str, items: list[str], numbered: bool = False) -> Iterator[str]:
    if items:
        yield ""
        yield title
        yield "-" * len(title)
        for number, item in enumerate(items, 1):
            mark = f"{number}. " if numbered else "- "
            yield from textwrap.wrap(" ".join(item.split()), 100, initial_indent=mark, subsequent_indent="  ")


def _wrap(text: str) -> Iterator[str]:
    yield from textwrap.wrap(" ".join(text.split()), 100)
