"""Scanning: what a user gets from logs of every shape, at bounded cost."""

from __future__ import annotations

import pickle
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultbook import hits as hits_module
from faultbook import scan_pass
from faultbook.model import Hit, Scanned, Source
from faultbook.scan import Scanner, records, scan_files, windows
from faultbook.signatures import Pattern

OOM = Pattern(pattern=r"CUDA out of memory")
WATCHDOG = Pattern(pattern=r"Watchdog caught collective operation timeout")
CUDNN = Pattern(pattern=r"CUDNN_STATUS_INTERNAL_ERROR")
TRACEBACK = Pattern(pattern=r"^Traceback \(most recent call last\):$")
PREFIXED = Pattern(pattern=r"Traceback \(most recent")
KILLED = Pattern(pattern=r"Killed\s+python[\d.]*$")
NO_LITERAL = Pattern(pattern=r"\d\d:\d\d:\d\d")
_GATES = (("python", "re"), ("hyperscan", "hyperscan"), ("ahocorasick", "ahocorasick_rs"))
INSTALLED_GATES = [gate for gate, package in _GATES if find_spec(package)]
ALL = (OOM, WATCHDOG, CUDNN, TRACEBACK, PREFIXED, KILLED, NO_LITERAL)


def text_source(data: bytes | str, index: int = 0) -> Source:
    return Source(index, "<text>", "log", data=data.encode() if isinstance(data, str) else data)


def hits(data: bytes | str, *patterns: Pattern) -> tuple[Hit, ...]:
    return Scanner(patterns or ALL).scan(text_source(data)).hits


def only(data: bytes | str, pattern: Pattern) -> Hit:
    found = hits(data, pattern)
    assert len(found) == 1, found
    return found[0]


# --- plain logs ---


def test_a_hit_names_line_offset_text_and_pattern() -> None:
    found = hits("step 1\n[rank3]: CUDA out of memory. Tried\nstep 2\n", WATCHDOG, OOM)
    assert found == (Hit(source=0, line=2, offset=7, text="[rank3]: CUDA out of memory. Tried", pattern=1),)


def test_what_surrounds_the_hits_is_reported() -> None:
    scanned = Scanner([OOM]).scan(text_source("a\nb\n\nlast", index=4))
    assert scanned == Scanned(
        source=4, hits=(), lines=4, size=9, head=("a", "b", "last"), tail=((1, "a"), (2, "b"), (4, "last")),
        counts={}, capped=(), ends_mid_line=True,
    )


def test_an_empty_log_has_no_lines() -> None:
    scanned = Scanner([OOM]).scan(text_source(""))
    assert (scanned.lines, scanned.size, scanned.head, scanned.tail, scanned.ends_mid_line) == (0, 0, (), (), False)


def test_head_and_tail_are_the_first_50_and_last_200_records() -> None:
    scanned = Scanner([OOM]).scan(text_source("".join(f"line {n}\n" for n in range(1, 1001))))
    assert scanned.head == tuple(f"line {n}" for n in range(1, 51))
    assert scanned.tail == tuple((n, f"line {n}") for n in range(801, 1001))


def test_a_hit_in_the_last_line_without_line_end_is_found() -> None:
    assert only("x\nCUDA out of memory", OOM).line == 2


def test_the_case_of_a_literal_does_not_hide_a_match() -> None:
    assert only("cuda OUT of MEMORY", Pattern(pattern="CUDA out of memory", ignore_case=True)).line == 1
    assert not hits("cuda OUT of MEMORY", OOM)


def test_a_pattern_without_literal_is_found_too() -> None:
    found = hits("12:34:56 start\nCUDA out of memory 12:00:01\nno\n", OOM, NO_LITERAL)
    assert [(hit.line, hit.pattern) for hit in found] == [(1, 1), (2, 0), (2, 1)]


def test_compiled_literals_and_anchors_are_used_instead_of_derived_ones() -> None:
    chosen = Pattern(pattern="CUDA out of memory", anchors=("of mem",), literals=())
    assert Scanner([chosen]).literals == (b"of mem",)
    assert Scanner([Pattern(pattern="CUDA out of memory", literals=("cuda out",))]).literals == (b"cuda out",)
    assert only("x CUDA out of memory", chosen).line == 1


# --- what collectors do to text ---


