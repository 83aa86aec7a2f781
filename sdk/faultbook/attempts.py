"""Several runs in one log, told apart.

torchrun restarts its workers and every attempt goes on in the same file; Slurm appends
whole jobs to one. The first failure of a job is in its first attempt, and a healthy last
job says nothing about the one that failed before it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from . import lazy
from .attribution import Record
from .values import replace

_RESTART = lazy.regex(r"Worker group \w+\. \d+/\d+ attempts left; will restart worker group")
_BANNER = lazy.regex(
    r"\bworld[_ ]?size[ =:]+\d+.{0,80}\brank[ =:]+(?P<rank>\d{1,7})\b.{0,80}\bpid[ =:]+(?P<pid>\d{1,9})", re.IGNORECASE
)
_FAILED = lazy.regex(r"\(exitcode: -?\d+\) local_rank: \d+|Sending process \d+ closing signal")
_JOB = lazy.regex(
    r"^(?:\+ (?:srun|torchrun|python|accelerate|deepspeed)\b|SLURM_JOB_ID[=:]|Starting job \d"
    r"|Job \d+ started|={3,} ?(?:job|run) )"
    r"|\bsubmit(?:ted)? batch job \d",
    re.IGNORECASE,
)


def boundaries(records: Sequence[Record]) -> list[tuple[int, int]]:
    """(first line, attempt) of each attempt in one source's records, the first one left out.

    A new attempt begins after the agent said it restarts the workers, or where a rank that
    had introduced itself does so again with another pid, or after a launcher's banner that
    follows an end.
    """
    found: list[tuple[int, int]] = []
    pids: dict[int, str] = {}
    current = 0
    failed_at = -1
    restarted = False
    for record in records:
        body = record.body[:400]
        if record.about and _FAILED.search(body):
            failed_at = record.line
        if "will restart" in body and _RESTART.search(body):
            restarted = True
            continue
        banner = _BANNER.search(body) if "pid" in body else None
        new = False
        rank = record.rank if record.rank is not None or not banner else int(banner["rank"])
        if banner and rank is not None:
            known = pids.get(rank)
            new = known is not None and known != banner["pid"]
            if restarted and known is None:
                new = True
            if new:
                pids = {}
            pids[rank] = banner["pid"]
        elif failed_at >= 0 and _JOB.search(body):
            new, pids = True, {}
        if new:
            current += 1
            # The launcher's lines between the failure and the first new banner end the old attempt.
            found.append((record.line, current))
            restarted, failed_at = False, -1
    return found


def assign(records: Iterable[Record]) -> tuple[list[Record], dict[int, list[tuple[int, int]]]]:
    """Records with their attempt, and the boundaries per source."""
    per_source: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        per_source[record.source].append(record)
    done: list[Record] = []
    bounds: dict[int, list[tuple[int, int]]] = {}
    for source, own in per_source.items():
        base = own[0].attempt
        marks = boundaries(own)
        if not marks:
            done.extend(own)
            continue
        bounds[source] = [(line, base + attempt) for line, attempt in marks]
        position = 0
        current = base
        for record in own:
            while position < len(bounds[source]) and record.line >= bounds[source][position][0]:
                current = bounds[source][position][1]
                position += 1
            done.append(replace(record, attempt=current) if current != record.attempt else record)
    return done, bounds
