"""What the search looks through: one row per entry, of the words a reader would type or paste."""

from __future__ import annotations

import html
from typing import Any

from . import markup
from .catalogue import Entry
from .runs import matched_lines, patterns

LONGEST = 900  # characters of text per entry: keeps the index small at a thousand entries


def row(entry: Entry) -> dict[str, Any]:
    """In the layout of Material's index. Its worker prints title and text as HTML, hence the escaping."""
    return {
        "location": f"entries/{entry['slug']}/",
        "title": html.escape(markup.clean(entry["title"])),
        "text": html.escape(text(entry)),
    }


def text(entry: Entry) -> str:
    """Quick answer first (it is what a result shows), then aliases, log lines and symptoms."""
    parts = [markup.plain(entry.get("quick_answer", ""))]
    parts += [str(a).replace("-", " ") for a in entry.get("aliases") or ()]
    parts += matched_lines(entry, limit=4)
    parts += _literal_text(entry)
    parts += [markup.plain(s.get("observe", "")) for s in entry.get("symptoms") or ()]
    kept: list[str] = []
    for part in (p.strip() for p in parts):
        if part and sum(map(len, kept)) + len(part) <= LONGEST:
            kept.append(part)
    return " · ".join(kept)


def _literal_text(entry: Entry) -> list[str]:
    """The literal words of the signatures, so that lines no run printed here are found too."""
    found = []
    for pattern in patterns(entry):
        literal = "".join(c if c.isalnum() or c in " _:'.-" else " " for c in _unescape(pattern.pattern))
        found.append(" ".join(w for w in literal.split() if len(w) > 2))
    return found


def _unescape(pattern: str) -> str:
    """Drops classes (`\\d`, `[^ ]+`) and keeps escaped punctuation as itself."""
    out, i = [], 0
    while i < len(pattern):
        char = pattern[i]
        if char == "\\" and i + 1 < len(pattern):
            out.append(" " if pattern[i + 1].isalnum() else pattern[i + 1])
            i += 2
            continue
        if char == "[":
            end = pattern.find("]", i + 2)
            i = end + 1 if end > 0 else len(pattern)
            out.append(" ")
            continue
        if pattern.startswith("(?P<", i):
            i = pattern.find(">", i) + 1 or len(pattern)
            continue
        out.append(char)
        i += 1
    return "".join(out)
