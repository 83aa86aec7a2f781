"""A catalogue of any size, for measuring the site: the entries of kb/ again and again, each time in other words.

What costs time and bytes is kept (length of prose, code, logs, proof records, number of sections); what would be
cheaper than in life is not: every copy has words of its own, so that neither a cache nor gzip sees the same text twice.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

# A word of a sentence or a program; never part of a `{region}`, an escape or a number.
WORD = re.compile(r"(?<![\\\w])[a-z]{5,}(?![\w])")
# What the pages read as identifiers, not as words.
IDENTIFIERS = """
slug kind category severity visibility parent entry to relation signature pattern literals series test mode device devices group
language stages tags do system schema date status observed_in role quantifier outcome name url
"""
KEPT = frozenset(IDENTIFIERS.split())
Json = dict[str, Any]


def enlarge(data: Mapping[str, Any], count: int) -> Json:
    """`count` entries made of those of a compiled catalogue; the first copy is the original."""
    originals = data["entries"]
    by_length: dict[int, list[str]] = {}
    for entry in originals:
        for value in _strings(entry):
            for word in WORD.findall(value):
                by_length.setdefault(len(word), []).append(word)
    vocabulary = {length: sorted(set(words)) for length, words in by_length.items()}
    known = {e["slug"] for e in originals}
    out: list[Json] = []
    for copy in range(-(-count // len(originals))):
        words = _other_words(vocabulary, copy)
        for entry in originals[: count - len(out)]:
            out.append(dict(entry) if copy == 0 else _copy(entry, copy, known, words))
    present = {e["slug"] for e in out}
    for entry in out:  # the last copy may be cut short
        if entry.get("parent") not in present:
            entry.pop("parent", None)
    return {**data, "digest": f"enlarged-{count}", "entries": out}


def _other_words(vocabulary: Mapping[int, list[str]], copy: int) -> dict[str, str]:
    """Each word for another of its length: natural in spelling, and different in every copy."""
    chance = random.Random(copy)
    renamed: dict[str, str] = {}
    for words in vocabulary.values():
        renamed.update(zip(words, chance.sample(words, len(words)), strict=True))
    return renamed


def _copy(value: Any, copy: int, known: set[str], words: Mapping[str, str], key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _copy(v, copy, known, words, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_copy(v, copy, known, words, key) for v in value]
    if not isinstance(value, str):
        return value
    if value.partition("#")[0] in known:
        slug, mark, rest = value.partition("#")
        return f"{slug}-{copy}{mark}{rest}"
    if key == "aliases":
        return f"{value}-{copy}"
    if key in KEPT:
        return value
    return WORD.sub(lambda found: words.get(found[0], found[0]), value)


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [s for v in value.values() for s in _strings(v)]
    if isinstance(value, list):
        return [s for v in value for s in _strings(v)]
    return [value] if isinstance(value, str) else []
