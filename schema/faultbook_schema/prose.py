"""What prose of an entry may not do: say what is true of every failure, say nothing, go on too long, repeat itself.

A linter judges words, not truth: it finds what a reviewer would send back without reading further.
"""

# ruff: noqa: SIM905  (word lists read better as text)
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from .signature_rules import Found
from .yaml_nodes import Loc

_NO_PROSE = frozenset(
    "schema slug kind category severity visibility parent aliases tags stages applies_to signatures references related repro"
    " recorded command code system stack status entry to signature do date url permits introduced fixed extra_line".split()
)
"""Fields that are names, code or somebody else's words."""

WORDS = {
    "title": 12,
    "symptoms.observe": 60,
    "symptoms.why": 60,
    "root_cause": 80,
    "mechanism": 500,
    "origin": 80,
    "confirm.step": 30,
    "confirm.how": 80,
    "confirm.expect": 80,
    "fix.summary": 60,
    "fix.why": 80,
    "fix.risk": 80,
    "action.when": 60,
    "not_this_if.because": 50,
    "misread_as.reading": 30,
    "misread_as.why": 60,
    "routes.when": 40,
    "routes.test": 60,
    "harmless_unless": 90,
    "verify.expect": 50,
}
"""At most so many words; every other field 90."""
_OTHERWISE = 90

_BOILERPLATE = re.compile(
    r"\b(?:it is (?:very |extremely )?important to|best practices?|in conclusion|please note|needless to say"
    r"|as mentioned (?:above|before)|(?:various|several|many) (?:reasons|factors|issues|causes)|for (?:some|unknown) reasons?"
    r"|(?:may|can|could|might) (?:lead to|cause|result in) (?:\w+ )?(?:issues|problems|errors|failures)"
    r"|(?:unexpected|undesired) behaviou?rs?|something (?:goes|went|is) wrong"
    r"|check (?:your|the) (?:code|configuration|setup|environment|logs?)(?=[.;,]|$)"
    r"|(?:carefully|thoroughly) (?:check|review|read|inspect)|(?:review|check|inspect) [^.]{0,30}\b(?:carefully|thoroughly)"
    r"|(?:make sure|ensure)(?: that)? everything|ensure proper|properly (?:configured|set up|installed)"
    r"|(?:contact|ask) (?:your |the )?(?:system )?(?:administrator|support)(?=[.;,]|$)"
    r"|seamless(?:ly)?|delves?|leverag(?:e|es|ing)|state-of-the-art|a wide (?:range|variety) of"
    r"|plays? a (?:crucial|vital|key) role|(?:crucial|vital|essential) to|lorem ipsum)\b",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    r"(?:(?:it|this|that|the (?:error|problem|issue|failure|run|job|training|model|code)) )?"
    r"(?:works?|is (?:fixed|gone|fine|ok|solved|broken|bad)|fails?|crash(?:es|ed)?|errors?|no (?:more )?errors?|yes|no|ok(?:ay)?"
    r"|fine|good|as (?:expected|usual)|success(?:ful)?|normal|wrong|bad|n/?a|none|unknown|(?:see|as) above|self-explanatory"
    r"|tbd|fixme|\?+|\.+|-+)(?: (?:again|now|anymore))?[.!]?",
    re.IGNORECASE,
)
_CONCRETE = frozenset(
    ("symptoms.observe", "symptoms.why", "confirm.expect", "verify.expect", "fix.summary", "fix.why", "root_cause", "action.when")
)
_FENCED = re.compile(r"```.*?(?:```|$)", re.S)
_CODE = re.compile(r"`[^`\n]*`")
_ROW = re.compile(r"(?m)^\s*\|.*$")
_END = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"\w+")
SENTENCE_WORDS = 8
"""A shorter sentence may stand in several entries by chance."""


def texts(entry: Mapping[str, Any]) -> Iterator[tuple[Loc, str, str]]:
    """(place, name of the field, text) of all prose."""
    yield from _texts(entry, (), "")


def _texts(value: Any, loc: Loc, name: str) -> Iterator[tuple[Loc, str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _NO_PROSE:
                yield from _texts(inner, (*loc, key), f"{name}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*loc, index), name)
    elif isinstance(value, str):
        yield loc, name, value


def problems_of(entry: Mapping[str, Any]) -> Iterator[Found]:
    """Faults of the prose of one entry as read from YAML."""
    said: dict[str, str] = {}
    for loc, name, text in texts(entry):
        if re.search(r"\bTODO\b", text):
            continue  # reported as such
        plain = _plain(text)
        for match in islice(_BOILERPLATE.finditer(plain), 3):
            hint = "say what is true of this failure only, or leave the sentence out"
            yield (loc, f"`{name}`: “{match[0]}” would be true of every failure", "prose-boilerplate", hint)
        if name in _CONCRETE and len(plain) < 60 and _EMPTY.fullmatch(plain.strip()):
            hint = "name what is seen: the line, the number, the command's output"
            yield (loc, f"`{name}`: “{text.strip()[:40]}” says nothing that can be checked", "prose-empty", hint)
        words, limit = len(plain.split()), WORDS.get(name, _OTHERWISE)
        if words > limit:
            hint = "keep what this run shows" if name == "mechanism" else "keep what decides; the story belongs into `mechanism`"
            yield (loc, f"`{name}`: {words} words; at most {limit}", "prose-long", hint)
        for sentence in _sentences(plain):
            if sentence in said:
                first = said[sentence]
                hint = "say it once, in the field where the reader looks for it"
                yield (loc, f"`{name}` repeats a sentence of `{first}`", "prose-repeated", hint)
                break
            said[sentence] = name


def repeated(entries: Sequence[tuple[str, Mapping[str, Any]]], of: frozenset[str] | None = None) -> Iterator[tuple[str, Found]]:
    """(slug, fault): sentences that stand word for word in three or more entries; `of`: only in these."""
    where: dict[str, dict[str, tuple[Loc, str]]] = {}
    for slug, entry in entries:
        for loc, name, text in texts(entry):
            for sentence in () if "TODO" in text else _sentences(_plain(text)):
                where.setdefault(sentence, {}).setdefault(slug, (loc, name))
    for places in where.values():
        if len(places) < 3:
            continue
        for slug, (loc, name) in sorted(places.items()):
            if of is None or slug in of:
                others = ", ".join(s for s in sorted(places) if s != slug)
                message = f"`{name}`: a sentence that {len(places) - 1} other entries have word for word"
                yield slug, (loc, message, "prose-boilerplate", f"{others[:100]}: say what differs here")


@lru_cache(maxsize=65536)
def _plain(text: str) -> str:
    """The prose of a Markdown text: no code, no quoted messages, no table rows."""
    if "`" in text:
        text = _FENCED.sub(" ", text)
        text = _CODE.sub(" x ", text)
    return _ROW.sub(" ", text) if "|" in text else text


@lru_cache(maxsize=65536)
def _sentences(plain: str) -> tuple[str, ...]:
    """The sentences long enough to be somebody's own, as words."""
    found = []
    for sentence in _END.split(plain):
        words = _WORD.findall(sentence.lower())
        if len(words) >= SENTENCE_WORDS and words.count("x") * 3 < len(words):
            found.append(" ".join(words))
    return tuple(found)
