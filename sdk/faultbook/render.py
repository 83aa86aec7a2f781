"""A diagnosis for people: terminal text (plain or coloured) and Markdown. JSON is `Diagnosis.to_dict`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from . import lazy
from .model import Diagnosis, Evidence, Finding, Initiating

HEAD = {
    "diagnosed": ("DIAGNOSED", "bold red"),
    "unrecognised": ("UNRECOGNISED", "bold yellow"),
    "inconclusive": ("INCONCLUSIVE", "bold yellow"),
    "stopped": ("STOPPED FROM OUTSIDE", "bold blue"),
    "healthy": ("HEALTHY", "bold green"),
}
Styled = tuple[str, str]
"""(style, line): the style is empty for ordinary text."""


def as_json(diagnosis: Diagnosis) -> str:
    """The contract (`schema/diagnosis.schema.json`), keys in a fixed order."""
    return json.dumps(diagnosis.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)


def print_text(diagnosis: Diagnosis, out: TextIO | None = None, color: bool | None = None) -> None:
    """Writes the diagnosis; coloured only on a terminal and only where rich is installed."""
    out = out or sys.stdout
    lines = list(_lines(diagnosis))
    if color is None:
        color = out.isatty()
    if color:
        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            color = False
        else:
            console = Console(file=out, highlight=False, soft_wrap=True)
            for style, line in lines:
                console.print(Text(line, style=style or ""))
            return
    for _, line in lines:
        out.write(line + "\n")


def as_text(diagnosis: Diagnosis) -> str:
    """Plain text, as printed into a pipe."""
    return "\n".join(line for _, line in _lines(diagnosis)) + "\n"


def _lines(diagnosis: Diagnosis) -> Iterator[Styled]:
    word, style = HEAD[diagnosis.verdict]
    yield style, word
    yield from _wrapped(diagnosis.summary, "")
    if diagnosis.initiating is not None:
        yield "bold", _started(diagnosis.initiating)
        yield from _wrapped(f"because {diagnosis.initiating.basis}", "  ", "dim")
    for number, finding in enumerate(diagnosis.diagnoses, 1):
        yield "", ""
        yield from _finding(number, finding)
    if diagnosis.first_abnormal is not None and diagnosis.verdict != "diagnosed":
        seen = diagnosis.first_abnormal
        yield "", ""
        yield "bold", "First abnormal line"
        yield "", f"  {_place(seen['file'], seen['line'], seen.get('rank'))}"
        yield "", f"    {_cut(seen['text'])}"
    if diagnosis.collateral:
        yield "", ""
        yield "bold", "Collateral (consequences, not causes)"
        for storm in diagnosis.collateral:
            ranks = ", ".join(str(r) for r in storm.get("ranks", ()))
            where = f" on rank {ranks}" if ranks else ""
            yield "", f"  {storm['count']}× {storm['what']}{where}"
    if diagnosis.timeline:
        yield "", ""
        yield "bold", "Timeline"
        for item in diagnosis.timeline:
            who = "      -" if item.get("rank") is None else f"rank {item['rank']:>2}"
            when = f"{item['time']}  " if item.get("time") else ""
            yield "", f"  {who}  {when}{_cut(item['what'], 100)}"
    if diagnosis.leads:
        yield "", ""
        yield "bold", "Leads (not findings)"
        for lead in diagnosis.leads:
            yield from _wrapped(lead["text"], "  ")
    if diagnosis.not_examined:
        yield "", ""
        yield "bold", "Not examined"
        for note in diagnosis.not_examined:
            yield from _wrapped(note, "  ", "dim")


def _started(initiating: Initiating) -> str:
    who = {
        "rank": f"Started on rank {initiating.rank}" + (f" ({initiating.node})" if initiating.node else ""),
        "node": f"Started on node {initiating.node}" if initiating.node else "Started on one node, which is not named",
        "all": "Started on all ranks alike",
        "outside": "Started outside the job",
        "unknown": "Initiating rank unknown",
    }[initiating.scope]
    return who if initiating.scope == "unknown" else f"{who} ({initiating.confidence})"


def _finding(number: int, finding: Finding) -> Iterator[Styled]:
    rank = "" if finding.rank is None else f" · rank {finding.rank}"
    yield "bold", f"{number}. {finding.title}"
    yield "dim", f"   {finding.entry} · {finding.role} · confidence {finding.confidence:.2f}{rank}"
    for evidence in finding.evidence:
        yield "cyan", f"   {_place(evidence.file, evidence.line, evidence.rank)}"
        yield "", f"     {_cut(evidence.text)}"
    if finding.action.get("do"):
        yield from _wrapped(f"do now: {finding.action['do']}: {finding.action.get('when', '')}", "   ")
    if finding.fix:
        yield from _wrapped(f"fix: {finding.fix}", "   ", "green")
    if finding.verify:
        yield from _wrapped(f"verify: {finding.verify}", "   ")
    if finding.url:
        yield "dim", f"   read: {finding.url}"


def _place(file: str, line: int, rank: int | None) -> str:
    return f"{file}:{line}" + ("" if rank is None else f" [rank {rank}]")


_CONTROL = lazy.regex(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _clean(text: str) -> str:
    """Without escape sequences and control characters: a log must not drive the reader's terminal."""
    return " ".join(_CONTROL.sub("", text).split())


