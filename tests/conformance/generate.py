"""Writes `cases.json`: signatures, small logs, and which signature holds where, for whoever writes another reader.

    python tests/conformance/generate.py

The logs are those that the reproductions of kb/ printed, cut to the lines that matter, and a few made for parts of
the grammar that no entry uses yet. Expected answers are those of the engine's own `matching.evaluate`, in the plainest
reading of one log: the rank of a line is the number in its own `[rankN]:` prefix, there are no attempts, clocks or
hosts, and lines that stand for the comparison of ranks (`faultbook-incident …`) do not exist.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultbook import fact_lines
from faultbook.catalog import load_catalog
from faultbook.matching import Key, Observation, evaluate, key_of
from faultbook.portable import compile_pattern
from faultbook.signatures import LogSignature, signature_from_dict

HERE = Path(__file__).resolve().parent
KB = HERE.parents[1] / "kb"
BUDGET = 330_000
"""Bytes of signatures and cases; entries that would go beyond are left out."""
LINES, WIDTH = 30, 400
FORMAT = "faultbook.conformance/1"
Json = dict[str, Any]

_RANK = re.compile(r"^\[rank([0-9]+)\]:")


def rank_of(line: str) -> int | None:
    found = _RANK.match(line)
    return int(found[1]) if found else None


def patterns_of(signature: LogSignature) -> tuple[Any, ...]:
    return (*signature.all, *signature.any, *signature.none)


def holds(signatures: Mapping[str, LogSignature], lines: Sequence[str]) -> list[Json]:
    """Signature, rank (null for lines that name none) and evidence lines, in order of signatures and ranks."""
    seen = [Observation(0, n, line, rank_of(line)) for n, line in enumerate(lines, 1)]
    raw = [(o, o.text.encode(), o.text.lower()) for o in seen]
    whole = "\n".join(text for _, _, text in raw)
    ranks = frozenset(o.rank for o in seen if o.rank is not None)
    known: dict[Key, list[Observation]] = {}
    found = []
    for name, signature in signatures.items():
        for pattern in patterns_of(signature):
            key = key_of(pattern)
            if key not in known:
                words = [w.lower() for w in pattern.literals]
                possible = not words or any(w in whole for w in words)
                regex = compile_pattern(pattern)
                known[key] = [o for o, data, _ in raw if regex.search(data)] if possible else []
        for match in evaluate([signature], known, all_ranks=ranks):
            found.append({"signature": name, "rank": match.rank, "lines": [o.line for o in match.evidence]})
    return found


def from_catalogue() -> dict[str, dict[str, Json]]:
    """Entry → `slug#id` → compiled signature: the log signatures that need nothing but lines."""
    found: dict[str, dict[str, Json]] = {}
    for row in load_catalog().rows:
        if row["kind"] != "log":
            continue
        data = {k: v for k, v in row.items() if k not in ("entry", "note", "not_evidence_of")}
        signature = signature_from_dict(data)
        assert isinstance(signature, LogSignature)
        if not any(fact_lines.is_virtual(p) for p in patterns_of(signature)):
            data = {k: [_without(p, "source") for p in v] if k in ("all", "any", "none") else v for k, v in data.items()}
            found.setdefault(row["entry"], {})[f"{row['entry']}#{row['id']}"] = data
    return found


def _without(pattern: Json, name: str) -> Json:
    return {k: v for k, v in pattern.items() if k != name}


def records(text: str) -> list[str]:
    """A redrawn progress bar is several records; a reader is given them apart."""
    return [part for line in text.split("\n") for part in line.split("\r") if part]


def cut(lines: Sequence[str], signatures: Iterable[LogSignature]) -> list[str]:
    """The lines that any pattern matches, and a few around them; order and distances are not those of the log."""
    wanted = set(range(min(3, len(lines))))
    for signature in signatures:
        for pattern in patterns_of(signature):
            regex = compile_pattern(pattern)
            hits = [n for n, line in enumerate(lines) if regex.search(line[:WIDTH].encode())]
            for n in [*hits[:4], *hits[-1:]]:
                wanted |= {n - 1, n}
    return [lines[n][:WIDTH] for n in sorted(wanted) if 0 <= n < len(lines)][:LINES]


def _pattern(text: str, **more: Any) -> Json:
    return {"pattern": text, "literals": [], **more}


def _signature(name: str, **fields: Any) -> tuple[str, Json]:
    return f"grammar#{name}", {"kind": "log", "id": name, "role": "root", **fields}


A, B, C = _pattern("alpha fault"), _pattern("beta fault"), _pattern("gamma fault")
SIZES = _pattern(r"tried (?P<tried>[0-9.]+ ?[A-Za-z]*) of (?P<free>[0-9.]+ ?[A-Za-z]*)")
GRAMMAR: dict[str, Json] = dict([
    _signature("all", all=[A, B]),
    _signature("any", any=[A, B]),
    _signature("all-and-any", all=[C], any=[A, B]),
    _signature("none", all=[A], none=[B]),
    _signature("ordered", all=[A, B], ordered=True),
    _signature("within-2-lines", all=[A, B], within={"lines": 2}),
    _signature("three-times", all=[_pattern("beta fault", at_least=3)]),
    _signature("exactly-one", all=[A], ranks={"quantifier": "exactly_one"}),
    _signature("all-ranks", all=[A], ranks={"quantifier": "all"}),
    _signature("two-ranks", all=[A], ranks={"quantifier": "at_least", "count": 2}),
    _signature("bytes", all=[SIZES], where=[{"left": "tried", "op": ">", "right": "free", "type": "bytes"}]),
    _signature("half", all=[SIZES], where=[{"left": "tried", "op": ">=", "right": "free", "factor": 0.5, "type": "bytes"}]),
    _signature("seconds", all=[SIZES], where=[{"left": "tried", "op": "<", "right": 90.0, "type": "seconds"}]),
    _signature("text", all=[SIZES], where=[{"left": "tried", "op": "==", "right": "free", "type": "text"}]),
    _signature("ignore-case", all=[_pattern("delta fault", ignore_case=True)]),
    _signature("spaces", all=[_pattern(r"epsilon\s[^\d\s]+\sfault$")]),
    _signature("space-after-a-byte", any=[_pattern(r"zeta.\sfault"), _pattern(r"zeta.[\s]+eta")]),
    _signature("two-bytes", all=[_pattern(r"zeta..theta")]),
    _signature("number", all=[_pattern(r"count (?P<n>[0-9,.]+)")], where=[{"left": "n", "op": ">=", "right": "1,000"}]),
    _signature("word", all=[_pattern(r"word (?P<word>.+)$")],
               where=[{"left": "word", "op": "==", "right": "caf\u00e9", "type": "text"}]),
])  # fmt: skip

LOGS: dict[str, list[str]] = {
    "one rank has both": ["[rank0]: alpha fault", "[rank0]: beta fault", "[rank1]: ok"],
    "two ranks have one each": ["[rank0]: alpha fault", "[rank1]: beta fault"],
    "a line without rank completes a rank's": ["[rank2]: alpha fault", "launcher: beta fault", "gamma fault"],
    "wrong order": ["beta fault", "x", "alpha fault", "gamma fault"],
    "too far apart": ["alpha fault", "x", "y", "beta fault"],
    "near in the second place": ["alpha fault", "x", "y", "z", "alpha fault", "beta fault"],
    "counted": ["[rank1]: beta fault"] * 3 + ["[rank0]: beta fault"] * 2,
    "counted with lines of nobody": ["[rank1]: beta fault", "beta fault", "[rank1]: beta fault"],
    "all ranks": [f"[rank{n}]: alpha fault" for n in (10, 2, 0)],
    "not all ranks": ["[rank0]: alpha fault", "[rank1]: alpha fault", "[rank2]: ok"],
    "a rank in brackets that is no prefix": [" [rank3]: alpha fault", "node [rank3]: alpha fault", "[rank3] alpha fault"],
    "sizes": ["[rank0]: tried 3.05 GiB of 512.00 MiB", "[rank1]: tried 300 MB of 0.5 GiB"],
    "the second line fits": ["tried 1 KiB of 2 GiB", "tried 2 GiB of 1 KiB"],
    "no unit and no size": ["tried 3 parsecs of 2 parsecs", "tried 2 of 2"],
    "durations": ["[rank0]: tried 1.5 min of 1 h", "[rank1]: tried 60000 ms of 2 s", "[rank2]: tried 2 m of 1 s"],
    "case": ["Delta FAULT", "DELTA fault\u212a"],
    "bytes and not characters": [
        "epsilon caf\u00e9 fault", "epsilon\u00a0caf\u00e9\u00a0fault", "epsilon x fault\u0085", "epsilon\tx\vfault",
    ],
    "a no-break space is no space": ["zeta\u00a0fault", "zeta\u00a0eta", "zeta\u00e9theta"],
    "a space is one": ["zeta  fault", "zeta-theta"],
    "numbers with commas": ["[rank0]: count 1,024", "[rank1]: count 999", "[rank2]: count 1,000,000.5"],
    "captures are text": ["[rank0]: word caf\u00e9", "[rank1]: word cafe"],
    "a character above the first plane": ["\U0001f525 epsilon \U0001f525 fault"],
}  # fmt: skip


def build() -> Json:
    catalogue = from_catalogue()
    parsed = {n: signature_from_dict(s) for group in catalogue.values() for n, s in group.items()}
    every: dict[str, LogSignature] = {n: s for n, s in parsed.items() if isinstance(s, LogSignature)}
    chosen: dict[str, Json] = dict(GRAMMAR)
    inputs: list[tuple[str, list[str]]] = list(LOGS.items())
    size = len(json.dumps(chosen))
    folders = {folder.name: folder for folder in KB.glob("*/*/")}
    # The rare parts of the grammar first, then by name: a growing kb/ changes little of the file.
    for slug in sorted(catalogue, key=lambda s: (-_rarity(catalogue[s].values()), s)):
        logs = []
        for path in sorted((folders[slug] / "logs").glob("*.log")):
            own = [every[name] for name in catalogue[slug]]
            logs.append((f"{slug}/{path.name}", cut(records(path.read_text("utf-8", "replace")), own)))
        grown = size + len(json.dumps([catalogue[slug], logs], ensure_ascii=False).encode())
        if grown <= BUDGET:
            size = grown
            chosen |= catalogue[slug]
            inputs += [(name, lines) for name, lines in logs if lines]
    signatures: dict[str, LogSignature] = {}
    for name, data in chosen.items():
        signature = signature_from_dict(data)
        assert isinstance(signature, LogSignature)
        signatures[name] = signature
    cases = [{"name": name, "lines": lines, "holds": holds(signatures, lines)} for name, lines in inputs]
    return {"schema": FORMAT, "signatures": chosen, "cases": cases}


def _rarity(rows: Iterable[Json]) -> int:
    weights = {"ranks": 3, "where": 3, "none": 1, "within": 1, "ordered": 1}
    return max((sum(w for part, w in weights.items() if row.get(part)) for row in rows), default=0)


def text_of(data: Json) -> str:
    """One signature or case a line, so that a change is read in a diff."""

    def dump(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    signatures = ",\n".join(f"{dump(name)}:{dump(value)}" for name, value in data["signatures"].items())
    cases = ",\n".join(dump(case) for case in data["cases"])
    return f'{{"schema":"{data["schema"]}",\n"signatures":{{\n{signatures}\n}},\n"cases":[\n{cases}\n]}}\n'


if __name__ == "__main__":
    target = HERE / "cases.json"
    target.write_text(text_of(build()), "utf-8")
    print(f"{target.name}: {target.stat().st_size} bytes", file=sys.stderr)
