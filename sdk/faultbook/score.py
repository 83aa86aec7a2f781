"""Scores the engine on labelled cases: what a contributor and CI look at before trusting it.

A case is one JSON object per line: `log` (text) or `files` (paths beside the JSONL file, or under
`data/<id>/`), `exact` (slugs that are right; any is a hit; empty where no entry can be), `family`
(slugs of the right area), optional `initiating_rank`, `scope`, `scope_alt`, `verdict`, `verdict_alt`,
`initiating_confidence`, `log_sufficient`.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .model import Diagnosis
from .values import dataclass, field

Case = Mapping[str, Any]
BUCKETS = (0.0, 0.5, 0.7, 0.8, 0.9, 1.01)


class ScoreError(Exception):
    """A malformed case file: `path:line: message`."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One case and how the answer compares with its label."""

    id: str
    kind: str
    name: str
    """exact | family | wrong | none (no answer) | quiet (rightly no name)."""
    answer: str | None
    confidence: float
    covered: bool
    """Whether one of the right entries is written at all."""
    rank: str | None
    """right | wrong | unknown, or None where the label says nothing."""
    verdict: str
    verdict_right: bool | None
    alarm: bool
    """A healthy case that was called diagnosed or unrecognised."""


@dataclass(slots=True)
class Score:
    cases: list[Scored] = field(default_factory=list)

    def totals(self) -> dict[str, Any]:
        """The `--json` form."""
        names = Counter(c.name for c in self.cases)
        ranks = Counter(c.rank for c in self.cases if c.rank is not None)
        verdicts = [c.verdict_right for c in self.cases if c.verdict_right is not None]
        answerable = [c for c in self.cases if c.covered]
        return {
            "schema": "faultbook.score/1",
            "cases": len(self.cases),
            "names": {k: names.get(k, 0) for k in ("exact", "family", "wrong", "none", "quiet")},
            "covered": len(answerable),
            "covered_exact": sum(c.name == "exact" for c in answerable),
            "covered_none": sum(c.name == "none" for c in answerable),
            "rank": {k: ranks.get(k, 0) for k in ("right", "wrong", "unknown")},
            "verdict": {"right": sum(verdicts), "wrong": len(verdicts) - sum(verdicts)},
            "false_alarms": sum(c.alarm for c in self.cases),
            "reliability": self.reliability(),
            "kinds": self.kinds(),
        }

    def reliability(self) -> list[dict[str, Any]]:
        """Stated confidence against how often the name was exact or of the family."""
        rows = []
        for low, high in itertools.pairwise(BUCKETS):
            inside = [c for c in self.cases if c.answer is not None and low <= c.confidence < high and c.name != "quiet"]
            if inside:
                rows.append({
                    "from": low,
                    "to": min(high, 1.0),
                    "answers": len(inside),
                    "stated": round(sum(c.confidence for c in inside) / len(inside), 3),
                    "exact": round(sum(c.name == "exact" for c in inside) / len(inside), 3),
                    "exact_or_family": round(sum(c.name in ("exact", "family") for c in inside) / len(inside), 3),
                })
        return rows

    def kinds(self) -> dict[str, dict[str, int]]:
        table: dict[str, Counter[str]] = defaultdict(Counter)
        for case in self.cases:
            table[case.kind][case.name] += 1
            if case.rank:
                table[case.kind][f"rank {case.rank}"] += 1
        return {kind: dict(sorted(row.items())) for kind, row in sorted(table.items())}


def read_cases(path: str | Path) -> list[tuple[Case, Path]]:
    """Cases and the folder their files are relative to; raises ScoreError."""
    path = Path(path)
    cases: list[tuple[Case, Path]] = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ScoreError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ScoreError(f"{path}: not UTF-8 text") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
        except json.JSONDecodeError as error:
            raise ScoreError(f"{path}:{number}: not JSON: {error.msg}") from None
        if not isinstance(case, dict) or not ("log" in case or "files" in case):
            raise ScoreError(f"{path}:{number}: a case needs `log` or `files`")
        folder = path.parent / "data" / str(case.get("id", ""))
        cases.append((case, folder if folder.is_dir() else path.parent))
    return cases


