"""Gates: the choice changes the speed and nothing else."""

from __future__ import annotations

import threading
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultbook.gates import choose_gate

PACKAGES = {"python": None, "hyperscan": "hyperscan", "ahocorasick": "ahocorasick_rs"}
INSTALLED = [name for name, package in PACKAGES.items() if package is None or find_spec(package)]


def _by_hand(literals: list[bytes], block: bytes) -> list[tuple[int, int]]:
    lowered = block.lower()
    return sorted(
        (at + len(text), number)
        for number, text in enumerate(literals)
        for at in range(len(lowered))
        if lowered.startswith(text, at)
    )


_LITERALS = st.lists(st.text("ab *[\\.(", min_size=4, max_size=7).map(str.encode), min_size=1, max_size=8, unique=True)
_BYTES = [b"a", b"B", b"A", b"b", b" ", b"\n", b"\r", b"\0", b"\xc1", b"\xe1", b"*", b"[", b"\\", b".", b"("]
_BLOCKS = st.lists(st.sampled_from(_BYTES), max_size=60).map(b"".join)


@pytest.mark.parametrize("name", INSTALLED)
@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(literals=_LITERALS, block=_BLOCKS)
def test_a_gate_finds_every_occurrence_and_nothing_else(name: str, literals: list[bytes], block: bytes) -> None:
    expected = _by_hand(literals, block)
    gate = choose_gate(literals, name)
    assert gate.find(block) == expected
    assert gate.find(memoryview(bytearray(b"xx" + block + b"yy"))[2:2 + len(block)]) == expected


@pytest.mark.parametrize("name", INSTALLED)
def test_a_gate_serves_several_threads_at_once(name: str) -> None:
    literals = [b"needle", b"thread"]
    gate = choose_gate(literals, name)
    block = b"hay " * 20_000 + b"NEEDLE in a thread"
    answers: list[list[tuple[int, int]]] = []
    threads = [threading.Thread(target=lambda: answers.extend(gate.find(block) for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[(80_006, 0), (80_018, 1)]] * 80


def test_the_environment_overrides_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTBOOK_GATE", "python")
    assert choose_gate([b"abcd"]).name == "python"
    monkeypatch.setenv("FAULTBOOK_GATE", "quantum")
    with pytest.raises(ValueError, match="choose one of hyperscan, ahocorasick, python"):
        choose_gate([b"abcd"])


def test_a_gate_that_is_not_installed_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hyperscan", None)
    monkeypatch.delenv("FAULTBOOK_GATE", raising=False)
    with pytest.raises(ValueError, match="hyperscan"):
        choose_gate([b"abcd"], "hyperscan")
    assert choose_gate([b"abcd"]).name in ("ahocorasick", "python")


def test_without_any_package_pure_python_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = __import__("sys").modules
    monkeypatch.setitem(modules, "hyperscan", None)
    monkeypatch.setitem(modules, "ahocorasick_rs", None)
    monkeypatch.delenv("FAULTBOOK_GATE", raising=False)
    assert choose_gate([b"abcd"]).find(b"xABCD") == [(5, 0)]


def test_no_literals_is_no_occurrence() -> None:
    assert choose_gate([]).find(b"anything") == []


def test_a_gate_refuses_what_it_could_not_find() -> None:
    with pytest.raises(ValueError, match="lowercase"):
        choose_gate([b"ABCD"])
