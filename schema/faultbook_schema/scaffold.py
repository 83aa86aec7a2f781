"""`faultbook new`: an entry that is valid but for its TODOs.

The scaffold is a small true failure (a look-up one row too far) with its fix, so that
`verify` and `check` work from the first minute and the contributor replaces one part
after another. Each TODO is reported by `check` with its line until it is gone.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date

SCHEMA_LINE = "# yaml-language-server: $schema=../../../schema/entry.schema.json"


@dataclass(frozen=True, slots=True)
class Request:
    """What the contributor said on the command line."""

    slug: str
    title: str
    category: str
    kind: str = "cause"
    severity: str = "medium"
    visibility: str = "loud"
    mode: str = "real"
    world_size: int = 1
    parent: str | None = None
    today: date = date(1980, 1, 1)
    stack: str = "pytorch"
    patterns: tuple[tuple[str, str], ...] = ()
    """(pattern, masked line it was made of), the likeliest first: from a log."""
    sample: str = ""
    """Masked log that shows the failure; stands in logs/ until the reproduction prints its own."""
    source: str = ""
    """Public address of that log, which is then quoted as recorded lines."""
    nearest: tuple[str, ...] = ()
    """Entries that may be taken for this one."""


def files(request: Request) -> dict[str, str]:
    """Path inside the entry's folder → text."""
    made = {"entry.yaml": entry_yaml(request)}
    if request.kind == "cause" and request.mode != "recorded":
        made["repro.py"] = repro_py(request)
        made |= {"logs/broken.log": request.sample or _broken(request), "logs/fixed.log": _fixed(request)}
    if is_recorded(request):
        made["logs/recorded-1.log"] = request.sample or failing_line(request) + "\n"
    return made


def is_recorded(request: Request) -> bool:
    """Whether it quotes a log: it must, where nothing is run, and it can, where the log is public."""
    return request.kind != "cause" or request.mode == "recorded" or bool(request.sample and request.source)


def failing_line(r: Request) -> str:
    """What the scaffold's run prints: its own slug, so that two scaffolds are not confused."""
    return f"KeyError: '{r.slug}-3'"


def entry_yaml(r: Request) -> str:
    head = [
        SCHEMA_LINE,
        "schema: faultbook.entry/1",
        f"slug: {r.slug}",
        f"kind: {r.kind}",
        f"title: {json.dumps(r.title, ensure_ascii=False)}",
        f"category: {r.category}",
        f"severity: {r.severity}",
        f"visibility: {r.visibility}",
        *([f"parent: {r.parent}"] if r.parent else []),
        "tags: []",
        'quick_answer: "TODO at most 60 words: what it is and what to do"',
    ]
    parts = {"cause": _CAUSE, "symptom": _SYMPTOM, "noise": _NOISE}[r.kind]
    text = "\n".join([*head, parts.replace("TODO-STACK", r.stack).strip("\n"), *_not_this_if(r), *_signatures(r)])
    text += "\n" + _REFERENCES.format(today=r.today.isoformat()).strip("\n") + "\n"
    recorded = ""
    if is_recorded(r):
        recorded = _RECORDED.format(id=signature_id(r), source=r.source or "https://example.org/TODO")
    return text + (_repro_field(r) if r.kind == "cause" else "") + recorded


def signature_id(r: Request) -> str:
    """From the words of the first pattern, or of the scaffold's own line."""
    if not r.patterns:
        return "missing-row"
    words = re.findall(r"[a-z]{2,}", re.sub(r"\\\\[a-zA-Z]|\[[^]]*\]", " ", r.patterns[0][0]).lower())
    return "-".join(words[:5])[:40].strip("-") or "the-line"


def _signatures(r: Request) -> list[str]:
    if not r.patterns:
        return [_SIGNATURES.format(role=_role(r), slug=r.slug).strip("\n")]
    (first, line), *others = r.patterns
    lines = ["signatures:", f"  # from: {line}", f"  - id: {signature_id(r)}", "    kind: log", f"    role: {_role(r)}"]
    lines += ["    all:", f"      - pattern: {_single_quoted(first)}"]
    if others:
        lines.append("  # also abnormal in that log; make signatures of those that only this failure prints:")
        for pattern, text in others:
            lines += [f"  #   {text}", f"  #   pattern: {_single_quoted(pattern)}"]
    return lines


def _single_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _not_this_if(r: Request) -> list[str]:
    if r.kind == "symptom" or not r.nearest:
        return []
    rows = [f'  - {{entry: {slug}, because: "TODO the observation that decides for that entry"}}' for slug in r.nearest]
    return ["not_this_if:", *rows]


def _role(r: Request) -> str:
    return {"cause": "root", "symptom": "confirmation", "noise": "noise"}[r.kind]


