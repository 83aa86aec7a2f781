"""The portable subset of regular expressions, and why a pattern is outside it.

A pattern of the catalogue must mean the same in Python `re` (bytes, ASCII), RE2
(Latin-1) and ECMAScript (flag `u`), and must never need more than bounded time on one
line. The rules:

* A *record* is the text between line ends; `\\n` and `\\r` both end one, so no record
  contains either. Patterns are matched against the bytes of a record, read as Latin-1:
  one byte is one character, and every character class has its ASCII meaning.
* Under this rule the engines agree on `.` (they differ on line ends only), on `^` and `$`
  (start and end of the record, since no flag `m` is ever set) and on `\\d \\w \\b`. They
  do not agree on `\\s`: it is `[\\t-\\r ]` here, RE2 lacks the vertical tab and ECMAScript
  adds U+00A0. `to_re2` and `to_javascript` write it out.
* Syntax that only some engines accept (`\\-` outside a class, a bare `{`, `[]a]`, `{,3}`,
  possessive repeats…) is refused, as is anything whose captures differ (named groups inside
  a repeat: ECMAScript forgets them at each turn).
* Worst-case time: no repeat inside an unbounded repeat, and `window` says how many bytes of
  a line the pattern may be tried on at once.
"""

from __future__ import annotations

import functools
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from . import lazy
from .signatures import Pattern

if sys.version_info >= (3, 11):
    import re._constants as sre
    import re._parser as sre_parse
else:  # pragma: no cover - the same modules under their old names
    import sre_constants as sre
    import sre_parse

__all__ = ["compile_pattern", "has_anchor", "members", "parse", "problems", "sre", "to_javascript", "to_re2", "window"]

REPEAT_LIMIT = 1000
"""RE2 refuses a larger counted repeat, also as the product of nested ones."""
WINDOW = 8192
"""The most bytes of one record that a pattern is tried on at once."""
_STEPS = 1 << 26
"""Upper bound of the work of one trial; about a tenth of a second in CPython's engine."""

_SYNTAX = r"^$\.*+?()[]{}|/"
_ESCAPES = set(_SYNTAX) | set("dDwWsSbtfv")
_CLASS_ESCAPES = set(_SYNTAX) | set("-dwstfv")
_QUANTIFIER = lazy.regex(r"\{(\d+)(,(\d*))?\}")
_GROUP = lazy.regex(r"\?P<([A-Za-z_][A-Za-z0-9_]*)>|\?:")
_HEX = lazy.regex(r"x[0-7][0-9A-Fa-f]")
_REFUSED_GROUPS = {
    "?=": "look-ahead", "?!": "look-ahead", "?<=": "look-behind", "?<!": "look-behind", "?>": "atomic group",
    "?P=": "back-reference", "?P>": "recursion", "?(": "conditional group", "?#": "comment",
    "?<": "group syntax (?<name>…): write (?P<name>…)",
}
_UNBOUNDED = int(sre.MAXREPEAT)
_REPEATS = {sre.MAX_REPEAT, sre.MIN_REPEAT}
_ALL_BYTES = frozenset(range(256))
_DIGITS = frozenset(b"0123456789")
_WORD = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_SPACE = frozenset(b"\t\n\v\f\r ")
_CATEGORIES = {
    sre.CATEGORY_DIGIT: _DIGITS, sre.CATEGORY_NOT_DIGIT: _ALL_BYTES - _DIGITS,
    sre.CATEGORY_WORD: _WORD, sre.CATEGORY_NOT_WORD: _ALL_BYTES - _WORD,
    sre.CATEGORY_SPACE: _SPACE, sre.CATEGORY_NOT_SPACE: _ALL_BYTES - _SPACE,
}


def problems(pattern: str, ignore_case: bool = False) -> list[str]:
    """Why the pattern is outside the portable subset; empty when it is inside."""
    found = list(_lexical(pattern))
    if found:
        return found
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = parse(pattern, ignore_case)
            re.compile(pattern.encode("ascii"), re.ASCII)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        return [f"Python re does not accept it: {error}"]
    return list(dict.fromkeys(_structural(tree)))


def parse(pattern: str, ignore_case: bool = False) -> Any:
    """The pattern's syntax tree (`re._parser.SubPattern`) under ASCII semantics."""
    return sre_parse.parse(pattern, re.ASCII | (re.IGNORECASE if ignore_case else 0))


