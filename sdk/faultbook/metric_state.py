"""What is remembered between metric lines: counters and attempts, and the series under construction."""

from __future__ import annotations

from collections.abc import Sequence

from .metric_forms import Record
from .metric_names import Name, fold
from .model import Series
from .values import dataclass

MOST_ATTEMPTS = 100
"""A counter that falls back more often is no job that was restarted so often: it is two loops, or garbage."""
MAX_SERIES = 4000
"""More names than this in one source are not metrics; further ones are left out."""


@dataclass(slots=True)
class _Seen:
    """One counter (its name and total) within an attempt."""

    first: float
    last: float
    interval: float = 0.0
    epoch: float | None = None
    records: int = 1
    line: int = 0
    offset: float = 0.0
    """Steps of finished rounds of a counter that restarts with each epoch."""


class Counter:
    """Where one rank stands: turns counters of any kind into steps that only grow within an attempt."""

    __slots__ = ("attempt", "epoch", "records", "seen", "step")

    def __init__(self) -> None:
        self.attempt = 0
        self.records = 0
        self.seen: dict[tuple[str, float | None], _Seen] = {}
        self.epoch: float | None = None
        self.step: float | None = None

    def restart(self) -> None:
        if self.records:
            self.attempt = min(self.attempt + 1, MOST_ATTEMPTS)
            self.records = 0
            self.seen.clear()
            self.epoch = self.step = None

    def move(self, record: Record, line: int) -> float | None:
        """The step of the record on the axis of this rank; may open a new attempt."""
        value = record.step
        if value is None:
            return self.step
        key = (record.counter if record.kind != "epoch" else "epoch", record.total)
        epoch = record.epoch if record.epoch is not None else self.epoch
        seen = self.seen.get(key)
        if self._gone_back(record, seen):
            self.restart()
            seen = None
        elif seen is not None and value <= seen.last:
            if self._new_round(record, seen, epoch, line):
                seen.offset += record.total or seen.last
                seen.first, seen.last, seen.records = value, value, 0
            elif value < seen.last:
                fallen = seen.last - value > 4 * max(seen.interval, 0.0 if record.kind == "epoch" else 1.0)
                if fallen or (value <= seen.first and seen.records >= 3 and seen.last > seen.first):
                    self.restart()
                    seen = None
                else:
                    # Two loops that count in turn, or ranks that print into one file.
                    return value + seen.offset
        if seen is None:
            seen = self.seen[key] = _Seen(value, value, line=line, epoch=epoch)
            others = any(other[0] == key[0] for other in self.seen if other != key)
            if others and record.kind == "batch" and record.epoch is not None and self.step is not None:
                seen.offset = self.step  # another number of batches to an epoch: the axis goes on
        else:
            gap = value - seen.last
            if gap > 0:
                seen.interval = min(gap, seen.interval * 1.5) if seen.interval else gap
            seen.last, seen.epoch, seen.line = value, epoch, line
            seen.records += 1
        if record.epoch is not None:
            self.epoch = record.epoch
        self.step = value + seen.offset
        return self.step

    def _gone_back(self, record: Record, seen: _Seen | None) -> bool:
        """Whether the epoch in the line fell: by two, or by one together with the line's own counter.

        A fall by one alone is often two ways of counting epochs, from 0 and from 1.
        """
        if record.kind == "epoch" or record.epoch is None or self.epoch is None or seen is None:
            return False
        fall = self.epoch - record.epoch
        return fall >= 2 or (fall >= 1 and record.step is not None and record.step < seen.last)

    @staticmethod
    def _new_round(record: Record, seen: _Seen, epoch: float | None, line: int) -> bool:
        """Whether a counter that did not grow restarted within the same attempt."""
        if record.kind == "epoch" or record.step is None:
            return False
        moved_on = epoch is not None and seen.epoch is not None and epoch > seen.epoch
        complete = record.total is not None and seen.last >= 0.9 * record.total
        if record.step == seen.last:
            if record.kind == "batch" and moved_on:
                return True
            unknown = epoch is None or seen.epoch is None
            return record.bar and record.step == record.total and line != seen.line and unknown
        # Batches start anew by nature; in one and the same epoch only after all of them were done.
        return moved_on or complete or (record.kind == "batch" and record.epoch is None)


class Collector:
    """Series under construction."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.episodes = 0
        self.data: dict[tuple[str, int | None, int], tuple[Name, list[float | None], list[float], list[int]]] = {}

    def add(self, record: Record, rank: int | None, attempt: int, step: float | None, line: int) -> None:
        data, redraw = self.data, record.bar
        self.episodes += record.kind == "episode"
        for name, value in record.pairs:
            key = (name.text, rank, attempt)
            entry = data.get(key)
            if entry is None:
                if len(data) >= MAX_SERIES:
                    continue
                entry = data[key] = (name, [], [], [])
            _, steps, values, lines = entry
            if redraw and steps and steps[-1] == step:
                values[-1], lines[-1] = value, line
            else:
                steps.append(step)
                values.append(value)
                lines.append(line)

    def finish(self) -> list[Series]:
        result = []
        # The loss of a policy follows its rewards: its course has no good direction, only its being finite counts.
        rewarded = self.episodes >= 3 or any(len(v) >= 3 and _is_reward(n) for n, _, v, _ in self.data.values())
        shared: dict[int, int] = {}
        for _, _, _, lines in self.data.values():
            if len(lines) == 1:
                shared[lines[0]] = shared.get(lines[0], 0) + 1
        for (text, rank, attempt), (name, steps, values, lines) in self.data.items():
            alone = len(values) == 1 and steps[0] is None and shared[lines[0]] == 1
            if alone and name.role in ("lr", "temperature"):
                continue  # a setting that was printed once
            result.append(
                Series(
                    name=text,
                    role="policy_loss" if rewarded and name.role == "loss" else name.role,
                    source=self.source,
                    rank=rank,
                    attempt=attempt,
                    steps=_axis(steps),
                    values=tuple(values),
                    lines=tuple(lines),
                )
            )
        return result


_REWARDS = frozenset({"reward", "return", "returns", "rew"})


def _is_reward(name: Name) -> bool:
    """A return of episodes; `rewards/chosen` of preference training is none."""
    return name.role == "reward" and not name.text.startswith("rewards/") and not _REWARDS.isdisjoint(fold(name.text).split("_"))


def _axis(steps: Sequence[float | None]) -> tuple[float, ...]:
    """Steps as printed, or record numbers where none are or many records share one."""
    known = [s for s in steps if s is not None]
    if len(known) < len(steps) or len(set(known)) * 2 <= len(known):
        return tuple(float(i) for i in range(len(steps)))
    return tuple(known)
