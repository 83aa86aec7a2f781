"""What was run: the code that fails and the code that passes, and what each of them printed."""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterable

from . import markup
from .catalogue import Entry, Proof, proofs
from .curves import figures
from .widgets import table, tabs

SHOWN_WHOLE = 40  # lines; longer logs are cut around what the signatures matched
# The note of the compiler in a log too long for a page; line numbers after it are not those of the run.
_LEFT_OUT = re.compile(r"^… [\d,]+ lines left out …$", re.MULTILINE)
SIDE_BY_SIDE = 7  # lines of code from which code and log stand beside each other
HEAD, TAIL, AROUND, WIDEST = 8, 12, 2, 600


def patterns(entry: Entry) -> list[re.Pattern[str]]:
    """The positive patterns of the log signatures. The schema has checked that they are portable."""
    found = []
    for signature in entry.get("signatures") or ():
        for group in ("all", "any"):
            for item in signature.get(group) or ():
                if "pattern" not in item:
                    continue
                try:
                    flags = re.ASCII | (re.IGNORECASE if item.get("ignore_case") else 0)
                    found.append(re.compile(str(item["pattern"]), flags))
                except re.error:
                    continue
    return found


def logs(entry: Entry, half: str) -> list[tuple[str, str]]:
    """(file name, text) of the logs of one half, the default variant first."""
    named = {posixpath.basename(str(k)): str(v) for k, v in (entry.get("logs") or {}).items()}
    return [
        (name, named[name])
        for name in sorted(named, key=len)
        if name == f"{half}.log" or (name.startswith(f"{half}-") and name.endswith(".log"))
    ]


def matched_lines(entry: Entry, limit: int = 3) -> list[str]:
    """Lines of the failing run that a log signature matched, as printed, each distinct text once.

    Where a proof record says on which lines it fired, those; else every line a pattern matches.
    """
    wanted = patterns(entry)
    seen: dict[str, str] = {}
    for name, text in logs(entry, "broken"):
        fired = set() if _LEFT_OUT.search(text) else set(fired_lines(entry, name, ("log",)))
        for number, line in enumerate(markup.clean(text).split("\n"), 1):
            if number in fired or (not fired and any(p.search(line) for p in wanted)):
                body = re.sub(r"^\[(?:rank|default)\d+\]:\s?", "", line)
                # Numbers vary from rank to rank; the reader needs each kind of line once.
                seen.setdefault(re.sub(r"\d+", "0", body)[:120], body[:WIDEST])
    return list(seen.values())[:limit]


def fired_lines(entry: Entry, name: str, kinds: tuple[str, ...] = ("log", "metric")) -> list[int]:
    """1-based lines of a log of the failing run on which signatures fired, as its proof record says."""
    kind = {s.get("id"): s.get("kind") for s in entry.get("signatures") or ()}
    for record in proofs(entry):
        for place, run in enumerate(record.runs):
            if name in (f"broken-{run.variant}.log", "broken.log" if place == 0 else ""):
                return [
                    int(line)
                    for signature, seen in (run.broken.get("signatures") or {}).items()
                    if seen.get("fired") and kind.get(signature) in kinds
                    for line in seen.get("lines") or ()
                ]
    return []


def metric_lines(entry: Entry) -> list[str]:
    """Where only numbers tell: the first line with the series, and those on which a signature fired."""
    names = metric_names(entry)
    for name, text in logs(entry, "broken"):
        lines = markup.clean(text).split("\n")
        at = [n - 1 for n in fired_lines(entry, name, ("metric",)) if n <= len(lines)]
        if not at or _LEFT_OUT.search(text):
            continue
        start = next((i for i, line in enumerate(lines) if any(n in line for n in names)), at[0])
        return [lines[i][:WIDEST] for i in sorted({start, *at})][:4]
    return []


def metric_names(entry: Entry) -> list[str]:
    """The series that the metric signatures look at."""
    return [
        str(name).removeprefix("role:")
        for s in entry.get("signatures") or ()
        if s.get("kind") == "metric"
        for test in [*(s.get("all") or ()), *(s.get("any") or ())]
        for name in test.get("series") or ()
    ]


def section(entry: Entry) -> list[str]:
    """HTML blocks below the heading "What was run"."""
    records = proofs(entry)
    code = entry.get("code") or {}
    wanted = patterns(entry)
    blocks = [proof_statement(entry, records)]
    panels = []
    for half, label in (("broken", "Fails"), ("fixed", "Fixed")):
        inside = markup.code(code[half], "python", "repro.py") if code.get(half) else ""
        for name, text in logs(entry, half):
            inside += log_block(name, text, wanted, fired_lines(entry, name) if half == "broken" else ())
        if inside:
            # A line or two of code leave the log beside them too little room.
            short = " fb-run--stack" if len(str(code.get(half, "")).strip().splitlines()) < SIDE_BY_SIDE else ""
            panels.append((label, f'<div class="fb-run{short}">{inside}</div>'))
    if code.get("diff"):
        panels.append(("Diff", markup.code(code["diff"], "diff", "from fails to fixed")))
    if panels:
        blocks.append(tabs("runs", "The same workload, before and after", panels))
    for record in records[:1]:
        blocks += figures(record.runs, metric_names(entry))
    if records and records[0].runs:
        blocks.append(proof_table(records))
    if code:
        command = f"pip install 'faultbook[repro]'\nfaultbook verify {entry['slug']} --keep runs/"
        blocks.append(
            '<div class="fb-trigger"><h3 id="trigger">Trigger it yourself</h3>'
            + markup.code(command, "bash")
            + '<p class="fb-small">Runs both halves, checks what must hold of each, and leaves their logs in <code>runs/</code>.'
            + (f" What they printed here: {_files(entry)}." if entry.get("logs") else "")
            + "</p></div>"
        )
    return [b for b in blocks if b]


