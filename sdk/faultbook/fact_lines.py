"""The lines of `facts` as observations of patterns: in a diagnosis, and where a claim is tested on one log."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from . import facts, incident, sources
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
    lines = facts.lines_of(seen) if wanted else []
    if not lines:
        return {}
    rank = None if seen.initiating is None else seen.initiating.rank
    found: dict[Key, list[Observation]] = {}
    for pattern in wanted:
        regex = compile_pattern(pattern)
        for number, line in enumerate(lines, 1):
            if regex.search(line.encode()):
                found.setdefault(key_of(pattern), []).append(Observation(SOURCE, number, line, rank=rank, attempt=seen.attempt))
    return found


def observe_text(patterns: Iterable[Pattern], text: str) -> dict[Key, list[Observation]]:
    """The same for one log given as text, in attempt 0: there `check` and `verify` know no attempts."""
    wanted = [p for p in patterns if is_virtual(p)]
    if not wanted:
        return {}
    found = observe(wanted, incident_of(text))
    return {key: [Observation(SOURCE, o.line, o.text, rank=o.rank) for o in seen] for key, seen in found.items()}


@functools.lru_cache(maxsize=2048)
def _incident_of(text: str) -> Incident:
    return incident.from_sources(sources.discover(text=text))


def incident_of(text: str) -> Incident:
    """The incident of one log; a log without a second rank has no facts, and costs nothing."""
    return _incident_of(text) if "[rank" in text else Incident(None)
