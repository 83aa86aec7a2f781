"""Proves entries: runs both halves of every variant and applies the criteria of `core.judge`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faultbook.signatures import Signature

from .core.entry import Entry
from .core.firing import firings
from .core.judge import Half, Pair, Problem, examine, judge
from .core.runner import Runner, RunnerError, Skipped
from .core.spec import SpecError
from .mutate import Mutant, mutate
from .untrusted_entry import load_entry

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """One entry on one device."""

    slug: str
    device: str
    mode: str
    proven: bool
    skipped: str = ""
    """Why it could not be tried here; then it is neither proven nor disproven."""
    expected: str = ""
    problems: tuple[Problem, ...] = ()
    pairs: tuple[Pair, ...] = ()
    mutants: tuple[Mutant, ...] = ()
    seconds: float = 0.0
    runs: int = 0
    folder: Path = field(default_factory=Path)
    about: dict[str, Any] = field(default_factory=dict)
    claimed: tuple[Signature, ...] = ()
    """The signatures that some broken run had to fire."""

    @property
    def survivors(self) -> tuple[Mutant, ...]:
        return tuple(m for m in self.mutants if m.killed_by is None)


def verify_entry(
    entry: Entry,
    device: str,
    runner: Runner,
    *,
    repeat: int = 1,
    with_mutants: bool = False,
    keep: Path | None = None,
    notice: Notice = lambda text: None,
) -> Result:
    """One entry on one device. Never raises for what the entry does."""
    started = time.monotonic()
    if entry.spec is None:
        problems = recorded_problems(entry)
        return Result(
            entry.slug,
            device,
            entry.mode,
            not problems,
            problems=tuple(problems),
            folder=entry.folder,
            seconds=time.monotonic() - started,
        )
    if device not in entry.spec.devices:
        reason = f"declared for {', '.join(entry.spec.devices)} only"
        return Result(entry.slug, device, entry.mode, False, skipped=reason, folder=entry.folder)
    expected = entry.spec.expected(device)
    primary = device == entry.spec.devices[0]
    pairs: list[Pair] = []
    problems = recorded_problems(entry)
    mutants: list[Mutant] = []
    runs = 0
    try:
        about = runner.about(entry.spec.preload)  # starts the server, whose imports are not this entry's time
        started = time.monotonic()
        for attempt in range(max(1, repeat)):
            place = keep / f"repetition-{attempt + 1}" if keep is not None and attempt else keep
            said = _numbered(notice, attempt, repeat)
            tried = [run_pair(entry, variant, device, runner, keep=place, notice=said) for variant in entry.spec.variants]
            runs += 2 * len(tried)
            found = judge(tried, expected, entry.claimed, primary)
            if attempt:
                found = [dataclasses.replace(p, text=f"{p.text} (repetition {attempt + 1})") for p in found]
            pairs = pairs or tried
            if found:
                pairs = tried  # show the runs that failed
                problems += found
                break
        seconds = time.monotonic() - started
        if with_mutants and not problems:
            notice(f"{entry.slug}: mutants")
            mutants = mutate(entry, pairs, runner, device)
    except Skipped as reason:
        return Result(entry.slug, device, entry.mode, False, skipped=str(reason), folder=entry.folder)
    except RunnerError as error:
        return Result(
            entry.slug,
            device,
            entry.mode,
            False,
            expected=expected,
            folder=entry.folder,
            problems=(Problem("both", "setup", str(error)),),
            seconds=time.monotonic() - started,
        )
    return Result(
        entry.slug,
        device,
        entry.mode,
        not problems,
        expected=expected,
        problems=tuple(problems),
        pairs=tuple(pairs),
        mutants=tuple(mutants),
        seconds=seconds,
        runs=runs,
        folder=entry.folder,
        about=about,
        claimed=entry.claimed,
    )


def _numbered(notice: Notice, attempt: int, repeat: int) -> Notice:
    return notice if repeat < 2 else lambda text: notice(f"{text} ({attempt + 1} of {repeat})")


def run_pair(
    entry: Entry,
    variant: str,
    device: str,
    runner: Runner,
    *,
    keep: Path | None = None,
    notice: Notice = lambda text: None,
) -> Pair:
    """Both halves of one variant, with everything the criteria look at."""
    halves = []
    for fixed in (False, True):
        name = "fixed" if fixed else "broken"
        notice(f"{entry.slug}{f' {variant}' if variant else ''}: {name}")
        place = keep / entry.slug / "-".join(filter(None, (name, variant))) if keep is not None else None
        halves.append(run_half(entry, variant, device, runner, fixed=fixed, keep=place))
    return Pair(variant, halves[0], halves[1])


def run_half(
    entry: Entry, variant: str, device: str, runner: Runner, *, fixed: bool, keep: Path | None = None
) -> Half:
    assert entry.spec is not None
    outcome = runner.run(entry.spec, fixed=fixed, device=device, variant=variant, keep=keep)
    return examine(outcome, runner.check(entry.spec, outcome), entry.signatures)


def recorded_problems(entry: Entry) -> list[Problem]:
    """Recorded lines prove no failure, but the signatures that cite them must fire on them."""
    problems = []
    for name, ids in entry.recorded:
        try:
            text = (entry.folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            problems.append(Problem("broken", "recorded", f"{name} cannot be read"))
            continue
        fired = firings(entry.signatures, text)
        for signature in ids:
            if signature not in fired:
                problems.append(Problem("broken", "recorded", f"{name} cites unknown signature {signature}"))
            elif not fired[signature].fired:
                problems.append(
                    Problem("broken", "recorded", f"signature {signature} does not fire on {name}")
                )
    if entry.spec is None and not any(ids for _, ids in entry.recorded):
        problems.append(Problem("broken", "recorded", "mode recorded, but no recorded lines are cited"))
    return problems


def verify_all(
    folders: list[Path],
    device: str,
    *,
    jobs: int = 1,
    repeat: int = 1,
    with_mutants: bool = False,
    keep: Path | None = None,
    notice: Notice = lambda text: None,
    done: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """All entries, in the order given; `jobs` servers share them."""

    def one(folder: Path, runner: Runner) -> Result | None:
        try:
            entry = load_entry(folder)
        except SpecError as error:
            result = Result(
                folder.name,
                device,
                "?",
                False,
                folder=folder,
                problems=(Problem("both", "entry", str(error)),),
            )
        else:
            if entry is None:
                return None
            result = verify_entry(
                entry, device, runner, repeat=repeat, with_mutants=with_mutants, keep=keep, notice=notice
            )
        done(result)
        return result

    jobs = max(1, min(jobs, len(folders)))
    if jobs == 1:
        with Runner() as runner:
            results = [one(folder, runner) for folder in folders]
    else:
        results = _shared(folders, jobs, one)
    return [r for r in results if r is not None]


def skipped(folders: list[Path], device: str, reason: str) -> list[Result]:
    """All entries, none of them tried."""
    entries = [entry for folder in folders if (entry := load_entry(folder)) is not None]
    return [Result(e.slug, device, e.mode, False, skipped=reason, folder=e.folder) for e in entries]


def _shared(
    folders: list[Path], jobs: int, one: Callable[[Path, Runner], Result | None]
) -> list[Result | None]:
    """A worker is one runner in one thread; they draw entries from one list."""
    waiting = list(enumerate(folders))[::-1]
    results: list[Result | None] = [None] * len(folders)

    def work(_: int) -> None:
        with Runner() as runner:
            while waiting:
                try:
                    index, folder = waiting.pop()
                except IndexError:
                    return
                results[index] = one(folder, runner)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(jobs)))
    return results