def test_redraws_keep_the_number_of_their_line() -> None:
    found = only("a\ntqdm 1%\rtqdm 2%\rCUDA out of memory\rtqdm 3%\nb\n", OOM)
    assert (found.line, found.offset, found.text) == (2, 18, "CUDA out of memory")


def test_windows_line_ends_are_no_part_of_the_text() -> None:
    found = hits("a\r\nTraceback (most recent call last):\r\nx Killed python3\r\n", TRACEBACK, KILLED)
    assert [(hit.line, hit.text) for hit in found] == [(2, "Traceback (most recent call last):"), (3, "x Killed python3")]


def test_a_message_glued_to_a_progress_bar_is_found() -> None:
    assert only("100%|██████| 9/9 [00:01<00:00, loss=2.6][rank3]: CUDA out of memory", OOM).line == 1


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[31mRuntimeError\x1b[0m: CUDA out of memory",
        "RuntimeError: CUDA \x1b[1mout\x1b[0m of mem\x1b[31;1mory",
        "\x1b]8;;file://x\x1b\\CUDA out\x1b]8;;\x1b\\ of memory\x1b[K",
    ],
)
def test_colour_codes_do_not_hide_a_match(line: str) -> None:
    found = only(f"first\n{line}\nlast", OOM)
    assert found.line == 2 and "CUDA out of memory" in found.text and "\x1b" not in found.text


def test_colour_codes_at_both_ends_do_not_defeat_anchors() -> None:
    assert only("\x1b[36mTraceback (most recent call last):\x1b[0m\n", TRACEBACK).line == 1


def test_a_traceback_escaped_in_json_gives_its_lines() -> None:
    line = r'{"log": "step 1\nTraceback (most recent call last):\n  File \"a.py\"\nRuntimeError: CUDA out of memory", "rank": 3}'
    found = hits(f"x\n{line}\n", TRACEBACK, OOM)
    assert [(hit.line, hit.pattern) for hit in found] == [(2, 0), (2, 1)]
    assert found[0].text == "Traceback (most recent call last):"
    assert found[1].text.startswith("RuntimeError: CUDA out of memory")


def test_escaped_quotes_and_colours_are_undone() -> None:
    pattern = Pattern(pattern=r'cannot open "/data/x\.bin" for reading')
    line = r'{"msg": "one\n\u001b[31mcannot open \"/data/x.bin\" for reading\u001b[0m\nthree"}'
    found = hits(line, Pattern(pattern=pattern.pattern, anchors=("for reading",)))
    assert found[0].text == 'cannot open "/data/x.bin" for reading'


def test_a_windows_path_is_not_taken_for_an_escaped_line_end() -> None:
    assert only(r'  File "C:\proj\new\nets\train.py", line 3: CUDA out of memory', Pattern(pattern=r"nets\\train\.py")).line == 1


WRAP = "x" * 50 + " "


@pytest.mark.parametrize(
    ("data", "pattern"),
    [
        (f"{WRAP}CUDNN_STATUS_INT\nERNAL_ERROR here\n", CUDNN),  # in mid-word, through the literal
        (f"{WRAP}CUDNN_STATUS_INT   \nERNAL_ERROR here\n", CUDNN),  # with trailing blanks
        (f"{WRAP}Watchdog caught\ncollective operation timeout: x\n", WATCHDOG),  # the blank was lost
        (f"{WRAP}Watchdog caught \ncollective operation timeout: x\n", WATCHDOG),
        (f"{WRAP}CUDA out of memory. Tried\nto allocate 20 GiB\n", Pattern(pattern=r"out of memory\. Tried to allocate \d+ GiB")),
        (f"{WRAP}Tried to allocate\n20 GiB (GPU 0; CUDA)\n", Pattern(pattern=r"to allocate \d+ GiB \(GPU \d; CUDA\)")),
        (f"{WRAP}Tried to allocate\r\n20 GiB (GPU 0; CUDA)\r\n", Pattern(pattern=r"to allocate \d+ GiB \(GPU \d; CUDA\)")),
        (f"│ {WRAP}Watchdog caught    │\n│ collective operation timeout  │\n", WATCHDOG),  # a rich box
    ],
)
def test_a_line_wrapped_by_a_terminal_is_joined(data: str, pattern: Pattern) -> None:
    found = only("before\n" + data + "after\n", pattern)
    assert found.line == 2
    assert re.search(pattern.pattern, found.text)


