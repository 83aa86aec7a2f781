"""What machines read: JSON and Markdown per entry, llms.txt, feed, redirects. Pure: catalogue → files."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import markup
from .catalogue import Catalogue, Entry, in_order, proofs, related, words
from .runs import logs

SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,120}")


def files(
    catalogue: Catalogue,
    texts: Mapping[str, tuple[str, str]],
    site_url: str,
    dates: Mapping[str, tuple[str, str]],
    site_name: str = "Faultbook",
) -> Iterator[tuple[str, str]]:
    """(path below the site, content) of every generated file that is no page. `texts`: slug → its JSON, its Markdown."""
    for slug, entry in catalogue.by_slug.items():
        text, markdown = texts[slug]
        yield f"entries/{slug}.json", text + "\n"
        yield f"entries/{slug}.md", markdown
        for half in ("broken", "fixed"):
            for name, content in logs(entry, half):
                yield f"entries/{slug}/{name}", content
    yield from redirects(catalogue)
    yield "llms.txt", llms(catalogue, site_url, site_name)
    yield "feed.xml", feed(catalogue, site_url, dates, site_name)


def catalog_json(data: Mapping[str, Any], entries: list[str]) -> str:
    """The whole catalogue; the entries are given as the JSON that they already are."""
    rest = {k: v for k, v in sorted(data.items()) if k != "entries"}
    head = json.dumps(rest, ensure_ascii=False, sort_keys=True)[:-1]
    return f'{head}, "entries": [{", ".join(entries)}]}}\n'


def redirects(catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """A page for each alias that has the form of a slug (old names keep resolving)."""
    for slug, entry in catalogue.by_slug.items():
        for alias in entry.get("aliases") or ():
            if SLUG.fullmatch(str(alias)) and alias not in catalogue.by_slug:
                yield (
                    f"entries/{alias}/index.html",
                    (
                        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
                        f"<title>{html.escape(str(entry['title']))}</title>"
                        f'<link rel="canonical" href="../{slug}/"><meta name="robots" content="noindex">'
                        f'<meta http-equiv="refresh" content="0; url=../{slug}/"></head>'
                        f'<body><p>Now at <a href="../{slug}/">{html.escape(str(entry["title"]))}</a></p></body></html>\n'
                    ),
                )


def to_markdown(entry: Entry, catalogue: Catalogue) -> str:
    """The entry as plain Markdown: for coding agents, terminals and copies into an issue."""
    out = [f"# {_line(entry['title'])}", ""]
    facts = [
        words(entry.get("category", "")),
        f"severity {entry.get('severity', '')}",
        str(entry.get("visibility", "")),
        f"id `{entry['slug']}`",
    ]
    facts += [f"proven: {p.mode} on {p.device} {p.date}".rstrip() for p in proofs(entry)[:1]]
    out += [" · ".join(f for f in facts if f.strip()), "", _line(entry.get("quick_answer", "")), ""]

    def part(title: str, *lines: str) -> None:
        kept = [line for line in lines if line.strip()]
        if kept:
            out.extend([f"## {title}", "", *kept, ""])

    code = entry.get("code") or {}
    fix, action = entry.get("fix") or {}, entry.get("action") or {}
    part("Symptoms", *(f"- {_line(s.get('observe', ''))}: {_line(s.get('why', ''))}" for s in entry.get("symptoms") or ()))
    part(
        "Decide",
        *(
            f"- {_line(r.get('when', ''))} → `{r.get('to', '')}`" + (f" (test: {_line(r['test'])})" if r.get("test") else "")
            for r in entry.get("routes") or ()
        ),
    )
    part("Harmless, unless", str(entry.get("harmless_unless", "")))
    part(
        "Fix",
        _line(fix.get("summary", "")),
        fence(fix.get("command"), "bash"),
        fence(code.get("fixed"), "python"),
        f"Why: {_line(fix['why'])}" if fix.get("why") else "",
        f"Risk: {_line(fix['risk'])}" if fix.get("risk") else "",
    )
    part("What to do now", f"{words(action['do'])}: {_line(action.get('when', ''))}" if action.get("do") else "")
    part("Root cause", str(entry.get("root_cause", "")))
    part("Mechanism", str(entry.get("mechanism") or ""))
    part("Fails", fence(code.get("broken"), "python"))
    part(
        "Confirm",
        *(
            f"{n}. {_line(c.get('step', ''))} {_line(c.get('how', ''))} Expect: {_line(c.get('expect', ''))}"
            for n, c in enumerate(entry.get("confirm") or (), 1)
        ),
    )
    part("Not this if", *(f"- {_line(n.get('because', ''))} → `{n.get('entry', '')}`" for n in entry.get("not_this_if") or ()))
    verify = entry.get("verify") or {}
    part("Verify", fence(verify.get("command"), "bash"), _line(verify.get("expect", "")))
    part("Signatures", *(f"- `{s.get('id', '')}` ({s.get('role', '')}): {_patterns(s)}" for s in entry.get("signatures") or ()))
    part("Related", *(f"- `{slug}` ({relation}): {_line(catalogue.title(slug))}" for slug, relation in related(entry, catalogue)))
    part(
        "References",
        *(
            f"- {_line(r.get('title', ''))} ({_line(r.get('date', ''))}): {_line(r.get('url', ''))}"
            for r in entry.get("references") or ()
        ),
    )
    return "\n".join(out).rstrip() + "\n"


def fence(source: Any, language: str) -> str:
    if not source:
        return ""
    body = markup.clean(source).strip("\n")
    ticks = "`" * max(3, 1 + max((len(t) for t in re.findall(r"`+", body)), default=0))
    return f"{ticks}{language}\n{body}\n{ticks}"


def _line(value: object) -> str:
    return " ".join(markup.clean(value).split())


def _patterns(signature: Mapping[str, Any]) -> str:
    tests = [t for group in ("all", "any") for t in signature.get(group) or ()]
    return ", ".join(
        f"`{_line(t['pattern'])}`" if "pattern" in t else f"{_line(' or '.join(t.get('series') or ()))} {t.get('test', '')}"
        for t in tests
    )


def llms(catalogue: Catalogue, site_url: str, name: str) -> str:
    base = site_url.rstrip("/") + "/" if site_url else "/"
    out = [
        f"# {_line(name)}",
        "",
        "> Open encyclopedia of ML-training failures. Every entry states what was run: code that fails, the fix that",
        "> passes, the signature that recognises it in a log.",
        "",
        "To diagnose a log: `pip install faultbook`, `faultbook diagnose PATH… --json`.",
        "",
        "## Data",
        "",
        f"- [catalog.json]({base}catalog.json): every entry in full",
        f"- [signatures.json]({base}signatures.json): the signatures, portable (Python re, RE2, ECMAScript)",
        "",
        "## Entries",
        "",
    ]
    out += [
        f"- [{_line(e['title'])}]({base}entries/{e['slug']}.md): {markup.plain(e.get('quick_answer', ''))}"
        for e in in_order(catalogue.by_slug.values())
    ]
    return "\n".join(out) + "\n"


def feed(catalogue: Catalogue, site_url: str, dates: Mapping[str, tuple[str, str]], name: str = "Faultbook") -> str:
    """Atom, newest first; only entries whose date is known from version control."""
    base = site_url.rstrip("/") + "/" if site_url else "/"
    dated = sorted(((dates[s][0], s) for s in catalogue.by_slug if s in dates), reverse=True)[:50]
    items = "".join(
        f'<entry><id>{base}entries/{slug}/</id><link href="{base}entries/{slug}/"/>'
        f"<title>{html.escape(markup.clean(catalogue.title(slug)))}</title><updated>{date}</updated>"
        f"<summary>{html.escape(markup.plain(catalogue.by_slug[slug].get('quick_answer', '')))}</summary></entry>\n"
        for date, slug in dated
    )
    updated = dated[0][0] if dated else "1970-01-01T00:00:00Z"
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">'
        f"<id>{base}</id><title>{html.escape(name)}: new failures</title><updated>{updated}</updated>"
        f"<author><name>The authors of {html.escape(name)}</name></author>"
        f'<link rel="self" href="{base}feed.xml"/>\n{items}</feed>\n'
    )
