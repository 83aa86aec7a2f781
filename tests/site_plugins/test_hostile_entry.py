"""An entry written to do harm: nothing of it runs in check, compile, diagnose or the site build, and nothing reaches the page."""

from __future__ import annotations

import html.parser
import json
import os
import subprocess
import sys
from pathlib import Path

import hostile_kb
import pytest

from faultbook_schema.commands import check

HostileKb = tuple[Path, Path, int]


def test_most_of_its_texts_are_attacks_and_none_is_run_by_check(hostile_knowledge: HostileKb) -> None:
    kb, mark, poisoned = hostile_knowledge
    assert poisoned >= 25
    done = faultbook("check", "--kb", str(kb))
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr
    assert all(line.isprintable() for line in done.stdout.splitlines()), "what it quotes cannot steer a terminal"
    assert not mark.exists()


def test_each_harmful_file_is_one_line(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kb, mark = hostile_kb.sly(root, tmp_path)
    entry = kb / "data" / hostile_kb.SLUG
    text = (entry / "entry.yaml").read_text(encoding="utf-8")
    repro = (entry / "repro.py").read_text(encoding="utf-8")
    named = entry / "logs" / "broken-<img src=x onerror=pwned>\n\x1b[2J.log"
    changes = {
        "yaml bomb": lambda: (entry / "entry.yaml").write_text("a: &a [x]\n" + f"b: &b [{', '.join(['*a'] * 50)}]\n" * 50),
        "huge file": lambda: os.truncate(entry / "entry.yaml", 1 << 33),
        "deep": lambda: (entry / "entry.yaml").write_text("[" * 100_000),
        "python object": lambda: (entry / "entry.yaml").write_text(f"!!python/object/apply:os.system ['touch {mark}']\n"),
        "file name": lambda: named.write_text("x"),
        "link": lambda: (entry / "repro.py").unlink() or (entry / "repro.py").symlink_to("/etc/passwd"),
        "pipe": lambda: (entry / "repro.py").unlink() or os.mkfifo(entry / "repro.py"),
        "process": lambda: (entry / "repro.py").write_text(repro + "\nimport subprocess\nsubprocess.run(['id'])\n"),
    }
    for name, change in changes.items():
        change()
        assert check([str(entry), "--kb", str(kb)]) == 1, name
        told = capsys.readouterr().out.splitlines()
        assert len(told) == 1 and told[0].isprintable() and told[0].startswith(f"kb/data/{hostile_kb.SLUG}/"), (name, told)
        named.unlink(missing_ok=True)
        for file, content in (("entry.yaml", text), ("repro.py", repro)):
            (entry / file).unlink(missing_ok=True)
            (entry / file).write_text(content, encoding="utf-8")
    assert not mark.exists()


def test_diagnose_reads_its_catalogue_and_runs_nothing(hostile_knowledge: HostileKb, tmp_path: Path) -> None:
    kb, mark, _ = hostile_knowledge
    assert faultbook("compile", "--kb", str(kb), "--target", str(tmp_path / "catalogue")).returncode == 0
    log = kb / "data" / hostile_kb.SLUG / "logs" / "broken.log"
    done = faultbook("diagnose", str(log), "--json", FAULTBOOK_CATALOGUE=str(tmp_path / "catalogue"))
    answer = json.loads(done.stdout)
    assert answer["diagnoses"][0]["entry"] == hostile_kb.SLUG, "its signature is used, which is all that may be"
    assert not mark.exists()


class Page(html.parser.HTMLParser):
    """Elements and attributes of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]


def test_its_page_shows_everything_and_runs_nothing(hostile_site: Path, hostile_knowledge: HostileKb) -> None:
    text = (hostile_site / "entries" / hostile_kb.SLUG / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert text.count("window.pwned=1") > 50, "the attacks are there, as text"
    for name, value in page.attributes:
        assert not name.startswith("on"), (name, value)
        assert not (name in ("href", "src") and value.strip().lower().startswith(("javascript:", "data:", "vbscript:"))), value
    for outside in ("<script>window.pwned", "<img src=x", "<svg/onload", "<iframe"):
        assert outside not in text, outside
    assert not hostile_knowledge[1].exists(), "the build executed its repro.py"


@pytest.mark.parametrize("place", ["search/search_index.json", "llms.txt", "sitemap.xml", "feed.xml"])
def test_other_outputs_stay_what_they_are(place: str, hostile_site: Path) -> None:
    path = hostile_site / place
    if not path.exists():
        pytest.skip(f"the site has no {place}")
    text = path.read_text(encoding="utf-8")
    if place.endswith(".json"):
        json.loads(text)
    elif place.endswith(".xml"):
        import xml.etree.ElementTree as tree

        tree.fromstring(text)
        assert "<script" not in text


def faultbook(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "faultbook.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