def test_three_lines_of_the_terminals_width_are_joined() -> None:
    text = "y" * 50 + " Watchdog caught collective operation timeout in the communicator of everyone who waits, and so on"
    wrapped = "\n".join(text[i:i + 60] for i in range(0, len(text), 60))
    assert only(wrapped, Pattern(pattern=r"Watchdog caught collective .* everyone who waits")).line == 1


@pytest.mark.parametrize(
    "data",
    [
        "Watchdog caught\ncollective operation timeout\n",  # too short to have been wrapped
        f"{WRAP}Watchdog caught\n[rank2]: collective operation timeout\n",  # a record of its own
        f"{WRAP}Watchdog caught\n2026-01-02 collective operation timeout\n",
        f"{WRAP}Watchdog caught\n\ncollective operation timeout\n",
    ],
)
def test_lines_that_were_not_wrapped_are_not_joined(data: str) -> None:
    assert not hits(data, WATCHDOG)


def test_a_joined_match_is_counted_once() -> None:
    scanned = Scanner([WATCHDOG]).scan(text_source(f"{WRAP}Watchdog caught\ncollective operation timeout: x\n" * 3))
    assert scanned.counts == {0: 3} and [hit.line for hit in scanned.hits] == [1, 3, 5]


def test_marks_nuls_and_foreign_bytes_survive() -> None:
    assert only(b"\xef\xbb\xbfTraceback (most recent call last):\n", TRACEBACK).line == 1
    assert only(b"a\0\0b CUDA out of memory \0\n", OOM).text == "a\0\0b CUDA out of memory \0"
    assert only(b"\xfd\xfe\x80 CUDA out of memory \xe9\n", OOM).text == "\ufffd\ufffd\ufffd CUDA out of memory \ufffd"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read_as_text(encoding: str) -> None:
    data = "first line of a log\nCUDA out of memory — ende\n".encode(encoding)
    assert only(data, OOM) == Hit(0, 2, 20, "CUDA out of memory — ende", 0)


# --- caps ---


def test_each_rank_keeps_its_first_hits_and_its_last() -> None:
    lines = [f"[rank{n % 2}]: {n} CUDA out of memory\n" for n in range(100)] + ["[rank7]: CUDA out of memory\n"]
    scanned = Scanner([OOM], cap=3).scan(text_source("".join(lines)))
    assert [hit.line for hit in scanned.hits] == [1, 2, 3, 4, 5, 6, 99, 100, 101]
    assert scanned.counts == {0: 101} and scanned.capped == (0,)
    assert scanned.hits[6].text == "[rank0]: 98 CUDA out of memory"


def test_a_pattern_within_its_cap_is_not_called_capped() -> None:
    assert Scanner([OOM], cap=2).scan(text_source("CUDA out of memory\n" * 3)).capped == ()
    assert Scanner([OOM], cap=2).scan(text_source("CUDA out of memory\n" * 4)).capped == (0,)


@pytest.mark.parametrize(
    "prefix",
    ["[default{}]:", "{}: ", " {}: ", '{{"rank": {}}} ', "2026-01-02T03:04:05Z [rank{}]: ", "[1,{}]<stderr>:", "x rank{}[12] "],
)
def test_launchers_prefixes_tell_ranks_apart(prefix: str) -> None:
    data = "".join(prefix.format(n % 3) + "CUDA out of memory\n" for n in range(30))
    assert len(Scanner([OOM], cap=2).scan(text_source(data)).hits) == 9


# --- the answer does not depend on how it is computed ---

