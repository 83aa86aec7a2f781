"""Which known lines stand in which of very many files: the scan alone, spread over processes or a cluster.

For folders that one `diagnose` should not read whole. It says where the lines of signatures are, and so which files
are worth a diagnosis; it does not compare ranks and reaches no verdict.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from . import fact_lines, scan, sources
from .catalog import Catalog, EntrySignature
from .masking import mask_secrets
from .matching import Key, key_of
from .model import Scanned, Source
from .signatures import LogSignature, Pattern
from .values import dataclass

ENGINES = ("local", "process", "dask", "ray")
SCHEMA = "faultbook.scan/1"
BATCHES = 4
"""Batches per worker: large files must not leave the others waiting."""

Batch = Sequence[Source]
Outcome = tuple[int, "Scanned | str"]
"""Index of the source, and what was found or why it could not be read."""


class EngineMissing(Exception):
    """The library of an engine is not installed; one line that says what to install."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A signature whose lines are all in one file."""

    signature: str
    role: str
    count: int
    """Matching lines of its patterns together."""
    line: int
    text: str
    """The first of them, secrets masked."""


@dataclass(frozen=True, slots=True)
class FileScan:
    file: str
    lines: int
    size: int
    seen: tuple[Seen, ...]
    skipped: str = ""


def scan_folder(
    paths: Sequence[str], catalog: Catalog, engine: str = "local", workers: int | None = None, gate: str | None = None
) -> list[FileScan]:
    """The files in order; answers do not depend on the engine. Raises SourceError and EngineMissing."""
    run = _engine(engine, workers)
    found = sources.discover(paths)
    wanted = [s for s in catalog.signatures if isinstance(s.signature, LogSignature) and not _virtual(s.signature)]
    number = 1 if engine == "local" else BATCHES * (workers or os.cpu_count() or 1)

    def scanned(files: Sequence[Source], patterns: Sequence[Pattern]) -> dict[int, Scanned | str]:
        results: dict[int, Scanned | str] = {}
        if files and patterns:
            for outcomes in run(partial(scan_batch, patterns=patterns, gate=gate), batches(files, number)):
                results.update(outcomes)
        return results

    asked = _Asked(wanted)
    readable = [s for s in found if not s.skipped]
    results = scanned(readable, asked.patterns)
    # What must not occur often stands on every line of a healthy log: looked for only where the rest is there.
    doubtful = [s for s in readable if isinstance(one := results[s.index], Scanned) and any(q.none for q in asked.held(one))]
    denied = scanned(doubtful, asked.denied)
    return [asked.of_file(source, results.get(source.index, source.skipped), denied.get(source.index)) for source in found]


def scan_batch(batch: Batch, patterns: Sequence[Pattern], gate: str | None = None) -> list[Outcome]:
    """What a worker does: a plain function, so that any pool can call it."""
    scanner = scan.Scanner(patterns, gate)
    results: list[Outcome] = []
    for source in batch:
        try:
            results.append((source.index, scanner.scan(source)))
        except (sources.SourceError, OSError) as error:
            results.append((source.index, str(error)))
    return results


def batches(items: Sequence[Source], number: int) -> list[list[Source]]:
    """Parts of about equal bytes, the largest files first."""
    parts: list[list[Source]] = [[] for _ in range(max(1, min(number, len(items))))]
    filled = [0] * len(parts)
    for source in sorted(items, key=lambda s: (-_size(s), s.index)):
        least = min(range(len(parts)), key=lambda n: (filled[n], n))
        parts[least].append(source)
        filled[least] += _size(source) + 1
    return [part for part in parts if part]


def _size(source: Source) -> int:
    try:
        return os.path.getsize(source.path) if source.path else len(source.data or b"")
    except OSError:
        return 0


def to_dict(files: Sequence[FileScan], engine: str) -> dict[str, Any]:
    """The `--json` form."""
    return {
        "schema": SCHEMA,
        "engine": engine,
        "files": [
            {
                "file": f.file, "lines": f.lines, "bytes": f.size,
                "signatures": [
                    {"signature": s.signature, "role": s.role, "count": s.count, "first": {"line": s.line, "text": s.text}}
                    for s in f.seen
                ],
            }
            for f in files if not f.skipped
        ],
        "skipped": [{"file": f.file, "why": f.skipped} for f in files if f.skipped],
    }  # fmt: skip


def _virtual(signature: LogSignature) -> bool:
    return any(fact_lines.is_virtual(p) for p in (*signature.all, *signature.any, *signature.none))


@dataclass(frozen=True, slots=True)
class _Question:
    """A signature in numbers of patterns."""

    item: EntrySignature
    all: tuple[tuple[int, int], ...]
    """(pattern, how many lines at least)."""
    any: tuple[tuple[int, int], ...]
    none: tuple[int, ...]


