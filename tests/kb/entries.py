"""Tiny entries for the tests of `verify`: each is a folder with an entry.yaml and a repro.py."""

from __future__ import annotations

import textwrap
from pathlib import Path

REPRO = """
import torch

STEPS = 12


# region broken
def rate():
    return 40.0
# endregion


# region fixed
def bounded_rate():
    return 0.1
# endregion


def run(ctx):
    ctx.workload(steps=STEPS)
    weight = torch.ones(())
    for step in range(STEPS):
        weight = weight - (bounded_rate() if ctx.fixed else rate()) * weight
        print(f"step={step} loss={weight.square().item():.4g}")
        if not weight.square() < 1e6:
            raise FloatingPointError(" ".join(("weight", "has", "exploded")))
    ctx.result(loss=weight.square().item(), steps=step + 1)


def check(out):
    assert out.results["steps"] == STEPS and out.results["loss"] < 0.2
"""

ENTRY = """
slug: {slug}
kind: cause
signatures:
- kind: log
  id: exploded
  role: root
  all: [{{pattern: 'FloatingPointError: weight has exploded'}}]
- kind: metric
  id: loss-rises
  role: root
  observed_in: stock_log
  within_steps: 5
  all: [{{series: [loss], test: above, value: 100}}]
repro:
  mode: real
  timeout_s: 5
  expect: {{broken: raises}}
"""


def write_entry(
    folder: Path, *, repro: tuple[tuple[str, str], ...] = (), entry: tuple[tuple[str, str], ...] = ()
) -> Path:
    """A proven entry, except for the texts replaced in its two files."""
    folder.mkdir(parents=True, exist_ok=True)
    text = ENTRY.format(slug=folder.name)
    code = textwrap.dedent(REPRO)
    for old, new in repro:
        assert old in code, old
        code = code.replace(old, new)
    for old, new in entry:
        assert old in text, old
        text = text.replace(old, new)
    (folder / "entry.yaml").write_text(text, encoding="utf-8")
    (folder / "repro.py").write_text(code, encoding="utf-8")
    return folder


def write_kb(kb: Path, *names: str) -> Path:
    """A knowledge base of proven entries in the category `model`."""
    kb.mkdir()
    (kb / "taxonomy.yaml").write_text("{}\n", encoding="utf-8")
    for name in names:
        write_entry(kb / "model" / name)
    return kb