def _files(entry: Entry) -> str:
    names = [name for half in ("broken", "fixed") for name, _ in logs(entry, half)]
    return ", ".join(f'<a href="{markup.text(n)}"><code>{markup.text(n)}</code></a>' for n in names)


def proof_statement(entry: Entry, records: list[Proof]) -> str:
    repro = entry.get("repro") or {}
    if not records:
        if not repro:
            return ""
        return '<p class="fb-noproof">No proof record matches this version of the entry yet.</p>'
    first = records[0]
    how = {
        "real": "Both halves were run for real.",
        "simulated": "The failure is simulated.",
        "recorded": "The lines were recorded in public logs; nothing was run here.",
    }[first.mode]
    stands_in = f" {markup.inline(repro['stands_in'])}" if repro.get("stands_in") else ""
    world = repro.get("world_size") or 1
    ranks = f" {int(world)} ranks." if str(world).isdigit() and int(world) > 1 else ""
    rows = "; ".join(dict.fromkeys(_record(p) for p in records))
    return f'<p class="fb-proven">{how}{stands_in}{ranks} <span class="fb-small">{rows}</span></p>'


def badge(records: list[Proof]) -> str:
    """The claim beside the title; absent without a proof record."""
    if not records:
        return ""
    first = records[0]
    say = {"real": "Proven by a real run", "simulated": "Proven by simulation", "recorded": "Recorded, not run"}
    devices = ", ".join(dict.fromkeys(p.device.upper() for p in records if p.device))
    detail = _record(first)
    return (
        f'<a class="fb-proof fb-proof--{first.mode}" href="#runs" title="{detail}">{say[first.mode]}'
        f"{' · ' + markup.text(devices) if devices and first.mode != 'recorded' else ''}</a>"
    )


def _record(proof: Proof) -> str:
    parts = [proof.device.upper() if proof.device else ""]
    parts += [f"{k} {v}" if k != "platform" else v for k, v in proof.versions]
    parts.append(proof.date)
    return markup.text(" · ".join(p for p in parts if p))


def proof_table(records: list[Proof]) -> str:
    """Per device, variant and half: how the process ended, what the check said, what fired."""
    rows = []
    for record in records:
        for run in record.runs:
            for half, label in ((run.broken, "fails"), (run.fixed, "fixed")):
                fired = [k for k, v in (half.get("signatures") or {}).items() if v.get("fired")]
                said = "passed" if half.get("check") else f"failed: {half.get('objection') or ''}"
                seconds = half.get("seconds")
                rows.append(
                    (
                        f'<b>{label}</b> {markup.text(run.variant)} <span class="fb-small">{markup.text(record.device)}</span>',
                        markup.text(half.get("outcome", "")),
                        markup.text(said),
                        "".join(f"<code>{markup.text(f)}</code> " for f in fired) or "none",
                        f"{seconds:.1f} s" if isinstance(seconds, (int, float)) else "",
                    )
                )
    return table("What the proof record says", ("Half", "Process", "Check", "Signatures that fired", "Time"), rows)


def log_block(name: str, text: str, wanted: Iterable[re.Pattern[str]], fired: Iterable[int] = ()) -> str:
    lines = markup.clean(text).rstrip("\n").split("\n")
    hits = {n for n, line in enumerate(lines) if any(p.search(line) for p in wanted)}
    if not _LEFT_OUT.search(text):
        hits |= {n - 1 for n in fired if n <= len(lines)}
    out = []
    last = -1
    for number in _kept(len(lines), sorted(hits)):
        if number != last + 1:
            out.append(f'<span class="fb-gap">{number - last - 1} lines not shown</span>')
        body = html.escape(lines[number][:WIDEST]) or " "
        tag = "mark" if number in hits else "span"
        out.append(f'<{tag} data-n="{number + 1}">{body}</{tag}>')
        last = number
    legend = "highlighted: what a signature matched" if hits else ""
    head = f'<span class="filename">{markup.text(name)}<i>{legend}</i></span>'
    body = markup.seal_code("\n".join(out))
    return f'<div class="highlight fb-log">{head}<pre tabindex="0"><code>{body}\n</code></pre></div>'


def _kept(count: int, points: list[int]) -> list[int]:
    """Which lines to show: all of a short log; of a long one both ends and the first points of interest."""
    if count <= SHOWN_WHOLE:
        return list(range(count))
    keep = set(range(HEAD)) | set(range(count - TAIL, count))
    for hit in points[:7]:
        keep |= set(range(max(0, hit - AROUND), min(count, hit + AROUND + 1)))
    return sorted(keep)
