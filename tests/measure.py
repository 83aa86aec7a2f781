"""Measures how well the catalogue and the engine work and writes docs/how-well-it-works.md (and its numbers as JSON).

    python tests/measure.py [--shared DIR] [--no-mutants]

Everything on that page is written here from what was run; nothing is typed by hand. The labelled real cases
and logs are not part of the project: without them their sections say that they were not measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import faultbook
from faultbook.score import read_cases, score
from faultbook.signatures import MetricSignature
from faultbook_schema import load_kb
from faultbook_schema.confusion import NAMES_A_CAUSE, matrix, problems_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "how-well-it-works.md"
# Per entry, for its own page on the site.
MEASURED = ROOT / "docs" / "measured.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("FAULTBOOK_SHARED", ROOT.parent / "shared")))
    parser.add_argument("--no-mutants", action="store_true", help="leave out the mutation run (minutes)")
    parser.add_argument("--json-only", action="store_true", help="only docs/measured.json: hits and false alarms of each entry")
    args = parser.parse_args()
    catalog = faultbook.load_catalog()
    diagnose = partial(faultbook.diagnose, catalog=catalog)
    written = frozenset(catalog.entries)
    if args.json_only:
        MEASURED.write_text(json.dumps(measured(args.shared, catalog, diagnose), indent=1, sort_keys=True) + "\n", "utf-8")
        return 0
    numbers: dict[str, Any] = {"date": datetime.date.today().isoformat(), "entries": len(written)}
    if (args.shared / "cases" / "dev.jsonl").is_file():
        numbers["cases"] = score(read_cases(args.shared / "cases" / "dev.jsonl"), written, diagnose).totals()
        numbers["incidents"] = score(read_cases(args.shared / "incidents" / "labels.jsonl"), written, diagnose).totals()
        numbers["healthy"] = healthy(args.shared / "logs", diagnose)
    own = ROOT / "tests" / "incidents" / "labels.jsonl"
    if own.is_file():
        numbers["own_incidents"] = score(read_cases(own), written, diagnose).totals()
    numbers["confusion"] = confusion()
    if not args.no_mutants:
        numbers["mutants"] = mutants()
    PAGE.write_text("\n".join(page(numbers)) + "\n", "utf-8")
    if "cases" in numbers:
        MEASURED.write_text(json.dumps(measured(args.shared, catalog, diagnose), indent=1, sort_keys=True) + "\n", "utf-8")
    print(json.dumps({k: v for k, v in numbers.items() if k != "cases"}, indent=1)[:3000])
    return 0


def healthy(logs: Path, diagnose: Any) -> dict[str, Any]:
    rows = [json.loads(line) for line in (logs / "manifest.jsonl").read_text("utf-8").splitlines()]
    verdicts = {row["file"]: diagnose(logs / row["file"]).verdict for row in rows if row["status"] == "healthy"}
    alarms = [name for name, verdict in verdicts.items() if verdict in ("diagnosed", "unrecognised")]
    return {"logs": len(verdicts), "alarms": alarms, "verdicts": dict(Counter(verdicts.values()))}


def measured(shared: Path, catalog: Any, diagnose: Any) -> dict[str, Any]:
    """For each entry: real failures labelled with it, how many of them named it, names given wrongly, alarms on healthy logs."""
    cases = read_cases(shared / "cases" / "dev.jsonl")
    scored = score(cases, frozenset(catalog.entries), diagnose).cases
    entries: dict[str, dict[str, int]] = {}

    def count(slug: str, what: str) -> None:
        if slug in catalog.entries:
            entries.setdefault(slug, {"labelled": 0, "named": 0, "wrong": 0, "alarms": 0})[what] += 1

    for (case, _), one in zip(cases, scored, strict=True):
        for slug in case.get("exact", ()):
            count(slug, "labelled")
        if one.answer is not None and one.name in ("exact", "wrong"):
            count(one.answer, "named" if one.name == "exact" else "wrong")
    rows = [json.loads(line) for line in (shared / "logs" / "manifest.jsonl").read_text("utf-8").splitlines()]
    whole = [diagnose(shared / "logs" / row["file"]) for row in rows if row["status"] == "healthy"]
    for answer in whole:
        if answer.verdict == "diagnosed":
            count(answer.diagnoses[0].entry, "alarms")
    names = Counter(one.name for one in scored)
    return {
        "schema": "faultbook.measured/1",
        "date": datetime.date.today().isoformat(),
        "cases": len(scored),
        "names": {k: names.get(k, 0) for k in ("exact", "family", "wrong", "none", "quiet")},
        "healthy": len(whole),
        "alarms": sum(answer.verdict in ("diagnosed", "unrecognised") for answer in whole),
        "entries": entries,
    }


def confusion() -> dict[str, Any]:
    knowledge = load_kb(ROOT / "kb")
    tested, logs = matrix(knowledge)
    naming = {name for name, one in tested.items() if one.signature.role in NAMES_A_CAUSE}
    own = related = 0
    shown: set[str] = set()
    for log in logs:
        for name in log.fired:
            if tested[name].owner is log.owner:
                shown.add(name)
            if name in naming:
                own += tested[name].owner is log.owner
                related += tested[name].owner is not log.owner
    return {
        "signatures": len(tested),
        "naming": len(naming),
        "unshown": len(tested) - len(shown),
        "unshown_curves": sorted(n for n, one in tested.items() if n not in shown and isinstance(one.signature, MetricSignature)),
        "logs": len(logs),
        "pairs": len(tested) * len(logs),
        "own": own,
        "relatives": related,
        "unexplained": [str(p) for p in problems_of(knowledge)],
    }


def mutants() -> dict[str, Any]:
    """From `faultbook verify --all --mutate --json`."""
    command = [sys.executable, "-m", "faultbook.cli", "verify", "--all", "--mutate", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    data = json.loads(done.stdout)
    kinds: Counter[str] = Counter()
    alive: list[str] = []
    for entry in data["entries"]:
        for mutant in entry.get("mutants") or ():
            kinds[mutant["name"].split(":")[0].split(" (")[0][:60]] += 1
            if mutant["killed_by"] is None:
                alive.append(f"{entry['slug']}: {mutant['name']}")
    proven = Counter(e["mode"] for e in data["entries"] if e["proven"])
    unproven = [e["slug"] for e in data["entries"] if not e["proven"]]
    return {"total": sum(kinds.values()), "alive": alive, "proven": dict(proven), "unproven": unproven}


def page(n: dict[str, Any]) -> Iterator[str]:
    yield "# How well it works, and how we know"
    yield ""
    yield f"Written by `python tests/measure.py` on {n['date']} from what it ran, with {n['entries']} entries."
    yield "Nothing here is typed by hand."
    if "mutants" in n:
        m = n["mutants"]
        yield from ["", "## Proofs and mutants", ""]
        yield "`faultbook verify --all --mutate` runs both halves of every entry, then breaks the knowledge on purpose: fix"
        yield "reverted, logs swapped, a required literal removed, the fixed workload shrunk, a metric predicate inverted."
        yield "Every mutant must die."
        yield ""
        yield "| | |\n|---|---|"
        for mode, count in sorted(m["proven"].items()):
            yield f"| entries proven, mode `{mode}` | {count} |"
        yield f"| entries not proven | {', '.join(m['unproven']) or 'none'} |"
        yield f"| mutants | {m['total']} |"
        yield f"| mutants that survived | {len(m['alive'])} |"
        yield from (f"| survived | {name} |" for name in m["alive"][:20])
    c = n["confusion"]
    yield from ["", "## Confusion", ""]
    yield f"{c['signatures']} signatures against {c['logs']} logs of the entries, {c['pairs']:,} pairs."
    yield f"{c['naming']} of the signatures name a cause (role root or confirmation). They fired {c['own']} times on logs of"
    yield f"their own entry, {c['relatives']} times on logs of declared relatives (a hub and its causes, look-alikes named in"
    yield f"the entry), and {len(c['unexplained'])} times where nothing explains it."
    yield ""
    yield f"{c['unshown']} of the signatures fire on no log of their own entry: no run here printed their lines. Their wording is"
    yield "quoted from the library source or public thread that the entry's page names beside the pattern. For curves there is"
    yield "nothing to quote: " + (", ".join(f"`{n}`" for n in c["unshown_curves"]) or "none") + "."
    if "cases" in n:
        yield from cases(n["cases"])
        h = n["healthy"]
        yield from ["", "## Healthy logs", ""]
        yield f"{h['logs']} whole logs of real healthy runs: {len(h['alarms'])} alarms. Verdicts: " + ", ".join(
            f"{count} {verdict}" for verdict, count in sorted(h["verdicts"].items())
        ) + ". A log that ends without a completion line is called inconclusive, not healthy."
    else:
        yield from ["", "The labelled real cases were not at hand when this was written: not measured."]
    for key, title, note in (
        ("incidents", "Recorded incidents", "Runs with a known guilty rank that we were given to develop against."),
        ("own_incidents", "Our own incident corpus", "Under tests/incidents: real runs, regenerated by one command."),
    ):
        if key in n:
            s = n[key]
            yield from ["", f"## {title}", "", f"{note} {s['cases']} incidents.", ""]
            yield "| initiating rank | |\n|---|---|"
            yield from (f"| {name} | {s['rank'][name]} |" for name in ("right", "wrong", "unknown"))
            yield f"| false alarms on healthy runs | {s['false_alarms']} |"


def cases(s: dict[str, Any]) -> Iterator[str]:
    yield from ["", "## Names on real failures", ""]
    yield f"{s['cases']} excerpts of real failures from public issue threads, with the right answer beside each. The engine was"
    yield "developed against these, so other cases will score lower. The catalogue does not hold all their causes yet; where it"
    yield "does not, no answer is the right answer."
    yield ""
    yield "| answer | cases | share |\n|---|---|---|"
    words = {"exact": "the right entry", "family": "the right family", "wrong": "a wrong name", "none": "no name"}
    for key, text in words.items():
        yield f"| {text} | {s['names'][key]} | {100 * s['names'][key] / s['cases']:.1f} % |"
    share = 100 * s["covered_exact"] / max(1, s["covered"])
    yield f"| *of the {s['covered']} whose entry is written: the right entry* | {s['covered_exact']} | {share:.1f} % |"
    yield from ["", "Stated confidence against how often the name was right:", ""]
    yield "| confidence | answers | mean stated | exact | exact or family |\n|---|---|---|---|---|"
    for row in s["reliability"]:
        yield (
            f"| {row['from']:.1f} to {row['to']:.1f} | {row['answers']} | {row['stated']:.2f} "
            f"| {row['exact']:.2f} | {row['exact_or_family']:.2f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
