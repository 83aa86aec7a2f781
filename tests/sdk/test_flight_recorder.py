"""Flight recorder dumps: safe loading, and the first call on which members differ."""

# ruff: noqa: E501 - log lines are quoted whole

from __future__ import annotations

import json
import os
import pickle
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultbook import plain_pickle
from faultbook.flight_recorder import Dump, DumpError, analyse, global_ranks, load, minority


def entry(seq: int, op: str = "all_reduce", size: int = 64, group: str = "0", at: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"collective_seq_id": seq, "input_sizes": [[size]], "output_sizes": [[size]], "input_dtypes": ["Float"], "is_p2p": False,
            "op_id": seq, "p2p_seq_id": 0, "pg_id": 0, "process_group": [group, "default_pg" if group == "0" else "undefined"],
            "profiling_name": f"gloo:{op}", "record_id": seq, "state": "scheduled", "time_created_ns": int((1000 + at) * 1e9),
            "timeout_ms": 4000, **more}


def dump(rank: int, *entries: dict[str, Any], members: str = "[0, 1, 2, 3]") -> Dump:
    data = {"entries": list(entries), "pg_config": {"": {"desc": "", "name": "", "ranks": members}}, "version": "2.10",
            "pg_status": {"0": {"last_enqueued_collective": "9", "last_completed_collective": "9"}}}
    return load(json.dumps(data).encode(), rank)


def test_gloo_json_is_read() -> None:
    found = dump(2, entry(1), entry(2, "barrier", at=0.5), entry(0, is_p2p=True))
    assert found.gloo and found.rank == 2
    assert [(e.seq, e.op, e.input_sizes) for e in found.entries] == [(1, "all_reduce", ((64,),)), (2, "barrier", ((64,),))]
    assert found.groups == {"0": (0, 1, 2, 3)}


def test_nccl_pickles_are_read_without_executing_anything(tmp_path: Any) -> None:
    plain = {"version": "2.4", "entries": [{**entry(7), "profiling_name": "nccl:all_reduce", "process_group": ("0", "default_pg"),
             "frames": [{"name": "f", "filename": "/p/train.py", "line": 9}]}], "pg_config": {"0": {"name": "0", "desc": "", "ranks": "[0, 1]"}}}
    found = load(pickle.dumps(plain), 0)
    assert (found.gloo, found.entries[0].op, found.entries[0].frame) == (False, "all_reduce", "/p/train.py:9")

    class Evil:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "made"),))

    with pytest.raises(DumpError, match="refused"):
        load(pickle.dumps({"entries": [Evil()]}))
    assert not (tmp_path / "made").exists()


def test_a_dump_of_torchs_own_pickler_is_read(root: Any) -> None:
    """What torch 2.13 wrote for two calls: memo entries in one byte, tuples of two, lists from a mark, no frame bytes."""
    name = b"X\x0f\0\0\0nccl:all_reduceq\x02"
    call = b"}(X\x11\0\0\0collective_seq_idq\x01K\x07X\x0e\0\0\0profiling_name" + name + (
        b"X\r\0\0\0process_groupX\x01\0\0\x000X\n\0\0\0default_pg\x86X\x0b\0\0\0input_sizes](](K\x03M\0\x04eeX\x0f\0\0\0time_created_ns"
        b"\x8a\x08\0\0\0\0\0\0\0\x01X\t\0\0\0timed_out\x89u"
    )
    again = b"}(h\x01K\x08X\x0e\0\0\0profiling_nameh\x02u"
    found = load(b"\x80\x02}(X\x07\0\0\0entries](" + call + again + b"eX\x04\0\0\0rankK\x02u.")
    assert [(e.seq, e.op, e.group, e.input_sizes, e.created_ns) for e in found.entries] == [
        (7, "all_reduce", "0", ((3, 1024),), 1 << 56), (8, "all_reduce", "0", (), 0),
    ]
    assert found.rank == 2


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pythons_own_pickles_give_the_same_value(protocol: int) -> None:
    value = {"a": [1, -5, 300, 70000, 2**40, -(2**70), 1.5, None, True, False, "ü"], ("k")[0]: {"n": ((), (1,), (1, 2), (1, 2, 3, 4))},
             3: {}, "long": "y" * 70000, "many": list(range(3000))}
    assert plain_pickle.loads(pickle.dumps(value, protocol)) == value


def test_memory_and_time_are_bounded_whatever_the_pickle_asks_for() -> None:
    """A memo entry number four thousand million; a tuple that holds itself twice, forty times; one list in many places."""
    tuples = b"\x80\x02}(K\x01" + b"".join(b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(40)) + b"K\x01u."
    with pytest.raises(DumpError, match="a key that is neither"):
        load(tuples.replace(b"}(K\x01", b"}(X\x07\0\0\0entries]K\x01", 1))
    assert plain_pickle.loads(b"\x80\x02K\x01r\xff\xff\xff\xff.") == 1
    shape = list(range(20_000))
    sizes = [shape] * 20_000
    members = {str(n): {"ranks": shape} for n in range(20_000)}
    calls = [{**entry(1), "input_sizes": sizes, "profiling_name": [shape] * 1000, "frames": [{"filename": "site-packages"}] * 20_000}] * 100
    data = pickle.dumps({"entries": calls, "pg_config": members})
    assert len(data) < 1_000_000
    started = time.process_time()
    found = load(data)
    assert time.process_time() - started < 10 and len(found.entries[0].input_sizes) == 512


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda b: b"\x80\x02" + b + b".")))
def test_no_bytes_make_the_reader_fail_otherwise_than_by_its_own_error(data: bytes) -> None:
    try:
        plain_pickle.loads(data)
    except plain_pickle.PickleError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"\x80\x04.", b"garbage" * 100, b'{"entries": 3}', pickle.dumps([1, 2])])
