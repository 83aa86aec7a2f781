"""What search engines and link previews read: description, Open Graph, JSON-LD."""

from __future__ import annotations

import json
from typing import Any

from . import markup
from .catalogue import Entry


def meta(entry: Entry, url: str, dates: tuple[str, str] = ("", ""), name: str = "Faultbook") -> dict[str, str]:
    """Values for the template, each already safe where it is printed. `dates`: first and last committed, where known."""
    return {
        "title": markup.attribute(entry["title"]),
        "description": markup.attribute(shorten(markup.plain(entry.get("quick_answer", "")), 300)),
        "jsonld": json_ld(entry, url, dates, name),
    }


def home_json_ld(name: str, description: str, site_url: str) -> str:
    base = site_url.rstrip("/") + "/"
    search = {"@type": "SearchAction", "target": f"{base}browse/?q={{q}}", "query-input": "required name=q"}
    site = {"@type": "WebSite", "name": name, "description": description, "url": base, "potentialAction": search}
    return json.dumps({"@context": "https://schema.org", **site}).replace("<", "\\u003c")


def shorten(value: str, most: int) -> str:
    return value if len(value) <= most else value[: most - 1].rsplit(" ", 1)[0] + "…"


def json_ld(entry: Entry, url: str, dates: tuple[str, str] = ("", ""), name: str = "Faultbook") -> str:
    article: dict[str, Any] = {
        "@type": "TechArticle",
        "headline": shorten(markup.clean(entry["title"]), 110),
        "description": markup.plain(entry.get("quick_answer", "")),
        "url": url,
        "inLanguage": "en",
        **{name: date for name, date in zip(("datePublished", "dateModified"), dates, strict=True) if date},
        "author": {"@type": "Organization", "name": f"The authors of {name}"},
        "keywords": [markup.clean(t) for t in [*(entry.get("tags") or ()), *(entry.get("aliases") or ())]],
    }
    questions = [
        {"@type": "Question", "name": name, "acceptedAnswer": {"@type": "Answer", "text": answer}} for name, answer in faq(entry)
    ]
    graph = [article, {"@type": "FAQPage", "url": url, "mainEntity": questions}] if questions else [article]
    # "<" would let a title close the script element.
    return json.dumps({"@context": "https://schema.org", "@graph": graph}).replace("<", "\\u003c")


def faq(entry: Entry) -> list[tuple[str, str]]:
    """Computed from the entry, never typed."""
    title = markup.clean(entry["title"])
    seen = "; ".join(markup.plain(s.get("observe", "")) for s in entry.get("symptoms") or ())
    pairs = [
        (f"What does it look like? ({title})", seen),
        (f"What causes it? ({title})", markup.plain(entry.get("root_cause", ""))),
        (f"How do I fix it? ({title})", markup.plain((entry.get("fix") or {}).get("summary", ""))),
    ]
    return [(q, a) for q, a in pairs if a]
