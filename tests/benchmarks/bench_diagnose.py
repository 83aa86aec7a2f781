"""Speed and memory of whole diagnoses, as ratios to ripgrep and to a bare interpreter start, all in this run.

    python tests/benchmarks/bench_diagnose.py            # 200 MB logs, several minutes
    python tests/benchmarks/bench_diagnose.py --mb 50    # smaller

CPU time of whole processes (`python -m faultbook.cli diagnose …`, `rg …`), one thread each, the best of several runs; so
the ratios travel, and rates are shown only for orientation. `rg` gets the same patterns and the best options for them.
Where `rg` is absent its columns are left out. pytest runs a small version that never fails on time: it checks that
the answer of a compressed log is that of the plain one, and that memory does not grow with the log.
"""

# ruff: noqa: E501  (lines of logs are as long as they are)
from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import bench_scan

from faultbook.catalog import load_catalog
from faultbook.portable import compile_pattern
from faultbook.signatures import LogSignature, Pattern

CLI = [sys.executable, "-m", "faultbook.cli", "diagnose", "--json"]


def cpu(command: list[str], times: int = 3, **environment: str) -> float:
    """CPU seconds of the fastest run of a command."""
    best = float("inf")
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                       env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment})  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def both(ours: list[str], theirs: list[str] | None, times: int = 4, **environment: str) -> tuple[float, float | None]:
    """The same of two commands in turn, so that both meet the same machine."""
    best = [float("inf"), float("inf")]
    for _ in range(times):
        best[0] = min(best[0], cpu(ours, 1, **environment))
        if theirs is not None:
            best[1] = min(best[1], cpu(theirs, 1))
    return best[0], None if theirs is None else best[1]


def peak(paths: list[Path], **environment: str) -> int:
    """MiB of the process at its largest (Linux)."""
    code = (
        "import sys, faultbook\nfaultbook.diagnose(*sys.argv[1:])\n"
        "print(next(int(x.split()[1]) // 1024 for x in open('/proc/self/status') if x.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=True,
                          env={**os.environ, **environment})  # fmt: skip
    return int(done.stdout)


def catalogue_patterns() -> list[Pattern]:
    """All patterns over lines that the catalogue has."""
    found: dict[str, Pattern] = {}
    for item in load_catalog().signatures:
        if isinstance(item.signature, LogSignature):
            for pattern in (*item.signature.all, *item.signature.any, *item.signature.none):
                found.setdefault(pattern.pattern, pattern)
    return list(found.values())


def catalogue_of(patterns: list[Pattern], folder: Path) -> Path:
    """A compiled catalogue in which each pattern is an entry's signature."""
    from faultbook.literals import required_literals

    target = folder / f"catalogue-{len(patterns)}"
    target.mkdir()
    entries, rows = [], []
    for number, pattern in enumerate(patterns):
        slug = f"failure-{number}"
        entries.append({"slug": slug, "kind": "cause", "title": slug, "category": "runtime", "severity": "high", "visibility": "loud",
                        "ancestors": [], "aliases": []})  # fmt: skip
        literals = list(required_literals(pattern.pattern, pattern.ignore_case))
        rows.append({"entry": slug, "kind": "log", "id": "line", "role": "root",
                     "all": [{"pattern": pattern.pattern, "literals": literals}]})  # fmt: skip
    data = {"schema": "faultbook.signatures/1", "digest": "", "entries": entries, "signatures": rows}
    (target / "signatures.json").write_text(json.dumps(data))
    return target


def rg(patterns: list[Pattern], paths: list[Path], folder: Path, *more: str) -> list[str] | None:
    program = shutil.which("rg")
    if program is None:
        return None
    listed = folder / f"rg-{len(patterns)}.txt"
    wanted = [re.sub(r"\(\?P<\w+>", "(?:", f"(?i:{p.pattern})" if p.ignore_case else p.pattern) for p in patterns]
    listed.write_text("\n".join(wanted) + "\n")
    return [program, "--no-unicode", "-a", "-n", "-j1", "--no-config", "--no-ignore", "--dfa-size-limit", "1G",
            "--regex-size-limit", "1G", *more, "-f", str(listed), *map(str, paths)]  # fmt: skip


