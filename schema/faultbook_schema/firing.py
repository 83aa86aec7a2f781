"""Which signatures fire on one log text: the claim that `check` tests.

It asks the runtime's own stages (lines → matching, metrics → detectors), so that what
is checked is what a diagnosis does, without launcher heuristics in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultbook import fact_lines
from faultbook.detectors import evaluate_signature
from faultbook.lines import parse
from faultbook.matching import Key, Observation, evaluate, key_of
from faultbook.metrics import read_series, series_from_file
from faultbook.portable import compile_pattern
from faultbook.signatures import LogSignature, MetricSignature, Pattern, Signature

MAX_LINE = 8192
_METRIC_FILES = {"csv": "csv", "jsonl": "jsonl", "json": "auto"}


@dataclass(frozen=True, slots=True)
class Firing:
    """A signature that holds on a log, and where."""

    name: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class LogText:
    """One log file of an entry."""

    text: str
    name: str = "broken.log"
    """Says whether it is text or a table of numbers."""
    world_size: int = 1
    """Ranks of the job, those that printed nothing included."""


def fires(signature: Signature, text: str) -> bool:
    """Whether one signature holds on a log."""
    return bool(firings({"": signature}, LogText(text)))


def firings(signatures: Mapping[str, Signature], log: LogText) -> dict[str, Firing]:
    """Name → first evidence, of every signature that holds on the log."""
    lines = log.text.split("\n")
    ranks = frozenset(range(log.world_size)) if log.world_size > 1 else frozenset()
    return {**_log_firings(signatures, lines, ranks), **_metric_firings(signatures, lines, log.name)}


def _log_firings(signatures: Mapping[str, Signature], lines: Sequence[str], ranks: frozenset[int]) -> dict[str, Firing]:
    wanted = {name: s for name, s in signatures.items() if isinstance(s, LogSignature)}
    text = "\n".join(lines)
    folded = text.lower()
    observations: dict[Key, list[Observation]] = {}
    parsed: dict[int, Observation] = {}
    hits: dict[Key, bool] = {}
    possible = {}
    for name, signature in wanted.items():
        if all(_gate(p, folded, hits) for p in signature.all) and (
            not signature.any or any(_gate(p, folded, hits) for p in signature.any)
        ):
            possible[name] = signature
    for signature in possible.values():
        for pattern in (*signature.all, *signature.any, *signature.none):
            key = key_of(pattern)
            if fact_lines.is_virtual(pattern):
                observations.update(fact_lines.observe_text([pattern], text))
            elif key not in observations and _gate(pattern, folded, hits):
                observations[key] = _confirmed(pattern, lines, parsed)
    named = {s.ranks is not None and s.ranks.quantifier == "all" for s in possible.values()}
    if True in named:  # the only quantifier that must know who else there is
        ranks |= {line.rank for line in (parse(text[:MAX_LINE]) for text in lines) if line.rank is not None}
    found: dict[str, Firing] = {}
    for name, signature in possible.items():
        for match in evaluate([signature], observations, all_ranks=ranks)[:1]:
            first = match.evidence[0]
            found[name] = Firing(name, first.line, first.text)
    return found


def _gate(pattern: Pattern, folded: str, hits: dict[Key, bool]) -> bool:
    """False when no line can match, since none of the required literals occurs anywhere."""
    key = key_of(pattern)
    if key not in hits:
        words = () if fact_lines.is_virtual(pattern) else pattern.literals
        hits[key] = not words or any(word.lower() in folded for word in words)
    return hits[key]


def _confirmed(pattern: Pattern, lines: Sequence[str], parsed: dict[int, Observation]) -> list[Observation]:
    regex = compile_pattern(pattern)
    found = []
    for number, text in enumerate(lines, 1):
        # A progress bar redraws its line: each state between carriage returns is a record.
        if any(regex.search(record[:MAX_LINE].encode("utf-8", "replace")) for record in text.split("\r")):
            if number not in parsed:
                line = parse(text[:MAX_LINE])
                parsed[number] = Observation(0, number, text, line.rank, line.host, 0, line.time, line.clock)
            found.append(parsed[number])
    return found


def _metric_firings(signatures: Mapping[str, Signature], lines: Sequence[str], name: str) -> dict[str, Firing]:
    wanted = {key: s for key, s in signatures.items() if isinstance(s, MetricSignature)}
    if not wanted:
        return {}
    kind = _METRIC_FILES.get(name.rpartition(".")[2])
    series = read_series(enumerate(lines, 1)) if kind is None else series_from_file("\n".join(lines), kind)
    found: dict[str, Firing] = {}
    for key, signature in wanted.items() if series else ():
        match = evaluate_signature(signature, series)
        if match is not None:
            line = match.firings[0].line
            found[key] = Firing(key, line, lines[line - 1] if 0 < line <= len(lines) else "")
    return found
