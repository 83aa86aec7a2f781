"""Stands in for the engine so that the diagnosis box can be driven into every state."""

import time
from pathlib import Path

BASE = {
    "schema": "faultbook.diagnosis/1",
    "diagnoses": [],
    "initiating": None,
    "collateral": [],
    "leads": [],
    "first_abnormal": None,
    "not_examined": [],
    "timeline": [],
}
FOUND = {
    "entry": "learned-temperature-collapse",
    "title": "Learned <b>Temperature</b> Collapse",
    "role": "primary",
    "confidence": 0.9,
    "rank": 0,
    "action": {"do": "fix_code", "when": "now"},
    "fix": "clamp",
    "verify": "run",
    "url": "",
    "evidence": [
        {"file": "<text>", "line": 48, "rank": 0, "text": "<img src=x onerror=window.pwned=1> loss nan", "signature": "s#x"}
    ],
}
WHO = {"scope": "rank", "rank": 0, "node": None, "basis": "first to print", "confidence": "strong"}
STORM = {"what": "peer_closed", "count": 3, "ranks": [1], "first": {}, "last": {}}
ODD = {"file": "a.log", "line": 3, "rank": 1, "text": "Odd"}


class Answer(dict):
    def to_dict(self):
        return dict(self)


def diagnose(*paths, text=None, share=False):
    whole = text if text is not None else "".join(Path(p).read_text() for p in paths)
    if "SLEEP" in whole:
        time.sleep(30)
    if "BOOM" in whole:
        raise ValueError("bad input: boom")
    base = {**BASE, "summary": ("masked " if share else "") + f"{len(whole)} characters in {len(paths) or 1}"}
    if "temperature nan" in whole:
        seen = [{**line, "text": "masked"} for line in FOUND["evidence"]] if share else FOUND["evidence"]
        return Answer(base, verdict="diagnosed", diagnoses=[{**FOUND, "evidence": seen}], initiating=WHO, collateral=[STORM])
    if "another entry" in whole:
        return Answer(base, verdict="diagnosed", diagnoses=[{**FOUND, "entry": "representation-collapse"}])
    if "fine" in whole:
        return Answer(base, verdict="healthy")
    return Answer(
        base, verdict="unrecognised", first_abnormal=ODD, leads=[{"text": "look at rank 1", "file": "a.log", "line": 3}]
    )
