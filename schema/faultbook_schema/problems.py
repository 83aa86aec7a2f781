"""What is wrong with the knowledge, and where: collected, sorted, never thrown one by one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One fault of one file."""

    path: str
    """Relative to the folder that holds kb/, with forward slashes."""
    line: int
    """1-based line of the YAML node (or of the file's text); 1 where a file is missing."""
    message: str
    code: str
    """Stable name of the rule, kebab-case; `CODES` says what each one means."""
    hint: str = ""
    """What to write instead, where that can be guessed."""

    def __post_init__(self) -> None:
        # Messages quote what strangers wrote: no line breaks, nothing that steers a terminal.
        for name in ("path", "message", "hint"):
            object.__setattr__(self, name, _one_line(getattr(self, name)))

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}" + (f" ({self.hint})" if self.hint else "")

    def to_dict(self) -> dict[str, str | int]:
        return {
            "path": self.path,
            "line": self.line,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
        }


def _one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


class InvalidKnowledge(Exception):
    """kb/ cannot be compiled; the message lists every problem."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"kb/ has {count} problem{'s' if count != 1 else ''}"
        super().__init__("\n".join([head, *(f"  {p}" for p in self.problems)]))


CODES = {
    # The file as YAML
    "not-utf8": "The file is not UTF-8 text.",
    "too-large": "The file is larger than 256 KiB.",
    "unreadable": "The file cannot be read (permission, a link out of the entry, not a plain file).",
    "yaml-syntax": "The text is not YAML.",
    "yaml-alias": "Anchors, aliases and tags are not used in entries: each value is written out.",
    "yaml-depth": "Values are nested deeper than 20 levels.",
    "duplicate-key": "A mapping says the same key twice.",
    "not-a-mapping": "An entry is a mapping of fields to values.",
    "empty-file": "The file holds nothing.",
    # Fields
    "unknown-field": "The model has no such field.",
    "missing-field": "A required field is absent.",
    "wrong-type": "A value has the wrong type.",
    "bad-value": "A value is outside what the field allows.",
    "bad-vocabulary": "A value is not in the closed vocabulary (kb/taxonomy.yaml).",
    "bad-date": "A date is not YYYY-MM-DD, or does not exist.",
    "bad-url": "A URL is not an absolute http(s) address.",
    "bad-slug": "A slug is not kebab-case.",
    "too-long": "A text is longer than the field allows.",
    "cross-field": "Two fields of the entry contradict, or one needs another.",
    "todo": "A scaffolded TODO has not been filled in.",
    # Signatures
    "signature-id": "Two signatures of an entry share an id.",
    "predicate-parameter": "A metric predicate lacks the parameter its test needs, or has one it ignores.",
    "pattern-not-portable": "A pattern leaves the portable subset of regular expressions.",
    "pattern-no-literal": "A pattern has no required literal of four or more characters.",
    "comparison-capture": "A comparison names a capture that no pattern of the signature makes.",
    # Files of an entry
    "slug-folder": "The slug differs from the folder's name.",
    "category-folder": "The category differs from the parent folder's name.",
    "path-outside": "A file name leads out of the entry's folder.",
    "missing-file": "A file the entry needs is not there.",
    "unexpected-file": "The entry's folder holds a file that nothing refers to.",
    "repro-syntax": "repro.py is not Python.",
    "repro-region": "repro.py lacks the `broken` or the `fixed` region, or a region is not closed.",
    "repro-function": "repro.py does not define run(ctx) or check(out).",
    "repro-text": "repro.py holds the text that a signature looks for.",
    "repro-access": "repro.py starts processes, opens connections or reaches outside its folder without declaring it.",
    # Between entries
    "duplicate-slug": "Two entries claim the same slug or alias.",
    "unknown-entry": "A slug names no entry.",
    "unknown-signature": "`slug#id` names no signature.",
    "parent-kind": "A parent is not a hub (kind symptom).",
    "parent-cycle": "An entry is its own ancestor.",
    "self-reference": "An entry refers to itself.",
    # The claims, checked against logs
    "broken-unmatched": "A signature does not fire on the log of its own broken run.",
    "fixed-matched": "A signature fires on the log of a fixed run.",
    "recorded-unmatched": "A signature does not fire on the recorded lines that are said to show it.",
    "confusion": "A signature fires on the broken log of an unrelated entry.",
    "taxonomy": "kb/taxonomy.yaml is not usable.",
    # What a reviewer would send back
    "prose-boilerplate": "A sentence would be true of every failure, or stands word for word in other entries.",
    "prose-empty": "A field says nothing that can be checked.",
    "prose-long": "A field has more words than anybody reads there.",
    "prose-repeated": "A sentence stands in two fields of the entry.",
    "references": "A cause needs an official source and a reported case, each once.",
    "layout": "The text of entry.yaml is not in order: first line, order of the first fields, blanks at line ends.",
    "log-secret": "A sample log holds a secret or an e-mail address.",
    "log-home": "A sample log names somebody's home folder.",
    "fires-on-healthy": "A signature fires on lines that healthy runs print.",
    "literal-hot": "The literal that the scan looks for stands on many healthy lines.",
    "pattern-slow": "A line can be made on which a pattern takes long.",
}


def nearest(word: str, options: Iterable[str]) -> str:
    """`did you mean …` for a near-miss, else an empty hint."""
    found = difflib.get_close_matches(word[:100], sorted(options), n=1, cutoff=0.6)
    return f"did you mean `{found[0]}`?" if found else ""
