"""Whether a run failed as it was told to: by exit states and by what the program noted, never by its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cases import KINDS, Incident

_COMMUNICATION = ("gloo", "Connection closed", "Connection reset", "Broken pipe", "imed out", "imeout", "store", "mismatch",
                  "monitoredBarrier",
                  "same model across all ranks", "not to match")  # fmt: skip


@dataclass(frozen=True)
class RankEnd:
    """How one rank of one attempt ended."""

    fired: bool
    end: str | None
    """`ok`, the exception's type, or None: it ended without a word."""
    message: str
    status: str | None
    """Exit code, or the negative signal, where the runner knows it."""

    @property
    def lost(self) -> bool:
        return self.end not in (None, "ok") and (
            self.end in ("DistStoreError", "DistNetworkError") or any(word in self.message for word in _COMMUNICATION)
        )

    @property
    def own(self) -> bool:
        return self.end not in (None, "ok", "SignalException", "KeyboardInterrupt") and not self.lost


def judge(incident: Incident, attempts: list[dict[int, RankEnd]]) -> str:
    """Why this run is not what it should be; empty if it is."""
    kind, guilty = KINDS[incident.kind], incident.guilty
    ends = attempts[0] if attempts else {}
    mine, others = ends.get(guilty), {r: e for r, e in ends.items() if r != guilty}
    if kind.family == "port":
        return "a rank started" if ends else ""
    if len(ends) != incident.world:
        return f"only ranks {sorted(ends)} left a note"
    assert mine is not None
    if any(e.own for e in others.values()) and kind.family not in ("all", "finite"):
        return f"another rank raised its own error: {next(e for e in others.values() if e.own)}"
    if kind.family == "own":
        if mine.end != kind.expect:
            return f"the guilty rank ended with {mine}"
        if len(attempts) != incident.restarts + 1:
            return f"{len(attempts)} attempts"
        return "" if mine.own else "its exception was one of communication"
    if kind.family == "signal":
        if mine.end is not None or not mine.fired:
            return f"the guilty rank ended with {mine}"
        return "" if mine.status in (None, kind.expect) else f"exit status {mine.status}, not {kind.expect}"
    if kind.family in ("all", "finite"):
        wrong = [e for e in ends.values() if e.end not in (kind.expect, None)]
        return f"ended with {wrong[0]}" if wrong or sum(e.end is None for e in ends.values()) > 1 else ""
    if kind.family == "healthy":
        return "" if all(e.end == "ok" for e in ends.values()) else "a rank did not complete"
    if kind.family in ("outside", "hang"):
        if any(e.own or e.lost or e.end == "ok" for e in ends.values()):
            return "a rank ended before it was stopped"
        return "" if kind.family == "outside" or mine.fired else "the fault was not reached"
    if not mine.fired:
        return "the fault was not reached"
    if any(e.fired for e in others.values()):
        return "the fault was reached on another rank too"
    if not any(e.lost for e in ends.values()):
        return "nobody lost anybody"
    if kind.family == "late" and not any("imed out" in e.message or "imeout" in e.message for e in others.values()):
        return "nobody waited the full time"
    return ""


def facts(lines: list[dict[str, Any]], status: str | None = None) -> RankEnd:
    merged: dict[str, Any] = {}
    for line in lines:
        merged.update(line)
    return RankEnd("fired" in merged, merged.get("end"), str(merged.get("message") or ""), status)
