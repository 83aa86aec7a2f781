"""What no fixture file can hold: huge files, links, races of entries, and arbitrary bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faultbook_schema import links, yaml_nodes
from faultbook_schema.loader import load_entry, load_kb
from faultbook_schema.models import KINDS
from faultbook_schema.taxonomy import load_taxonomy

CAUSE = "data/batch-without-targets/entry.yaml"
HUB = "numerics/loss-not-finite/entry.yaml"
NOISE = "numerics/first-step-scale-skip/entry.yaml"
Edit = Callable[..., Path]


def codes(kb: Path) -> list[str]:
    return [p.code for p in load_kb(kb).problems]


def test_all_problems_of_a_file_at_once(kb: Path, edit: Edit) -> None:
    edit(CAUSE, "severity: medium", "severity: hihg")
    edit(CAUSE, "date: 2024-10-07", "date: soon")
    edit(CAUSE, "(?:float )?division", "(?!float )division")
    edit(CAUSE, "mode: real", "mode: simulated")
    edit(CAUSE, "{entry: first-step-scale-skip,", "{entry: first-step-scale-skp,")
    found = [(p.line, p.code) for p in load_kb(kb).problems if p.path.endswith(CAUSE)]
    assert found == [
        (7, "bad-vocabulary"),
        (51, "pattern-not-portable"),
        (55, "bad-date"),
        (59, "unknown-entry"),
        (60, "cross-field"),
    ]


def test_a_bad_entry_does_not_hide_the_links_of_others(kb: Path, edit: Edit) -> None:
    edit(HUB, "severity: high", "severity: hihg")
    problems = load_kb(kb).problems
    assert [(p.path, p.code) for p in problems] == [(f"kb/{HUB}", "bad-vocabulary")]


def test_size_limit(kb: Path) -> None:
    path = kb / NOISE
    path.write_text(path.read_text() + "# " + "x" * yaml_nodes.MAX_BYTES + "\n")
    assert codes(kb) == ["too-large"]


def test_the_work_on_one_entry_is_bounded(kb: Path, edit: Edit) -> None:
    """Ten thousand near-misses would each be compared with every slug."""
    edit(CAUSE, "related:\n", "related:\n" + "  - {entry: los-not-finite, relation: see_ulso}\n" * 4000)
    problems = load_kb(kb).problems
    assert 100 <= len(problems) <= 300
    patterns = "".join(f"      - pattern: 'some words {i} in front'\n" for i in range(2000))
    edit(NOISE, "    all:\n", "    any:\n" + patterns + "    all:\n")
    assert [p.code for p in load_kb(kb).problems if p.path.endswith(NOISE)] == ["too-long"]


def test_large_log(kb: Path) -> None:
    (kb / "data/batch-without-targets/logs/broken.log").write_text("line\n" * 100_000)
    assert codes(kb) == ["too-large"]


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_links_are_not_followed(kb: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.log"
    secret.write_text("password\n")
    folder = kb / "data/batch-without-targets"
    (folder / "logs/broken.log").unlink()
    (folder / "logs/broken.log").symlink_to(secret)
    knowledge = load_kb(kb)
    assert "unreadable" in [p.code for p in knowledge.problems]
    assert all("password" not in text for item in knowledge.loaded for text in item.logs.values())
    (folder / "repro.py").unlink()
    (folder / "repro.py").symlink_to(secret)
    assert [p.code for p in load_kb(kb).problems if p.path.endswith("repro.py")] == ["unreadable"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_does_not_block(kb: Path) -> None:
    path = kb / NOISE
    path.unlink()
    os.mkfifo(path)
    assert "unreadable" in codes(kb)


def test_longer_cycle_of_parents(kb: Path, edit: Edit) -> None:
    other = kb / "numerics/other-hub"
    other.mkdir()
    text = (kb / HUB).read_text().replace("slug: loss-not-finite", "slug: other-hub\nparent: loss-not-finite")
    (other / "entry.yaml").write_text(text)
    edit(HUB, "visibility: silent", "visibility: silent\nparent: other-hub")
    cycles = [p for p in load_kb(kb).problems if p.code == "parent-cycle"]
    assert [p.path for p in cycles] == [f"kb/{HUB}", "kb/numerics/other-hub/entry.yaml"]
    assert "loss-not-finite → other-hub → loss-not-finite" in cycles[0].message


def test_names_that_differ_in_spelling_only_collide(kb: Path, edit: Edit) -> None:
    edit(HUB, "visibility: silent", "visibility: silent\naliases: [ALL labels, 'ALL_Labels masked']")
    assert [(p.code, p.line) for p in load_kb(kb).problems] == [("duplicate-slug", 9)]


def test_files_where_none_belong(kb: Path) -> None:
    (kb / CAUSE).with_name("helper.py").write_text("x = 1\n")
    (kb / "memory" / "draft").mkdir(parents=True)
    (kb / "memory" / "draft" / "repro.py").write_text("x = 1\n")
    (kb / "memory" / "empty").mkdir()
    (kb / "memory" / "entry.yaml").write_text("slug: lost\n")
    assert [(p.path, p.code) for p in load_kb(kb).problems] == [
        ("kb/data/batch-without-targets/helper.py", "unexpected-file"),
        ("kb/memory/draft/entry.yaml", "missing-file"),
        ("kb/memory/entry.yaml", "unexpected-file"),
    ]


def test_a_simulated_run_may_say_the_line_if_the_pattern_cites_it(kb: Path, edit: Edit) -> None:
    edit(CAUSE, "mode: real", "mode: simulated\n  stands_in: A print stands in for the library.")
    edit("data/batch-without-targets/repro.py", "losses = []", "losses = ['ZeroDivisionError: division by zero']")
    assert codes(kb) == ["repro-text"]
    edit(CAUSE, "division by zero'", "division by zero'\n        source: CPython 3.11, Objects/floatobject.c")
    assert codes(kb) == []


def test_html_is_text(kb: Path, edit: Edit) -> None:
    """Escaping is the page's business; the loader keeps what was written."""
    edit(NOISE, "Steps are still skipped", "<script>alert(1)</script> & Steps are still skipped")
    knowledge = load_kb(kb)
    assert knowledge.problems == ()
    raw = knowledge.entries["first-step-scale-skip"].raw()
    assert raw["harmless_unless"].startswith("<script>alert(1)</script> & ")


