"""`check`, `new` and the confusion matrix."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from faultbook.signatures import LogSignature, Pattern, Ranks
from faultbook_schema import commands
from faultbook_schema.check import check
from faultbook_schema.firing import LogText, fires, firings
from faultbook_schema.healthy import pumped

Edit = Callable[..., Path]
CAUSE = "data/batch-without-targets"


def found(kb: Path) -> list[tuple[str, str]]:
    return [(p.path.split("/")[2], p.code) for p in check(kb).problems]


def test_good_knowledge_passes(kb: Path) -> None:
    report = check(kb)
    assert report.problems == () and (report.entries, report.signatures, report.logs) == (3, 3, 2)


def test_signature_must_fire_on_its_own_broken_log(kb: Path, edit: Edit) -> None:
    edit(f"{CAUSE}/logs/broken.log", "ZeroDivisionError: division by zero", "ValueError: no targets")
    assert found(kb) == [("batch-without-targets", "broken-unmatched")]


def test_signature_must_not_fire_on_its_own_fixed_log(kb: Path, edit: Edit) -> None:
    edit(f"{CAUSE}/logs/fixed.log", "step 2", "ZeroDivisionError: division by zero\nstep 2")
    assert found(kb) == [("batch-without-targets", "fixed-matched")]


def test_swapped_logs_are_noticed(kb: Path) -> None:
    logs = kb / CAUSE / "logs"
    (logs / "broken.log").rename(logs / "x")
    (logs / "fixed.log").rename(logs / "broken.log")
    (logs / "x").rename(logs / "fixed.log")
    assert {code for _, code in found(kb)} == {"broken-unmatched", "fixed-matched"}


def second_cause(kb: Path, slug: str = "divides-by-world-size") -> Path:
    """Another cause with a pattern of its own; its log also holds the first one's line."""
    folder = kb / "data" / slug
    shutil.copytree(kb / CAUSE, folder)
    path = folder / "entry.yaml"
    text = path.read_text().replace("slug: batch-without-targets", f"slug: {slug}")
    text = text.replace("aliases: [all-labels-masked, every label ignored]\n", "")
    text = text.replace("ZeroDivisionError: (?:float )?division by zero", "world size is 0, giving up")
    path.write_text(text)
    log = folder / "logs" / "broken.log"
    log.write_text(log.read_text() + "world size is 0, giving up\n")
    return path


def test_confusion_with_an_unrelated_entry(kb: Path) -> None:
    second_cause(kb)
    problems = check(kb).problems
    assert [(p.path, p.line, p.code) for p in problems] == [(f"kb/{CAUSE}/entry.yaml", 47, "confusion")]
    assert "divides-by-world-size" in problems[0].message
    assert "kb/data/divides-by-world-size/logs/broken.log:7: ZeroDivisionError" in problems[0].hint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("entry: first-step-scale-skip, relation: see_also", "entry: divides-by-world-size, relation: looks_like"),
        ("role: root", "role: cascade"),
        ("    role: root\n", "    role: root\n    not_evidence_of: [divides-by-world-size]\n"),
    ],
)
def test_what_excuses_a_confusion(kb: Path, edit: Edit, old: str, new: str) -> None:
    second_cause(kb)
    edit(f"{CAUSE}/entry.yaml", old, new)
    assert found(kb) == []


def test_an_ancestor_hub_may_fire(kb: Path, edit: Edit) -> None:
    edit(f"{CAUSE}/logs/broken.log", "step 0 loss 0.4000", "step 0 loss nan\nstep 1 loss nan\nstep 2 loss nan")
    assert found(kb) == [], "loss-not-finite is the parent"
    edit(f"{CAUSE}/entry.yaml", "parent: loss-not-finite\n", "")
    edit("numerics/loss-not-finite/entry.yaml", "to: batch-without-targets", "to: first-step-scale-skip")
    assert found(kb) == [("loss-not-finite", "confusion")]


def test_fixed_log_of_another_entry(kb: Path) -> None:
    second_cause(kb)
    log = kb / "data/divides-by-world-size/logs/fixed.log"
    log.write_text("step 0 loss nan\nstep 1 loss nan\nstep 2 loss nan\n")
    assert ("loss-not-finite", "fixed-matched") in found(kb)


def test_recorded_lines_must_show_what_they_are_cited_for(kb: Path, edit: Edit) -> None:
    edit(
        "numerics/first-step-scale-skip/entry.yaml",
        "references:",
        "recorded:\n  - file: logs/recorded-1.log\n    source: https://example.org/log\n"
        "    signatures: [overflow-skip]\nreferences:",
    )
    log = kb / "numerics/first-step-scale-skip/logs/recorded-1.log"
    log.parent.mkdir()
    log.write_text("OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536.0, reducing to 32768.0\n")
    assert found(kb) == []
    log.write_text("OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 32768.0, reducing to 65536.0\n")
    assert found(kb) == [("first-step-scale-skip", "recorded-unmatched")], "the comparison decides"