_PIECES = [
    b"CUDA out of memory", b"CUDA out", b" of memory", b"Watchdog caught", b" collective operation timeout",
    b"Traceback (most recent call last):", b"CUDNN_STATUS_INT", b"ERNAL_ERROR", b"Killed python3", b"12:34:56",
    b"\n", b"\n", b"\r", b"\r\n", b" ", b"\\n", b"\x1b[31m", b"\x1b[0m", b"\x1b", b"[rank1]: ", b"[default2]:",
    b"x" * 45, b"y" * 200, b"z" * 5000, "│ ".encode(), "█".encode(), b"\0", b"\xff", b'{"log": "', b'\\"',
]
_LOGS = st.lists(st.sampled_from(_PIECES), max_size=40).map(b"".join)
_SCANNERS = [
    Scanner(ALL, gate=gate, cap=2)
    for gate, package in (("python", None), ("hyperscan", "hyperscan"), ("ahocorasick", "ahocorasick_rs"))
    if package is None or find_spec(package)
]
_WITH_LITERALS = Scanner(ALL[:-1], cap=2)


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(log=_LOGS, block=st.sampled_from([1, 2, 3, 7, 64, 1000, 4096, 5000]))
def test_any_block_size_and_any_gate_give_the_same(log: bytes, block: int) -> None:
    if log[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return  # UTF-16
    reference = _SCANNERS[0].scan(text_source(log))
    if len(log) < 20_000 or block >= 64:
        for scanner in _SCANNERS:
            assert scanner.scan(text_source(log), block=block) == reference
        assert _WITH_LITERALS.scan(text_source(log), block=block) == _WITH_LITERALS.scan(text_source(log))


def test_long_logs_give_the_same_in_any_block_size() -> None:
    rng = random.Random(5)
    for _ in range(4):
        log = b"".join(rng.choice(_PIECES) for _ in range(3000))
        reference = _WITH_LITERALS.scan(text_source(log), block=1 << 22)
        for block in (5_000, 65_536, 300_000):
            assert _WITH_LITERALS.scan(text_source(log), block=block) == reference


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.lists(st.sampled_from([p for p in _PIECES if b"\x1b" not in p and b"\\" not in p]), max_size=30).map(b"".join))
def test_every_record_that_matches_by_itself_is_found(log: bytes) -> None:
    """Against the obvious program: split into records, search each."""
    if any(len(record) > 8192 for record in re.split(rb"[\n\r]", log)):
        return  # the text of a hit is cut then
    patterns = ALL[:-1]
    found = Scanner(patterns, cap=10_000).scan(text_source(log))
    offset, expected = 0, set()
    for number, line in enumerate(log.split(b"\n"), 1):
        for record in line.split(b"\r"):
            for index, pattern in enumerate(patterns):
                if re.search(pattern.pattern.encode(), record, re.ASCII):
                    expected.add((number, offset, index, record.decode("utf-8", "replace")))
            offset += len(record) + 1
    whole = {(hit.line, hit.offset, hit.pattern, hit.text) for hit in found.hits}
    assert expected <= whole
    # what else is found is text joined from wrapped lines
    assert all(text not in log.decode("utf-8", "replace") for _, _, _, text in whole - expected)


def test_threads_share_a_scanner() -> None:
    scanner = Scanner(ALL)
    logs = [text_source("step\n" * n + "[rank1]: CUDA out of memory\n" * 3, index=n) for n in range(40)]
    expected = [Scanner(ALL).scan(log) for log in logs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(scanner.scan, logs)) == expected


def test_a_scanner_can_be_sent_to_another_process() -> None:
    scanner = pickle.loads(pickle.dumps(Scanner(ALL, gate="python", cap=3)))
    assert (scanner.patterns, scanner.cap, scanner.gate.name) == (ALL, 3, "python")
    assert pickle.loads(pickle.dumps(scan_files)) is scan_files


