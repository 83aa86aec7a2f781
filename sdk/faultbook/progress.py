"""How far a run came: completed, still moving, or silent; and whether it was stopped from outside."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from . import lazy
from .attribution import Record
from .model import Event
from .robust import median
from .values import dataclass, field

# These are all searched in lowered text: ignoring case in the expression takes two to three times as long.
_STEP = lazy.regex(
    r"(?:(?:\b(?:global_?step|step|iter|iteration|it|batch|update|num_updates)\b[ :=#\[(]{1,3}|\bcompleted step: )"
    r"(?P<step>\d{1,9})(?: ?/ ?(?P<total>\d{1,9}))?"
    r"|\b(?P<done>\d{1,9})/(?P<of>\d{1,9}) \[(?P<elapsed>[\d:]{4,12})<"
    r"|epoch:? ?\[\d+\]\[(?P<batch>\d{1,9})/(?P<batches>\d{1,9})\]"
    r"|^\{'(?:loss|train_loss)'.*'epoch': '?(?P<epoch>\d{1,9}(?:\.\d{1,9})?))",
)
_COMPLETED = lazy.regex(
    r"(?:\b(?:training|train|finetuning|fine-tuning|pretraining|run|job|experiment|fit)\b[ _]{0,2}(?:is |has been |was )?"
    r"(?:completed?|finished|done|succeeded|ended successfully)\b"
    r"|'train_runtime':|\*{3,} train metrics \*{3,}|training completed\. do not forget to share your model"
    r"|`trainer\.fit` stopped: `max_(?:epochs|steps|time)=|(?:successfully|finished|completed) training\b"
    r"|\bfinal (?:model|checkpoint) (?:saved|written)|(?:saved|saving) final (?:model|checkpoint)|finished training"
    r"|worker group successfully finished|exited? with (?:code|status) 0\b|\ball done\b"
    r"|state: completed|^completed\b|\bval_bpb \(final\)|peak memory consumption:)",
)
_NEGATED = lazy.regex(
    r"\b(?:not|never|before|until|when|if|was(?:n't)|could not|failed to|un)\b.{0,20}(?:complet|finish|done)|incomplete",
)
_PHASE = lazy.regex(
    r"(?:\b(?:sav(?:e|ing)|writ(?:e|ing)|dump(?:ing)?|upload(?:ing)?|collect(?:ing)?|gather(?:ing)?|export(?:ing)?)\b.{0,60}"
    r"\b(?:checkpoint|state[ _]dict|model|weights|snapshot|optimizer|shards?|artifact)"
    r"|\b(?:running|starting|start|begin\w*) (?:the )?(?:eval\w*|validation|test)|\bevaluating\b|\bvalidating\b"
    r"|\b(?:exhausted|ran out of|no more|end of (?:data|shard|epoch)|epoch done|leaving the loop|early stop\w*"
    r"|stopping (?:\w+ )?early)"
    r"|\b(?:tokeniz|preprocess|map|filter|shuffl|compil|warm|download|load|build|pack)ing\b"
    r"|\b(?:waiting|sleeping|retrying|stalled|slow|reloading|rebuilding|refilling)\b|\btook \d+(?:\.\d+)? ?s\b)",
)
_ENDS = (
    "complet",
    "finish",
    "done",
    "succe",
    "train_runtime",
    "trainer.fit",
    "final",
    "exit",
    "train metrics",
    "val_bpb",
    "peak memory",
    "ended",
)
"""Every completion holds one of these, every announcement one of the next: looked for before the expressions."""
_BUSY = (
    "ing",
    "save ",
    "write ",
    "dump",
    "upload",
    "collect",
    "gather",
    "export",
    "start",
    "exhausted",
    "ran out",
    "no more",
    "end of",
    "epoch done",
    "early stop",
    "stalled",
    "took ",
    "slow",
)
_METRICS = lazy.regex(r"\bloss\b|\blr\b|grad_norm|it/s\b|s/it\b")
_NO_ANNOUNCEMENT = lazy.regex(
    r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Warning)\b|/gloo/|\[c10d\]|Watchdog|NCCL|^(?:frame #|what\(\))"
    r"|monitoredBarrier|while waiting"
)
_SECONDS = lazy.regex(r"^(?:(?P<h>\d+):)?(?P<m>\d{1,2}):(?P<s>\d\d)$")


@dataclass(frozen=True, slots=True)
class RankProgress:
    """What one rank's own lines say."""

    steps: int = 0
    """Number of different progress records."""
    last_step: float | None = None
    total: int | None = None
    last_step_line: int = -1
    last_step_time: float | None = None
    first_time: float | None = None
    last_time: float | None = None
    clock: str | None = None
    last_line: int = -1
    step_seconds: float | None = None
    """Median time between progress records."""
    completed: bool = False
    phase: str = ""
    """The last thing it said it was doing, if that came after its last step."""
    phase_line: int = -1
    phase_source: int = -1


@dataclass(frozen=True, slots=True)
class Progress:
    """The whole run, one attempt."""

    ranks: Mapping[int | None, RankProgress] = field(default_factory=dict)
    completed: bool = False
    reached_total: bool = False
    """A 100 % bar or step N of N, which also precedes failures in the final save."""
    ends_mid_run: bool = False
    """Progress was printed, and the log ends without a completion."""

    def last_step(self, rank: int | None) -> float | None:
        own = self.ranks.get(rank)
        return own.last_step if own else None


