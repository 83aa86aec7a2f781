"""YAML → plain JSON-like data that remembers its lines.

Entries come from strangers, so the text is read as a stream of events (nothing
recurses, nothing is expanded) and only what an entry needs is accepted: one
document, no anchors, aliases or tags, the scalars of JSON. `yes`, `no` and dates
stay text, as in YAML 1.2, which is also what editors' language servers assume.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from .problems import Problem

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
MAX_PROBLEMS = 100
"""Per file and step: nobody reads more, and suggestions cost time."""

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})", re.ASCII)
_FLOAT = re.compile(r"[-+]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?", re.ASCII)
_WORDS: dict[str, Any] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
    ".nan": math.nan,
    ".inf": math.inf,
    "-.inf": -math.inf,
}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Loc = tuple["str | int", ...]


@dataclass(slots=True)
class Node:
    """A value with the line it starts on; `value` holds nodes for mappings and lists."""

    value: Any
    line: int
    key_lines: dict[str, int] = field(default_factory=dict)

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def line_of(self, loc: Loc) -> int:
        """Line of the deepest node on the way to `loc`.

        Steps that are no key here are skipped: pydantic puts the tag of a union
        between, and a missing field has no line of its own.
        """
        node, line = self, self.line
        for step in loc:
            if isinstance(node.value, dict) and step in node.value:
                line = node.key_lines[str(step)]
                node = node.value[step]
            elif isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                line = node.line
        return line


def read(data: bytes, path: str) -> tuple[Node | None, list[Problem]]:
    """The document's root, and what is wrong with the text. Never raises."""
    if len(data) > MAX_BYTES:
        return None, [Problem(path, 1, f"{len(data):,} bytes; the limit is {MAX_BYTES:,}", "too-large")]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        bad = f"byte 0x{data[error.start]:02x} is not UTF-8"
        return None, [Problem(path, line, bad, "not-utf8", "save the file as UTF-8")]
    if not text.strip():
        return None, [Problem(path, 1, "the file is empty", "empty-file")]
    try:
        return _build(text, path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        message = str(error.problem or error.context)
        begun = error.context_mark.line + 1 if error.context_mark else line
        if begun != line and error.context:
            message += f", {error.context} that begins on line {begun}"
        return None, [_syntax(path, line, message, text)]
    except yaml.reader.ReaderError as error:
        position = error.position if isinstance(error.position, int) else 0
        line = text.count("\n", 0, position) + 1
        return None, [_syntax(path, line, f"character {error.character!r} is not allowed", text)]
    except yaml.YAMLError as error:
        return None, [_syntax(path, 1, " ".join(str(error).split()), text)]


def _syntax(path: str, line: int, message: str, text: str) -> Problem:
    lines = text.split("\n")
    here = lines[line - 1] if line <= len(lines) else ""
    indent = here[: len(here) - len(here.lstrip())]
    hint = "indent with spaces, not tabs" if "\t" in indent or "'\\t'" in message else ""
    if "mapping values are not allowed" in message:
        hint = "a colon and a space begin a mapping: put the text in quotes"
    return Problem(path, line, f"not YAML: {message}", "yaml-syntax", hint)


def _build(text: str, path: str) -> tuple[Node | None, list[Problem]]:
    problems: list[Problem] = []
    root: Node | None = None
    stack: list[Node] = []
    keys: list[str | None] = []  # per open mapping: the key that waits for its value

    def attach(node: Node, is_scalar: bool) -> None:
        nonlocal root
        if not stack:
            root = node
            return
        parent = stack[-1]
        if isinstance(parent.value, list):
            parent.value.append(node)
            return
        if keys[-1] is None:
            if is_scalar:
                key = _key(node)
            else:
                problems.append(Problem(path, node.line, "a key must be a plain word", "yaml-syntax"))
                key = f"\0{len(parent.value)}"
            if key in parent.value:
                problems.append(_duplicate(path, node.line, key, parent.key_lines[key]))
            else:
                parent.key_lines[key] = node.line
            keys[-1] = key
            return
        parent.value.setdefault(keys[-1], node)
        keys[-1] = None

    documents = 0
    event: Any
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            name = f"`{'*' if isinstance(event, yaml.AliasEvent) else '&'}{str(event.anchor)[:40]}`"
            problems.append(
                Problem(
                    path,
                    line,
                    f"{name}: anchors and aliases are not used",
                    "yaml-alias",
                    "write the value out",
                )
            )
            break  # said once: the file is not read any further
        if getattr(event, "tag", None):
            problems.append(Problem(path, line, f"tag `{str(event.tag)[:60]}` is not used", "yaml-alias"))
            break
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                problems.append(Problem(path, line, "a second YAML document", "yaml-syntax", "one entry per file"))
                break
        elif isinstance(event, yaml.ScalarEvent):
            attach(Node(_scalar(event), line), is_scalar=True)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            mapping = isinstance(event, yaml.MappingStartEvent)
            if len(stack) >= MAX_DEPTH:
                problems.append(Problem(path, line, f"nested deeper than {MAX_DEPTH} levels", "yaml-depth"))
                return None, problems
            node = Node({} if mapping else [], line)
            attach(node, is_scalar=False)
            stack.append(node)
            keys.append(None)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            stack.pop()
            keys.pop()
        if len(problems) >= MAX_PROBLEMS:
            break
    if root is None and not problems:
        problems.append(Problem(path, 1, "the file holds only comments", "empty-file"))
    fatal = documents > 1 or any(p.code == "yaml-alias" for p in problems)
    return (None if fatal else root), problems


def _duplicate(path: str, line: int, key: str, first: int) -> Problem:
    return Problem(path, line, f"`{key[:60]}` is said twice", "duplicate-key", f"first on line {first}")


def _key(node: Node) -> str:
    value = node.value
    if isinstance(value, str):
        return value
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:  # quoted or block: text, whatever it looks like
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
