"""Every code has its advice and its place on the page; what the page calls right is right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from faultbook_schema import commands
from faultbook_schema.advice import ADVICE, PAGE
from faultbook_schema.check import check
from faultbook_schema.messages_page import examples, page
from faultbook_schema.problems import CODES

BAD = Path(__file__).parent / "bad"
EXAMPLES = examples(BAD)
MendedBy = Callable[..., Path]
REPLACED = sorted(code for code in EXAMPLES if ADVICE[code].good and EXAMPLES[code].line)


def test_every_code_has_advice_and_the_page_is_current(root: Path) -> None:
    assert set(ADVICE) == set(CODES)
    assert (root / "docs" / f"{PAGE}.md").read_text(encoding="utf-8") == page(BAD), "python -m faultbook_schema.messages_page"


def test_nearly_every_code_has_a_wrong_example() -> None:
    # Too large a file is no example to keep; a link cannot be packed; the others need two entries or a broken taxonomy.
    assert set(CODES) - set(EXAMPLES) <= {"too-large", "unreadable", "pattern-slow", "parent-cycle", "taxonomy"}


@pytest.mark.parametrize("code", REPLACED)
def test_the_right_example_mends_the_wrong_one(code: str, make_kb: MendedBy) -> None:
    """The line of the wrong entry, written as the page says, has that problem no more."""
    example, good = EXAMPLES[code], ADVICE[code].good
    case = BAD / example.case
    place = (case / "expected.txt").read_text(encoding="utf-8").split("/")[1]
    kb = make_kb(**{f"{place}/{example.case}": case})
    path = kb / place / example.case / example.file
    before = [p for p in check(kb, [path]).problems if p.code == code]
    assert before
    number = next(p.line for p in before if p.path.endswith(f"{example.case}/{example.file}"))
    lines = path.read_bytes().decode("utf-8", "replace").splitlines()
    lines[number - 1] = _written_right(lines[number - 1], good)
    if code in ("yaml-alias", "yaml-depth", "empty-file", "not-a-mapping", "yaml-syntax"):
        lines = [*lines[: number - 1], good]  # the rest of such a file is wrong as a whole
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    after = [p for p in check(kb, [path]).problems if p.code == code]
    assert len(after) < len(before) or not [p for p in after if p.line == number], (lines[number - 1], after)


def _written_right(line: str, good: str) -> str:
    """`good` in place of the same field of the line, or of the whole line where the field is not named there."""
    key = re.match(r"[-{ ]*([\w]+):", good)
    if key is not None and not good.startswith(("-", "{")):
        changed, count = re.subn(rf"\b{key[1]}: ?(?:\"[^\"]*\"|'[^']*'|[^,}}]*)", lambda _: good, line, count=1)
        if count:
            return changed
    if good.startswith("{") and "{" in line:
        return line[: line.index("{")] + good
    return line[: len(line) - len(line.lstrip())] + good


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.check(["--explain", "confusion"]) == 0
    assert "unrelated entry" in capsys.readouterr().out
    assert commands.check(["--explain", "confusoin"]) == 2
    assert "did you mean `confusion`?" in capsys.readouterr().err