def compile_pattern(pattern: Pattern) -> re.Pattern[bytes]:
    """The pattern for bytes of one record; raises ValueError with one line when it is no regex."""
    return _compile(pattern.pattern, pattern.ignore_case)


@functools.lru_cache(maxsize=4096)
def _compile(pattern: str, ignore_case: bool) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.encode("ascii"), re.ASCII | (re.IGNORECASE if ignore_case else 0))
    except (re.error, UnicodeEncodeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a usable pattern: {pattern!r}: {error}") from None


def to_javascript(pattern: str) -> str:
    """Source for `new RegExp(source, "u")`, to be tried on the record decoded as Latin-1."""
    return "".join(
        "(?<" + token[4:] if token.startswith("(?P<") else _spell_space(token, in_class)
        for token, in_class in _tokens(pattern)
    )


def to_re2(pattern: str) -> str:
    """Source for RE2 with Latin-1 encoding (RE2's own `\\s` lacks the vertical tab)."""
    return "".join(_spell_space(token, in_class) for token, in_class in _tokens(pattern))


def _spell_space(token: str, in_class: bool) -> str:
    if token == r"\s":
        return r"\t-\r " if in_class else r"[\t-\r ]"
    return r"[^\t-\r ]" if token == r"\S" else token


@functools.lru_cache(maxsize=4096)
def window(pattern: str, ignore_case: bool = False) -> int:
    """How many bytes of one record the pattern is tried on at once (a power of two, at most
    `WINDOW`), so that one trial takes bounded time even on a line written to be slow."""
    if sum(map(pattern.count, "*+{")) <= 1:
        return WINDOW  # a single repeat takes half of the steps; no need to look closer
    tree = parse(pattern, ignore_case)
    repeats = list(_ambiguous_repeats(tree, _ALL_BYTES))
    size = WINDOW
    while size > 16 and _steps(size, _run_period(list(tree)), repeats) > _STEPS:
        size //= 2
    return size


def has_anchor(pattern: str, anchor: str) -> bool:
    """Whether `^` or `$` stands in the pattern as an anchor."""
    return any(token == anchor and not in_class for token, in_class in _tokens(pattern))


def without_anchors(pattern: str) -> str:
    """The pattern without `^` and `$`: it matches wherever the pattern does."""
    return "".join(token for token, in_class in _tokens(pattern) if in_class or token not in ("^", "$"))


# --- lexical rules: what the three engines read alike ---


def _tokens(pattern: str) -> Iterator[tuple[str, bool]]:
    """(token, inside a class); never fails: `_lexical` judges the tokens."""
    position, in_class = 0, False
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            length = 4 if _HEX.match(pattern, position + 1) else 2
            token = pattern[position:position + length]
        elif in_class:
            token = char
            in_class = char != "]"
        elif char == "[":
            token = "[^" if pattern.startswith("[^", position) else "["
            in_class = True
            yield token, False
            position += len(token)
            continue
        elif char == "(":
            group = _GROUP.match(pattern, position + 1)
            token = "(" + group.group() if group else "("
        elif char == "{" and (quantifier := _QUANTIFIER.match(pattern, position)):
            token = quantifier.group()
        else:
            token = char
        yield token, in_class
        position += len(token)


def _lexical(pattern: str) -> Iterator[str]:
    if not pattern:
        yield "the pattern is empty"
    bad = sorted({c for c in pattern if not " " <= c <= "~"})
    if bad:
        yield f"only printable ASCII may stand in a pattern, not {', '.join(map(repr, bad))}"
        return
    tokens = list(_tokens(pattern))
    position = 0
    for number, (token, in_class) in enumerate(tokens):
        following = pattern[position + len(token):]
        before = tokens[number - 1][0] if number else ""
        if token[0] == "\\":
            yield from _escape_problems(token, in_class)
        elif in_class:
            yield from _class_problems(token, before, following)
        elif token in ("[", "[^"):
            if following.startswith("]"):
                yield "`]` first in a class: escape it"
        elif token == "(":
            kind = next((k for k in sorted(_REFUSED_GROUPS, key=len, reverse=True) if following.startswith(k)), "")
            if kind:
                yield f"no {_REFUSED_GROUPS[kind]}"
            elif following.startswith("?"):
                yield "no inline flags: use ignore_case"
            else:
                yield "no plain group: write (?:…) or (?P<name>…)"
        elif token in ("{", "}") or (token == "]" and not _closes_class(tokens, number)):
            yield f"`{token}` stands alone: escape it"
        elif token in ("*", "+", "?") or token[0] == "{":
            if following.startswith("+"):
                yield "no possessive repeat"
            if token[0] == "{":
                yield from _count_problems(token)
        position += len(token)


def _closes_class(tokens: list[tuple[str, bool]], number: int) -> bool:
    """Whether this `]`, which `_tokens` reports as outside, ends a class."""
    for token, in_class in reversed(tokens[:number]):
        if token in ("[", "[^") and not in_class:
            return True
        if not in_class:
            return False
    return False


def _escape_problems(token: str, in_class: bool) -> Iterator[str]:
    if len(token) == 4:
        if token[1:].lower() in ("x0a", "x0d"):
            yield f"`{token}`: a record holds no line end"
        return
    char = token[1:]
    if not char:
        yield "a lone backslash at the end"
    elif char in ("n", "r"):
        yield f"`{token}`: a record holds no line end"
    elif char in "AZzG":
        yield f"`{token}` is not portable: use ^ or $"
    elif char.isdigit():
        yield f"`{token}`: no back-reference or octal escape"
    elif char in "pPuUN":
        yield f"`{token}`: no Unicode class or escape"
    elif char == "x":
        yield "`\\x` takes two hexadecimal digits, at most 7f"
    elif in_class and char in "DWSbB":
        yield f"`{token}` inside a class is not portable"
    elif char not in (_CLASS_ESCAPES if in_class else _ESCAPES):
        yield f"`{token}` is not portable" + ("" if char.isalpha() else f": write {char} alone")


def _class_problems(token: str, before: str, following: str) -> Iterator[str]:
    if token == "[":
        yield "`[` inside a class: escape it"
    elif token in "&|~-" and following.startswith(token):
        yield f"`{token}{token}` inside a class is a set operation elsewhere: escape it"
    elif token == "-" and before not in ("[", "[^") and not following.startswith("]"):
        # a range: both ends must be single characters; a second dash after a range is ambiguous
        if before in (r"\d", r"\w", r"\s") or re.match(r"\\[dws]", following):
            yield "`-` beside \\d, \\w or \\s: escape it"
        if re.match(r"(?:\\x[0-9A-Fa-f]{2}|\\.|[^\\\]])-(?!\])", following):
            yield "`-` after a range: escape it"


def _count_problems(token: str) -> Iterator[str]:
    match = _QUANTIFIER.match(token)
    if match and max(int(match.group(1)), int(match.group(3) or 0)) > REPEAT_LIMIT:
        yield f"a counted repeat above {REPEAT_LIMIT}"


# --- structural rules: meaning and time ---


def _structural(tree: Any) -> Iterator[str]:
    if tree.getwidth()[0] == 0:
        yield "it can match the empty text"
    yield from _nesting(tree, unbounded=False, repeated=False, product=1)
    if window(tree.state.str) < 1024:
        yield ("too many wide repeats that can share the same text (`.*` and the like): bound them, "
               "exclude what follows them from their class, or split the pattern")


def _nesting(items: Any, *, unbounded: bool, repeated: bool, product: int) -> Iterator[str]:
    for op, argument in items:
        if op in _REPEATS:
            low, high, inner = argument
            endless = high == _UNBOUNDED
            if endless and unbounded:
                yield "an unbounded repeat inside an unbounded repeat"
            if high != 1 and inner.getwidth()[0] == 0:
                yield "a repeated part can match the empty text"
            if high > 1:
                yield from _loop_problems(list(inner), _first(list(inner), frozenset()))
            nested = product * (max(low, 1) if endless else max(high, 1))
            if nested > REPEAT_LIMIT:
                yield f"nested counted repeats above {REPEAT_LIMIT} together"
            yield from _nesting(
                inner, unbounded=unbounded or endless, repeated=repeated or high != 1, product=nested
            )
        elif op is sre.SUBPATTERN:
            if repeated and argument[0] is not None:
                yield "a named group inside a repeat"
            yield from _nesting(argument[3], unbounded=unbounded, repeated=repeated, product=product)
        elif op is sre.BRANCH:
            for branch in argument[1]:
                yield from _nesting(branch, unbounded=unbounded, repeated=repeated, product=product)


def _loop_problems(items: list[Any], after: frozenset[int]) -> Iterator[str]:
    """Choices inside a repeated part must be decided by their first character: otherwise
    each turn doubles the ways to fail."""
    for number, (op, argument) in enumerate(items):
        following = _first(items[number + 1:], after)
        if op is sre.BRANCH:
            seen: frozenset[int] = frozenset()
            for branch in argument[1]:
                start = _first(list(branch), following)
                if start & seen:
                    yield "alternatives inside a repeat can begin alike"
                seen |= start
                yield from _loop_problems(list(branch), following)
        elif op is sre.SUBPATTERN:
            yield from _loop_problems(list(argument[3]), following)
        elif op in _REPEATS:
            low, high, inner = argument
            if low != high and _first(list(inner), frozenset()) & following:
                yield "a repeat inside a repeat can give characters back to what follows"


def _steps(size: int, lead: int, repeats: list[tuple[int, int]]) -> float:
    """Upper estimate of the work on `size` hostile bytes: every start, times every way to
    share the text between the ambiguous repeats, in order."""
    total = size / lead
    for number, (width, period) in enumerate(repeats):
        last = number == len(repeats) - 1
        total *= min(size, width) / (number + 2) / (1 if last else period)
    return total


def _ambiguous_repeats(items: Any, after: frozenset[int]) -> Iterator[tuple[int, int]]:
    """(width, period of the literal that follows) of repeats that may give characters back
    to what follows, so that a failing match tries every split. A repeat whose next
    character is never its own costs nothing."""
    items = list(items)
    for number, (op, argument) in enumerate(items):
        following = _first(items[number + 1:], after)
        if op in _REPEATS:
            low, high, inner = argument
            width = high if high != _UNBOUNDED else 1 << 30
            own = _first(list(inner), frozenset())
            if high > 1 and low != high and own & following:
                yield width, _run_period(items[number + 1:])
            yield from _ambiguous_repeats(inner, following | own)
        elif op is sre.SUBPATTERN:
            yield from _ambiguous_repeats(argument[3], following)
        elif op is sre.BRANCH:
            yield from max((list(_ambiguous_repeats(branch, following)) for branch in argument[1]), key=len)


def _run_period(items: list[Any]) -> int:
    """How far apart occurrences of the literal run at the start must be (1 without one)."""
    run = []
    for op, argument in items:
        if op is not sre.LITERAL:
            break
        run.append(argument)
    return next((p for p in range(1, len(run)) if run[p:] == run[:-p]), max(1, len(run)))


def _first(items: list[Any], after: frozenset[int]) -> frozenset[int]:
    """Bytes that the items can begin with; `after` where they can be empty."""
    found: frozenset[int] = frozenset()
    for op, argument in items:
        if op is sre.LITERAL:
            char = chr(argument)
            return found | {argument & 0xFF, ord(char.lower()) & 0xFF, ord(char.upper()) & 0xFF}
        if op in (sre.ANY, sre.NOT_LITERAL):
            return _ALL_BYTES
        if op is sre.IN:
            return found | members(argument)
        if op in _REPEATS:
            found |= _first(list(argument[2]), frozenset())
            if argument[0] > 0:
                return found
        elif op is sre.SUBPATTERN:
            found |= _first(list(argument[3]), frozenset())
            if argument[3].getwidth()[0] > 0:
                return found
        elif op is sre.BRANCH:
            for branch in argument[1]:
                found |= _first(list(branch), frozenset())
            if all(branch.getwidth()[0] > 0 for branch in argument[1]):
                return found
        elif op is not sre.AT:
            return _ALL_BYTES
    return found | after


def members(items: Any) -> frozenset[int]:
    """The bytes that a class (the argument of an IN node) matches, both cases of letters."""
    found: set[int] = set()
    negated = False
    for op, argument in items:
        if op is sre.NEGATE:
            negated = True
        elif op is sre.LITERAL:
            found.add(argument)
        elif op is sre.RANGE:
            found.update(range(argument[0], argument[1] + 1))
        elif op is sre.CATEGORY:
            found |= _CATEGORIES.get(argument, _ALL_BYTES)
        else:
            return _ALL_BYTES
    if negated:
        return _ALL_BYTES - found
    cased = {ord(c) for b in found if b < 128 for c in (chr(b).lower(), chr(b).upper())}
    return frozenset(b for b in found | cased if b < 256)