def test_yes_and_dates_stay_text() -> None:
    node, problems = yaml_nodes.read(b"a: no\nb: 2024-05-01\nc: 0x10\nd: 1_000\ne: '1'\nf: 1\ng: 1.5\nh: true\ni:\n", "x")
    assert problems == [] and node is not None
    assert node.plain() == {
        "a": "no", "b": "2024-05-01", "c": "0x10",
        "d": "1_000", "e": "1", "f": 1, "g": 1.5, "h": True, "i": None,
    }  # fmt: skip


def test_the_two_yaml_readers_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """libyaml may be absent; the pure Python reader must say the same."""
    import yaml

    folder = Path(__file__).parent
    for path in [*folder.glob("good/*/*/entry.yaml"), *folder.glob("bad/*/entry.yaml")]:
        fast = yaml_nodes.read(path.read_bytes(), "x")
        with monkeypatch.context() as patch:
            patch.setattr(yaml_nodes, "_Loader", yaml.SafeLoader)
            slow = yaml_nodes.read(path.read_bytes(), "x")
        assert (fast[0] and fast[0].plain()) == (slow[0] and slow[0].plain()), path
        assert [p.code for p in fast[1]] == [p.code for p in slow[1]], path


# --- never raises, whatever the files hold ---

_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(),
    st.text(max_size=20),
    st.sampled_from(["cause", "noise", "log", "metric", "above", "slug-a", "a#b", "2024-01-01",
                     "logs/x.log"]),
)  # fmt: skip
_names = sorted({f.alias or n for m in KINDS.values() for n, f in m.model_fields.items()})
_parts = [
    "kind", "id", "role", "all", "any", "none", "pattern", "series", "test", "entry", "to", "where", "ranks",
    "within", "file", "mode", "left", "right", "parent", "signature",
]  # fmt: skip
_keys = st.one_of(st.sampled_from([*_names, *_parts]), st.text(max_size=8))
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_keys, inner, max_size=6)),
    max_leaves=25,
)
_quiet = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


TAXONOMY = load_taxonomy(Path(__file__).resolve().parents[2] / "kb")[0]
OTHERS = [load_entry(Path(__file__).parent / "good" / name, TAXONOMY)[0]
          for name in ("numerics/loss-not-finite", "numerics/first-step-scale-skip")]  # fmt: skip


def _try(kb: Path, data: bytes | None = None) -> None:
    folder = kb / "data" / "batch-without-targets"
    if data is not None:
        (folder / "entry.yaml").write_bytes(data)
    item, problems = load_entry(folder, TAXONOMY)
    assert problems or item.entry is not None
    for problem in [*problems, *links.problems_of([item, *OTHERS])]:
        assert problem.line >= 1 and str(problem).isprintable()


@given(data=st.binary(max_size=300))
@_quiet
def test_arbitrary_bytes(kb: Path, data: bytes) -> None:
    _try(kb, data)


@given(text=st.text(alphabet="abkind:-[]{}&*!|>#'\"%@`,? \n\t\\0159", max_size=200))
@_quiet
def test_arbitrary_yaml_like_text(kb: Path, text: str) -> None:
    _try(kb, text.encode())


@given(value=st.dictionaries(_keys, _values, max_size=12), kind=st.sampled_from(["cause", "symptom", "noise"]))
@_quiet
def test_arbitrary_entries(kb: Path, value: dict[str, object], kind: str) -> None:
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    _try(kb, yaml.dump({**value, "kind": kind}, Dumper=Plain, allow_unicode=True).encode("utf-8", "replace"))


@given(
    signature=st.dictionaries(_keys, _values, max_size=8),
    where=st.sampled_from(["signatures", "repro", "routes"]),
)
@_quiet
def test_a_good_entry_with_an_arbitrary_part(kb: Path, signature: dict[str, object], where: str) -> None:
    import json

    node, _ = yaml_nodes.read((Path(__file__).parent / "good" / CAUSE).read_bytes(), "x")
    assert node is not None
    data = node.plain()
    data[where] = signature if where == "repro" else [signature]
    _try(kb, json.dumps(data).encode())


@given(source=st.text(max_size=300) | st.text(alphabet="# region broken\nfixdend():\t", max_size=300))
@_quiet
def test_arbitrary_repro(kb: Path, source: str) -> None:
    (kb / "data/batch-without-targets/repro.py").write_bytes(source.encode("utf-8", "replace"))
    _try(kb)
