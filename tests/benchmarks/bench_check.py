"""How long `faultbook check` takes: one entry and all of them, of this kb/ and of 300 entries made of it.

    python tests/benchmarks/bench_check.py

Targets on a quiet machine: one entry within 2 s, 300 within 10 s, the start of the interpreter included.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENTRIES = 300


def grown(kb: Path, target: Path, count: int = ENTRIES) -> Path:
    """A kb/ of `count` entries: copies under other names, with other sentences, related to their originals."""
    folders = sorted(path.parent for path in kb.glob("*/*/entry.yaml"))
    target.mkdir(parents=True)
    shutil.copy(kb / "taxonomy.yaml", target)
    for number in range(count):
        copy, folder = divmod(number, len(folders))
        source = folders[folder]
        slug = source.name + (f"-copy-{copy}" if copy else "")
        made = target / source.parent.name / slug
        shutil.copytree(source, made, ignore=shutil.ignore_patterns("__pycache__"))
        if copy:
            path = made / "entry.yaml"
            path.write_text(_renamed(path.read_text("utf-8"), source.name, slug, copy), encoding="utf-8")
    return target


def _renamed(text: str, name: str, slug: str, copy: int) -> str:
    text = text.replace(f"slug: {name}\n", f"slug: {slug}\n", 1)
    text = re.sub(r"^(?:aliases|related):.*\n(?:  .*\n)*", "", text, flags=re.M)
    lines = [
        line
        if re.search(r"pattern|url:|schema|source", line)
        else re.sub(r"(\w{3,} \w+)([.!?])(?= |$|\")", rf"\1 again{copy}\2", line)
        for line in text.split("\n")
    ]
    others = [name, *(f"{name}-copy-{other}" for other in range(1, copy))]
    return "\n".join(lines) + "related:\n" + "".join(f"  - {{entry: {other}, relation: see_also}}\n" for other in others)


def report(root: Path, scratch: Path, count: int = ENTRIES) -> list[str]:
    """One line a measurement."""
    kb, one = root / "kb", "model/matmul-shape-mismatch"
    many = grown(kb, scratch / "kb", count)
    here = len(list(kb.glob("*/*/entry.yaml")))
    lines = []
    for name, place, paths in [
        (f"one entry of {here}", kb, [kb / one]),
        (f"all {here}", kb, []),
        (f"one entry of {count}", many, [many / one]),
        (f"all {count}", many, []),
    ]:
        cpu, wall, summary = _timed([sys.executable, "-m", "faultbook.cli", "check", "--kb", str(place), *map(str, paths)])
        lines.append(f"faultbook check, {name:18} {cpu:5.1f} s CPU {wall:5.1f} s wall   ({summary})")
    return lines


def test_a_grown_catalogue_is_one(root: Path, tmp_path: Path) -> None:
    """The copies are entries of their own: nothing is wrong with them but that they read alike."""
    from faultbook_schema.check import check

    kb = tmp_path / "kb"
    some = tmp_path / "some"
    for slug in ("model/matmul-shape-mismatch", "model/batchnorm-single-value"):
        shutil.copytree(root / "kb" / slug, some / slug)
    shutil.copy(root / "kb" / "taxonomy.yaml", some)
    found = check(grown(some, kb, 5))
    assert found.entries == 5 and {p.code for p in found.problems} <= {"prose-boilerplate", "unknown-entry"}


def _timed(command: list[str]) -> tuple[float, float, str]:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1), done.stderr
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - started, next(line for line in done.stderr.splitlines() if " entries, " in line)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(report(Path(__file__).resolve().parents[2], Path(folder))))
