"""Required literals: every match holds one of them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultbook.literals import required_literals, verify_anchors
from faultbook.portable import problems

CORPUS = (
    r"CUDA out of memory",
    r"(?:CUDA|HIP) out of memory\. Tried to allocate (?P<size>[\d.]+ [KMG]iB)",
    r"out of memory|oom[-_ ]kill(?:er|ed)?",
    r"Signal \d+ \(SIG(?P<name>KILL|SEGV|BUS)\) received by PID \d+",
    r"exit(?:s|ed)? with (?:return )?code = -\d",
    r"[Ee]rror: [Cc]annot [Oo]pen",
    r"(?:abc){3,}d?e",
    r"(?:foo|ba[rz]){2} timed out",
    r"x?yz?abcd[ef]?",
    r"number of nan iterations: [1-9]\d*",
    r'"loss": (?:NaN|nan), "grad_norm"',
    r"\bXid \(PCI:[0-9a-f:.]+\): (?:79|119|120),",
    r"^\s*Killed\s+python[\d.]*$",
    r"a{5}b{2,3}c",
    r"(?:ab?){4}tail",
    r"(?:one|two|three|four|five|six) of them, [a-d] or [^xz]y",
    r"\[(?:rank)?\d+\].{1,30}?mismatch(?:ed)? (?:dtype|shape)s?",
    r"(?:(?:inner|outer) loop|whole) stopped",
)


@pytest.mark.parametrize("pattern", CORPUS)
@pytest.mark.parametrize("ignore_case", [False, True])
def test_every_match_holds_a_literal(pattern: str, ignore_case: bool) -> None:
    assert problems(pattern, ignore_case) == []
    literals = required_literals(pattern, ignore_case)
    assert literals and all(len(text) >= 4 and text == text.lower() for text in literals)
    flags = re.ASCII | (re.IGNORECASE if ignore_case else 0)

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(st.from_regex(re.compile(pattern.encode(), flags)))
    def holds(match: bytes) -> None:
        lowered = match.lower()
        assert any(text.encode() in lowered for text in literals), (match, literals)

    holds()


_ATOMS = st.sampled_from(["abcd", "ef", "x", ".", r"\d", "[ab]", "[^z]", r"\w+", "b?", "(?:cd|ce)", "(?:long|word)?", "a{2}",
                          "(?:ab|c){2}", "(?:uvw){2,}", "b+", "(?P<n>qrst)", ".*?"])


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.lists(st.lists(_ATOMS, min_size=1, max_size=6), min_size=1, max_size=3), st.data())
def test_any_pattern_put_together_from_parts_is_sound(branches: list[list[str]], data: st.DataObject) -> None:
    pattern = "|".join("".join(parts) for parts in branches)
    if pattern.count("(?P<n>") > 1:
        return
    literals = required_literals(pattern)
    if literals:
        match = data.draw(st.from_regex(re.compile(pattern.encode(), re.ASCII)))
        assert any(text.encode() in match.lower() for text in literals), (pattern, match, literals)
        assert verify_anchors(pattern, literals) == []


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (r"CUDA out of memory", ("cuda out of memory",)),
        (r"(?:CUDA|HIP) error", ("cuda error", "hip error")),
        (r"a\d+longest literal\d+short", ("longest literal",)),
        (r"rank \d+ watchdog caught", (" watchdog caught",)),
        (r"error: .*segfaulted", ("segfaulted",)),  # `error: ` is on healthy lines too
        (r"abcd|abcde", ("abcd",)),
    ],
)
def test_the_longest_and_coldest_set_is_chosen(pattern: str, literals: tuple[str, ...]) -> None:
    assert required_literals(pattern) == literals


@pytest.mark.parametrize("pattern", [r"\d+", r"abc", r"a.b.c.d", r"(?:abcdef)?x", r"abcdef|\d\d", r"[a-z]{9}", r"(?:abcd)*e"])
def test_no_literal_where_none_is_required(pattern: str) -> None:
    assert required_literals(pattern) == ()


@pytest.mark.parametrize(
    ("pattern", "anchors"),
    [
        (r"(?:CUDA|HIP) out of memory", ["OUT of mem"]),
        (r"(?:CUDA|HIP) out", ["cuda out", "hip out"]),
        (r"(?:foo )?killed by", ["killed"]),
        (r"(?:abcd)+x", ["abcd"]),
        (r"one (?:two|three) four", ["two four", "three"]),
    ],
)
def test_sound_anchors_are_accepted(pattern: str, anchors: list[str]) -> None:
    assert verify_anchors(pattern, anchors) == []


@pytest.mark.parametrize(
    ("pattern", "anchors", "why"),
    [
        (r"(?:CUDA|HIP) out", ["cuda out"], "hip out"),
        (r"(?:oom|out of memory) killed", ["of memory"], "oom"),
        (r"(?:foo )*killed", ["foo killed"], "killed"),
        (r"loss is nan", ["nan"], "shorter"),
        (r"loss is nan", [], "no anchor"),
        (r"loss is nan", ["loss was"], "loss is nan"),
        (r"caf.", ["caf\u00e9"], "ASCII"),
    ],
)
def test_unsound_anchors_are_named(pattern: str, anchors: list[str], why: str) -> None:
    assert any(why in problem for problem in verify_anchors(pattern, anchors))
