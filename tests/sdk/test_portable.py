"""The portable subset: what is refused, and that three engines read the rest alike."""

from __future__ import annotations

import json
import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultbook.portable import WINDOW, compile_pattern, problems, to_javascript, to_re2, window
from faultbook.signatures import Pattern

CORPUS = (
    r"CUDA out of memory\. Tried to allocate (?P<size>\d+(?:\.\d+)? [KMG]iB)",
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)",
    r"\bXid \(PCI:(?P<pci>[0-9a-f:.]+)\): (?P<xid>\d+)",
    r"exit(?:s|ed)? with (?:return )?code[ =:]+-?\d+",
    r"^(?:\[rank\d+\]: )?RuntimeError: .{0,80}size mismatch",
    r"loss_scale: *0(?:\.0+)?$",
    r"[Ll]oss is (?:NaN|nan|inf)\b",
    r"Expected all tensors .+? same device, but found .+? devices",
    r"\{'loss': (?:nan|'nan'),",
    r"\s+Killed\s+python[\d.]*",
    r"[^\s,;]+\.so\.\d+: cannot open shared object file",
    r"slurmstepd: error: \*\*\* STEP [\d.]+ ON [\w-]+ CANCELLED AT \S+ DUE TO TIME LIMIT",
    r"\D\d{3,5}\W[A-Fx\-]+/end",
)


@pytest.mark.parametrize("pattern", CORPUS)
def test_patterns_of_the_usual_shapes_are_portable(pattern: str) -> None:
    assert problems(pattern) == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"a(?=b)", "look-ahead"), (r"a(?!b)", "look-ahead"), (r"(?<=a)b", "look-behind"), (r"(?<!a)b", "look-behind"),
        (r"(?P<a>x)(?P=a)", "back-reference"), (r"(?P<a>x)\1", "back-reference"), (r"(?i)abc", "inline flags"),
        (r"(?i:abc)", "inline flags"), (r"(?>a+)b", "atomic"), (r"a++b", "possessive"), (r"a{2,}+b", "possessive"),
        (r"(a)b", "plain group"), (r"(?<name>a)b", "(?P<name>"), (r"(?#note)a", "comment"), (r"(?(1)a|b)", "conditional"),
        (r"abc\Z", "\\Z"), (r"\Aabc", "\\A"), (r"\pL+", "Unicode"), ("caf\u00e9", "ASCII"), (r"\x80abc", "hexadecimal"),
        (r"a\-b", "write - alone"), (r"it\'s", "write ' alone"), (r"a\#b", "write # alone"), (r"a\ b", "not portable"),
        (r"a{b", "stands alone"), (r"a}b", "stands alone"), (r"a]b", "stands alone"), (r"a{,3}b", "stands alone"),
        (r"[]a]b", "escape it"), (r"[^]a]b", "escape it"), (r"[[:alpha:]]", "escape it"), (r"[a-c-e]x", "after a range"),
        (r"[\w-.]x", "escape it"), (r"[.-\d]x", "escape it"),
        (r"[a&&b]x", "set operation"), (r"[\S]x", "inside a class"),
        (r"[\b]x", "inside a class"), (r"a\nb", "line end"), (r"a\x0Ab", "line end"), (r"\8x", "octal"), (r"\ax", "portable"),
        (r"\u0041", "Unicode"), ("tab\there", "ASCII"), (r"x{1001}", "1000"), (r"(?:ab{100}){20}", "1000"),
        (r"(?:a+)+b", "inside an unbounded repeat"), (r"(?:\w+\s*)*x", "inside an unbounded repeat"),
        (r"(?:aa|ab|a.){1,300}z", "begin alike"), (r"(?:a{1,5}){1,50}b", "repeat inside a repeat"),
        (r"(?:(?P<a>x)|y)+z", "named group inside a repeat"), (r"(?:a?){3}b", "empty text"), (r"a*", "empty text"),
        (r"^$", "empty text"), (r"\b", "empty text"), ("", "empty"), (r"a|", "empty text"), (r"a.*b.*c.*d", "bound them"),
        (r"aaaa.*aaaa.*b", "bound them"),
        (r"abc(", "plain group"), (r"(?:abc", "does not accept"), (r"*a", "does not accept"), ("abc\\", "backslash"),
        (r"[z-a]x", "does not accept"), (r"(?P<a>x)(?P<a>y)", "does not accept"), (r"a**", "does not accept"),
    ],
)
def test_what_is_outside_is_named(pattern: str, why: str) -> None:
    found = problems(pattern)
    assert any(why in problem for problem in found), found


def test_problems_never_fails_on_any_text() -> None:
    rng = random.Random(3)
    for _ in range(5000):
        text = "".join(rng.choice(r"ab\[]{}()?*+|^$.-,0199:P<>x=!dwsSb ") for _ in range(rng.randrange(1, 14)))
        if problems(text) == []:
            re.compile(text.encode(), re.ASCII)
            assert not re.compile(text.encode(), re.ASCII).fullmatch(b"")


