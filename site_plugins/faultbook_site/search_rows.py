"""What the search looks through: one row per entry, of the words a reader would type or paste."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any

from . import markup
from .catalogue import Entry
from .runs import logs, matched_lines, patterns

ANSWER, LINES, LONGEST = 130, 360, 630  # characters: of the answer, of log lines, of all; they keep the index small
NAMES, SECTION = 8, 160
_WORD = re.compile(r"[^\W_](?:[\w.']*\w)?")
# What the search does not look for (part of its list of stop words).
_STOP = """
a an and are as at be been but by can could did do does for from had has have how if in into is it its may no not of on one only
or other so some than that the their them then there these they this to was were what when where which while who will with
"""
NO_WORDS = frozenset(_STOP.split())
# When and where it was printed: a time, an address, the folders of a path. Nobody's next line has the same.
_PLACES = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:[\d.,]+Z?|0x[0-9a-f]+|(?:/[\w.@+-]+)+/(?=[\w.])|\b\d{7,}\b")
_CODE = re.compile(r"(?:exit|code|status|signal|xid)", re.IGNORECASE)


def row(entry: Entry, hub: bool = False) -> dict[str, Any]:
    """In the layout of Material's index. Its worker prints title and text as HTML, hence the escaping."""
    made: dict[str, Any] = {
        "location": f"entries/{entry['slug']}/",
        "title": html.escape(markup.clean(entry["title"])),
        "text": "".join(f"<p>{html.escape(part)}</p>" for part in parts(entry)),
    }
    names = [html.escape(markup.clean(a)) for a in entry.get("aliases") or ()]
    if names:  # shown beneath a result; other names count like the title
        made["tags"] = names[:NAMES]
    if hub:  # a line that several causes print is answered by the page that tells them apart
        made["boost"] = 1.25
    return made


def parts(entry: Entry) -> list[str]:
    """The answer (it is what a result shows), log lines as printed, then the words that stand in neither."""
    whole = markup.plain(entry.get("quick_answer", ""))
    answer = whole if len(whole) <= ANSWER else _cut(whole, ANSWER) + "…"
    lines: list[str] = []
    for line in _lines(entry):
        if sum(map(len, lines)) + len(line) <= LINES:
            lines.append(line)
    seen = {w.lower() for part in (str(entry["title"]), answer, *lines) for w in _WORD.findall(part)}
    rest: list[str] = []
    for text in _further(entry):
        for word in _WORD.findall(text):
            if len(word) > 1 and word.lower() not in seen and word.lower() not in NO_WORDS:
                seen.add(word.lower())
                rest.append(word)
    space = LONGEST - len(answer) - sum(map(len, lines))
    return [p for p in (answer, *lines, _cut(" ".join(rest), space)) if p]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most + 1].rsplit(" ", 1)[0]


def beginning(section: str) -> str:
    """Of the HTML of a section of a hand-written page: its first words."""
    return _cut(" ".join(re.sub(r"<[^>]*>", " ", section).split()), SECTION)


def _lines(entry: Entry) -> Iterable[str]:
    """What failing runs printed, here and in the wild; of lines alike but for numbers, one."""
    wanted = patterns(entry)
    seen = set()
    for line in [*matched_lines(entry, limit=4), *_recorded(entry, wanted)]:
        plain = _cut(" ".join(_PLACES.sub(" ", line).split()), 200)
        shape = re.sub(r"\d+", "0", plain)
        if shape not in seen:
            seen.add(shape)
            yield plain


def _recorded(entry: Entry, wanted: list[re.Pattern[str]]) -> Iterable[str]:
    for _, text in logs(entry, "recorded"):
        for line in markup.clean(text).split("\n"):
            if any(p.search(line) for p in wanted):
                yield line


def _further(entry: Entry) -> Iterable[str]:
    literal = [literal_text(p.pattern) for p in patterns(entry)]
    yield from (code for _, codes in literal for code in codes)
    yield from (text for text, _ in literal)
    yield from (markup.plain(s.get("observe", "")) for s in entry.get("symptoms") or ())


def literal_text(pattern: str) -> tuple[str, list[str]]:
    """The literal words of a pattern, so that lines no run printed here are found too; and its exit codes, as the query
    writes them (search_query.js)."""
    plain = _unescape(pattern)
    codes = re.findall(r"-?\b\d{1,3}\b", plain) if _CODE.search(plain) else []
    return plain, [f"rc{c.replace('-', 'm')}" for c in codes]


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
        if pattern.startswith("(?:", i):
            out.append(" ")
            i += 3
            continue
        if char in "|()?*+{}^$":
            out.append(" " if char != "?" else "")
            i += 1
            continue
        out.append(char)
        i += 1
    return "".join(out)
