"""How entry.yaml is written: its first line, the order of its first fields, no trailing blanks.

None of this changes what an entry says, so all of it is mended by `faultbook check --fix`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .problems import Problem
from .scaffold import SCHEMA_LINE
from .yaml_nodes import Node

FIRST = ("schema", "slug", "kind", "title", "category", "severity", "visibility")
"""What an entry is, before what it says."""


def problems_of(path: str, text: str, node: Node | None) -> Iterator[Problem]:
    """Faults of the file's layout; `node` is its YAML where it has one."""
    lines = text.split("\n")
    if not lines[0].startswith("# yaml-language-server:"):
        yield Problem(path, 1, "the schema comment is missing", "layout", f"first line: {SCHEMA_LINE}")
    protected = block_lines(lines)
    blanks = [n for n, line in enumerate(lines, 1) if line != line.rstrip() and n not in protected]
    if blanks:
        more = f" and on {len(blanks) - 1} more lines" if len(blanks) > 1 else ""
        yield Problem(path, blanks[0], f"blanks at the end of the line{more}", "layout", "`faultbook check --fix` removes them")
    if not text.endswith("\n"):
        yield Problem(path, len(lines), "the last line is not ended", "layout", "`faultbook check --fix` ends it")
    if node is not None and isinstance(node.value, dict):
        here = [key for key in node.value if key in FIRST]
        wanted = [key for key in FIRST if key in here]
        if list(node.value)[: len(wanted)] != wanted:
            first = next(k for k, w in zip(node.value, wanted, strict=False) if k != w)
            hint = f"{', '.join(wanted)}, then the rest; `faultbook check --fix` sorts them"
            yield Problem(path, node.key_lines[first], f"`{first}` stands before what an entry is", "layout", hint)


def block_lines(lines: list[str]) -> set[int]:
    """Line numbers inside block scalars, where blanks are part of the text."""
    found: set[int] = set()
    indent = -1
    for number, line in enumerate(lines, 1):
        depth = len(line) - len(line.lstrip(" "))
        if indent >= 0 and (not line.strip() or depth > indent):
            found.add(number)
            continue
        indent = depth if re.search(r"(?::|^\s*-)\s+[|>][0-9+-]{0,2}\s*(?:#.*)?$", line) else -1
        if indent >= 0 and (dash := re.match(r"\s*(?:- +)+(?=\S)", line)) and ":" in line:
            indent = len(dash[0])
    return found
