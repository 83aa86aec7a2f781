"""kb/ → catalogue: the same bytes each time, computed fields, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faultbook.signatures import signature_from_dict, to_dict
from faultbook_schema.compiler import shortened, write_catalogue
from faultbook_schema.digest import entry_digest, proof_digest, source_digest
from faultbook_schema.problems import InvalidKnowledge

Edit = Callable[..., Path]
CAUSE = "batch-without-targets"


def compiled(kb: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    target = kb.parent / "out"
    write_catalogue(kb, target, **options)
    return tuple(json.loads((target / n).read_text()) for n in ("signatures.json", "catalog.json"))  # type: ignore[return-value]


def by_slug(data: dict[str, Any]) -> dict[str, Any]:
    return {e["slug"]: e for e in data["entries"]}


def test_same_bytes_wherever_and_whenever(kb: Path, make_kb: Callable[..., Path], tmp_path: Path) -> None:
    import shutil

    other = tmp_path / "elsewhere" / "kb"
    shutil.copytree(kb, other)
    for path in other.rglob("*"):
        path.touch()
    first, second, third = tmp_path / "1", tmp_path / "2", tmp_path / "3"
    for source, target in ((kb, first), (kb, second), (other, third)):
        assert [p.name for p in write_catalogue(source, target)] == ["signatures.json", "catalog.json"]
    for name in ("signatures.json", "catalog.json"):
        data = (first / name).read_bytes()
        assert data == (second / name).read_bytes() == (third / name).read_bytes()
        assert data.endswith(b"\n") and str(tmp_path).encode() not in data
    assert {p.name for p in first.iterdir()} == {"signatures.json", "catalog.json"}, "no drafts are left"


def test_signatures_come_with_literals_and_round_trip(kb: Path) -> None:
    signatures, catalogue = compiled(kb)
    assert [s["entry"] + "#" + s["id"] for s in signatures["signatures"]] == [
        "batch-without-targets#zero-division",
        "first-step-scale-skip#overflow-skip",
        "loss-not-finite#nonfinite-loss",
    ]
    for row in signatures["signatures"]:
        data = {k: v for k, v in row.items() if k != "entry"}
        assert to_dict(signature_from_dict(data)) == data
        assert data in by_slug(catalogue)[row["entry"]]["signatures"]
    literals = signatures["signatures"][0]["all"][0]["literals"]
    assert literals and all("division by zero" in text for text in literals)


def test_author_s_anchors_replace_derived_literals(kb: Path, edit: Edit) -> None:
    pattern = "      - pattern: 'ZeroDivisionError: (?:float )?division by zero'\n"
    edit(f"data/{CAUSE}/entry.yaml", pattern, pattern + "        anchors: [Division by]\n")
    assert compiled(kb)[0]["signatures"][0]["all"][0]["literals"] == ["division by"]


def test_computed_fields(kb: Path) -> None:
    signatures, catalogue = compiled(kb)
    cause = by_slug(catalogue)[CAUSE]
    assert cause["ancestors"] == ["loss-not-finite"]
    assert cause["code"]["broken"].startswith("def mean_loss(labels):\n    targets = ")
    assert "-    return sum(0.1 * target for target in targets) / len(targets)" in cause["code"]["diff"]
    assert "ZeroDivisionError" in cause["logs"]["broken.log"]
    assert by_slug(catalogue)["first-step-scale-skip"]["inverse_related"] == [{"entry": CAUSE, "relation": "see_also"}]
    assert catalogue["digest"] == signatures["digest"]
    brief = by_slug(signatures)[CAUSE]
    assert brief["verify"] == "python train.py --max-steps 200 → Two hundred steps with a finite loss."
    assert brief["fix_code"] == cause["code"]["fixed"]
    assert brief["action"] == {"do": "fix_code", "when": "The traceback ends in the division of the loss."}
    hub = by_slug(signatures)["loss-not-finite"]
    assert (hub["fix"], hub["action"], len(hub["routes"])) == ("", None, 2)


@pytest.mark.parametrize(
    ("said", "inverse"),
    [("causes", "caused_by"), ("caused_by", "causes"), ("looks_like", "looks_like"), ("often_with", "often_with")],
)
def test_inverse_relations(kb: Path, edit: Edit, said: str, inverse: str) -> None:
    edit(f"data/{CAUSE}/entry.yaml", "relation: see_also", f"relation: {said}")
    noise = by_slug(compiled(kb)[1])["first-step-scale-skip"]
    assert noise["inverse_related"] == [{"entry": CAUSE, "relation": inverse}]


def test_every_relation_has_an_inverse(root: Path) -> None:
    from faultbook_schema.compiler import INVERSE
    from faultbook_schema.taxonomy import load_taxonomy

    assert set(INVERSE) == set(load_taxonomy(root / "kb")[0]["relations"])
    assert all(INVERSE[INVERSE[relation]] == relation for relation in INVERSE)


def test_digest_follows_content(kb: Path, edit: Edit) -> None:
    before = compiled(kb)[0]["digest"]
    edit(f"data/{CAUSE}/logs/fixed.log", "0.4000", "0.4001")
    assert compiled(kb)[0]["digest"] != before


def test_invalid_knowledge_is_one_error_with_all_problems(kb: Path, edit: Edit) -> None:
    edit(f"data/{CAUSE}/entry.yaml", "severity: medium", "severity: hihg")
    edit("numerics/loss-not-finite/entry.yaml", "category: numerics", "category: numeric")
    with pytest.raises(InvalidKnowledge) as caught:
        write_catalogue(kb, kb.parent / "out")
    lines = str(caught.value).splitlines()
    assert lines[0] == "kb/ has 2 problems" and len(lines) == 3
    assert "entry.yaml:7:" in lines[1] and "did you mean `numerics`?" in lines[2]
    assert not (kb.parent / "out").exists(), "nothing is written"


def test_keep_going_leaves_out_and_drops_references(kb: Path, edit: Edit) -> None:
    edit("numerics/first-step-scale-skip/entry.yaml", "severity: low", "severity: lwo")
    left_out: list[str] = []
    signatures, catalogue = compiled(kb, keep_going=True, left_out=left_out)
    assert left_out == ["first-step-scale-skip"]
    assert sorted(by_slug(catalogue)) == sorted(by_slug(signatures)) == [CAUSE, "loss-not-finite"]
    assert by_slug(catalogue)[CAUSE]["related"] == []
    assert [r["to"] for r in by_slug(catalogue)["loss-not-finite"]["routes"]] == [CAUSE]


def test_proofs_show_only_while_their_digest_matches(kb: Path, edit: Edit) -> None:
    runner = kb.parent / "sdk" / "faultbook_repro" / "core"
    runner.mkdir(parents=True)
    (runner / "runner.py").write_text("LIMIT = 1\n")
    proofs = kb.parent / "proofs"
    proofs.mkdir()
    folder = kb / "data" / CAUSE
    record = {"slug": CAUSE, "device": "cpu", "digest": proof_digest(entry_digest(folder), source_digest(runner))}
    (proofs / f"{CAUSE}.cpu.json").write_text(json.dumps(record))
    (proofs / f"{CAUSE}.cuda.json").write_text(json.dumps({**record, "digest": "0" * 64}))
    (proofs / "no-such-entry.cpu.json").write_text(json.dumps(record))
    (proofs / "loss-not-finite.cpu.json").write_text("{")

    def shown() -> list[Any]:
        return by_slug(compiled(kb)[1])[CAUSE]["proofs"]  # type: ignore[no-any-return]

    assert shown() == [record]
    edit(f"data/{CAUSE}/entry.yaml", "title: Batch", "title: A Batch")
    assert shown() == [record], "prose may change"
    (runner / "runner.py").write_text("LIMIT = 2\n")
    assert shown() == [], "another runner"
    (runner / "runner.py").write_text("LIMIT = 1\n")
    assert shown() == [record]
    edit(f"data/{CAUSE}/entry.yaml", "(?:float )?", "")
    assert shown() == [], "another signature"


def test_entry_digest_ignores_layout_and_comments(kb: Path, edit: Edit) -> None:
    folder = kb / "data" / CAUSE
    before = entry_digest(folder)
    edit(f"data/{CAUSE}/entry.yaml", "signatures:\n", "# what the log must hold\nsignatures:   \n")
    assert entry_digest(folder) == before
    edit(f"data/{CAUSE}/repro.py", "max(len(targets), 1)", "max(len(targets), 2)")
    assert entry_digest(folder) != before


def test_long_logs_are_shortened_with_a_note() -> None:
    text = "".join(f"line {i}\n" for i in range(10_000))
    short = shortened(text).splitlines()
    assert short[0] == "line 0" and short[-1] == "line 9999"
    assert short[200] == "… 9,600 lines left out …" and len(short) == 401
    wide = shortened("x" * 1_000_000 + "\n" + "end\n")
    assert len(wide) < 50_000 and wide.endswith("end\n")
    assert shortened("a\nb\n") == "a\nb\n"