def test_what_is_no_dump_says_so_in_one_line(data: bytes) -> None:
    with pytest.raises(DumpError) as error:
        load(data)
    assert "\n" not in str(error.value)


def test_the_rank_that_did_not_enter_the_call() -> None:
    found = analyse([dump(r, entry(1), entry(2), *([] if r == 1 else [entry(3)])) for r in range(4)])
    assert found is not None
    assert (found.reason, found.seq, found.suspects) == ("missing", 3, (1,))


def test_all_have_the_same_highest_id_and_the_first_difference_counts() -> None:
    def calls(rank: int) -> list[dict[str, Any]]:
        return [entry(1), entry(2, "all_gather" if rank == 2 else "all_reduce"), entry(3, "all_reduce" if rank == 2 else "all_gather")]
    found = analyse([dump(r, *calls(r)) for r in range(4)])
    assert found is not None
    assert (found.reason, found.seq, found.suspects) == ("operation", 2, (2,))


def test_sizes_differ() -> None:
    found = analyse([dump(r, entry(1), entry(2, size=128 if r == 3 else 64)) for r in range(4)])
    assert found is not None
    assert (found.reason, found.suspects) == ("size", (3,))


def test_sizes_of_all_to_all_differ_on_healthy_steps() -> None:
    assert analyse([dump(r, entry(1, "all_to_all", size=r + 1), entry(2)) for r in range(4)]) is None


def test_the_smallest_group_is_read_first() -> None:
    # World: ranks 0, 1, 3 went on to call 8; rank 2 is the victim. Pair {2, 3}: rank 3 skipped call 15.
    def calls(rank: int) -> list[dict[str, Any]]:
        world = [entry(n) for n in range(1, 8 if rank == 2 else 9)]
        pair = [entry(n, "all_to_all", group="4") for n in range(1, 16 if rank == 2 else 15)] if rank >= 2 else []
        return world + pair
    found = analyse([dump(r, *calls(r), members="[]") for r in range(4)])
    assert found is not None
    assert (found.group, found.suspects, found.members) == ("4", (3,), (2, 3))


def test_a_printed_member_list_completes_a_group() -> None:
    def calls(rank: int) -> list[dict[str, Any]]:
        return [entry(1), *([entry(1, "all_to_all", group="4")] if rank in (4, 6, 7) else [])]
    found = analyse([dump(r, *calls(r), members="[]") for r in range(8)], 8, [(0, 1, 2, 3), (4, 5, 6, 7)])
    assert found is not None
    assert (found.group, found.suspects) == ("4", (5,))


def test_old_ids_of_a_ring_are_overwritten_not_missing() -> None:
    assert analyse([dump(r, *(entry(n) for n in range(3 + r, 20))) for r in range(4)]) is None


def test_a_latecomer_is_named_by_the_clock() -> None:
    found = analyse([dump(r, entry(1), entry(2, at=9.0 if r == 0 else 0.01 * r)) for r in range(4)])
    assert found is not None
    assert (found.reason, found.suspects) == ("late", (0,))


def test_two_members_that_differ_are_both_named() -> None:
    found = analyse([dump(r, entry(1, "all_gather" if r else "all_reduce"), members="[0, 1]") for r in range(2)])
    assert found is not None
    assert found.suspects == (0, 1)


def test_a_rank_without_a_dump_is_reported_not_blamed() -> None:
    found = analyse([dump(r, entry(1), entry(2), *([] if r == 1 else [entry(3)])) for r in (0, 1, 3)], 4)
    assert found is not None
    assert (found.no_dump, found.suspects) == ((2,), (1,))


def test_gloo_states_and_completed_counters_are_ignored() -> None:
    assert analyse([dump(r, entry(1), entry(2)) for r in range(4)]) is None


def test_nccl_calls_that_all_entered_and_none_completed_are_the_transport() -> None:
    entries = [{**entry(1), "profiling_name": "nccl:all_reduce", "state": "completed"},
               {**entry(2), "profiling_name": "nccl:all_reduce", "state": "started"}]
    data = pickle.dumps({"entries": entries, "pg_config": {"0": {"ranks": "[0, 1, 2]"}}})
    found = analyse([load(data, r) for r in range(3)])
    assert found is not None
    assert (found.reason, found.suspects) == ("transport", ())


def test_majorities_and_group_local_numbers() -> None:
    assert minority({0: "a", 1: "b", 2: "a"}) == (1,)
    assert minority({0: "a", 1: "b"}) == ()
    assert minority({0: "a", 1: "b", 2: "c", 3: "a"}) == ()
    assert global_ranks((1,), (2, 3)) == (3,)
    assert global_ranks((2,), (2, 3)) is None
