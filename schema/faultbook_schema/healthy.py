"""Healthy lines: no signature may fire on them, and no literal may stand on many of them.

A literal is what the scan stops at. One that stands on every hundredth line of a run that
works makes the scan look at every hundredth line of every log. The lines are a sample of our
own writing (healthy_lines.txt), the logs of all fixed runs, and whatever healthy logs
`faultbook check --healthy` names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from faultbook import fact_lines
from faultbook.portable import compile_pattern, window
from faultbook.signatures import LogSignature, Pattern

from .confusion import Tested, with_literals_of
from .firing import LogText, firings, prepare
from .loader import Knowledge
from .problems import Problem

SHARE = 0.01
"""Of the healthy lines; a literal on more of them is hot."""
LEAST = 5
MAX_BYTES = 4 << 20
PUMP_SECONDS = 0.5
"""CPU time of one search in one window. Patterns of the portable subset stay far below."""


@lru_cache(maxsize=1)
def sample() -> str:
    """Lines that healthy runs print, in the forms of many frameworks."""
    return (Path(__file__).parent / "healthy_lines.txt").read_text(encoding="utf-8")


def healthy_texts(paths: Sequence[Path]) -> dict[str, str]:
    """Name → text of healthy logs given by the user: files, or folders of them. Raises OSError."""
    found: dict[str, str] = {}
    for path in paths:
        for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
            with open(file, "rb") as stream:
                found[str(file)] = stream.read(MAX_BYTES).decode("utf-8", "replace")
    return found


def problems_of(knowledge: Knowledge, only: frozenset[str] | None = None, more: Mapping[str, str] | None = None) -> list[Problem]:
    """What healthy lines say against the signatures of the entries in `only` (None: of all)."""
    tested = {t.name: t for t in with_literals_of(knowledge) if only is None or t.owner.slug in only}
    return [*_firing(tested, more or {}), *_hot(tested, knowledge, more or {}), *_slow(tested)]


def _firing(tested: Mapping[str, Tested], more: Mapping[str, str]) -> Iterator[Problem]:
    prepared = prepare({name: t.signature for name, t in tested.items() if t.signature.role != "noise"})
    for file, text in {"the sample of healthy lines": sample(), **more}.items():
        for name, firing in sorted(firings(prepared, LogText(text)).items()):
            one = tested[name]
            message = f"`{one.signature.id}` fires on {file}:{firing.line}, a healthy run"
            yield one.owner.problem(one.loc, message, "fires-on-healthy", firing.text.strip()[:100])


def _hot(tested: Mapping[str, Tested], knowledge: Knowledge, more: Mapping[str, str]) -> Iterator[Problem]:
    fixed = [text for item in knowledge.entries.values() for name, text in item.logs.items() if name.startswith("fixed")]
    text = "\n".join([sample(), *fixed, *more.values()]).lower()
    lines = [line for line in text.split("\n") if line.strip()]
    counts: dict[tuple[str, ...], int] = {}
    for one in tested.values():
        if not isinstance(one.signature, LogSignature):
            continue
        for group in ("all", "any"):
            patterns: tuple[Pattern, ...] = getattr(one.signature, group)
            for index, pattern in enumerate(patterns):
                words = pattern.literals
                if fact_lines.is_virtual(pattern) or not words:
                    continue
                if words not in counts:
                    near = any(word in text for word in words)
                    counts[words] = sum(any(word in line for word in words) for line in lines) if near else 0
                if counts[words] >= LEAST and counts[words] > SHARE * len(lines):
                    message = f"its literal {words[0]!r} stands on {counts[words]} of {len(lines)} healthy lines"
                    hint = "take more of the message into the pattern, or name a rarer part in `anchors`"
                    yield one.owner.problem((*one.loc, group, index, "pattern"), message, "literal-hot", hint)


def _slow(tested: Mapping[str, Tested]) -> Iterator[Problem]:
    for one in tested.values():
        if not isinstance(one.signature, LogSignature):
            continue
        for group in ("all", "any", "none"):
            for index, pattern in enumerate(getattr(one.signature, group)):
                spent = _spent(pattern.pattern, pattern.ignore_case, pattern.literals)
                if spent > PUMP_SECONDS:
                    message = f"takes {spent:.1f} s on one line made to be slow"
                    hint = "bound the repeats ({0,80} for *), or split the pattern"
                    yield one.owner.problem((*one.loc, group, index, "pattern"), message, "pattern-slow", hint)


@lru_cache(maxsize=8192)
def _spent(text: str, ignore_case: bool, literals: tuple[str, ...]) -> float:
    search = compile_pattern(Pattern(pattern=text, ignore_case=ignore_case)).search
    return pumped(search, literals, window(text, ignore_case))


def pumped(
    search: Callable[[bytes], Any],
    literals: Sequence[str],
    size: int,
    fillers: Sequence[bytes] = (b" ", b"0", b"a", b"1."),
    enough: float = PUMP_SECONDS,
) -> float:
    """CPU seconds of the slowest search in lines made of the pattern's own words and of `fillers`, `size` bytes each.

    The first that takes longer than `enough` ends it.
    """
    words = [word.encode() for word in literals[:3]] or [b"x"]
    slowest = 0.0
    for filler in fillers:
        piece = b"".join(word + filler * 3 for word in words)
        repeated = (piece * (size // len(piece) + 1))[:size]
        for hostile in (repeated, (filler * size)[: max(0, size - len(words[0]))] + words[0]):
            started = time.process_time()
            search(hostile)
            slowest = max(slowest, time.process_time() - started)
            if slowest > enough:
                return slowest
    return slowest
