"""`faultbook check --fix`: the mechanical faults of an entry.yaml, mended in its text.

Comments and layout stay as they are. A change is kept only if it does what it says: after a
change of layout the YAML holds the same data, and after the change of a word only that word differs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from . import layout, yaml_nodes
from .problems import Problem
from .scaffold import SCHEMA_LINE

_MEANT = re.compile(r"did you mean `([^`]+)`\?")
_WRONG = re.compile(r"`([^`]*)`")
NEAR_MISSES = frozenset({"bad-vocabulary", "unknown-field", "unknown-entry", "unknown-signature", "missing-file"})
"""Problems whose hint is the one word that was meant."""


def fix(path: Path, problems: Sequence[Problem]) -> list[str]:
    """Mends one entry.yaml as far as that is mechanical, and says what was done. Raises OSError."""
    if path.is_symlink():
        return []  # reported as unreadable; writing would reach what it points to
    data = path.read_bytes()
    try:
        before = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return []
    text, done = before, []
    for problem in sorted(problems, reverse=True):
        changed = _word(text, problem)
        if changed is not None:
            text = changed
            done.append(f"{problem.path}:{problem.line}: {_says(problem)}")
    tidy = _tidy(text)
    if tidy != text and _same(text, tidy):
        text = tidy
        done.append(f"{problems[0].path if problems else path}:1: layout put in order")
    if text.encode() != data and (done or text != before):
        path.write_text(text, encoding="utf-8", newline="\n")
    return done


def _word(text: str, problem: Problem) -> str | None:
    """The text with the word that was meant; None where the line does not hold the wrong one exactly once."""
    meant = _MEANT.search(problem.hint)
    wrong = _WRONG.search(problem.message)
    if problem.code not in NEAR_MISSES or meant is None or wrong is None:
        return None
    old = wrong[1].rpartition(": ")[2]
    if problem.code == "unknown-field":
        old = old.rpartition(".")[2]
    old = re.sub(r"^`[^`]*` has no signature `", "", old)
    if problem.code == "unknown-signature":
        old = _WRONG.findall(problem.message)[-1 if "has no" in problem.message else 0]
    lines = text.split("\n")
    if not 0 < problem.line <= len(lines):
        return None
    key = rf"(?<![\w-]){re.escape(old)}(?![\w-])" + (r"(?=\s*:)" if problem.code == "unknown-field" else "")
    line, count = re.subn(key, lambda _: meant[1], lines[problem.line - 1])
    if count != 1:
        return None
    lines[problem.line - 1] = line
    return "\n".join(lines)


def _says(problem: Problem) -> str:
    meant = _MEANT.search(problem.hint)
    return f"{problem.message}: now `{meant[1]}`" if meant else problem.message


def _tidy(text: str) -> str:
    """Line ends, trailing blanks, the schema comment, the first fields in their order."""
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    protected = layout.block_lines(lines)
    lines = [line if number in protected else line.rstrip() for number, line in enumerate(lines, 1)]
    if not lines[0].startswith("# yaml-language-server:"):
        lines.insert(0, SCHEMA_LINE)
    return "\n".join(_ordered(lines)) + "\n"


def _ordered(lines: list[str]) -> list[str]:
    """The blocks of the first fields moved to the top, each with the comments directly above it."""
    starts = [n for n, line in enumerate(lines) if re.match(r"[A-Za-z_][\w-]*\s*:", line)]
    if not starts:
        return lines
    cuts = []
    for start in starts:
        above = start
        while above > 1 and lines[above - 1].startswith("#"):
            above -= 1
        cuts.append(above)
    head = lines[: cuts[0]]
    blocks = [lines[a:b] for a, b in zip(cuts, [*cuts[1:], len(lines)], strict=True)]
    names = [re.match(r"[\w-]+", lines[start]) for start in starts]
    keyed = [(name[0] if name else "", block) for name, block in zip(names, blocks, strict=True)]
    rank = {name: number for number, name in enumerate(layout.FIRST)}
    keyed.sort(key=lambda item: rank.get(item[0], len(rank)))
    return [*head, *(line for _, block in keyed for line in block)]


def _same(before: str, after: str) -> bool:
    """Whether two texts are the same data (in any order of keys)."""
    a, _ = yaml_nodes.read(before.encode(), "")
    b, _ = yaml_nodes.read(after.encode(), "")
    return a is not None and b is not None and a.plain() == b.plain()
