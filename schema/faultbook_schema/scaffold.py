"""`faultbook new`: an entry that is valid but for its TODOs.

The scaffold is a small true failure (a look-up one row too far) with its fix, so that
`verify` and `check` work from the first minute and the contributor replaces one part
after another. Each TODO is reported by `check` with its line until it is gone.
"""

from __future__ import annotations

import json
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


def files(request: Request) -> dict[str, str]:
    """Path inside the entry's folder → text."""
    made = {"entry.yaml": entry_yaml(request)}
    if request.kind == "cause" and request.mode != "recorded":
        made["repro.py"] = repro_py(request)
        made |= {"logs/broken.log": _broken(request), "logs/fixed.log": _fixed(request)}
    else:
        made["logs/recorded-1.log"] = failing_line(request) + "\n"
    return made


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
    recorded = _RECORDED.format(id="missing-row") if r.kind != "cause" or r.mode == "recorded" else ""
    text = "\n".join([*head, parts.strip("\n"), _SIGNATURES.format(role=_role(r), slug=r.slug).strip("\n")])
    text += "\n" + _REFERENCES.format(today=r.today.isoformat()).strip("\n") + "\n"
    return text + (_repro_field(r) if r.kind == "cause" else "") + recorded


def _role(r: Request) -> str:
    return {"cause": "root", "symptom": "confirmation", "noise": "noise"}[r.kind]


def _repro_field(r: Request) -> str:
    lines = ["repro:", f"  mode: {r.mode}"]
    if r.mode == "simulated":
        lines.append('  stands_in: "TODO one sentence: what stands in for what"')
    if r.mode != "recorded":
        if r.world_size > 1:
            lines += [f"  world_size: {r.world_size}", "  guilty_rank: 1"]
        lines.append("  expect: {broken: raises}")
    return "\n".join(lines) + "\n"


_CAUSE = """
symptoms:   # three to six: what is seen, and why this cause makes it visible
  - {observe: "TODO", why: "TODO"}
  - {observe: "TODO", why: "TODO"}
  - {observe: "TODO", why: "TODO"}
root_cause: "TODO"
confirm:    # cheapest first; `expect` is concrete
  - {step: "TODO", how: "TODO", expect: "TODO"}
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
    source: https://example.org/TODO
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