def test_a_line_no_run_can_print_needs_its_source(kb: Path, edit: Edit) -> None:
    pattern = "- pattern: 'ZeroDivisionError: (?:float )?division by zero'"
    edit(f"{CAUSE}/entry.yaml", pattern, "- pattern: 'only on a cluster of a thousand'")
    assert found(kb) == [("batch-without-targets", "broken-unmatched")]
    edit(f"{CAUSE}/entry.yaml", "of a thousand'", "of a thousand'\n        source: launcher 1.2, start.c")
    assert found(kb) == []


def test_quantifier_knows_the_silent_ranks() -> None:
    signature = LogSignature(
        kind="log", id="all", role="root", all=(Pattern(pattern="giving up"),), ranks=Ranks(quantifier="all")
    )
    text = "[rank0]: giving up\n[rank1]: giving up\n"
    assert firings({"s": signature}, LogText(text, world_size=2))
    assert not firings({"s": signature}, LogText(text, world_size=3))
    assert fires(signature, text)


def test_redrawn_lines_are_records() -> None:
    signature = LogSignature(kind="log", id="bar", role="root", all=(Pattern(pattern="^stalled at"),))
    assert fires(signature, "10%\rstalled at 20%\r30%\n")


# --- what a reviewer would send back ---


def test_a_sentence_of_three_entries_says_nothing_about_any(kb: Path) -> None:
    for number, folder in enumerate(sorted(kb.glob("*/*"))):
        text = (folder / "entry.yaml").read_text()
        assert text.endswith("\n")
        sentence = "The whole job stands still until somebody looks at it."
        (folder / "entry.yaml").write_text(text + f"recurrence: {sentence} Number {number}.\n")
    problems = check(kb).problems
    assert {p.code for p in problems} == {"prose-boilerplate"} and len(problems) == 3
    assert "2 other entries have word for word" in problems[0].message


