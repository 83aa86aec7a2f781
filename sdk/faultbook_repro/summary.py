"""What a reviewer reads of a pull request: one table, then the first lines that say what is wrong.

Everything that an entry wrote or printed is shown as text: in code blocks that it cannot close, in cells without markup.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faultbook_schema.problems import Problem

from .table import COLUMNS, row
from .verify import Result

MAX_PROBLEMS = 20
MAX_LOG_LINES = 12


@dataclass(frozen=True, slots=True)
class Review:
    """What is known of a change, beyond the runs."""

    problems: tuple[Problem, ...] = ()
    """Of the whole knowledge: an entry can be wrong by what it does to the others."""
    removed: tuple[str, ...] = ()
    """Slugs that disappeared without leaving an alias."""
    unrun: tuple[str, ...] = ()
    """Touched entries that have nothing to run: hubs and noise."""
    unrecorded: tuple[str, ...] = ()
    """Proven here, but the change brings no proof record that says so."""

    unseen: tuple[str, ...] = ()
    """Proof records of a device that this run does not have: claims that nobody has tried here."""

    @property
    def clean(self) -> bool:
        return not self.problems and not self.removed


def as_markdown(results: Sequence[Result], review: Review) -> str:
    good = review.clean and all((r.proven and not r.survivors) or r.skipped for r in results)
    tried = [r for r in results if not r.skipped]
    lines = [
        f"## {'✅ Ready for a reader' if good else '❌ Not ready'}",
        "",
        f"{sum(r.proven for r in tried)} of {len(tried)} changed entries proven, {len(review.problems) or 'no'} "
        f"problem{'' if len(review.problems) == 1 else 's'} in the whole catalogue (`faultbook check`, confusion included).",
    ]
    if results:
        lines += ["", "| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
        lines += ["| " + " | ".join(_cell(c) for c in row(result)) + " |" for result in results]
    if review.unrun:
        lines += ["", "Nothing to run in: " + ", ".join(map(_cell, review.unrun)) + "."]
    if review.unseen:
        lines += ["", "Records of another device, not tried here: " + ", ".join(map(_cell, review.unseen)) + "."]
    for slug in review.removed:
        text = "is gone, and no entry has it as an alias. Slugs are permanent: leave an alias where it went."
        lines += ["", f"**{_cell(slug)}** {text}"]
    for slug in review.unrecorded:
        command = f"`faultbook verify {_cell(slug)} --record`"
        lines += ["", f"{_cell(slug)} is proven here; {command} writes the proof record to commit with it."]
    if review.problems:
        lines += ["", "### What `faultbook check` says", "", *_block([str(p) for p in review.problems[:MAX_PROBLEMS]])]
        if len(review.problems) > MAX_PROBLEMS:
            lines.append(f"and {len(review.problems) - MAX_PROBLEMS} more.")
    for result in results:
        if not result.proven and not result.skipped:
            lines += ["", f"### {_cell(result.slug)} on {result.device}: not proven", ""]
            lines += _block([str(p) for p in result.problems])
            for name, text in _ends(result):
                lines += ["", f"End of the {name} log:", "", *_block(text.splitlines()[-MAX_LOG_LINES:] or ["(empty)"])]
        for mutant in result.survivors:
            lines += ["", f"{_cell(result.slug)}: nobody noticed the mutant *{_cell(mutant.name)}*; the checks say too little."]
    return "\n".join(lines) + "\n"


def print_review(review: Review) -> None:
    """The same for a terminal."""
    for slug in review.removed:
        print(f"\n{slug} is gone, and no entry has it as an alias: slugs are permanent")
    for slug in review.unrecorded:
        print(f"\n{slug}: proven; `faultbook verify {slug} --record` writes the proof record to commit")
    if review.problems:
        print("\nfaultbook check")
    for problem in review.problems[:MAX_PROBLEMS]:
        print(f"  {problem}")


def publish(text: str) -> bool:
    """To the job summary; False where there is none."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return False
    with Path(target).open("a", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return True


def _ends(result: Result) -> list[tuple[str, str]]:
    """Logs of the halves that failed, at most one of each."""
    ends: dict[str, str] = {}
    for pair in result.pairs:
        for name, half in (("broken", pair.broken), ("fixed", pair.fixed)):
            if any(p.half in (name, "both") and p.variant in (pair.variant, "") for p in result.problems):
                ends.setdefault(name, half.outcome.log)
    return list(ends.items())


def _cell(text: str) -> str:
    """Words, with everything that could be markup as character references."""
    return "".join(c if c.isalnum() or c in " -.:/,%" else f"&#{ord(c)};" for c in text if c.isprintable())


def _block(lines: Sequence[str]) -> list[str]:
    shown = ["".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line)[:300] for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *shown, fence]
