"""Scan speed as a ratio to ripgrep, both in this run, same files, same patterns.

    python tests/benchmarks/bench_scan.py            # about two minutes
    python tests/benchmarks/bench_scan.py --mb 50    # smaller

Prints ratios of CPU time; rates depend on the machine and are shown only for orientation.
Where `rg` is absent its columns are left out. Also run by pytest with a small log, which
checks that the answers agree with ripgrep's and never fails on time.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faultbook.model import Source
from faultbook.portable import compile_pattern
from faultbook.scan import Scanner
from faultbook.signatures import Pattern

NOUNS = ("collective", "allreduce", "watchdog", "checkpoint", "optimizer", "dataloader", "tokenizer", "shard", "tensor",
         "gradient", "scheduler", "embedding", "attention", "pipeline", "communicator", "rendezvous", "heartbeat", "allocator",
         "kernel", "stream", "workspace", "partition", "bucket", "barrier")
VERBS = ("caught", "aborted", "timed-out", "mismatched", "overflowed", "exhausted", "diverged", "corrupted", "vanished",
         "stalled", "refused", "dropped")


def patterns(count: int) -> list[Pattern]:
    """Portable patterns of the shapes that the catalogue has, each with a literal of its own."""
    rng = random.Random(count)
    made = ["CUDA out of memory", r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d+)"]
    while len(made) < count:
        a, b = rng.sample(NOUNS, 2)
        verb, code = rng.choice(VERBS), rng.randrange(10_000)
        made.append(rng.choice((
            rf"{a.capitalize()}Error: {b} {verb} \(code {code}\)",
            rf"\b{a} {verb} while waiting for {b} {code}\b",
            rf"{verb.capitalize()} {a}/{b}_{code}: expected \d+ but got (?P<got>\d+)",
            rf"\[{a}\] {b} (?:was|has been) {verb} after \d+(?:\.\d+)? s, id {code}",
            rf"fatal: {a}_{b}_{code} {verb}$",
        )))
    return [Pattern(pattern=p) for p in made]


def write_log(path: Path, size: int, ranks: int = 8) -> None:
    """A tee'd log of healthy training on several ranks, with a failure at the end."""
    rng = random.Random(7)
    block: list[str] = []
    for step in range(400):
        rank = step % ranks
        loss = 3 - step * 0.004 + rng.random() / 10
        block.append(f"[rank{rank}]: {{'loss': {loss:.4f}, 'grad_norm': {rng.random():.6f}, 'learning_rate': "
                     f"{1e-4 * rng.random():.3e}, 'epoch': {step / 400:.2f}}}\n")
        block.append(f'{{"step": {step}, "rank": {rank}, "loss": {loss:.6f}, "tokens_per_second": '
                     f'{rng.randrange(10_000, 90_000)}, "memory_gib": {rng.random() * 80:.2f}, "lr": 0.0001}}\n')
        block.append("".join(f"\rTraining: {p:3d}%|{'█' * (p // 10)}{' ' * (10 - p // 10)}| {p}/100 [00:{p % 60:02d}"
                             f"<01:12, 1.3{p % 10}it/s, loss={loss:.3f}]" for p in range(step % 5, 100, 25)) + "\n")
        block.append(f"node-{rank // 4}:{4000 + rank}:{4100 + rank} [{rank % 4}] NCCL INFO Channel {step % 32:02d}/32 : "
                     f"{rank}[{rank}] -> {(rank + 1) % ranks}[{(rank + 1) % ranks}] via P2P/CUMEM/read\n")
        if step % 50 == 0:
            block.append(f"[rank{rank}]: Traceback (most recent call last):\n"
                         f'[rank{rank}]:   File "/app/train.py", line {step + 10}, in load\n'
                         f"[rank{rank}]:     batch = next(iterator)\n[rank{rank}]: StopIteration\n")
    text = "".join(block).encode()
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(text)
        file.write(b"[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")