def attribute(command: list[str], patterns: list[Pattern]) -> float:
    """CPU of what a script does with ripgrep's output: which pattern is it (the first that matches), and which rank?"""
    table = [(number, compile_pattern(p)) for number, p in enumerate(patterns)]
    rank = re.compile(rb"\[rank(\d+)\]")

    def work() -> dict[tuple[int, bytes], int]:
        counts: dict[tuple[int, bytes], int] = {}
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = rank.search(line)
                who = found[1] if found else b""
                for place, (number, regex) in enumerate(table):
                    if regex.search(line):
                        counts[number, who] = counts.get((number, who), 0) + 1
                        table.insert(0, table.pop(place))  # what matched last matches next: the fastest simple way
                        break
        return counts

    return bench_scan.best(work, 1)


def write_ranks(folder: Path, ranks: int = 1000, steps: int = 200) -> None:
    """One log a rank: all lose a peer, one has a reason of its own."""
    rng = random.Random(3)
    folder.mkdir()
    for rank in range(ranks):
        lines = [f"world_size={ranks} rank={rank} local_rank={rank % 8} pid={10_000 + rank} host=node-{rank // 8:03d}"]
        lines += [
            f"2026-05-01 12:{s // 60:02d}:{s % 60:02d},123 INFO step {s}/1000 loss {3 - s * 0.01 + rng.random() / 10:.4f} "
            f"grad_norm {rng.random():.3f} lr 1.0e-04 tokens/s {rng.randrange(9000, 9999)}"
            for s in range(steps)
        ]
        lines += ["Traceback (most recent call last):", '  File "/app/train.py", line 60, in main', "    step(batch)"]
        if rank == ranks * 5 // 8:
            lines.append("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB.")
        else:
            lines.append("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3843")
        (folder / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")


def write_everywhere(path: Path, size: int) -> None:
    """A log in which every line hits."""
    with path.open("wb") as file:
        number = 0
        while file.tell() < size:
            file.write(b"".join(b"[rank%d]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %d GiB. GPU %d has\n"
                                % (n % 8, n, n % 8) for n in range(number, number + 1000)))  # fmt: skip
            number += 1000


def write_giant(path: Path, size: int) -> None:
    """One line without an end."""
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(b"CUDA out of memor, x " * 50_000)


def latency(folder: Path, times: int = 3, every: float = 0.2) -> tuple[float, float]:
    """Seconds of the wall clock from a line written (and flushed) to the finding printed by `faultbook watch`: median, worst."""
    taken = []
    for number in range(times):
        log = folder / f"live-{number}.log"
        log.write_text("".join(f"[rank{n % 2}]: step {n} loss {2 - n / 1000:.3f}\n" for n in range(500)))
        command = [sys.executable, "-u", "-m", "faultbook.cli", "watch", str(log), "--every", str(every)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            time.sleep(4)  # the start, and a look in which there is nothing to say
            with log.open("a") as stream:
                stream.write("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
            written = time.monotonic()
            assert process.stdout is not None
            process.stdout.readline()
            taken.append(time.monotonic() - written)
            process.terminate()
    return sorted(taken)[len(taken) // 2], max(taken)


def run(megabytes: int) -> None:
    def row(what: str, ours: float, theirs: float | None, size: float | None = None) -> None:
        rate = f"{size / ours:7.0f} MB/s" if size else f"{ours * 1e3:8.0f} ms"
        print(f"{what:56s} {rate}   {f'{theirs / ours:5.2f}' if theirs else '':>6s}", flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        small = folder / "small.log"
        small.write_text("".join(f"step={n} loss={1 / (n + 1):.4f}\n" for n in range(100)) + "RuntimeError: boom\n")
        bare = cpu([sys.executable, "-c", "pass"], 9)
        imported = cpu([sys.executable, "-c", "import faultbook"], 9)
        started = cpu([*CLI, str(small)], 9)
        print(f"cold start, bare interpreter = 1: import faultbook {imported / bare:.1f}, diagnose a small log {started / bare:.1f}")
        many = catalogue_of(bench_scan.patterns(900), folder)
        loaded = cpu([*CLI, str(small)], 9, FAULTBOOK_CATALOGUE=str(many))
        print(f"the same with a catalogue of 900 other signatures {loaded / bare:.1f}")
        print("from a line written to its finding printed by `watch --every 0.2`: median {:.2f} s, worst {:.2f} s".format(*latency(folder)))

        log = folder / "train.log"
        bench_scan.write_log(log, megabytes << 20)
        size = log.stat().st_size / 1e6
        print(f"\n{size:.0f} MB, 8 ranks, whole processes{'':24s} CPU        × rg")
        for count in (50, 200, 1000):
            made = bench_scan.patterns(count)
            compiled = catalogue_of(made, folder)
            grep = rg(made, [log], folder)
            row(f"diagnose, {count} patterns", *both([*CLI, str(log)], grep, FAULTBOOK_CATALOGUE=str(compiled)), size)
        patterns = catalogue_patterns()
        grep = rg(patterns, [log], folder)
        row(f"diagnose, the catalogue's {len(patterns)} patterns", *both([*CLI, str(log)], grep), size)

        packed = folder / "train.log.gz"
        with log.open("rb") as plain, gzip.open(packed, "wb", 1) as stream:
            shutil.copyfileobj(plain, stream, 1 << 20)
        grep = rg(patterns, [packed], folder, "-z")
        row("the same as .gz (rg -z)", *both([*CLI, str(packed)], grep, 2), size)
        try:
            import zstandard
        except ImportError:
            pass
        else:
            packed = folder / "train.log.zst"
            with log.open("rb") as plain, packed.open("wb") as stream:
                zstandard.ZstdCompressor(level=1).copy_stream(plain, stream)
            grep = rg(patterns, [packed], folder, "-z") if shutil.which("zstd") else None
            row("the same as .zst (rg -z)", *both([*CLI, str(packed)], grep, 2), size)

        everywhere = folder / "everywhere.log"
        write_everywhere(everywhere, megabytes << 20)
        size = everywhere.stat().st_size / 1e6
        tenth = folder / "tenth.log"
        write_everywhere(tenth, (megabytes << 20) // 10)
        less = rg(patterns, [tenth], folder)
        row("a hit on every line (× rg with attribution)", cpu([*CLI, str(everywhere)], 2),
            10 * attribute(less, patterns) if less else None, size)  # fmt: skip

        files = folder / "job"
        write_ranks(files)
        size = sum(p.stat().st_size for p in files.iterdir()) / 1e6
        grep = rg(patterns, sorted(files.iterdir()), folder)
        row("1,000 files of 1,000 ranks", *both([*CLI, str(files)], grep, 1), size)

        giant = folder / "giant.log"
        write_giant(giant, megabytes << 20)
        row("one line", cpu([*CLI, str(giant)], 1), None, giant.stat().st_size / 1e6)
        if sys.platform == "linux":
            print("\npeak memory, MiB: " + ", ".join(f"{p.name} {peak([p])}" for p in (small, log, everywhere, giant, files)))


@pytest.mark.benchmark
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    for name, write in (("train", bench_scan.write_log), ("everywhere", write_everywhere), ("giant", write_giant)):
        write(tmp_path / f"{name}.log", 40 << 20)
        assert peak([tmp_path / f"{name}.log"]) < 150


@pytest.mark.benchmark
def test_a_compressed_log_gets_the_answer_of_the_plain_one(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    bench_scan.write_log(log, 3 << 20)
    (tmp_path / "packed").mkdir()
    with gzip.open(tmp_path / "packed" / "train.log.gz", "wb") as stream:
        stream.write(log.read_bytes())
    answers = []
    for path in (log, tmp_path / "packed" / "train.log.gz"):
        done = subprocess.run([*CLI, str(path)], capture_output=True, text=True, check=False)
        answers.append(done.stdout.replace(str(path), "LOG"))
    assert answers[0] == answers[1] != ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=200)
    run(parser.parse_args().mb)
