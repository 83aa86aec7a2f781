"""A pattern of the portable subset from one line of a log: what changes from run to run is left open.

Numbers, paths, addresses, quoted names and lists of sizes become classes; the words stay. The
result matches its line, or there is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from faultbook.portable import compile_pattern
from faultbook.portable import problems as portable_problems
from faultbook.signatures import Pattern

from .signature_rules import literals_of

ENOUGH = 80
"""Characters of a message after which a word's end is a good place to stop."""
_LONGEST = 160
_ALONE = 24
"""Fixed characters from which a message needs no exception's name before it."""

_TOKEN = re.compile(
    r"(?P<name>(?:\b(?:node|user|ip|dir)-[a-z]{1,2}\b|<masked>|<e-mail>)[\w./@:-]*)"  # what `masking` puts for a name
    r"|(?P<quoted>'[^'\n]{0,300}'|\"[^\"\n]{0,300}\"|`[^`\n]{0,300}`)"
    r"|(?P<url>\w{2,12}://\S+)"
    r"|(?P<path>(?:[A-Za-z]:)?(?:[/\\][\w.+@~-]+){2,}/?|(?:\.{1,2}|~)?/[\w.+@~/-]+)"
    r"|(?P<list>[\[(]\s*\d+(?:\s*[x,]\s*\d+)*,?\s*[\])])"
    r"|(?P<uuid>\b[0-9a-f]{8}-[0-9a-f-]{20,}\b)"
    r"|(?P<hex>\b0x[0-9a-fA-F]+)"
    r"|(?P<address>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?)"
    r"|(?P<float>[-+]?\b\d+\.\d+(?:[eE][-+]?\d+)?|\b\d+[eE][-+]?\d+\b)"
    r"|(?P<number>\d+)"
    r"|(?P<other>[^\x20-\x7e]+)"
    r"|(?P<blank> {2,})"
)
_CLASSES = {
    "name": r"\S+", "url": r"\S+", "path": r"\S+", "uuid": "[0-9a-f-]+", "hex": "0x[0-9a-fA-F]+", "address": r"[\d.:]+",
    "float": r"[-+\d.eE]+", "number": r"\d+", "other": ".{1,40}", "blank": " +",
}  # fmt: skip
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*(?:Error|Exception|Warning|Interrupt|Exit)): (?P<message>.+)")
_PLAIN = ("RuntimeError", "ValueError", "TypeError", "Exception", "AssertionError", "UserWarning", "OSError")
"""Names that say nothing about a failure."""


def pattern_of(text: str, original: str | None = None) -> Pattern | None:
    """The pattern for a line's message; None where nothing fixed is left of it, or no safe pattern matches it.

    Of a masked text the pattern holds no pseudonym: it matches the `original` too.
    """
    text = text.strip()
    lines = (text, text if original is None else original)
    found = _EXCEPTION.search(text)
    tries = [text]
    if found is not None:
        named = f"{found['name']}: {found['message']}"
        plain = found["name"] in _PLAIN and _fixed(found["message"]) >= _ALONE
        tries = [found["message"], named] if plain else [named, found["message"]]
    for message in tries:
        for quotes in (False, True):
            pattern = _checked(_generalised(_shortened(message), keep_quotes=quotes), lines)
            if pattern is not None:
                return pattern
    return None


def _shortened(message: str) -> str:
    """The message's beginning: to the end of its first sentence, or to a word's end after enough of it."""
    end = re.search(r"[.;!](?= |$)", message[24:])
    if end is not None and end.start() + 24 <= _LONGEST:
        return message[: end.start() + 24]
    if len(message) <= _LONGEST:
        return message
    cut = message.rfind(" ", ENOUGH, _LONGEST)
    return message[: cut if cut > 0 else _LONGEST]


def _generalised(message: str, keep_quotes: bool) -> str:
    parts: list[str] = []
    last = 0
    for match in _TOKEN.finditer(message):
        parts.append(_escaped(message[last : match.start()]))
        last = match.end()
        kind, text = str(match.lastgroup), match[0]
        if kind == "quoted":
            quote = text[0]
            # A path or an address in quotes is somebody's own.
            short = len(text) <= 32 and not re.search(r"[/\\\\@]", text)
            parts.append(_escaped(text) if keep_quotes and short else f"{quote}[^{quote}]*{quote}")
        elif kind == "list":
            parts.append(f"{_escaped(text[0])}[\\d, x]+{_escaped(text[-1])}")
        else:
            parts.append(_CLASSES[kind])
    parts.append(_escaped(message[last:]))
    while parts and parts[-1] in ("", " ", *_CLASSES.values()):  # what is left open at the end decides nothing
        parts.pop()
    return "".join(parts).rstrip(" ")


def _fixed(message: str) -> int:
    return len(_TOKEN.sub("", message))


def _escaped(text: str) -> str:
    return re.sub(r"[\^$\\.*+?()\[\]{}|]", r"\\\g<0>", text)


def _checked(text: str, lines: Sequence[str]) -> Pattern | None:
    """The pattern if it is portable, has a literal and matches the lines it was made of."""
    if not text or len(text) > 500 or portable_problems(text) or not literals_of(text):
        return None
    pattern = Pattern(pattern=text, literals=literals_of(text))
    search = compile_pattern(pattern).search
    return pattern if all(search(line.encode("utf-8", "replace")) for line in lines) else None
