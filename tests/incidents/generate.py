"""Regenerates the incident corpus: `python tests/incidents/generate.py [--only ID …] [--relabel]`.

Each row of cases.py is run (by the reproduction runner or by real torchrun), checked by exit states and by what the
program noted, and only then written to data/<id>/ with its label.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import ENDS, INCIDENTS, KINDS, SHAPE, Incident
from launch import HERE, by_runner, by_torchrun
from truth import judge

from faultbook_repro.core.runner import Runner

TRIES = 3
_CARETS = re.compile(r"^(?:\S*: ?|\[1,\d+\]<stderr>:)*[ ~^]*\^[ ~^]*\n", re.M)
"""The lines below a frame's code that mark a column: left out, to keep the files small."""


def label(incident: Incident, files: Iterable[str], simulated: list[str]) -> dict[str, Any]:
    kind, files = KINDS[incident.kind], sorted(files)
    exact = list(kind.exact)
    if incident.torchrun and kind.family in ("own", "signal", "all", "finite"):
        exact.append("torchelastic-child-failed")
    if kind.family == "outside":
        exact += ENDS[incident.stop]
    if incident.detail and kind.family == "desync":
        exact.append("collective-op-mismatch")  # what DETAIL itself reports, whatever the reason
    folder = HERE / "data" / incident.id
    if kind.family == "desync" and any("gloo::EnforceNotMet" in (folder / f).read_text(encoding="utf-8") for f in files):
        exact += [slug for slug in SHAPE if slug not in exact]  # gloo says that the sizes differ, and the rank nothing more
    decided = incident.scope == "rank"
    return {
        "id": incident.id,
        "files": files,
        "kind": incident.kind,
        "exact": exact,
        "scope": incident.scope,
        "initiating_rank": incident.guilty if decided else None,
        "verdict": incident.verdict,
        "undecidable": incident.scope == "unknown",
        "note": kind.note,
        "scope_alt": list(incident.alt),
        "verdict_alt": list(incident.verdict_alt),
        "truth_rank": None if kind.family in ("all", "healthy", "outside", "port") else incident.guilty,
        "world_size": incident.world,
        "nodes": incident.nodes,
        "launcher": "torchrun" if incident.torchrun else "runner",
        "layout": incident.layout,
        "style": incident.style,
        "timestamps": incident.style in ("kv", "pipe"),
        "flight_recorder": any(name.startswith("fr/") for name in files),
        "error_json": sum(name.endswith("error.json") for name in files),
        "debug_detail": incident.detail,
        "simulated": simulated,
    }


def make(incident: Incident, runner: Runner) -> tuple[dict[str, Any] | None, str]:
    """The label of a run that failed as intended, or None and why not."""
    why = ""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="incident-") as name:
            scratch = Path(name).resolve()
            run = by_torchrun(incident, scratch) if incident.torchrun else by_runner(incident, runner, scratch)
            why = judge(incident, run.attempts)
        if not why:
            break
        print(f"  {incident.id} {incident.kind}: {why}", file=sys.stderr)
    folder = HERE / "data" / incident.id
    shutil.rmtree(folder, ignore_errors=True)
    if why:
        return None, why
    for path, text in run.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(_CARETS.sub("", text) if path.endswith((".log", ".out")) else text, encoding="utf-8")
    simulated = run.simulated + (["CUDA OOM text"] if incident.kind == "handled" else [])
    return label(incident, run.files, simulated), ""


def write(file: Path, labels: dict[str, dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(labels[i]) + "\n" for i in sorted(labels)), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="ids or kinds to run again; the others stay")
    parser.add_argument("--relabel", action="store_true", help="run nothing: write the labels of the runs at hand again")
    asked = parser.parse_args()
    only = set(asked.only)
    file = HERE / "labels.jsonl"
    labels: dict[str, dict[str, Any]] = {}
    if (only or asked.relabel) and file.exists():
        labels = {d["id"]: d for d in map(json.loads, file.read_text(encoding="utf-8").splitlines())}
    if asked.relabel:
        by_id = {i.id: i for i in INCIDENTS}
        write(file, {d["id"]: label(by_id[d["id"]], d["files"], d["simulated"]) for d in labels.values()})
        return 0
    wanted = [i for i in INCIDENTS if not only or i.id in only or i.kind in only]
    failed = []
    with Runner() as runner:
        for incident in wanted:
            started = time.monotonic()
            found, why = make(incident, runner)
            labels.pop(incident.id, None)
            if found is None:
                failed.append(f"{incident.id} {incident.kind} {incident.layout}: {why}")
            else:
                labels[incident.id] = found
            took = time.monotonic() - started
            print(f"{incident.id} {incident.kind:<20} {incident.layout:<12} rank {incident.guilty}  {took:5.1f} s", flush=True)
            write(file, labels)
    for line in failed:
        print("dropped:", line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
