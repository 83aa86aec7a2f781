"""The lines of `facts` as observations of patterns: in a diagnosis, and where a claim is tested on one log."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from . import facts, gpu_state, incident, sources
from .incident import Incident
from .matching import Key, Observation, key_of
from .portable import compile_pattern
from .signatures import Pattern

SOURCE = -1
"""The source of these observations: no file."""


def is_virtual(pattern: Pattern) -> bool:
    """Whether the pattern looks for a fact and not for a line of a log."""
    return facts.PREFIX in pattern.pattern


def observe(patterns: Iterable[Pattern], seen: Incident) -> dict[Key, list[Observation]]:
    """What each virtual pattern finds in the facts of the incident."""
    wanted = [p for p in patterns if is_virtual(p)]
    if not wanted:
        return {}
    rank = None if seen.initiating is None else seen.initiating.rank
    lines = [
        (line, Observation(SOURCE, number, line, rank=rank, attempt=seen.attempt))
        for number, line in enumerate(facts.lines_of(seen), 1)
    ]
    # What nvidia-smi reports does stand in a file: people are shown that line.
    lines += [
        (facts.line_of_gpu(e), Observation(e.source, e.line, e.text, host=e.node, attempt=seen.attempt))
        for e in seen.events
        if e.kind == gpu_state.KIND and _gpu_may_explain(seen)
    ]
    found: dict[Key, list[Observation]] = {}
    for pattern in wanted:
        regex = compile_pattern(pattern)
        for line, shown in lines:
            if regex.search(line.encode()):
                found.setdefault(key_of(pattern), []).append(shown)
    return found


def _gpu_may_explain(seen: Incident) -> bool:
    """A card may have been ill for weeks: not of a run that completed, nor of a failure that is explained better."""
    told = seen.initiating
    undecided = told is None or told.scope == "unknown" or seen.rule in ("defective_gpu", "gpu_fell_off")
    return undecided and not seen.completed


def observe_text(patterns: Iterable[Pattern], text: str) -> dict[Key, list[Observation]]:
    """The same for one log given as text, in attempt 0: there `check` and `verify` know no attempts."""
    wanted = [p for p in patterns if is_virtual(p)]
    if not wanted:
        return {}
    found = observe(wanted, incident_of(text))
    return {key: [Observation(o.source, o.line, o.text, rank=o.rank) for o in seen] for key, seen in found.items()}


@functools.lru_cache(maxsize=2048)
def _incident_of(text: str) -> Incident:
    return incident.from_sources(sources.discover(text=text))


def incident_of(text: str) -> Incident:
    """The incident of one log; a log without a second rank, which is no report on GPUs, has no facts, and costs nothing."""
    return _incident_of(text) if "[rank" in text or "NVSMI LOG" in text or "ECC Errors" in text else Incident(None)