class _Asked:
    """All signatures: what is looked for at first, and what only in some files (`denied`)."""

    def __init__(self, wanted: Sequence[EntrySignature]) -> None:
        signatures = [s.signature for s in wanted if isinstance(s.signature, LogSignature)]
        first: dict[Key, Pattern] = {key_of(p): p for s in signatures for p in (*s.all, *s.any)}
        later: dict[Key, Pattern] = {key_of(p): p for s in signatures for p in s.none if key_of(p) not in first}
        self.patterns, self.denied = list(first.values()), list(later.values())
        numbers = {key: n for n, key in enumerate((*first, *later))}
        self.questions = [
            _Question(
                item,
                tuple((numbers[key_of(p)], p.at_least) for p in s.all),
                tuple((numbers[key_of(p)], p.at_least) for p in s.any),
                tuple(numbers[key_of(p)] for p in s.none),
            )
            for item, s in zip(wanted, signatures, strict=True)
        ]

    def held(self, found: Scanned) -> list[_Question]:
        """Those of which everything that must be there is there."""
        counts = found.counts
        return [
            q for q in self.questions if counts
            and all(counts.get(n, 0) >= least for n, least in q.all)
            and (not q.any or any(counts.get(n, 0) >= least for n, least in q.any))
        ]  # fmt: skip

    def of_file(self, source: Source, found: Scanned | str | None, denied: Scanned | str | None) -> FileScan:
        if not isinstance(found, Scanned) or isinstance(denied, str):
            why = denied if isinstance(denied, str) else found
            return FileScan(source.name, 0, 0, (), why if isinstance(why, str) else "not scanned")
        there = set(found.counts) | {len(self.patterns) + n for n in (denied.counts if denied else ())}
        first: dict[int, tuple[int, str]] = {}
        for hit in found.hits:
            first.setdefault(hit.pattern, (hit.line, hit.text))
        seen = []
        for q in self.held(found):
            own = [n for n, _ in (*q.all, *q.any) if n in first]
            if own and there.isdisjoint(q.none):
                line, text = min(first[n] for n in own)
                count = sum(found.counts.get(n, 0) for n in own)
                seen.append(Seen(q.item.name, q.item.signature.role, count, line, mask_secrets(text)[:500]))
        return FileScan(source.name, found.lines, found.size, tuple(sorted(seen, key=lambda s: (s.line, s.signature))))


# --- engines ---

Work = Callable[[Batch], list[Outcome]]
Engine = Callable[[Work, Sequence[Batch]], Iterable[list[Outcome]]]


def _engine(name: str, workers: int | None) -> Engine:
    if name == "local":
        return lambda work, parts: map(work, parts)
    if name == "process":
        return partial(_processes, workers=workers)
    if name in ("dask", "ray"):
        from importlib.util import find_spec

        library = {"dask": "distributed", "ray": "ray"}[name]
        if find_spec(library) is None:
            package = {"dask": "'dask[distributed]'", "ray": "ray"}[name]
            raise EngineMissing(f"--engine {name} needs {library}: pip install {package}, or use --engine process")
        return partial(_dask if name == "dask" else _ray, workers=workers)
    raise EngineMissing(f"no engine {name!r}: one of {', '.join(ENGINES)}")


def _processes(work: Work, parts: Sequence[Batch], workers: int | None) -> Iterable[list[Outcome]]:
    from concurrent.futures import ProcessPoolExecutor

    if not parts:
        return
    with ProcessPoolExecutor(min(workers or os.cpu_count() or 1, len(parts))) as pool:
        yield from pool.map(work, parts)


def _dask(work: Work, parts: Sequence[Batch], workers: int | None) -> Iterable[list[Outcome]]:
    """On the cluster that Dask's own configuration names ($DASK_SCHEDULER_ADDRESS), else on this machine."""
    from importlib import import_module

    distributed = import_module("distributed")
    if import_module("dask").config.get("scheduler-address", None):
        with distributed.Client() as client:
            yield from client.gather(client.map(work, list(parts)))
        return
    # Its workers complain at every end that the scheduler has gone.
    here = {"n_workers": workers or os.cpu_count(), "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(silence_logs=logging.CRITICAL, **here) as cluster, distributed.Client(cluster) as client:
        yield from client.gather(client.map(work, list(parts)))


def _ray(work: Work, parts: Sequence[Batch], workers: int | None) -> Iterable[list[Outcome]]:
    """On the cluster that $RAY_ADDRESS names, else on this machine."""
    from importlib import import_module

    ray = import_module("ray")
    ours = not ray.is_initialized()
    if ours:
        here = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers, "include_dashboard": False}
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **here)
    try:
        remote = ray.remote(work.func if isinstance(work, partial) else work)
        extra = work.keywords if isinstance(work, partial) else {}
        yield from ray.get([remote.remote(part, **extra) for part in parts])
    finally:
        if ours:
            ray.shutdown()
