"""Rules of single signatures that need more than one field, on plain data.

They read what YAML gave, before or after pydantic: a signature with one wrong field
still gets all its other faults reported in the same run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from faultbook.literals import required_literals, verify_anchors
from faultbook.portable import problems as portable_problems

from .yaml_nodes import Loc

MAX_PATTERN = 500
MAX_PATTERNS = 400
"""In all signatures of one entry: an entry is checked in bounded time."""
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

Found = tuple[Loc, str, str, str]
"""(location, message, problem code, hint)"""

# test → (needs one of each group, may also have)
PARAMETERS: dict[str, tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]] = {
    "nonfinite": ((), ()),
    "above": ((("value",),), ()),
    "below": ((("value",),), ()),
    "rises": ((("factor",),), ()),
    "falls": ((("factor",),), ()),
    "spike": ((("z",),), ("factor",)),
    "plateau": ((("records",),), ("tolerance",)),
    "equals": ((("value", "ln_of"),), ("tolerance",)),
    "zero": ((), ("tolerance",)),
    "grows": ((("records",),), ("factor",)),
    "rank_ratio": ((("factor",),), ()),
    "rank_differs": ((), ("tolerance",)),
    "missing": ((), ("records",)),
}
_TUNING = ("value", "ln_of", "factor", "z", "tolerance", "records")


@dataclass(frozen=True, slots=True)
class RawPattern:
    """A pattern as read from YAML, right or wrong."""

    signature: str
    text: str
    ignore_case: bool
    source: str


def patterns_of(entry: dict[str, Any]) -> list[RawPattern]:
    """All patterns of an entry that must match for a log signature to hold."""
    found = []
    for signature in _items(entry, "signatures"):
        if isinstance(signature, dict) and signature.get("kind") == "log":
            for item in (*_items(signature, "all"), *_items(signature, "any")):
                if isinstance(item, dict) and isinstance(item.get("pattern"), str):
                    ignore_case, source = item.get("ignore_case") is True, str(item.get("source") or "")
                    found.append(RawPattern(str(signature.get("id")), item["pattern"], ignore_case, source))
    return found


def problems_of(signature: Any, loc: Loc) -> Iterator[Found]:
    """All cross-field faults of one signature as read from YAML."""
    if not isinstance(signature, dict):
        return
    kind = signature.get("kind")
    identifier = signature.get("id")
    if isinstance(identifier, str) and not SLUG.fullmatch(identifier):
        yield ((*loc, "id"), f"`{identifier[:80]}` is not kebab-case", "bad-slug", "")
    parts = [(group, _items(signature, group)) for group in ("all", "any", "none")]
    if kind in ("log", "metric") and not parts[0][1] and not parts[1][1]:
        yield (loc, "needs at least one item in `all` or `any`", "cross-field", "")
    # Of a log signature the `any` lines come after those of `all`; of metrics they have no place in the order.
    steps = len(parts[0][1]) + (kind == "log" and bool(parts[1][1]))
    if signature.get("ordered") is True and steps < 2:
        yield ((*loc, "ordered"), "`ordered` needs two or more items in `all`", "cross-field", "")
    for group, items in parts:
        for index, item in enumerate(items):
            where = (*loc, group, index)
            if kind == "log":
                yield from _pattern(item, where)
            elif kind == "metric":
                yield from _predicate(item, where)
    if kind == "log":
        yield from _log(signature, loc, parts)
    elif kind == "metric":
        yield from _metric(signature, loc)


def _items(signature: dict[str, Any], group: str) -> list[Any]:
    value = signature.get(group)
    return value if isinstance(value, list) else []


def _pattern(item: Any, loc: Loc) -> Iterator[Found]:
    text = item.get("pattern") if isinstance(item, dict) else None
    if not isinstance(text, str):
        return
    where = (*loc, "pattern")
    if len(text) > MAX_PATTERN:
        yield (where, f"{len(text):,} characters; at most {MAX_PATTERN}", "too-long", "split it")
        return
    ignore_case = item.get("ignore_case") is True
    faults = faults_of(text, ignore_case)
    for fault in faults:
        yield (where, f"outside the portable subset: {fault}", "pattern-not-portable", "")
    anchors = item.get("anchors")
    if not faults and isinstance(anchors, list) and anchors and all(isinstance(a, str) for a in anchors):
        for fault in verify_anchors(text, anchors, ignore_case):
            yield ((*loc, "anchors"), fault, "pattern-no-literal", "")
    elif not faults and not literals_of(text, ignore_case):
        yield (
            where,
            "no required literal of four or more characters",
            "pattern-no-literal",
            "the scan could not gate it; add words that every such line has",
        )
    if item.get("literals"):
        yield ((*loc, "literals"), "`literals` are computed, never written", "cross-field", "remove them")
    at_least = item.get("at_least")
    if isinstance(at_least, int) and at_least < 1:
        yield ((*loc, "at_least"), "`at_least` must be 1 or more", "bad-value", "")


@lru_cache(maxsize=8192)
def faults_of(text: str, ignore_case: bool) -> tuple[str, ...]:
    """Why a pattern is outside the portable subset; remembered, since a pattern is looked at more than once."""
    return tuple(portable_problems(text, ignore_case))


@lru_cache(maxsize=8192)
def literals_of(text: str, ignore_case: bool = False, anchors: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The required literals of a usable pattern, lower-cased: the author's anchors, else derived ones."""
    if anchors:
        return tuple(sorted({anchor.lower() for anchor in anchors}))
    return required_literals(text, ignore_case)