def test_scan_files_reads_a_directory(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank_{rank}.log").write_text("ok\n" * rank + "CUDA out of memory\n")
    (tmp_path / "model.pt").write_bytes(b"\0" * 100)
    assert [[hit.line for hit in s.hits] for s in scan_files([tmp_path], [OOM])] == [[1], [2], [3]]


def test_a_broken_pattern_is_one_clear_line() -> None:
    with pytest.raises(ValueError, match="not a usable pattern"):
        Scanner([Pattern(pattern="(?:")])


# --- hostile input ---


def test_a_giant_line_is_matched_around_its_literals_in_any_block_size() -> None:
    line = b"[rank2]: " + b"CUDA out of memor, " * 20_000 + b"x CUDA out of memory y " + b"pad " * 50_000 + b"Killed python3"
    data = b"first\n" + line + b"\nlast CUDA out of memory\n"
    reference = Scanner([OOM, KILLED, TRACEBACK]).scan(text_source(data))
    assert [(hit.line, hit.pattern) for hit in reference.hits] == [(2, 0), (2, 1), (3, 0)]
    assert all(len(hit.text) <= 8192 for hit in reference.hits)
    assert "x CUDA out of memory y" in reference.hits[0].text
    for block in (10_000, 65_536, 200_000, 1 << 20):
        assert Scanner([OOM, KILLED, TRACEBACK]).scan(text_source(data), block=block) == reference


@pytest.mark.parametrize("size", [8_191, 8_192, 8_193, 20_000, 262_143, 262_144, 262_145, 300_000, 700_000])
def test_a_match_anywhere_in_a_line_of_any_length_is_found(size: int) -> None:
    needle = b"Watchdog caught collective operation timeout"
    for at in (0, 2_040, 4_095, size // 2, size - len(needle)):
        line = bytearray(b"." * size)
        line[at:at + len(needle)] = needle
        for block in (50_000, 1 << 19):
            scanned = Scanner([WATCHDOG]).scan(text_source(b"a\n" + bytes(line) + b"\nb"), block=block)
            assert [(hit.line, needle.decode() in hit.text) for hit in scanned.hits] == [(2, True)], (size, at, block)
            assert scanned.hits[0].offset + scanned.hits[0].text.index(needle.decode()) == 2 + at


def test_anchors_hold_at_the_ends_of_a_long_line_only() -> None:
    start, end = Pattern(pattern="^abcdefgh"), Pattern(pattern="abcdefgh$")
    for size in (9_000, 400_000):
        for data, expected in (
            (b"abcdefgh" + b"." * size, [0]), (b"." * size + b"abcdefgh", [1]), (b"." * size + b"abcdefgh" + b"." * size, []),
        ):
            assert [hit.pattern for hit in hits(data, start, end)] == expected


def test_a_hundred_megabytes_without_a_line_end_take_bounded_memory(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    log = tmp_path / "one-line.log"
    with log.open("wb") as file:
        for _ in range(100):
            file.write(b"CUDA out of memor, x " * 50_000)
        file.write(b"CUDA out of memory")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    scanned = Scanner(ALL[:-1]).scan(Source(0, str(log), "log", str(log)))
    assert [hit.pattern for hit in scanned.hits] == [0] and scanned.lines == 1
    assert time.process_time() - start < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB


def test_a_hit_on_every_line_with_ever_new_ranks_keeps_memory_bounded() -> None:
    data = b"".join(b"[rank%d]: CUDA out of memory\n" % n for n in range(6_000))
    scanned = Scanner([OOM], cap=1).scan(text_source(data))
    assert scanned.counts == {0: 6_000} and len(scanned.hits) < 2_100 and scanned.capped == (0,)


# --- reading again ---


@pytest.fixture
def long_log(tmp_path: Path) -> Source:
    path = tmp_path / "long.log"
    lines = [b"line %d %s" % (n, b"." * (n % 200)) for n in range(1, 5001)]
    lines[2499] += b" CUDA out of memory"
    lines[2500] = b"tqdm 1\rtqdm 2\r\rtqdm 3"
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines) + b"\n")
    return Source(0, str(path), "log", str(path))


def test_windows_give_lines_around_hits(long_log: Source) -> None:
    scanned = Scanner([OOM]).scan(long_log)
    line = scanned.hits[0].line
    expected = {number: text for number, _, text in records(long_log) if number != 2501}
    wanted = [(line - 2, line + 2), (1, 2), (line - 1, line), (4999, 9999), (-5, 1), (30, 20)]
    for found in (windows(long_log, wanted), windows(long_log, wanted, scanned)):
        assert [n for n, _ in found] == [1, 2, 2498, 2499, 2500, 2501, 2501, 2501, 2502, 4999, 5000]
        assert [text for n, text in found if n == 2501] == ["tqdm 1", "tqdm 2", "tqdm 3"]
        assert all(expected[n] == text for n, text in found if n != 2501)


@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(-3, 60), st.integers(-3, 60)), max_size=5), st.integers(1, 9))
def test_windows_with_and_without_a_scan_are_the_same(wanted: list[tuple[int, int]], every: int) -> None:
    log = text_source("".join(f"{n}\r" * (n % 3) + ("CUDA out of memory\n" if n % every == 0 else f"x{n}\n") for n in range(50)))
    scanned = Scanner([OOM]).scan(log)
    plain = windows(log, wanted)
    assert plain == windows(log, wanted, scanned)
    asked = {line for a, b in wanted for line in range(a, b + 1)}
    assert plain == [(n, text) for n, _, text in records(log) if n in asked]


def test_records_give_line_offset_and_text() -> None:
    assert list(records(text_source("a\n\nb\rc\r\nd"))) == [(1, 0, "a"), (3, 3, "b"), (3, 5, "c"), (4, 8, "d")]


