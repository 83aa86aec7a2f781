"""repro.py, read as text: its marked regions, its functions, its strings. Nothing of it ever runs here."""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

NAMES = ("broken", "fixed")
_MARK = re.compile(r"^[ \t]*#[ \t]*(region|endregion)\b[ \t]*([\w-]*)[ \t]*$")

Found = tuple[int, str, str, str]
"""(line, message, problem code, hint)"""


@dataclass(frozen=True, slots=True)
class Code:
    """What a page shows of repro.py."""

    broken: str
    fixed: str
    diff: str
    """Unified diff from broken to fixed, the whole of both as context."""

    def to_dict(self) -> dict[str, str]:
        return {"broken": self.broken, "fixed": self.fixed, "diff": self.diff}


def cut(source: str) -> tuple[Code | None, list[Found]]:
    """The two regions; a region said in several pieces is joined with a blank line."""
    pieces: dict[str, list[str]] = {}
    problems: list[Found] = []
    open_name, open_line, body = "", 0, []
    for number, line in enumerate(source.splitlines(), 1):
        mark = _MARK.match(line)
        if mark is None:
            if open_name:
                body.append(line)
            continue
        word, name = mark.groups()
        if word == "region":
            if open_name:
                problems.append((open_line, f"region `{open_name}` is not closed", "repro-region", ""))
            open_name, open_line, body = name or "?", number, []
        elif not open_name:
            problems.append((number, "`# endregion` without a region", "repro-region", ""))
        else:
            pieces.setdefault(open_name, []).append(textwrap.dedent("\n".join(body)).strip("\n"))
            open_name = ""
    if open_name:
        problems.append((open_line, f"region `{open_name}` is not closed", "repro-region", "add `# endregion`"))
    missing = [name for name in NAMES if not any(p.strip() for p in pieces.get(name, []))]
    for name in missing:
        hint = f"mark it by `# region {name}` … `# endregion`"
        problems.append((1, f"no region `{name}`", "repro-region", hint))
    if missing:
        return None, problems
    broken, fixed = ("\n\n\n".join(pieces[name]) + "\n" for name in NAMES)
    return Code(broken, fixed, unified_diff(broken, fixed)), problems


def unified_diff(broken: str, fixed: str) -> str:
    lines = difflib.unified_diff(broken.splitlines(), fixed.splitlines(), "broken", "fixed", n=1000, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def functions(source: str) -> tuple[dict[str, int], list[Found]]:
    """Top-level functions and how many plain arguments each takes."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return {}, [(error.lineno or 1, f"not Python: {error.msg}", "repro-syntax", "")]
    except (ValueError, RecursionError, MemoryError) as error:
        return {}, [(1, f"not Python: {error or 'too deeply nested'}", "repro-syntax", "")]
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = len(node.args.posonlyargs) + len(node.args.args)
    return found, []


def problems_of(source: str) -> Iterator[Found]:
    """Everything wrong with the text of a repro.py."""
    code, found = cut(source)
    yield from found
    if code is not None and code.broken == code.fixed:
        yield (1, "the regions `broken` and `fixed` are equal", "repro-region", "")
    names, syntax = functions(source)
    yield from syntax
    if syntax:
        return
    for name, argument in (("run", "ctx"), ("check", "out")):
        if names.get(name) != 1:
            message = f"defines no `{name}({argument})`"
            if name in names:
                message = f"`{name}` must take one argument, `{argument}`"
            yield (1, message, "repro-function", f"def {name}({argument}): …")


def todos(source: str) -> Iterator[Found]:
    for number, line in enumerate(source.splitlines(), 1):
        if re.search(r"\bTODO\b", line):
            yield (number, "TODO is still to be filled in", "todo", "")
