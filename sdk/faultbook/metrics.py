"""Metric lines → series of (step, value) by name, rank and attempt.

Attempts: a new one begins (a) at a line number that the caller gives, (b) at a launcher's
or trainer's banner once records were read, (c) when the step counter falls back by more
than four logging intervals or to where the attempt began. A counter that restarts
because its epoch moved on, or because it had reached its printed total, is the same attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from . import lazy
from .lines import parse
from .metric_files import series_from_file
from .metric_forms import Record, read_line, step_of
from .metric_names import role_of
from .metric_state import Collector, Counter
from .metric_tables import Table
from .model import Line, Series
from .skeletons import Plans, follow

__all__ = [
    "METRIC_HINTS",
    "has_table",
    "may_be_metric",
    "read_series",
    "role_of",
    "series_from_file",
    "step_of",
]

METRIC_HINTS: tuple[str, ...] = (
    "loss", "grad", "norm", "reward", "score", "accuracy", "acc:", "acc=", "perplexity", "ppl", "learning",
    "entropy", "scale", "logit", "temperature", "expert", "router", "approxkl", "_kl", "/kl", " kl", "bleu",
    "tokens/s", "tok/s", "it/s", "s/it", "samples/s", "samplespersec", "throughput", "usage", "mfu", "mem",
    "iteration", "iter", "step", "epoch", "batch", " avg",
)  # fmt: skip
"""Lower-case literals: every line that holds a metric holds one of them (rows of tables do
not: see `has_table`). For a coarse filter before `read_series`, which judges each line itself."""

BANNER = lazy.regex(
    r"Setting OMP_NUM_THREADS environment variable|Starting elastic_operator with launch configs"
    r"|WORLD INFO DICT|\*{5} Running training \*{5}|will restart worker group|restart_count=[1-9]"
    r"|\bResuming (?:training )?from checkpoint|Loaded checkpoint .{0,200}(?:epoch|iteration)"
)
_BANNER_WORDS = ("OMP_NUM_THREADS", "elastic_operator", "WORLD INFO", "Running training", "will restart", "restart_count",
                 "Resuming", "Loaded checkpoint")  # fmt: skip
NO_METRICS = frozenset({"kernel", "scheduler", "nccl"})
"""Streams whose numbers are no metrics (`anon-rss:9000kB`)."""
MAX_RECORD = 16384
"""Characters of a record that are looked at."""

Resolver = Callable[[Line], "int | None"]


def may_be_metric(text: str) -> bool:
    lowered = text.lower()
    for hint in METRIC_HINTS:  # noqa: SIM110  # several times as fast as an expression that ignores case
        if hint in lowered:
            return True
    return False


def _is_banner(text: str) -> bool:
    for word in _BANNER_WORDS:
        if word in text:
            return BANNER.search(text) is not None
    return False


def has_table(lines: Iterable[str]) -> bool:
    """Whether some line is the header of a table of metrics, so that all lines must be read."""
    table = Table()
    return any(table.header(line) for line in lines)


def read_series(
    lines: Iterable[tuple[int, str]],
    source: int = 0,
    default_rank: int | None = None,
    *,
    resolve: Resolver | None = None,
    attempt_starts: Sequence[int] = (),
    first_attempt: int = 0,
    parsed: Mapping[str, Line] | None = None,
) -> list[Series]:
    """Reads the series of one source from its lines, or from those that `METRIC_HINTS` admit.

    `default_rank` is the rank of lines that name none; `resolve` turns a parsed line into
    a global rank (`RankMap.resolve`); `attempt_starts` are line numbers at which the caller
    knows that a new attempt begins; `parsed` holds lines that `lines.parse` has read already.
    """
    reader = _Reader(source, default_rank, resolve, first_attempt, parsed or {})
    starts = sorted(attempt_starts)
    passed = 0
    for number, text in lines:
        if passed < len(starts):
            while passed < len(starts) and number >= starts[passed]:
                passed += 1
                reader.restart()
        if "\r" in text:
            for part in text.split("\r"):
                if part:
                    reader.read(part, number)
        elif text:
            reader.read(text, number)
    return reader.collector.finish()


class _Reader:
    """One pass over the lines of one source."""

    def __init__(
        self, source: int, default_rank: int | None, resolve: Resolver | None, first: int, parsed: Mapping[str, Line]
    ) -> None:
        self.collector = Collector(source)
        self.counters: dict[int | None, Counter] = {}
        self.table = Table()
        self.plans = Plans()
        self.default_rank, self.resolve, self.first, self.parsed = default_rank, resolve, first, parsed

    def restart(self) -> None:
        for counter in self.counters.values():
            counter.restart()

    def read(self, text: str, line: int) -> None:
        """Reads one physical record (a line, or one redraw of it)."""
        if self.table.names:
            self._read_fully(text, line, None)
            return
        key = self.plans.key(text)
        plan = self.plans.find(key) if key is not None else None
        if plan is None:
            self._read_fully(text, line, key)
        elif not plan.nothing:
            followed = follow(plan, text)
            if followed is None:
                self._read_fully(text, line, None)
            else:
                self._take(followed[0], followed[1], line)

    def _read_fully(self, text: str, line: int, key: str | None) -> None:
        text = text[:MAX_RECORD]
        hint = may_be_metric(text)
        if not hint and not self.table.names:
            if _is_banner(text):
                self.restart()
            return
        rank, body, fixed = None, text, True
        if text[0] not in "{ie":
            parsed = self.parsed.get(text) or parse(text)
            rank, body = parsed.rank, parsed.body
            if parsed.stream in NO_METRICS:
                return
            if rank is None and self.resolve is not None:
                rank = self.resolve(parsed)
                fixed = parsed.pid is None and parsed.local_rank is None and parsed.task is None
        record = self.table.row(body) if self.table.names else None
        if record is not None:
            key = None
        elif hint:
            record = read_line(body)
        if record is None:
            if _is_banner(text):
                self.restart()
                return
            if hint and self.table.header(body):
                return
        if key is not None and fixed and hint:
            self.plans.learn(key, text, body, record, rank)
        if record is not None:
            self._take(record, rank, line)

    def _take(self, record: Record, rank: int | None, line: int) -> None:
        if rank is None:
            rank = self.default_rank
            if rank is None and record.rank is not None and record.step is not None:
                rank = record.rank
        counter = self.counters.get(rank)
        if counter is None:
            counter = Counter()
            counter.attempt = max((c.attempt for c in self.counters.values()), default=0)
            self.counters[rank] = counter
        step = counter.move(record, line)
        if record.pairs:
            if record.step is not None or any(name.role == "loss" for name, _ in record.pairs):
                counter.records += 1
            self.collector.add(record, rank, self.first + counter.attempt, step, line)