def test_a_pattern_on_every_line_is_given_up_and_its_last_hit_still_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the same for every block size and gate, and other patterns lose nothing."""
    monkeypatch.setattr(hits_module, "SATURATED", 300)
    hot = Pattern(pattern=r"loss \d")
    lines = [f"[rank{n % 3}]: step {n} loss {n % 10}" for n in range(2000)]
    lines[1500] = "[rank9]: CUDA out of memory and loss 3"  # a rank that comes after the pattern was given up
    lines += ["x" * 100] * 1500
    lines[-5] = "[rank1]: the end: loss 7"
    data = "\n".join(lines) + "\n"
    answers = []
    for gate in INSTALLED_GATES:
        scanner = Scanner([hot, OOM], gate=gate, cap=5)
        answers += [scanner.scan(text_source(data), block=block) for block in (64, 1000, 4096, 1 << 19)]
    assert all(answer == answers[0] for answer in answers)
    kept = [hit for hit in answers[0].hits if hit.pattern == 0]
    assert [hit.line for hit in answers[0].hits if hit.pattern == 1] == [1501]
    assert kept[-1].line == len(lines) - 4 and kept[-1].text.endswith("loss 7")
    assert {hit.line for hit in kept[:15]} == set(range(1, 16))
    assert 0 in answers[0].capped


@pytest.mark.parametrize("gate", INSTALLED_GATES)
def test_a_literal_on_every_line_without_a_match_costs_no_hit_further_on(gate: str) -> None:
    rare = Pattern(pattern=r"CUDA out of memory: rank \d+ lost", literals=("cuda out of memory",))
    lines = ["a line of usual length: CUDA out of memory, " + "x" * (n % 50) for n in range(6000)]
    lines[4321] = "CUDA out of memory: rank 3 lost"
    lines[5999] = "CUDA out of memory: rank 4 lost"
    data = "\n".join(lines) + "\n"
    scanner = Scanner([rare, CUDNN], gate=gate)
    answers = [scanner.scan(text_source(data), block=block) for block in (300, 5000, 1 << 16, 1 << 19)]
    assert all(answer == answers[0] for answer in answers)
    assert [hit.line for hit in answers[0].hits] == [4322, 6000]


def test_a_literal_on_every_line_is_looked_for_with_its_expression_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Vectorscan searches for whole expressions, the answer is that of trying each line: anchors, classes that could
    match a line end, redraws, colours, escapes and long lines included."""
    wanted = [
        Pattern(pattern=r"^step \d+ time 7\d*$"), Pattern(pattern=r"time \d+\s+data \d+!", ignore_case=True),
        Pattern(pattern=r"time [^x]{1,9}y"), Pattern(pattern=r"\btime\b.{0,20}\bend$"),
        Pattern(pattern=r'time "(?P<what>\w+)"', literals=("time ",)),
    ]  # fmt: skip
    rng = random.Random(5)
    special = ["step 3 time 71", "x TIME 4  DATA 5!", "time 4\rtime \ry", "a time b end", "\x1b[1mti\x1b[0mme 8y",
               r'{"m": "a\ntime \"word\""}', "time " + "z" * 9000 + " time 8y", "time 5\n data 6!", "time and\ny"]  # fmt: skip
    lines = [rng.choice(special) if rng.random() < 0.02 else f"step {n} time {n % 60}s on and on" for n in range(1500)]
    data = "\n".join(lines)
    plain = [Scanner(wanted, gate=gate).scan(text_source(data), block=4000) for gate in INSTALLED_GATES]
    monkeypatch.setattr(scan_pass, "_JOINED", 2000)
    patient = [Scanner(wanted, gate=gate).scan(text_source(data), block=4000) for gate in INSTALLED_GATES]
    for name in ("_HOPELESS", "_IDLE"):
        monkeypatch.setattr(scan_pass, name, 50)
    asked = []
    expressions = Scanner.expressions
    monkeypatch.setattr(Scanner, "expressions", lambda *given: asked.append(given[2]) or expressions(*given))
    hasty = [Scanner(wanted, gate=gate).scan(text_source(data), block=4000) for gate in INSTALLED_GATES]
    assert set(asked) == {True, False}
    assert all(one == plain[0] for one in plain) and len({hit.pattern for hit in plain[0].hits}) == len(wanted)
    assert all(one == patient[0] for one in (*patient, *hasty))