def _javascript() -> object:
    quickjs = pytest.importorskip("quickjs")
    context = quickjs.Context()
    context.eval(
        "function find(source, flags, text) { const m = new RegExp(source, flags).exec(text);"
        " return m ? JSON.stringify([m.index, m.index + m[0].length, m.groups ? Object.entries(m.groups) : []]) : ''; }"
    )
    return context.get("find")


def _spans(pattern: str, ignore_case: bool, record: bytes, javascript: object) -> list[object]:
    """What Python, RE2 and ECMAScript find: span and named groups."""
    re2 = pytest.importorskip("re2")
    found: list[object] = []
    compiled = compile_pattern(Pattern(pattern=pattern, ignore_case=ignore_case))
    match = compiled.search(record)
    # a group that took no part is "no text" in ECMAScript too
    found.append(match and (*match.span(), {k: v for k, v in match.groupdict().items() if v is not None}))
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = not ignore_case
    options.log_errors = False
    match = re2.compile(to_re2(pattern).encode(), options).search(record)
    found.append(match and (*match.span(), {k.decode(): v for k, v in match.groupdict().items() if v is not None}))
    flags = "ui" if ignore_case else "u"
    answer = javascript(to_javascript(pattern), flags, record.decode("latin-1"))  # type: ignore[operator]
    if answer:
        start, end, groups = json.loads(answer)
        found.append((start, end, {k: v.encode("latin-1") for k, *rest in groups for v in rest if v is not None}))
    else:
        found.append(None)
    return found


def test_three_engines_agree_on_matches_and_mutants() -> None:
    javascript = _javascript()
    rng = random.Random(11)
    compared = 0
    for pattern in CORPUS:
        strategy = st.from_regex(re.compile(pattern.encode(), re.ASCII))
        records: list[bytes] = []

        @settings(max_examples=20, deadline=None, database=None, derandomize=True)
        @given(strategy)
        def collect(record: bytes) -> None:
            records.append(record)  # noqa: B023 - called at once

        collect()
        for record in records:
            mutant = bytearray(record)
            for _ in range(rng.randrange(3)):
                if mutant:
                    mutant[rng.randrange(len(mutant))] = rng.choice(b" \tA0z\x0b\x0c\x1b\x85\xa0\xb5\xdf\xe0\xff\x00_-.")
            for text in (record, bytes(mutant)):
                text = re.sub(rb"[\n\r]", b" ", text)  # a record holds no line end
                for ignore_case in (False, True):
                    python, re2, js = _spans(pattern, ignore_case, text, javascript)
                    assert python == re2 == js, (pattern, ignore_case, text)
                    compared += 1
    assert compared > 500


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_means_the_same_to_three_engines(byte: int) -> None:
    if byte in (10, 13):
        return  # ends a record
    javascript = _javascript()
    for pattern in (r"a\sb", r"a\Sb", r"a\wb", r"a\Wb", r"a\db", r"a\Db", r"a.b", r"a[^x]b", r"a[\s\d]b", r"a\b.", r"a[^\w]b"):
        for ignore_case in (False, True):
            python, re2, js = _spans(pattern, ignore_case, b"a" + bytes([byte]) + b"b", javascript)
            assert python == re2 == js, (pattern, ignore_case)


def test_the_dollar_is_the_end_of_the_record_only() -> None:
    found = compile_pattern(Pattern(pattern="killed$"))
    assert found.search(b"was killed") and not found.search(b"killed by")


def test_case_is_a_field_and_not_part_of_the_pattern() -> None:
    assert compile_pattern(Pattern(pattern="oom", ignore_case=True)).search(b"OOM")
    assert not compile_pattern(Pattern(pattern="oom")).search(b"OOM")


def test_a_broken_pattern_is_one_clear_line() -> None:
    with pytest.raises(ValueError, match="not a usable pattern") as error:
        compile_pattern(Pattern(pattern="(?:"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("pattern", "hostile"),
    [
        (r"Error.*timeout", b"Error"), (r"fooo.*barr.*bazz", b"fooobarr"), (r"\w+ \w+ \w+ xxxx", b"a "), (r"a.*abcd", b"a"),
        (r"x.{0,80}y.{0,80}zzzz", b"xy"), (r"(?:\d{1,3}\.){3}\d{1,3} end", b"1."),
        (r"\s+abcd", b" "), (r"[a-f\d]+:[a-f\d]+:[a-f\d]+ end", b"a:"),
    ],
)
def test_a_line_written_to_be_slow_takes_bounded_time(pattern: str, hostile: bytes) -> None:
    assert problems(pattern) == []
    size = window(pattern)
    assert 1024 <= size <= WINDOW
    text = (hostile * size)[:size]
    search = compile_pattern(Pattern(pattern=pattern)).search
    start = time.process_time()
    search(text)
    assert time.process_time() - start < 5  # about 0.5 s at worst; the bound is for busy machines


def test_a_window_shrinks_with_the_repeats_that_share_text() -> None:
    assert window(r"Tried to allocate (?P<a>[\d.]+) GiB") == WINDOW
    assert window(r"fooo.*barr.*bazz") < window(r"fooo.*bazz") == WINDOW
