"""When a log signature holds: combination, order, distance, ranks, comparisons."""

from __future__ import annotations

from faultbook.matching import Observation, compare, evaluate, key_of, quantity
from faultbook.signatures import Comparison, LogSignature, Pattern, Ranks, Within

OOM = Pattern(pattern=r"Tried to allocate (?P<tried>[0-9.]+ \w+)")
RESERVED = Pattern(pattern=r"(?P<reserved>[0-9.]+ \w+) is reserved by PyTorch but unallocated")
EXIT = Pattern(pattern=r"exitcode: -9")


def seen(pattern: Pattern, *lines: Observation) -> dict:
    return {key_of(pattern): list(lines)}


def signature(**fields) -> LogSignature:
    return LogSignature(kind="log", id="s", role="root", **fields)


def test_a_signature_names_the_rank_of_its_lines():
    found = evaluate([signature(all=(EXIT,))], seen(EXIT, Observation(0, 7, "exitcode: -9", rank=3)))
    assert [(m.rank, m.evidence[0].line) for m in found] == [(3, 7)]


def test_all_must_hold_within_one_rank():
    lines = seen(OOM, Observation(0, 1, "Tried to allocate 2.00 GiB", rank=0)) | seen(
        EXIT, Observation(0, 2, "exitcode: -9", rank=1)
    )
    assert evaluate([signature(all=(OOM, EXIT))], lines) == []


def test_a_launcher_line_without_rank_completes_a_ranks_own_line():
    lines = seen(OOM, Observation(0, 1, "Tried to allocate 2.00 GiB", rank=2)) | seen(
        EXIT, Observation(1, 2, "exitcode: -9")
    )
    assert [m.rank for m in evaluate([signature(all=(OOM, EXIT))], lines)] == [2]


def test_order_and_distance():
    lines = seen(OOM, Observation(0, 50, "Tried to allocate 2.00 GiB")) | seen(EXIT, Observation(0, 10, "exitcode: -9"))
    assert evaluate([signature(all=(OOM, EXIT))], lines)
    assert not evaluate([signature(all=(OOM, EXIT), ordered=True)], lines)
    assert evaluate([signature(all=(EXIT, OOM), ordered=True)], lines)
    assert not evaluate([signature(all=(EXIT, OOM), within=Within(lines=39))], lines)
    assert evaluate([signature(all=(EXIT, OOM), within=Within(lines=40))], lines)


def test_seconds_need_one_clock():
    def lines(clock: str) -> dict:
        a = Observation(0, 1, "Tried to allocate 2.00 GiB", time=10.0, clock="c10d")
        return seen(OOM, a) | seen(EXIT, Observation(0, 2, "exitcode: -9", time=12.0, clock=clock))

    close = signature(all=(OOM, EXIT), within=Within(seconds=5))
    assert evaluate([close], lines("c10d"))
    assert not evaluate([close], lines("slurm"))


def test_counts_show_first_and_last():
    three = Pattern(pattern="exitcode: -9", at_least=3)
    lines = [Observation(0, n, "exitcode: -9") for n in (1, 5, 9)]
    assert not evaluate([signature(all=(three,))], seen(three, *lines[:2]))
    (match,) = evaluate([signature(all=(three,))], seen(three, *lines))
    assert [e.line for e in match.evidence] == [1, 9]


def test_none_is_unknown_on_a_cut_log():
    sig = signature(all=(OOM,), none=(EXIT,))
    line = seen(OOM, Observation(0, 1, "Tried to allocate 2.00 GiB", rank=0))
    assert evaluate([sig], line)[0].certain
    assert not evaluate([sig], line, incomplete=lambda rank: True)[0].certain
    assert not evaluate([sig], line | seen(EXIT, Observation(0, 2, "exitcode: -9", rank=0)))


def test_attempts_are_kept_apart():
    lines = seen(OOM, Observation(0, 1, "Tried to allocate 2.00 GiB", attempt=0)) | seen(
        EXIT, Observation(0, 2, "exitcode: -9", attempt=1)
    )
    assert evaluate([signature(all=(OOM, EXIT))], lines) == []


def test_typed_comparison_of_two_captures():
    fragmentation = signature(
        all=(OOM, RESERVED), where=(Comparison(left="reserved", op=">=", right="tried", type="bytes"),)
    )

    def lines(reserved: str) -> dict:
        text = f"Tried to allocate 2.00 GiB ... and {reserved} is reserved by PyTorch but unallocated"
        one = Observation(0, 1, text)
        return seen(OOM, one) | seen(RESERVED, one)

    assert evaluate([fragmentation], lines("3.05 GiB"))
    assert not evaluate([fragmentation], lines("512.00 MiB"))


def test_quantifiers_over_ranks():
    def lines(*ranks: int) -> dict:
        return seen(EXIT, *(Observation(0, r, "exitcode: -9", rank=r, host="a") for r in ranks))

    def holds(quantifier: str, ranks: tuple[int, ...], count: int | None = None) -> bool:
        rule = signature(all=(EXIT,), ranks=Ranks(quantifier=quantifier, count=count))
        return bool(evaluate([rule], lines(*ranks), all_ranks=frozenset({0, 1, 2})))

    assert holds("exactly_one", (1,)) and not holds("exactly_one", (1, 2))
    assert holds("all", (0, 1, 2)) and not holds("all", (0, 1))
    assert holds("at_least", (0, 1), 2) and not holds("at_least", (0,), 2)
    assert holds("all_on_one_host", (0, 1)) and not holds("all_on_one_host", (0,))


def test_quantities():
    assert quantity("3.05 GiB", "bytes") == 3.05 * 1024**3
    assert quantity("600000 ms", "seconds") == 600
    assert quantity("529,882", "number") == 529882
    assert quantity("2 parsecs", "bytes") is None
    assert not compare(Comparison(left="absent", op="<", right=1.0), {})
