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


def firings(signatures: Mapping[str, Signature] | Prepared, log: LogText) -> dict[str, Firing]:
    """Name → first evidence, of every signature that holds on the log."""
    prepared = signatures if isinstance(signatures, Prepared) else prepare(signatures)
    lines = log.text.split("\n")
    ranks = frozenset(range(log.world_size)) if log.world_size > 1 else frozenset()
    return {**_log_firings(prepared, lines, ranks), **_metric_firings(prepared.metric, lines, log.name)}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Many signatures, made ready for many logs: each literal is looked for once in a log, whoever asks for it."""

    log: Mapping[str, LogSignature]
    metric: Mapping[str, MetricSignature]
    by_literal: Mapping[str, tuple[Key, ...]]
    """Literal → the patterns that a line holding it may match."""
    always: frozenset[Key]
    """Patterns without a literal: they may match any log."""
    virtual: tuple[Pattern, ...]
    needs: Mapping[str, tuple[tuple[Key, ...], tuple[Key, ...]]]
    """Log signature → (patterns that must all match, patterns of which one must)."""
    asked_by: Mapping[Key, tuple[str, ...]]
    """Pattern → the log signatures that need it."""


def prepare(signatures: Mapping[str, Signature]) -> Prepared:
    """What does not depend on the log."""
    log = {name: s for name, s in signatures.items() if isinstance(s, LogSignature)}
    metric = {name: s for name, s in signatures.items() if isinstance(s, MetricSignature)}
    by_literal: dict[str, list[Key]] = {}
    always: set[Key] = set()
    virtual: dict[Key, Pattern] = {}
    patterns = {key_of(p): p for s in log.values() for p in (*s.all, *s.any, *s.none)}
    for key, pattern in patterns.items():
        if fact_lines.is_virtual(pattern):
            virtual[key] = pattern
        elif not pattern.literals:
            always.add(key)
        for word in pattern.literals if key not in virtual else ():
            by_literal.setdefault(word.lower(), []).append(key)
    needs = {name: (tuple(map(key_of, s.all)), tuple(map(key_of, s.any))) for name, s in log.items()}
    asked_by: dict[Key, list[str]] = {}
    for name, (every, some) in needs.items():
        for key in every[:1] or some:  # the first that must match is enough to think of it
            asked_by.setdefault(key, []).append(name)
    return Prepared(
        log,
        metric,
        {w: tuple(keys) for w, keys in by_literal.items()},
        frozenset(always),
        tuple(virtual.values()),
        needs,
        {key: tuple(names) for key, names in asked_by.items()},
    )


def _log_firings(prepared: Prepared, lines: Sequence[str], ranks: frozenset[int]) -> dict[str, Firing]:
    text = "\n".join(lines)
    folded = text.lower()
    facts = fact_lines.observe_text(prepared.virtual, text)
    near = {key for word, keys in prepared.by_literal.items() if word in folded for key in keys}
    near |= prepared.always | facts.keys()
    possible: dict[str, LogSignature] = {}
    for name in sorted({name for key in near for name in prepared.asked_by.get(key, ())}):
        every, some = prepared.needs[name]
        if all(key in near for key in every) and (not some or any(key in near for key in some)):
            possible[name] = prepared.log[name]
    observations: dict[Key, list[Observation]] = dict(facts)
    parsed: dict[int, Observation] = {}
    for signature in possible.values():
        for pattern in (*signature.all, *signature.any, *signature.none):
            key = key_of(pattern)
            if key not in observations and key in near:
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


def _confirmed(pattern: Pattern, lines: Sequence[str], parsed: dict[int, Observation]) -> list[Observation]:
    regex = compile_pattern(pattern)
    words = tuple(word.lower() for word in pattern.literals)
    found = []
    for number, text in enumerate(lines, 1):
        if words:  # the engine, too, looks only at lines that hold a literal
            folded = text.lower()
            if not any(word in folded for word in words):
                continue
        # A progress bar redraws its line: each state between carriage returns is a record.
        if any(regex.search(record[:MAX_LINE].encode("utf-8", "replace")) for record in text.split("\r")):
            if number not in parsed:
                line = parse(text[:MAX_LINE])
                parsed[number] = Observation(0, number, text, line.rank, line.host, 0, line.time, line.clock)
            found.append(parsed[number])
    return found


def _metric_firings(wanted: Mapping[str, MetricSignature], lines: Sequence[str], name: str) -> dict[str, Firing]:
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
