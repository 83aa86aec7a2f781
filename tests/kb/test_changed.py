"""What a pull request touches is found, and its summary says what is wrong without letting anything through."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from entries import write_entry, write_kb

from faultbook_repro.changed import changes_since
from faultbook_repro.commands import verify
from faultbook_repro.core.judge import Problem as Fault
from faultbook_repro.core.spec import SpecError
from faultbook_repro.mutate import Mutant
from faultbook_repro.summary import Review, as_markdown, publish
from faultbook_repro.verify import Result
from faultbook_schema.problems import Problem


def git(folder: Path, *command: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *who, *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = tmp_path_factory.mktemp("pr")
    write_kb(checkout / "kb", "one", "two", "three")
    (checkout / "proofs").mkdir()
    (checkout / "proofs" / "three.cpu.json").write_text("{}")
    git(checkout, "init", "-q", "-b", "main")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", "base")
    return checkout


@pytest.fixture
def kb(committed: Path, tmp_path: Path) -> Path:
    shutil.copytree(committed, tmp_path / "pr")
    return tmp_path / "pr" / "kb"


def test_nothing_changed(kb: Path) -> None:
    changes = changes_since("main", kb)
    assert changes.folders == () and changes.removed == ()


def test_commits_work_in_progress_new_entries_and_proof_records_count(kb: Path) -> None:
    git(kb, "checkout", "-q", "-b", "mine")
    (kb / "model" / "one" / "repro.py").write_text("x = 1\n")
    git(kb, "commit", "-qam", "one")
    (kb / "model" / "two" / "entry.yaml").write_text("slug: two\n")
    write_entry(kb / "data" / "four")
    (kb.parent / "proofs" / "three.cpu.json").write_text('{"forged": true}')
    changes = changes_since("main", kb)
    assert [folder.name for folder in changes.folders] == ["four", "one", "three", "two"]
    assert changes.records == ("three.cpu.json",)


def test_what_main_got_meanwhile_is_not_ours(kb: Path) -> None:
    git(kb, "checkout", "-q", "-b", "mine")
    (kb / "model" / "one" / "repro.py").write_text("x = 1\n")
    git(kb, "commit", "-qam", "one")
    git(kb, "checkout", "-q", "main")
    (kb / "model" / "two" / "repro.py").write_text("x = 2\n")
    git(kb, "commit", "-qam", "two")
    git(kb, "checkout", "-q", "mine")
    assert [folder.name for folder in changes_since("main", kb).folders] == ["one"]


def test_a_slug_that_is_gone_is_noticed(kb: Path) -> None:
    git(kb, "mv", "model/one", "model/uno")
    changes = changes_since("main", kb)
    assert changes.removed == ("one",) and [folder.name for folder in changes.folders] == ["uno"]


@pytest.mark.parametrize("base", ["no-such-branch", "--output=x", "main:kb"])
def test_an_unknown_base_is_one_line(base: str, kb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecError):
        changes_since(base, kb)
    assert verify([f"--changed={base}", "--kb", str(kb)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


ATTACK = "```\n</details><img src=x onerror=alert(1)> | @everyone [x](javascript:alert(1)) `` ````"


def test_nothing_an_entry_says_becomes_markup() -> None:
    fault = Fault("broken", "check", ATTACK)
    result = Result(ATTACK, "cpu", ATTACK, False, problems=(fault,))
    names = (ATTACK,)
    problems = (Problem("kb/x", 1, ATTACK, "todo"),)
    text = as_markdown([result], Review(problems, removed=names, unrun=names, unrecorded=names, unseen=names))
    outside, fence = [], ""
    for line in text.splitlines():
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line.removesuffix("text")
            assert len(fence) > 4, "longer than any run of backticks inside"
        else:
            outside.append(line)
    assert not fence and "❌" in text
    assert not [line for line in outside if "<" in line or "@" in line or "](" in line]
    row = next(line for line in outside if line.startswith("| &#96;"))
    assert row.count("|") == 11


def test_a_mutant_that_survives_is_named() -> None:
    text = as_markdown([Result("one", "cpu", "real", True, mutants=(Mutant("STEPS = 6", "", None),))], Review())
    assert "❌" in text and "nobody noticed the mutant *STEPS &#61; 6*" in text


def test_a_clean_change_says_so_and_goes_to_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = as_markdown([Result("one", "cpu", "real", True, seconds=1.0)], Review())
    assert "✅" in text and "1 of 1 changed entries proven, no problems" in text
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert publish(text) and publish(text)
    assert (tmp_path / "summary.md").read_text() == text * 2