def score(
    cases: Sequence[tuple[Case, Path]],
    written: frozenset[str],
    run: Callable[..., Diagnosis],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Score:
    """Runs `run(*paths, text=…)` (that is `diagnose`) on each case; `written` are the slugs of the catalogue."""
    result = Score()
    for number, (case, folder) in enumerate(cases, 1):
        if "log" in case:
            answer = run(text=case["log"])
        elif len(case["files"]) > 1 and (folder / case["files"][0]).parent != folder.parent and folder.name == case.get("id"):
            answer = run(folder)
        else:
            answer = run(*(folder / name for name in case["files"]))
        result.cases.append(judge(case, answer, written))
        progress(number, len(cases))
    return result


def judge(case: Case, answer: Diagnosis, written: frozenset[str]) -> Scored:
    """Compares one answer with its label."""
    exact, family = set(case.get("exact", ())), set(case.get("family", ()))
    primary = next((f for f in answer.diagnoses if f.role == "primary"), None)
    if primary is None and answer.verdict in ("healthy", "inconclusive") and answer.diagnoses:
        primary = answer.diagnoses[0]  # what looks alarming and is known to be harmless
    name = None if primary is None else primary.entry
    wanted = case.get("verdict")
    fair = {wanted, *case.get("verdict_alt", ())}
    if name is None:
        grade = "quiet" if not exact else "none"
    elif name in exact:
        grade = "exact"
    elif name in family:
        grade = "family"
    elif not exact and not family and answer.verdict in fair:
        grade = "quiet"
    else:
        grade = "wrong"
    return Scored(
        id=str(case.get("id", "")),
        kind=str(case.get("kind") or next(iter(case.get("exact", ())), "")),
        name=grade,
        answer=name,
        confidence=0.0 if primary is None else primary.confidence,
        covered=bool(exact & written),
        rank=_rank(case, answer),
        verdict=answer.verdict,
        verdict_right=None if wanted is None else answer.verdict in fair,
        alarm=wanted == "healthy" and answer.verdict in ("diagnosed", "unrecognised"),
    )


def _rank(case: Case, answer: Diagnosis) -> str | None:
    scope, rank = case.get("scope"), case.get("initiating_rank")
    if scope is None and rank is None:
        return None
    told = answer.initiating
    if scope is None:
        if told is None or told.scope == "unknown":
            return "unknown"
        return "right" if told.rank == rank else "wrong"
    if scope == "none":
        return "right" if told is None or told.scope == "unknown" else "wrong"
    fair = {scope, *case.get("scope_alt", ())}
    given = "unknown" if told is None else told.scope
    if given == "unknown":
        return "right" if "unknown" in fair else "unknown"
    if given not in fair:
        return "wrong"
    return "right" if given != "rank" or told is None or told.rank in (rank, case.get("truth_rank")) else "wrong"


def report(result: Score, every: bool = False) -> str:
    """The totals as text; with `every`, also each case that was not answered exactly."""
    totals = result.totals()
    names, ranks = totals["names"], totals["rank"]
    count = totals["cases"] or 1
    out = [f"{totals['cases']} cases"]
    out += [f"  {name:<8}{number:>5}  {100 * number / count:5.1f} %" for name, number in names.items()]
    out.append(
        f"covered by written entries: {totals['covered']}, of these exact {totals['covered_exact']}, "
        f"no answer {totals['covered_none']}"
    )
    if any(ranks.values()):
        out.append(f"initiating rank: right {ranks['right']}, wrong {ranks['wrong']}, unknown {ranks['unknown']}")
    if any(totals["verdict"].values()):
        right, wrong = totals["verdict"]["right"], totals["verdict"]["wrong"]
        out.append(f"verdict: right {right}, wrong {wrong}; false alarms {totals['false_alarms']}")
    if totals["reliability"]:
        out.append("confidence  answers  stated  exact  exact or family")
        for row in totals["reliability"]:
            out.append(
                f"  {row['from']:.1f}-{row['to']:.1f}  {row['answers']:>7}  {row['stated']:>6.2f}"
                f"  {row['exact']:>5.2f}  {row['exact_or_family']:>5.2f}"
            )
    if every:
        for case in result.cases:
            if case.name not in ("exact", "quiet") or case.rank == "wrong" or case.verdict_right is False:
                out.append(
                    f"  {case.id}  {case.kind}: {case.name} {case.answer or '-'} ({case.verdict})"
                    + (f" rank {case.rank}" if case.rank else "")
                )
    return "\n".join(out) + "\n"
