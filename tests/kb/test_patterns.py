"""Every pattern of kb/: the same answer in three engines on real lines and on hostile ones, in bounded time."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import faultbook
from faultbook.portable import compile_pattern, problems, to_javascript, to_re2, window
from faultbook.signatures import LogSignature, Pattern
from faultbook_schema.healthy import pumped

HAZARDS = (b"\x85", b"\xe2\x80\xa8", b"\xff\xfe", b"\x00", b"\x1b[36m", b"\x0b", b"\xc3", b"\xa0", b"\t", b"  ")
"""NEL, U+2028, invalid UTF-8, NUL, colour, vertical tab, a cut character, no-break space…"""
SLOW = 2.0
FILLERS = (b"", b" ", b"0", b"a", b"a ", b"1.", b"/", b"=")


def patterns() -> list[tuple[str, Pattern]]:
    found: dict[tuple[str, bool], tuple[str, Pattern]] = {}
    for item in faultbook.load_catalog().signatures:
        if isinstance(item.signature, LogSignature):
            for pattern in (*item.signature.all, *item.signature.any, *item.signature.none):
                found.setdefault((pattern.pattern, pattern.ignore_case), (item.name, pattern))
    return list(found.values())


def records(root: Path) -> list[bytes]:
    """Lines of all entries' logs; a record ends at \\n and at \\r."""
    lines: dict[bytes, None] = {}
    for path in sorted((root / "kb").glob("*/*/logs/*.log")):
        for line in re.split(rb"[\n\r]", path.read_bytes()):
            if line and len(line) < 2000:
                lines[line] = None
    return list(lines)


def engines(pattern: Pattern) -> tuple[Any, Any, Any]:
    """Span finders: Python, RE2, ECMAScript; each gives (start, end) or None."""
    re2 = pytest.importorskip("re2")
    quickjs = pytest.importorskip("quickjs")
    python = compile_pattern(pattern)
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = not pattern.ignore_case
    options.log_errors = False
    linear = re2.compile(to_re2(pattern.pattern).encode(), options)
    context = quickjs.Context()
    flags = "ui" if pattern.ignore_case else "u"
    context.eval(f"const rx = new RegExp({json.dumps(to_javascript(pattern.pattern))}, {json.dumps(flags)});")
    context.eval("function find(text) { const m = rx.exec(text); return m ? m.index + ',' + (m.index + m[0].length) : ''; }")
    find = context.get("find")

    def script(record: bytes) -> tuple[int, int] | None:
        found = find(record.decode("latin-1"))
        return tuple(map(int, found.split(","))) if found else None  # type: ignore[return-value]

    def span(search: Any) -> Any:
        return lambda record: (m := search(record)) and m.span()

    return span(python.search), span(linear.search), script


def test_three_engines_agree_on_every_pattern(root: Path):
    lines = records(root)
    rng = random.Random(7)
    compared = 0
    for name, pattern in patterns():
        assert problems(pattern.pattern, pattern.ignore_case) == [], name
        near = [line for line in lines if any(word.lower().encode() in line.lower() for word in pattern.literals)][:12]
        samples = [*near, *rng.sample(lines, min(6, len(lines)))]
        for line in list(samples):
            for _ in range(3):
                at = rng.randrange(len(line) + 1)
                samples.append(line[:at] + rng.choice(HAZARDS) + line[at:])
        python, linear, script = engines(pattern)
        for sample in samples:
            answers = (python(sample), linear(sample), script(sample))
            assert answers[0] == answers[1] == answers[2], (name, pattern.pattern, sample, answers)
            compared += 1
    print(f"\n{compared} comparisons of {len(patterns())} patterns in three engines")
    assert compared > 1000


def test_no_pattern_can_be_pumped():
    """A line made of the pattern's own words, as long as the window in which it is tried, costs bounded time."""
    slow = {}
    for name, pattern in patterns():
        size = window(pattern.pattern, pattern.ignore_case)
        spent = pumped(compile_pattern(pattern).search, pattern.literals, size, FILLERS, enough=SLOW)
        if spent > SLOW:
            slow[name] = (pattern.pattern, round(spent, 1))
    assert slow == {}