def _cut(text: str, width: int = 220) -> str:
    text = _clean(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def _wrapped(text: str, indent: str, style: str = "") -> Iterator[Styled]:
    """Lines of about 100 characters; words stay whole, so that paths and addresses can be copied."""
    line = indent
    for word in _clean(text).split():
        if len(line) + len(word) >= 100 and line.strip():
            yield style, line.rstrip()
            line = indent + "  "
        line += word + " "
    if line.strip():
        yield style, line.rstrip()


def as_markdown(diagnosis: Diagnosis) -> str:
    """For an issue or a job summary; everything from the log stands in code blocks, escaped."""
    word = HEAD[diagnosis.verdict][0].capitalize()
    out = [f"### Faultbook: {word.lower()}", "", _inline(diagnosis.summary)]
    if diagnosis.initiating is not None:
        out += ["", f"**{_inline(_started(diagnosis.initiating))}**: {_inline(diagnosis.initiating.basis)}"]
    for number, finding in enumerate(diagnosis.diagnoses, 1):
        title = f"[{_inline(finding.title)}]({finding.url})" if finding.url else _inline(finding.title)
        out += ["", f"{number}. **{title}** (`{finding.entry}`, {finding.role}, {finding.confidence:.2f})", ""]
        out += _quoted(finding.evidence)
        if finding.action.get("do"):
            out += ["", f"   **Do now** `{finding.action['do']}`: {_inline(finding.action.get('when', ''))}"]
        if finding.fix:
            out += ["", f"   **Fix** {_inline(finding.fix)}"]
        if finding.verify:
            out += ["", f"   **Verify** {_inline(finding.verify)}"]
    if diagnosis.first_abnormal is not None and diagnosis.verdict != "diagnosed":
        seen = diagnosis.first_abnormal
        line = Evidence(seen["file"], seen["line"], seen.get("rank"), seen["text"], "")
        out += ["", "**First abnormal line**", "", *_quoted([line], "")]
    if diagnosis.collateral:
        out += ["", "**Collateral**", ""]
        out += [f"- {storm['count']}× {_inline(str(storm['what']))}" for storm in diagnosis.collateral]
    if diagnosis.leads:
        out += ["", "**Leads (not findings)**", "", *(f"- {_inline(lead['text'])}" for lead in diagnosis.leads)]
    if diagnosis.not_examined:
        out += ["", "**Not examined**", "", *(f"- {_inline(note)}" for note in diagnosis.not_examined)]
    return "\n".join(out) + "\n"


def _quoted(evidence: Iterable[Evidence], indent: str = "   ") -> list[str]:
    lines = [f"{_place(e.file, e.line, e.rank)}: {_cut(e.text)}" for e in evidence]
    # A fence longer than any run of backticks in the text cannot be closed by the text.
    longest = max((len(run) for line in lines for run in _ticks(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{indent}{fence}text", *(indent + line for line in lines), f"{indent}{fence}"]


def _ticks(line: str) -> list[str]:
    runs, run = [], ""
    for char in line + " ":
        if char == "`":
            run += char
        elif run:
            runs.append(run)
            run = ""
    return runs


def _inline(text: str) -> str:
    """Plain words in Markdown: nothing of a log becomes markup, a link or an element."""
    text = _clean(text)
    for char in "\\`*_[]<>|#":
        text = text.replace(char, "&lt;" if char == "<" else "&gt;" if char == ">" else "\\" + char)
    return text
