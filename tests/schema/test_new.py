"""`faultbook new --from-log`: from a raw log to an entry with only real TODOs left."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from faultbook.portable import compile_pattern, problems
from faultbook_schema import commands, new_command
from faultbook_schema.check import check
from faultbook_schema.generalise import pattern_of
from faultbook_schema.loader import load_kb
from faultbook_schema.similar import similar

Edit = Callable[..., Path]

RAISES = """\
2026-11-30 08:00:01 INFO loading /home/jdoe/data/train.bin with HF_TOKEN=hf_abcdefghijklmnopqrstuvwx
step 1 loss 2.3012
step 2 loss 2.2840
Traceback (most recent call last):
  File "/home/jdoe/work/train.py", line 31, in <module>
    main()
  File "/home/jdoe/work/train.py", line 27, in main
    grid = model.fold(batch)
  File "/opt/venv/lib/python3.11/site-packages/foldlib/grid.py", line 88, in fold
    raise ValueError(f"cannot fold {tuple(shape)} into a grid of {cells} cells")
ValueError: cannot fold (64, 3, 17) into a grid of 16 cells
"""
WARNS = """\
/opt/venv/site-packages/foldlib/loss.py:51: UserWarning: sizes torch.Size([64]) and torch.Size([64, 1]) differ, folding rows
  warnings.warn(
/opt/venv/lib/python3.11/site-packages/foldlib/old.py:9: FutureWarning: foldlib.old is deprecated, use foldlib.new
step 1 loss 1.01
step 2 loss 1.00
training finished after 2 steps
"""


def new(kb: Path, *argv: str) -> int:
    return commands.new([*argv, "--kb", str(kb)])


def log(tmp_path: Path, text: str) -> str:
    path = tmp_path / "train.log"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("ValueError: cannot fold (64, 3, 17) into a grid of 16 cells", r"cannot fold \([\d, x]+\) into a grid of \d+ cells"),
        ("foldlib.core.FoldError: cell 7", r"FoldError: cell"),
        ("ValueError: bad row 7", r"ValueError: bad row"),
        ("FoldError: none for 'aten::fold' at 0x7f3a in /a/b/c.py", r"FoldError: none for '[^']*' at 0x[0-9a-fA-F]+ in"),
        ("lost node-a after 3.5 s (code -11)", r"lost \S+ after [-+\d.eE]+ s \(code -\d+\)"),
        ("42 17 0x3f", None),
        ("12.5", None),
    ],
)
def test_a_pattern_keeps_the_words_and_leaves_the_values_open(line: str, pattern: str | None) -> None:
    made = pattern_of(line)
    assert (made.pattern if made else None) == pattern
    if made is not None:
        assert problems(made.pattern) == [] and made.literals
        other = re.sub(r"[1-9]", "4", line).encode()
        assert compile_pattern(made).search(other), "the same message with other numbers"


def test_a_pattern_has_no_name_of_a_person_or_node_in_it() -> None:
    made = pattern_of("cannot open dir-a/train.bin on node-b for user-c", "cannot open /home/jdoe/x/train.bin on gpu-17 for jdoe")
    assert made is not None and made.pattern == r"cannot open \S+ on \S+ for"


def test_from_an_exception(kb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["fold-grid-mismatch", "--category", "data", "--stack", "lightning", "--from-log", log(tmp_path, RAISES)]
    assert new(kb, *argv) == 0
    told = capsys.readouterr().err
    assert "diagnose says: unrecognised" in told and "line 11, exception: ValueError: cannot fold" in told
    folder = kb / "data" / "fold-grid-mismatch"
    text = (folder / "entry.yaml").read_text()
    assert r"pattern: 'cannot fold \([\d, x]+\) into a grid of \d+ cells'" in text
    assert "visibility: loud" in text and "{stack: lightning," in text and "expect: {broken: raises}" in text
    sample = (folder / "logs" / "broken.log").read_text()
    assert "jdoe" not in sample and "abcdefghij" not in sample and "jdoe" not in text
    assert len(sample.splitlines()) == len(RAISES.splitlines()), "a short log is kept whole"
    problems = check(kb).problems
    assert {p.code for p in problems} == {"todo"}
    # The signature that was proposed fires on the sample: without the line it is missed.
    (folder / "logs" / "broken.log").write_text(sample.replace("cannot fold", "can fold"))
    assert "broken-unmatched" in {p.code for p in check(kb).problems}


def test_from_a_warning_of_a_run_that_completes(kb: Path, tmp_path: Path) -> None:
    assert new(kb, "folds-row-by-row", "--category", "data", "--from-log", log(tmp_path, WARNS)) == 0
    text = (kb / "data" / "folds-row-by-row" / "entry.yaml").read_text()
    assert "visibility: silent" in text and "expect: {broken: completes}" in text
    assert r"sizes torch\.Size\(\[[\d, x]+\]\) and torch\.Size\(\[[\d, x]+\]\) differ, folding rows" in text
    assert "deprecated" not in text
    assert {p.code for p in check(kb).problems} == {"todo"}


def test_what_a_line_holds_cannot_break_the_file(kb: Path, tmp_path: Path) -> None:
    nasty = "ValueError: it's \"quoted\": #no \x07 comment, {brace} [x] ünï " + "word " * 50 + "\n"
    raw = log(tmp_path, RAISES.rsplit("ValueError", 1)[0] + nasty)
    assert new(kb, "nasty-line", "--category", "data", "--from-log", raw) == 0
    text = (kb / "data" / "nasty-line" / "entry.yaml").read_text()
    assert "it''s" in text
    assert {p.code for p in check(kb).problems} == {"todo"}


def test_a_long_log_is_cut_to_what_matters(kb: Path, tmp_path: Path) -> None:
    steps = "".join(f"step {n} loss {2 - n / 9999:.4f}\n" for n in range(3000))
    assert new(kb, "fold-late", "--category", "data", "--from-log", log(tmp_path, steps + RAISES)) == 0
    sample = (kb / "data" / "fold-late" / "logs" / "broken.log").read_text()
    assert "lines left out …]" in sample and "cannot fold" in sample and len(sample.splitlines()) < 60
    assert {p.code for p in check(kb).problems} == {"todo"}


def test_a_public_log_is_quoted(kb: Path, tmp_path: Path) -> None:
    url = "https://example.org/issues/12"
    assert new(kb, "fold-quoted", "--category", "data", "--from-log", log(tmp_path, RAISES), "--source", url) == 0
    text = (kb / "data" / "fold-quoted" / "entry.yaml").read_text()
    assert f"source: {url}" in text
    assert (kb / "data" / "fold-quoted" / "logs" / "recorded-1.log").is_file()
    assert {p.code for p in check(kb).problems} == {"todo"}


def test_from_a_folder_of_rank_logs(kb: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank in range(4):
        steps = "".join(f"step {n} loss {2 - n / 99:.4f}\n" for n in range(3))
        (folder / f"rank_{rank}.log").write_text(steps + (RAISES if rank == 2 else ""))
    assert new(kb, "fold-on-one-rank", "--category", "data", "--from-log", str(folder)) == 0
    entry = kb / "data" / "fold-on-one-rank"
    assert "world_size: 2" in (entry / "entry.yaml").read_text(), "several ranks in the log, two in the reproduction"
    assert "[rank2]: ValueError: cannot fold" in (entry / "logs" / "broken.log").read_text()
    assert {p.code for p in check(kb).problems} == {"todo"}


def test_what_the_catalogue_explains_is_not_written_twice(kb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = log(tmp_path, (kb / "data/batch-without-targets/logs/broken.log").read_text())
    before = sorted(kb.rglob("*"))
    assert new(kb, "divides-by-nothing", "--category", "data", "--from-log", raw) == 1
    assert "explained by `batch-without-targets` already" in capsys.readouterr().err and sorted(kb.rglob("*")) == before
    assert new(kb, "divides-by-nothing", "--category", "data", "--from-log", raw, "--anyway") == 0


def test_near_duplicates_are_found_by_their_words(kb: Path) -> None:
    raws = {item.slug: item.raw() for item in load_kb(kb).loaded}
    found = similar(raws, "every label of the batch is masked and the mean over its targets divides by zero")
    assert found[0].slug == "batch-without-targets" and found[0].share > 2 * found[1].share
    assert similar(raws, "zzz qqq") == [] and similar(raws, "") == []
    own = similar(raws, f"{raws['loss-not-finite']['title']} {raws['loss-not-finite']['quick_answer']}")
    assert own[0].slug == "loss-not-finite" and own[0].share > 0.8


def test_it_asks_on_a_terminal(kb: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = io.StringIO("Fold Fails\nmemroy\nmemory\n\nhang\n\n17\n2\n")
    answers.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", answers)
    monkeypatch.setattr("sys.stderr", _Terminal())
    assert new(kb, "fold-fails") == 0
    text = (kb / "memory" / "fold-fails" / "entry.yaml").read_text()
    assert 'title: "Fold Fails"' in text and "visibility: hang" in text and "world_size: 2" in text and "kind: cause" in text


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_nothing_is_asked(kb: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    assert new(kb, "fold-fails") == 2
    assert "--category is needed (one of " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["x-y", "--category", "data", "--stack", "lightnin"], "did you mean `lightning`?"),
        (["x-y", "--category", "data", "--from-log", "nowhere.log"], "no such file"),
        (["x-y", "--category", "data", "--source", "ftp://x"], "http(s) address"),
    ],
)
def test_usage(kb: Path, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert new(kb, *argv) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1


def test_a_binary_or_empty_log_is_one_line(kb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(range(256)) * 64)
    code = new(kb, "binary-log", "--category", "data", "--from-log", str(tmp_path / "weights.bin"))
    assert code in (0, 2) and "Traceback" not in capsys.readouterr().err
    assert new(kb, "empty-log", "--category", "data", "--from-log", log(tmp_path, "")) in (0, 2)
    assert {p.code for p in check(kb).problems} <= {"todo"}


def test_find_kb(kb: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(kb / "data")
    assert new_command.find_kb() == kb
