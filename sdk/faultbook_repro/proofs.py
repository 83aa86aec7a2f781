"""Proof records: proofs/<slug>.<device>.json, written when an entry is proven, removed when not.

Its digest covers the entry's signatures, its repro.py and the runner's core, so a record
that no longer matches what it proved is recognised as stale by anyone who can hash; a
badge shows only while it matches.
"""

from __future__ import annotations

import json
import platform
import re
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

from .core.judge import Half
from .core.metrics import thinned_curves
from .verify import Result

SCHEMA = "faultbook.proof/1"


@lru_cache(maxsize=1)
def runner_digest() -> str:
    from faultbook_schema.digest import source_digest

    return source_digest(Path(__file__).parent / "core")


def proof_digest(folder: Path) -> str:
    """Changes with the signatures, the `repro:` field, the repro.py, or the runner's core."""
    from faultbook_schema import digest

    return digest.proof_digest(digest.entry_digest(folder), runner_digest())


def proof_path(proofs: Path, slug: str, device: str) -> Path:
    return proofs / f"{slug}.{device}.json"


def is_current(proofs: Path, folder: Path, device: str) -> bool:
    """Whether the record of this entry and device still proves what stands there."""
    try:
        data = json.loads(proof_path(proofs, folder.name, device).read_text(encoding="utf-8"))
        return bool(data["digest"] == proof_digest(folder))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def make_proof(result: Result) -> dict[str, Any]:
    about = result.about
    return {
        "schema": SCHEMA,
        "slug": result.slug,
        "device": result.device,
        "mode": result.mode,
        "digest": proof_digest(result.folder),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "python": about.get("python", platform.python_version()),
        "torch": about.get("torch"),
        "platform": f"{platform.system().lower()}-{platform.machine()}",
        "sandbox": about.get("sandbox", {}),
        "seconds": round(result.seconds, 2),
        "variants": [
            {"variant": pair.variant, "broken": _half(pair.broken), "fixed": _half(pair.fixed)}
            for pair in result.pairs
        ],
    }


def _half(half: Half) -> dict[str, Any]:
    outcome = half.outcome
    return {
        "outcome": outcome.outcome,
        "seconds": round(outcome.seconds, 2),
        "check": half.objection is None,
        "objection": _short(half.objection),
        "workload": outcome.workload,
        "results": _small(outcome.results),
        "ranks": [
            {"rank": r.rank, "ok": r.ok, "signal": r.signal, "exception": _short(r.exception)}
            for r in outcome.ranks
        ],
        "signatures": {
            name: {"fired": f.fired, "lines": list(f.lines[:5])}
            | ({} if f.step is None else {"step": f.step})
            for name, f in sorted(half.fired.items())
        },
        "curves": thinned_curves(outcome.log),
    }


def _short(text: str | None, limit: int = 200) -> str | None:
    return text if text is None or len(text) <= limit else text[: limit - 1] + "…"


def _small(results: dict[str, Any]) -> dict[str, Any]:
    """Scalars as they are (not finite: as text, since JSON knows no NaN), long lists left out."""
    small: dict[str, Any] = {}
    for name, value in sorted(results.items()):
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            small[name] = str(value)
        elif isinstance(value, (int, float, bool)) or value is None:
            small[name] = value
        elif isinstance(value, str):
            small[name] = _short(value)
    return small


def write_proof(proofs: Path, proof: dict[str, Any]) -> Path:
    """Leaves a record alone that already says the same with the same versions: no churn in git."""
    path = proof_path(proofs, proof["slug"], proof["device"])
    if path.is_symlink():
        path.unlink()  # of a pull request, perhaps: writing would reach what it points to
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
        if all(old[k] == proof[k] for k in ("digest", "torch", "python", "platform", "mode")):
            return path
    except (OSError, ValueError, KeyError, TypeError):
        pass
    proofs.mkdir(exist_ok=True)
    path.write_text(to_json(proof) + "\n", encoding="utf-8")
    return path


_FLAT_LIST = re.compile(r"\[\s*((?:[^\[\]{}\"]|\"[^\"\\]*\")*?)\s*\]")


def to_json(proof: dict[str, Any]) -> str:
    """Indented and sorted, with lists of plain values on one line: readable, and small in a diff."""
    text = json.dumps(proof, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False)
    return _FLAT_LIST.sub(lambda m: "[" + re.sub(r",\s*\n\s*", ", ", m[1]) + "]", text)


def remove_proof(proofs: Path, slug: str, device: str) -> None:
    proof_path(proofs, slug, device).unlink(missing_ok=True)