def best(action: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of the fastest run, this process and its children together: both sides use
    one thread, so this is their time on an idle machine, also where others are busy."""
    taken = []
    for _ in range(times):
        start = sum(os.times()[:4])
        action()
        taken.append(sum(os.times()[:4]) - start)
    return max(min(taken), 1e-3)


def ripgrep(made: list[Pattern], paths: list[Path], folder: Path) -> Callable[[], bytes] | None:
    """ripgrep over the files: prints `line:text` of each matching line; None without `rg`."""
    program = shutil.which("rg")
    if program is None:
        return None
    listed = folder / f"patterns-{len(made)}.txt"
    listed.write_text("\n".join(re.sub(r"\(\?P<\w+>", "(?:", p.pattern) for p in made) + "\n")
    # ASCII classes, text whatever the bytes, one thread, and room for its DFA: its best case
    command = [program, "--no-unicode", "-a", "-n", "-j1", "--no-config", "--no-ignore", "--dfa-size-limit", "1G",
               "--regex-size-limit", "1G", "-f", str(listed), *map(str, paths)]

    def search() -> bytes:
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"ripgrep failed: {done.stderr.decode()[:300]}")
        return done.stdout

    return search


def agree(scanner: Scanner, path: Path, output: bytes) -> bool:
    """Whether the scan and ripgrep name the same physical lines."""
    lines = {int(m) for m in re.findall(rb"^(\d+):", output, re.M)}
    return {hit.line for hit in scanner.scan(_source(path)).hits} == lines


def _source(path: Path | str) -> Source:
    return Source(0, str(path), "log", str(path))


def run(megabytes: int, counts: tuple[int, ...] = (50, 200, 1000)) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        log = folder / "train.log"
        write_log(log, megabytes << 20)
        size = log.stat().st_size / 1e6
        print(f"{size:.0f} MB, 8 ranks                    scan      rg   scan/rg")
        for count in counts:
            made = patterns(count)
            start = time.perf_counter()
            scanner = Scanner(made)
            ready = time.perf_counter() - start
            grep = ripgrep(made, [log], folder)
            ours = size / best(lambda s=scanner: s.scan(_source(log)))  # type: ignore[misc]
            note = f"gate {scanner.gate.name}, ready in {ready * 1e3:.0f} ms"
            if grep is None:
                print(f"{count:5d} patterns          {ours:8.0f} MB/s   (no rg)            {note}")
                continue
            theirs = size / best(grep)
            same = agree(scanner, log, grep())
            print(f"{count:5d} patterns          {ours:8.0f} {theirs:7.0f} MB/s  {ours / theirs:5.2f}   {note}, "
                  f"{'same lines' if same else 'DIFFERENT LINES'}")
        _hostile(folder, size)
        _many(folder)
        if sys.platform == "linux":
            for name in ("train.log", "everywhere.log", "giant.log"):
                code = (f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import bench_scan\n"
                        "bench_scan.Scanner(bench_scan.patterns(200)).scan(bench_scan._source(sys.argv[1]))\n"
                        "print(next(int(x.split()[1]) // 1024 for x in open('/proc/self/status') if x.startswith('VmHWM')))")
                command = [sys.executable, "-c", code, str(folder / name)]
                peak = subprocess.run(command, capture_output=True, text=True, check=True)
                print(f"peak memory, {name:14s} {int(peak.stdout):6d} MiB")


def _hostile(folder: Path, size: float) -> None:
    made = patterns(200)
    everywhere = folder / "everywhere.log"
    with everywhere.open("wb") as file:
        for number in range(int(size * 1e6 / 10 / 100)):
            file.write(b"[rank%d]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %d GiB. GPU %d has\n"
                       % (number % 8, number, number % 8))
    scanner = Scanner(made)
    mb = everywhere.stat().st_size / 1e6
    ours, grep = mb / best(lambda: scanner.scan(_source(everywhere))), ripgrep(made, [everywhere], folder)
    ratio = f"{ours * best(grep) / mb:5.2f} × rg" if grep else "(no rg)"
    print(f"a hit on every line        {ours:8.0f} MB/s  {ratio} (which attributes no hit to a pattern)")
    giant = folder / "giant.log"
    with giant.open("wb") as file:
        for _ in range(int(size / 2)):
            file.write(b"CUDA out of memor, x " * 50_000)
    mb = giant.stat().st_size / 1e6
    print(f"one line of {mb:4.0f} MB       {mb / best(lambda: scanner.scan(_source(giant)), 1):8.0f} MB/s")


def _many(folder: Path) -> None:
    made = patterns(200)
    files = folder / "many"
    files.mkdir()
    one = folder / "one.log"
    write_log(one, 200_000)
    data = one.read_bytes()
    paths = [files / f"rank_{number}.log" for number in range(1000)]
    for path in paths:
        path.write_bytes(data)
    scanner = Scanner(made)
    ours = best(lambda: [scanner.scan(_source(path)) for path in paths])
    grep = ripgrep(made, paths, folder)
    ratio = f"{best(grep) / ours:5.2f} × rg" if grep else "(no rg)"
    print(f"1,000 files                {len(data) * 1000 / 1e6 / ours:8.0f} MB/s  {ratio}")


@pytest.mark.benchmark
def test_the_scan_and_ripgrep_name_the_same_lines(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    write_log(log, 1 << 20)
    made = patterns(50)
    scanner = Scanner(made)
    grep = ripgrep(made, [log], tmp_path)
    if grep is None:
        pytest.skip("ripgrep is not installed")
    assert agree(scanner, log, grep())
    assert all(compile_pattern(p) for p in made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=200)
    run(parser.parse_args().mb)
    sys.exit(0)
