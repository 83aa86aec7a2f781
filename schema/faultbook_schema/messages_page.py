"""docs/check-messages.md: what each code means, what to do, and one wrong and one right example.

The wrong examples are the entries of tests/schema/bad, with the line they are wrong on and the
message that `faultbook check` gives, so the page shows nothing that was not run. A test keeps
the page current: `python -m faultbook_schema.messages_page` in a checkout writes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from .advice import ADVICE, PAGE
from .problems import CODES

_MESSAGE = re.compile(r"(?P<path>[^:]+):(?P<line>\d+): (?P<text>.*) \[(?P<code>[\w-]+)\]")
_WIDTH = 150


class Example(NamedTuple):
    case: str
    file: str
    line: str
    """The line that is wrong; empty where no text is (a missing or unreadable file)."""
    message: str


def examples(bad: Path) -> dict[str, Example]:
    """Code → the first example: of the case with the fewest problems."""
    found: dict[str, tuple[int, Example]] = {}
    for case in sorted(bad.iterdir()):
        messages = (case / "expected.txt").read_text(encoding="utf-8").splitlines()
        for message in messages:
            match = _MESSAGE.fullmatch(message)
            if match is None or f"/{case.name}/" not in match["path"]:
                continue
            file = match["path"].partition(f"/{case.name}/")[2]
            example = Example(case.name, file, _line(case / file, int(match["line"])), match["text"])
            if match["code"] not in found or len(messages) < found[match["code"]][0]:
                found[match["code"]] = (len(messages), example)
    return {code: example for code, (_, example) in found.items()}


def _line(path: Path, number: int) -> str:
    try:
        lines = path.read_bytes().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    text = "".join(c if c.isprintable() else "�" for c in text)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def page(bad: Path) -> str:
    """The page as Markdown."""
    shown: Mapping[str, Example] = examples(bad)
    parts = [
        "# Messages of `faultbook check`\n",
        "Each message names a file, a line, what is wrong there and what to do, and ends with a code in brackets. The codes are "
        "stable. `faultbook check --explain CODE` says the same on a terminal; `faultbook check --fix` mends misspelt vocabulary "
        "and layout.\n",
        "The wrong examples are test cases; their messages are what the command printed.\n",
    ]
    for code in sorted(CODES):
        parts.append(f"## {code}\n\n{CODES[code]} {ADVICE[code].do}\n")
        example = shown.get(code)
        if example is not None:
            wrong = f"{_fenced(example.line)}\n" if example.line else ""
            parts.append(f"Wrong ({example.case}, {example.file}):\n\n{wrong}\n`` {_short(example.message)} ``\n")
        if ADVICE[code].good:
            parts.append(f"Right:\n\n{_fenced(ADVICE[code].good)}\n")
    return "\n".join(parts)


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```"


def _short(text: str) -> str:
    return text if len(text) <= 400 else text[:399] + "…"


def main() -> int:
    root = Path.cwd()
    bad = root / "tests" / "schema" / "bad"
    if not bad.is_dir():
        print("run this in a checkout: tests/schema/bad is not here", file=sys.stderr)
        return 2
    target = root / "docs" / f"{PAGE}.md"
    target.write_text(page(bad), encoding="utf-8")
    print(target.relative_to(root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
