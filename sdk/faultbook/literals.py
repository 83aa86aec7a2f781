"""Literals that every match of a pattern contains, derived from its syntax tree.

A scan first looks for such literals (all patterns' at once, in a `gates` gate) and tries
a regular expression only on lines that hold one. Soundness is therefore everything: if
`required_literals` names (a, b), every match of the pattern contains a or b, case aside.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from .portable import members, parse, sre
from .values import dataclass

SHORTEST = 4
"""Shorter literals hit too many lines to be worth looking for."""
_MOST = 24
"""Texts of one OR-set; beyond, the set is not extended."""
_LONGEST = 80

_HOT = ("error", "warning", "info", "rank", "file", "line", "epoch", "step", "iter", "loss", "cuda", "nccl", "torch",
        "python", "failed", "grad_norm", "learning_rate", "traceback", "process", "time", "runtimeerror", "none",
        "memory", "device", "tensor", "model", "data", "train", "true", "false", "number of nan iterations")
"""Words of healthy lines: a literal made of nothing else is chosen last."""
_HOT_ONLY = re.compile(rf"(?:{'|'.join(_HOT)}|[^a-z])+s?")


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of a part of a pattern (all texts lowercased)."""

    exact: frozenset[str] | None
    """All texts that it can match, when few; None when many."""
    needed: frozenset[str] | None
    """The best set of which every match contains one; None when nothing is known."""


_ANYTHING = _Facts(None, None)
_EMPTY = _Facts(frozenset({""}), None)


def required_literals(pattern: str, ignore_case: bool = False) -> tuple[str, ...]:
    """The best OR-set of lowercase literals (≥ 4 characters): every match contains one of
    them, case aside. Empty when none can be derived. Raises re.error on a broken pattern."""
    facts = _of(parse(pattern, ignore_case))
    best = _better(facts.needed, facts.exact)
    if best is None or not best or min(map(len, best)) < SHORTEST:
        return ()
    return tuple(sorted(_minimal(best)))


def verify_anchors(pattern: str, anchors: Sequence[str], ignore_case: bool = False) -> list[str]:
    """Why the author's anchors may not stand for the pattern; empty when they are sound:
    each way through the pattern contains one of them."""
    found = [f"anchor {a!r} is shorter than {SHORTEST} characters" for a in anchors if len(a) < SHORTEST]
    found += [f"anchor {a!r} is not ASCII" for a in anchors if not a.isascii()]
    if not anchors:
        return ["no anchor is given"]
    lowered = [a.lower() for a in anchors]
    way = _way_without(parse(pattern, ignore_case), lowered)
    if way is not None:
        found.append(f"a match need not contain any anchor: for example one through {way!r}")
    return found


def _of(items: Iterable[Any]) -> _Facts:
    """Facts of a sequence: exact texts are multiplied along it until they grow too many;
    then the run so far is a candidate and a new run starts."""
    run: frozenset[str] = frozenset({""})
    best: frozenset[str] | None = None
    whole = True
    for op, argument in items:
        facts = _node(op, argument)
        best = _better(best, facts.needed)
        if facts.exact is None:
            best, run, whole = _better(best, run), frozenset({""}), False
            continue
        product = _product(run, facts.exact)
        if product is None:
            best, whole = _better(best, run), False
            product = facts.exact
        run = product
    best = _better(best, run)
    return _Facts(run if whole else None, best)


def _node(op: Any, argument: Any) -> _Facts:
    if op is sre.LITERAL:
        return _Facts(frozenset({chr(argument).lower()}), None)
    if op is sre.IN:
        chars = frozenset(chr(b).lower() for b in members(argument))
        return _Facts(chars, None) if 0 < len(chars) <= 4 else _ANYTHING
    if op is sre.AT:
        return _EMPTY
    if op is sre.SUBPATTERN:
        return _of(argument[3])
    if op is sre.BRANCH:
        return _union([_of(branch) for branch in argument[1]])
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        return _repeat(*argument)
    return _ANYTHING


def _repeat(low: int, high: int, inner: Any) -> _Facts:
    facts = _of(inner)
    if low == 0:
        if high == 1 and facts.exact is not None and len(facts.exact) < _MOST:
            return _Facts(facts.exact | {""}, None)
        return _ANYTHING
    if facts.exact is None:
        return _Facts(None, facts.needed)
    texts = facts.exact
    for turn in range(2, low + 1):
        product = _product(texts, facts.exact) if turn <= 16 else None
        if product is None:
            return _Facts(None, _better(texts, facts.needed))
        texts = product
    return _Facts(texts if high == low else None, _better(texts, facts.needed))


def _union(branches: list[_Facts]) -> _Facts:
    exact: frozenset[str] | None = frozenset()
    needed: frozenset[str] | None = frozenset()
    for facts in branches:
        exact = exact | facts.exact if exact is not None and facts.exact is not None else None
        part = _better(facts.needed, facts.exact)
        needed = needed | part if needed is not None and part is not None else None
    if exact is not None and len(exact) > _MOST:
        exact = None
    return _Facts(exact, needed if needed and len(needed) <= 4 * _MOST else None)


def _product(left: frozenset[str], right: frozenset[str]) -> frozenset[str] | None:
    if len(left) * len(right) > _MOST:
        return None
    texts = frozenset(a + b for a, b in itertools.product(left, right))
    return texts if max(map(len, texts), default=0) <= _LONGEST else None


def _better(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    """The set that a scan prefers; deterministic."""
    usable = [s for s in (a, b) if s and "" not in s]
    return max(usable, key=_worth, default=None)


def _worth(texts: frozenset[str]) -> tuple[int, int, int, int, list[str]]:
    shortest = min(map(len, texts))
    # `"` and `\` are escaped in JSON lines, so a literal with one of them is not found there
    plain = not any(c in text for text in texts for c in '"\\')
    cold = all(not _HOT_ONLY.fullmatch(text) for text in texts)
    return (shortest >= SHORTEST, (shortest >= 8) + plain + 2 * cold, min(shortest, 32), -len(texts), sorted(texts))


def _minimal(texts: frozenset[str]) -> set[str]:
    """Without texts that contain another one of the set (finding the shorter is enough)."""
    return {t for t in texts if not any(other != t and other in t for other in texts)}


def _way_without(items: Iterable[Any], anchors: list[str]) -> str | None:
    """A sketch of one way through the items that contains no anchor; None when all do."""
    sketch = ""
    run = frozenset({""})
    for op, argument in items:
        facts = _node(op, argument)
        if facts.exact is not None:
            product = _product(run, facts.exact)
            if product is None:
                sketch, product = sketch + min(run), facts.exact
            # texts that hold an anchor are settled; go on with the others
            run = frozenset(t for t in product if not any(a in t for a in anchors))
            if not run:
                return None
            continue
        way: str | None = "…"
        if facts.needed is not None and all(any(a in text for a in anchors) for text in facts.needed):
            way = None
        elif op is sre.SUBPATTERN:
            way = _way_without(argument[3], anchors)
        elif op is sre.BRANCH:
            ways = (_way_without(branch, anchors) for branch in argument[1])
            way = next((w for w in ways if w is not None), None)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and argument[0] > 0:
            way = _way_without(argument[2], anchors)
        if way is None:
            return None
        sketch, run = sketch + min(run) + way, frozenset({""})
    return sketch + min(run)
