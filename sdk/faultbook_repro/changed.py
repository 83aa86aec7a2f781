"""Which entries a pull request touches: what git says of kb/ and proofs/ since the branch left its base."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from .core.spec import SpecError


@dataclass(frozen=True, slots=True)
class Changes:
    """Since the common ancestor with the base, what is not committed yet included."""

    folders: tuple[Path, ...]
    """Entries that are there and were touched: their files, or their proof records."""
    removed: tuple[str, ...]
    """Slugs that were there and are not: each needs an alias somewhere, since slugs are permanent."""
    records: tuple[str, ...]
    """Proof records that were added or changed, as `<slug>.<device>.json`."""


def changes_since(base: str, kb: Path) -> Changes:
    """`base` is any name git knows (origin/main, a commit). Raises SpecError with one line when git cannot tell."""
    kb = kb.resolve()
    if base.startswith("-"):
        raise SpecError(f"--changed: {base!r} names no commit")
    known = _git(kb.parent, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
    if known is None:
        raise SpecError(f"--changed: git knows no commit {base!r} here (in CI: check out with fetch-depth: 0)")
    fork = (_git(kb.parent, "merge-base", base, "HEAD") or base).strip()
    touched: set[str] = set()
    for command in (
        ("diff", "--name-only", "--no-renames", "--relative", "-z", fork, "--", kb.name, "proofs"),
        ("ls-files", "--others", "--exclude-standard", "-z", "--", kb.name, "proofs"),
    ):
        listed = _git(kb.parent, *command)
        if listed is None:
            raise SpecError(f"--changed: `git {command[0]}` failed in {kb.parent}")
        touched.update(filter(None, listed.split("\0")))
    there = {path.parent.name: path.parent for path in kb.glob("*/*/entry.yaml")}
    slugs: set[str] = set()
    gone: set[str] = set()
    records: set[str] = set()
    for name in touched:
        parts = name.split("/")
        if parts[0] == "proofs" and len(parts) == 2 and parts[1].endswith(".json"):
            slugs.add(parts[1].split(".")[0])
            records.add(parts[1])
        elif parts[0] == kb.name and len(parts) > 3:
            slugs.add(parts[2])
            if parts[2] not in there and parts[3:] == ["entry.yaml"]:
                gone.add(parts[2])
    return Changes(tuple(there[slug] for slug in sorted(slugs & set(there))), tuple(sorted(gone)), tuple(sorted(records)))


def _git(folder: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *command], capture_output=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else None