def _predicate(item: Any, loc: Loc) -> Iterator[Found]:
    if not isinstance(item, dict) or item.get("test") not in PARAMETERS:
        return
    test = item["test"]
    needs, may = PARAMETERS[test]
    for group in needs:
        given = [name for name in group if item.get(name) is not None]
        if not given:
            yield (loc, f"`{test}` needs `{'` or `'.join(group)}`", "predicate-parameter", "")
        elif len(given) > 1:
            yield (loc, f"`{test}` takes one of `{'` and `'.join(group)}`", "predicate-parameter", "")
    known = {name for group in needs for name in group} | set(may)
    for name in _TUNING:
        if item.get(name) is not None and name not in known:
            yield ((*loc, name), f"`{test}` ignores `{name}`", "predicate-parameter", "remove it")
    if not item.get("series") and "series" in item:
        yield ((*loc, "series"), "`series` names no series", "bad-value", "")
    for name, least in (("patience", 1), ("records", 2), ("ln_of", 2)):
        value = item.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value < least:
            yield ((*loc, name), f"`{name}` must be {least} or more", "bad-value", "")
    factor = item.get("factor")
    if isinstance(factor, (int, float)) and factor <= 1 and test in ("rises", "falls", "rank_ratio"):
        yield ((*loc, "factor"), "`factor` must be greater than 1", "bad-value", "")


def _log(signature: dict[str, Any], loc: Loc, parts: list[tuple[str, list[Any]]]) -> Iterator[Found]:
    ranks = signature.get("ranks")
    if isinstance(ranks, dict):
        quantifier, count = ranks.get("quantifier"), ranks.get("count")
        if quantifier == "at_least" and count is None:
            yield ((*loc, "ranks"), "`at_least` needs `count`", "cross-field", "")
        elif quantifier != "at_least" and count is not None:
            yield ((*loc, "ranks", "count"), f"`{quantifier}` takes no `count`", "cross-field", "remove it")
        if isinstance(count, int) and count < 1:
            yield ((*loc, "ranks", "count"), "`count` must be 1 or more", "bad-value", "")
    within = signature.get("within")
    if isinstance(within, dict):
        values = [within.get(name) for name in ("lines", "seconds")]
        if values == [None, None]:
            yield ((*loc, "within"), "`within` needs `lines` or `seconds`", "cross-field", "")
        if any(isinstance(v, (int, float)) and v <= 0 for v in values):
            yield ((*loc, "within"), "a distance must be greater than 0", "bad-value", "")
    captures = {
        name
        for _, items in parts[:2]
        for item in items
        if isinstance(item, dict) and isinstance(item.get("pattern"), str)
        for name in re.findall(r"\(\?P<(\w+)>", item["pattern"])
    }
    for index, comparison in enumerate(_items(signature, "where")):
        if not isinstance(comparison, dict):
            continue
        for side in ("left", "right"):
            value = comparison.get(side)
            if isinstance(value, str) and value not in captures and (side == "left" or _name(value, comparison)):
                known = ", ".join(sorted(captures)) or "none"
                yield (
                    (*loc, "where", index, side),
                    f"no pattern captures `{value[:60]}`",
                    "comparison-capture",
                    f"captured: {known}",
                )


def _name(value: str, comparison: dict[str, Any]) -> bool:
    """Whether the right side reads as the name of a capture, not as a quantity or text."""
    return comparison.get("type") != "text" and value.isidentifier()


def _metric(signature: dict[str, Any], loc: Loc) -> Iterator[Found]:
    observed, line = signature.get("observed_in"), signature.get("extra_line")
    if observed == "extra_line" and not line:
        yield (
            loc,
            "`observed_in: extra_line` needs `extra_line`",
            "cross-field",
            "the one line of code to add",
        )
    if observed == "stock_log" and line:
        yield (
            (*loc, "extra_line"),
            "stock logs hold the series, so `extra_line` is not needed",
            "cross-field",
            "remove it, or say `observed_in: extra_line`",
        )
    for name, least in (("warmup", 0), ("within_steps", 1)):
        value = signature.get(name)
        if isinstance(value, int) and value < least:
            yield ((*loc, name), f"`{name}` must be {least} or more", "bad-value", "")
