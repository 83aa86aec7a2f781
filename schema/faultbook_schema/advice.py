"""What to do about each problem that `faultbook check` reports, with an example of how it is written right.

The page docs/check-messages.md is made of this and of the wrong entries in tests/schema/bad.
"""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    do: str
    """What the contributor does now, in one sentence."""
    good: str = ""
    """The same place written right."""


ADVICE: dict[str, Advice] = {
    "not-utf8": Advice("Save the file as UTF-8.", "title: Überlauf im Softmax"),
    "too-large": Advice("Keep the lines that matter: 256 KiB of a log, 64 KiB of code, is more than anybody reads."),
    "unreadable": Advice("Replace links by plain files inside the entry's folder, readable by everybody."),
    "yaml-syntax": Advice(
        "Put texts with a colon, a `#` or quotes into quotes, and indent with spaces.", 'title: "Loss: NaN after warm-up"'
    ),
    "yaml-alias": Advice("Write each value out.", "title: A line that is written out"),
    "yaml-depth": Advice(
        "Look at the indentation: no field of an entry lies so deep.", "quick_answer: One value, not a tower of lists."
    ),
    "duplicate-key": Advice("Keep one of the two."),
    "not-a-mapping": Advice(
        "Start with `schema: faultbook.entry/1`, or let `faultbook new` write the file.", "schema: faultbook.entry/1"
    ),
    "empty-file": Advice("Let `faultbook new` write the file, or remove it.", "schema: faultbook.entry/1"),
    "unknown-field": Advice(
        "Correct the name (`--fix` does it where one is near), or remove the field.",
        "quick_answer: It is printed by every healthy run.",
    ),
    "missing-field": Advice("Add the field; the schema reference says what belongs there."),
    "wrong-type": Advice(
        "Write the kind of value that the message names; numbers and dates that are text need quotes.", 'introduced: "2.10"'
    ),
    "bad-value": Advice("Stay within what the message says the field allows."),
    "bad-vocabulary": Advice(
        "Take a value of the vocabulary (`--fix` does it where one is near), or add one to kb/taxonomy.yaml with its rubric.",
        "severity: high",
    ),
    "bad-date": Advice("Write the day it was published or read as YYYY-MM-DD.", "date: 2024-05-01"),
    "bad-url": Advice("Give the full address, http or https, without a user name.", 'url: "https://example.org/notes"'),
    "bad-slug": Advice("Use lower-case words joined by hyphens.", "id: alarming-line"),
    "too-long": Advice("Shorten it; `mechanism` is the place for the longer story."),
    "cross-field": Advice("Add what the other field needs, or remove what contradicts it."),
    "todo": Advice("Fill it in, or remove the optional field."),
    "signature-id": Advice("Give each signature of the entry its own id.", "id: alarming-line-in-red"),
    "predicate-parameter": Advice(
        "Give the parameter that the test needs and no other.", "{series: [loss], test: above, value: 100}"
    ),
    "pattern-not-portable": Advice(
        "Write it without look-around, back-references, inline flags and repeats of repeats: the signature guide shows how.",
        "- pattern: 'this looks alarming: \\d+ of \\d+'",
    ),
    "pattern-no-literal": Advice(
        "Add words that every such line has: at least four characters in a row.", "- pattern: 'this looks alarming: \\d+'"
    ),
    "comparison-capture": Advice(
        "Name a capture of this signature's patterns, `(?P<name>…)`.", "{left: done, op: '<', right: 5}"
    ),
    "slug-folder": Advice("Rename the folder or the slug; an old published slug becomes an alias.", "slug: slug-differs"),
    "category-folder": Advice("Move the folder, or correct the category.", "category: numerics"),
    "path-outside": Advice("Name a file inside the entry's folder.", "file: logs/recorded-1.log"),
    "missing-file": Advice("Add the file; `faultbook verify SLUG --record` writes logs/broken.log and logs/fixed.log."),
    "unexpected-file": Advice("Remove the file, or cite it: an entry holds entry.yaml, repro.py and logs/."),
    "repro-syntax": Advice("Make repro.py run: `python -m py_compile repro.py` says where."),
    "repro-region": Advice("Mark both halves: `# region broken` … `# endregion`, `# region fixed` … `# endregion`."),
    "repro-function": Advice("Define `run(ctx)`, which does the work, and `check(out)`, which asserts the healthy outcome."),
    "repro-text": Advice("Let the library print it. A simulated line cites where it comes from (`source` of its pattern)."),
    "repro-access": Advice("Do without, or declare it: `permits: [{access: …, because: …}]`."),
    "duplicate-slug": Advice("Choose another name, or complete the entry that has it."),
    "unknown-entry": Advice(
        "Name an entry that exists (`--fix` does it where one is near); `faultbook list` shows all.",
        "- {entry: batch-without-targets, relation: see_also}",
    ),
    "unknown-signature": Advice(
        "Name a signature of that entry (`--fix` does it where one is near).", "signature: batch-without-targets#zero-division"
    ),
    "parent-kind": Advice("A parent is a hub (kind symptom); for another cause use `related`."),
    "parent-cycle": Advice("Remove one of the parents."),
    "self-reference": Advice("Name another entry, or remove the row."),
    "broken-unmatched": Advice(
        "Run `faultbook verify SLUG --record` and look at logs/broken.log: the pattern must match what the run prints."
    ),
    "fixed-matched": Advice("Take a part of the message that only the failure prints, or exclude the healthy line with `none`."),
    "recorded-unmatched": Advice("Quote the line as it was printed, or correct the pattern."),
    "confusion": Advice(
        "Make the pattern say more; or, where one failure brings the other's text along, say so: `related`, `not_this_if`,"
        " `not_evidence_of`, or the hub."
    ),
    "taxonomy": Advice("Correct kb/taxonomy.yaml: every value needs its rubric."),
    "prose-boilerplate": Advice(
        "Say what is true of this failure only, or leave the sentence out.",
        'origin: "A collate function that masks the whole prompt, and a sample that is only prompt."',
    ),
    "prose-empty": Advice(
        "Name what is seen: the line, the number, the command's output.",
        'verify: {command: "python train.py", expect: "40 steps and a loss below 0.5"}',
    ),
    "prose-long": Advice("Keep what decides; the story belongs into `mechanism`."),
    "prose-repeated": Advice("Say it once, where the reader looks for it."),
    "references": Advice("Cite the documentation or source that says why, and a public thread in which it happened; each once."),
    "layout": Advice("`faultbook check --fix` does it; nothing but the text's order changes."),
    "log-secret": Advice("Replace it by `<masked>`, and revoke the key: it has been in a file."),
    "log-home": Advice("Write /home/user; `faultbook new SLUG --from-log FILE` and `faultbook diagnose --share` mask a log."),
    "fires-on-healthy": Advice("Take a part of the message that healthy runs do not print."),
    "literal-hot": Advice("Take more of the message into the pattern, or name its rarest part in `anchors`."),
    "pattern-slow": Advice("Bound the repeats ({0,80} for *), or split the pattern in two lines of `all`."),
}
PAGE = "check-messages"


def do(code: str) -> str:
    """What to do about problems of that code."""
    return ADVICE[code].do