def test_healthy_logs_of_the_user(kb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "healthy"
    folder.mkdir()
    (folder / "train.log").write_text("warm-up: ZeroDivisionError: division by zero was caught\n" * 3)
    assert commands.check(["--kb", str(kb)]) == 0
    assert commands.check(["--kb", str(kb), "--healthy", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "`zero-division` fires on" in out and "train.log:1, a healthy run" in out and out.endswith("[fires-on-healthy]\n")
    assert commands.check(["--kb", str(kb), "--healthy", str(folder / "none")]) == 2


def test_a_pumped_line_is_noticed() -> None:
    """The portable subset has no such pattern; what guards it must still be able to object."""
    quick = re.compile(rb"aaaa[0-9]{0,20}x").search
    assert pumped(quick, ("aaaa",), 4096) < 0.1
    slow = re.compile(rb"(?:a|aa)+$").search
    assert pumped(lambda text: slow(text[:30] + b"!"), ("aaaa",), 4096) > 0.1


def test_one_entry_is_told_what_its_log_does_to_others(kb: Path) -> None:
    second_cause(kb)
    report = check(kb, [kb / "data" / "divides-by-world-size"])
    assert [(p.path, p.code) for p in report.problems] == [(f"kb/{CAUSE}/entry.yaml", "confusion")]
    assert report.entries == 1


def test_brief_reading_changes_no_verdict(kb: Path) -> None:
    """Checking one entry after another says what checking all at once says."""
    second_cause(kb)
    (kb / CAUSE / "logs" / "fixed.log").write_text("ZeroDivisionError: division by zero\n")
    each = {p for folder in kb.glob("*/*") for p in check(kb, [folder]).problems}
    assert each == set(check(kb).problems)


# --- --fix ---


def test_fix_mends_what_is_mechanical(kb: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    entry = edit(f"{CAUSE}/entry.yaml", "severity: medium", "severity: medum  # as seen")
    edit(f"{CAUSE}/entry.yaml", "tags: [masking, labels]", "# what it is about\ntags: [maskin, labels]   ")
    edit(f"{CAUSE}/entry.yaml", "entry: first-step-scale-skip", "entry: first-step-scale-skips")
    edit(f"{CAUSE}/entry.yaml", "root_cause:", "rootcause:")
    text = entry.read_text().split("\n", 1)[1]
    moved = text.replace("category: data\n", "").rstrip("\n") + "\ncategory: data"
    entry.write_text(moved)
    assert commands.check(["--kb", str(kb), "--fix"]) == 0, capsys.readouterr().out
    told = capsys.readouterr().err
    assert told.count("fixed kb/data/batch-without-targets/entry.yaml:") == 5 and "now `medium`" in told
    after = entry.read_text()
    assert after.startswith("# yaml-language-server:") and after.endswith("\n") and "   \n" not in after
    assert "severity: medium  # as seen\n" in after and "# what it is about\ntags: [masking, labels]\n" in after
    assert after.index("\ncategory: data\n") < after.index("\nseverity:")


def test_fix_leaves_alone_what_it_does_not_understand(kb: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    block = "mechanism: |\n  two blanks at the end are a line break  \n  so they stay"
    edit(f"{CAUSE}/entry.yaml", "stages: [forward]", f"stages: [forward]\n{block}".replace("mechanism", "origin"))
    path = edit(f"{CAUSE}/entry.yaml", "severity: medium", "severity: qqq")
    before = path.read_bytes()
    assert commands.check(["--kb", str(kb), "--fix"]) == 1
    assert path.read_bytes() == before and "fixed" not in capsys.readouterr().err
    path.write_text("a: [\n")
    assert commands.check(["--kb", str(kb), "--fix"]) == 1
    assert "\na: [\n" in "\n" + path.read_text()


# --- commands ---


def test_command_reports_and_exit_codes(kb: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.check(["--kb", str(kb)]) == 0
    edit(f"{CAUSE}/entry.yaml", "severity: medium", "severity: hihg")
    assert commands.check([str(kb / CAUSE), "--kb", str(kb)]) == 1
    assert capsys.readouterr().out.startswith(f"kb/{CAUSE}/entry.yaml:7: `severity: hihg`")
    assert commands.check([str(kb / "numerics"), "--kb", str(kb)]) == 0
    assert commands.check([str(kb / CAUSE / "repro.py"), "--kb", str(kb)]) == 1, "a file stands for its entry"
    capsys.readouterr()
    assert commands.check(["--kb", str(kb), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["problems"][0]["code"] == "bad-vocabulary" and report["problems"][0]["line"] == 7
    assert commands.check([str(kb / "nothing"), "--kb", str(kb)]) == 2
    assert commands.check(["--kb", str(kb / "nothing")]) == 2


def test_a_broken_taxonomy_is_always_reported(kb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kb / "taxonomy.yaml").write_text("tags: [a]\n")
    assert commands.check([str(kb / "numerics"), "--kb", str(kb)]) == 1
    assert "kb/taxonomy.yaml:1:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--world-size", "2", "--visibility", "hang"],
        ["--mode", "simulated", "--severity", "critical"],
        ["--mode", "recorded", "--title", 'Quotes "and: colons"'],
        ["--kind", "symptom"],
        ["--kind", "noise", "--parent", "loss-not-finite"],
    ],
    ids=lambda o: " ".join(o) or "default",
)
def test_a_scaffold_is_valid_but_for_its_todos(kb: Path, options: list[str]) -> None:
    assert commands.new(["my-new-entry", "--category", "memory", "--kb", str(kb), *options]) == 0
    assert commands.new(["my-second-entry", "--category", "memory", "--kb", str(kb), *options]) == 0
    assert commands.new(["my-third-entry", "--category", "memory", "--kb", str(kb), *options]) == 0
    problems = check(kb).problems
    assert {p.code for p in problems} == {"todo"}
    assert {p.path.split("/")[2] for p in problems} == {"my-new-entry", "my-second-entry", "my-third-entry"}


@pytest.mark.parametrize(
    "argv",
    [
        ["Bad_Slug", "--category", "memory"],
        ["fine", "--category", "memoir"],
        ["batch-without-targets", "--category", "data"],
        ["fine", "--category", "memory", "--parent", "nobody"],
        ["fine", "--category", "memory", "--world-size", "0"],
        ["../fine", "--category", "memory"],
    ],
)
def test_new_refuses(kb: Path, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(kb.rglob("*"))
    assert commands.new([*argv, "--kb", str(kb)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(kb.rglob("*")) == before


def test_compile_command(kb: Path, edit: Edit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert commands.compile_catalogue(["--kb", str(kb), "--target", str(target)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(target / "signatures.json"), str(target / "catalog.json")]
    edit(f"{CAUSE}/entry.yaml", "severity: medium", "severity: hihg")
    assert commands.compile_catalogue(["--kb", str(kb), "--target", str(target)]) == 1
    assert "kb/ has 1 problem\n" in capsys.readouterr().err
    assert commands.compile_catalogue(["--kb", str(kb), "--target", str(target), "--keep-going"]) == 0