def _repro_field(r: Request) -> str:
    lines = ["repro:", f"  mode: {r.mode}"]
    if r.mode == "simulated":
        lines.append('  stands_in: "TODO one sentence: what stands in for what"')
    if r.mode != "recorded":
        if r.world_size > 1:
            lines += [f"  world_size: {r.world_size}", "  guilty_rank: 1"]
        # Until repro.py is written it is the scaffold's KeyError; with a log there is a failure to aim at.
        ends = {"silent": "completes", "hang": "hangs"}.get(r.visibility, "raises") if r.patterns else "raises"
        lines.append(f"  expect: {{broken: {ends}}}   # or raises, completes, hangs, killed")
    return "\n".join(lines) + "\n"


_CAUSE = """
symptoms:   # three to six: what is seen, and why this cause makes it visible
  - {observe: "TODO", why: "TODO"}
  - {observe: "TODO", why: "TODO"}
  - {observe: "TODO", why: "TODO"}
root_cause: "TODO"
confirm:    # cheapest first; `expect` is concrete
  - {step: "TODO", how: "TODO", expect: "TODO"}
stack_examples:
  - {stack: TODO-STACK, status: reviewed, code: "TODO what to write instead, in this stack"}
fix:
  summary: "TODO"
  why: "TODO why it works"
  risk: "TODO what it costs or can break"
action: {do: fix_code, when: "TODO the condition"}   # see `actions` in kb/taxonomy.yaml
verify: {command: "TODO", expect: "TODO"}
"""

_SYMPTOM = """
routes:     # from evidence to entries, most telling first
  - when: "TODO the evidence"
    to: todo
    test: "TODO the test that decides where the evidence cannot"
"""

_NOISE = """
harmless_unless: "TODO the condition under which it matters"
"""

_SIGNATURES = """
signatures:
  - id: missing-row   # TODO the line that only this failure prints
    kind: log
    role: {role}
    all:
      - pattern: "KeyError: '{slug}-\\\\d+'"
    note: "TODO replace the pattern above, then this note"
"""

_REFERENCES = """
references:
  - {{title: "TODO the documentation or source that says why", url: "https://example.org/TODO", date: {today}, kind: docs}}
  - {{title: "TODO a public thread in which it happened", url: "https://example.org/TODO-thread", date: {today}, kind: issue}}
"""

_RECORDED = """recorded:
  - file: logs/recorded-1.log
    source: {source}
    signatures: [{id}]
"""


def repro_py(r: Request) -> str:
    return (_REPRO_RANKS if r.world_size > 1 else _REPRO).replace("SLUG", r.slug)


_REPRO = '''"""TODO one paragraph: what fails here and why."""

STEPS = 3


# region broken
def read(rows, step):
    return rows[f"SLUG-{step + 1}"]  # TODO the mistake
# endregion


# region fixed
def read_within(rows, step):
    return rows[f"SLUG-{min(step + 1, STEPS - 1)}"]  # TODO the fix
# endregion


def run(ctx):
    ctx.workload(steps=STEPS)
    take = read_within if ctx.fixed else read
    rows = {f"SLUG-{row}": row for row in range(STEPS)}
    for step in range(STEPS):
        print(f"step {step} value {take(rows, step)}", flush=True)
    ctx.result(steps_done=STEPS)


def check(out):
    """A positive property of the healthy outcome, not the absence of an error."""
    assert out.results["steps_done"] == STEPS
'''

_REPRO_RANKS = '''"""TODO one paragraph: what fails here, on which rank, and why."""

import torch
import torch.distributed as dist

STEPS = 3


# region broken
def read(rows, step, rank, guilty):
    return rows[f"SLUG-{step + (rank == guilty)}"]  # TODO the mistake, made by one rank
# endregion


# region fixed
def read_within(rows, step, rank, guilty):
    return rows[f"SLUG-{min(step + (rank == guilty), STEPS - 1)}"]  # TODO the fix
# endregion


def run(ctx):
    ctx.workload(steps=STEPS)
    take = read_within if ctx.fixed else read
    rows = {f"SLUG-{row}": row for row in range(STEPS)}
    for step in range(STEPS):
        value = torch.tensor([float(take(rows, step, ctx.rank, ctx.guilty))], device=ctx.device)
        dist.all_reduce(value)
        print(f"step {step} sum {value.item():.0f}", flush=True)
    ctx.result(steps_done=STEPS)


def check(out):
    """A positive property of the healthy outcome, not the absence of an error."""
    assert all(record.results["steps_done"] == STEPS for record in out.ranks)
'''


def _broken(r: Request) -> str:
    prefix = "[rank1]: " if r.world_size > 1 else ""
    return f"{prefix}Traceback (most recent call last):\n{prefix}{failing_line(r)}\n"


def _fixed(r: Request) -> str:
    prefix = "[rank0]: " if r.world_size > 1 else ""
    return "".join(f"{prefix}step {step}\n" for step in range(3))