def step_of(body: str) -> tuple[float, int | None] | None:
    """(step, total) of a progress line, whatever framework printed it."""
    return _step_in(body[:2000].lower())


@functools.lru_cache(maxsize=4096)  # a line is asked for its step by several who know nothing of each other
def _step_in(lowered: str) -> tuple[float, int | None] | None:
    match = _STEP.search(lowered)
    if match is None:
        return None
    for step, total in (("step", "total"), ("done", "of"), ("batch", "batches")):
        if match[step] is not None:
            return float(match[step]), int(match[total]) if match[total] else None
    return float(match["epoch"]), None


def is_completion(body: str) -> bool:
    """Whether the line says that training came to its planned end."""
    return _is_completion(body[:1000].lower())


def _is_completion(lowered: str) -> bool:
    return _holds_one(lowered, _ENDS) and bool(_COMPLETED.search(lowered)) and not _NEGATED.search(lowered)


def _holds_one(text: str, words: Iterable[str]) -> bool:
    for word in words:  # noqa: SIM110  # a generator for each line costs more than the search
        if word in text:
            return True
    return False


def phase_of(body: str) -> str:
    """What a rank says it is about to do, if the line says so: a save, an evaluation, the end of its data."""
    return _phase_in(body[:400], body[:400].lower())


def _phase_in(text: str, lowered: str) -> str:
    if not _holds_one(lowered, _BUSY):
        return ""
    match = _PHASE.search(lowered)
    return match[0] if match and not _NO_ANNOUNCEMENT.search(text) else ""


def elapsed_seconds(text: str) -> float | None:
    """`29:55` or `1:02:03` as tqdm prints elapsed time."""
    match = _SECONDS.match(text)
    if not match:
        return None
    return int(match["h"] or 0) * 3600 + int(match["m"]) * 60 + int(match["s"])


def of_records(records: Iterable[Record]) -> Progress:
    """Progress of every rank in one attempt's records."""
    per_rank: dict[int | None, list[Record]] = defaultdict(list)
    for record in records:
        if not record.about:
            per_rank[record.rank].append(record)
    ranks = {rank: _of_rank(own) for rank, own in per_rank.items()}
    completed = any(p.completed for p in ranks.values())
    reached = any(p.total and p.last_step is not None and p.last_step >= p.total for p in ranks.values())
    return Progress(ranks, completed, reached, not completed and any(p.steps for p in ranks.values()))


def _of_rank(records: Sequence[Record]) -> RankProgress:
    steps: list[tuple[float, Record]] = []
    total = None
    completed = False
    phase, phase_line, phase_source = "", -1, -1
    times: list[float] = []
    clock = None
    for record in records:
        body = record.body
        if record.time is not None:
            clock = clock or record.parsed.clock
            if record.parsed.clock == clock:
                times.append(record.time)
        lowered = body[:2000].lower()
        said = "" if body.startswith((" ", "\t")) else _phase_in(body[:400], lowered[:400])
        if said and _METRICS.search(lowered[:600]):
            said = ""
        found = _step_in(lowered) if not said and _may_hold_step(body, lowered[:400]) else None
        if found is not None:
            step, of = found
            if of and (total is None or of == total):
                total = of
            if not steps or steps[-1][0] != step:
                steps.append((step, record))
        if _is_completion(lowered[:1000]):
            completed = True
        elif said:
            phase, phase_line, phase_source = body.strip()[:300], record.line, record.source
    last = steps[-1] if steps else None
    if last is not None and phase_source == last[1].source and phase_line < last[1].line:
        phase, phase_line = "", -1
    stamps = [r.time for _, r in steps if r.time is not None and r.parsed.clock == clock]
    gaps = [b - a for a, b in itertools.pairwise(stamps) if b >= a]
    return RankProgress(
        steps=len(steps),
        last_step=last[0] if last else None,
        total=total,
        last_step_line=last[1].line if last else -1,
        last_step_time=stamps[-1] if stamps else None,
        first_time=times[0] if times else None,
        last_time=times[-1] if times else None,
        clock=clock,
        last_line=records[-1].line if records else -1,
        step_seconds=median(gaps) if gaps else None,
        completed=completed,
        phase=phase,
        phase_line=phase_line,
        phase_source=phase_source,
    )


_COUNTED = ("step", "iter", "batch", "update", "it/s", "s/it", "epoch", "[0", " [")


def _may_hold_step(body: str, lowered: str) -> bool:
    return not body.startswith(("  File", "    ", "Traceback")) and _holds_one(lowered, _COUNTED)


STOPS = {
    "preempted": "preemption",
    "time_limit": "the time limit",
    "cancelled": "a cancellation",
    "node_failed": "a node failure",
    "evicted": "an eviction",
    "run_limit": "the run-time limit",
    "agent_signal": "a signal to the launcher",
    "signal_received": "a signal to the processes",
}
"""Events that end a job from outside, and the words for them."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The job was ended from outside."""

    why: str
    event: Event
    silent_for: float | None = None
    """Seconds between the last progress and the stop, where one clock tells."""


def stopped_by(events: Sequence[Event]) -> Event | None:
    """The event that ended the job from outside, the most telling one first."""
    order = ("preempted", "time_limit", "run_limit", "node_failed", "evicted", "cancelled", "agent_signal", "signal_received")
    for kind in order:
        for event in events:
            if event.kind == kind:
                return event
    return None
