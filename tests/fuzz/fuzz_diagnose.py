"""Throws inputs at a whole diagnosis: none may raise, print a traceback, or take more than a second of CPU for 64 KiB.

    python tests/fuzz/fuzz_diagnose.py --runs 200000           # seeds from kb/*/*/logs, a fixed random sequence
    python tests/fuzz/fuzz_diagnose.py --runs 20000 --seed 7   # another sequence
    python tests/fuzz/fuzz_diagnose.py --atheris corpus/ -max_total_time=300   # guided by coverage, where atheris is installed

Every seventh input goes in as files in a folder (rank logs, dumps, error.json, .gz, metrics), the others as text. An
input that fails is written to the folder `--out` and said with its number; the exit code is then 1. Not run by
pytest: `tests/sdk/test_properties.py` holds a short version.
"""

# ruff: noqa: E501  (lines of logs are as long as they are)
from __future__ import annotations

import argparse
import gzip
import json
import pickle
import random
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from faultbook import diagnose, render
from faultbook.catalog import Catalog, load_catalog
from faultbook.sources import SourceError

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1.0
LARGEST = 64 << 10
NAMES = ("rank_0.log", "rank_1.log", "train.log", "attempt_0/1/stderr.log", "error.json", "fr_trace_0.json", "fr_trace_rank1",
         "dmesg.txt", "sacct.txt", "stacks-3.txt", "nvidia-smi.txt", "trainer_state.json", "metrics.csv", "metrics.jsonl",
         "train.log.gz", "train.log.zst", "runs/events.out.tfevents.17.host.1.0", "wandb/offline-run-1/run-x.wandb", "mlflow.db",
         f"mlruns/1/{'0' * 32}/metrics/train/loss")  # fmt: skip
TOKENS = (
    b"\r", b"\n", b"\r\n", b"\0", b"\x1b[31m", b"\x1b[", b"\xff\xfe", b"\xef\xbb\xbf", b"\\n", b"\\u001b[0m", b"{", b"}", b"[[", b"]",
    b"(((((", b"|" * 60, b"a" * 500, b"9" * 500, b"nan", b"-inf", b"1e999", b"[rank3]: ", b"[rank99999]:", b"7: ", b"exitcode: -11",
    b"Traceback (most recent call last):\n", b"world_size=4294967296", b"rank 99999999", b"\x80\x04", b"2026-01-01 00:00:00,000 ",
    b"step 3/2 ", b"Epoch [5/", b"100%|", b"it/s]", b"'loss': ", b'"loss": ', b"\xe2\x96\x88" * 30, b"=" * 80, b"\t" * 40, b" " * 200,
)  # fmt: skip


def seeds() -> list[bytes]:
    """The logs of the catalogue's reproductions, and a few forms that they lack."""
    found = [path.read_bytes() for path in sorted(ROOT.glob("kb/*/*/logs/*.log"))]
    found += [
        b'{"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback (most recent call last):\\n", "timestamp": "1"}}}',
        b'{"version": "2.4", "entries": [{"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1, "profiling_name": '
        b'"nccl:all_reduce", "state": "started", "input_sizes": [[3]], "frames": []}], "pg_config": {}}',
        b'{"log_history": [{"loss": 1.0, "step": 1}, {"loss": NaN, "step": 2}], "best_metric": null}',
        b"step,loss,lr\n1,2.0,0.1\n2,nan,0.1\n",
        b"JobID|JobName|State|ExitCode\n12|train|CANCELLED by 0|0:15\n",
        b"[    1.000001] NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus.\n",
        b"==============NVSMI LOG==============\nGPU 00000000:10:1C.0\n    GPU Recovery Action : Reset\n    ECC Errors\n        Volatile\n"
        b"            DRAM Uncorrectable : 2\n    Remapped Rows\n        Pending : Yes\n    Processes\n        Process ID : 12\n",
        pickle.dumps({"entries": [{"collective_seq_id": n, "process_group": ("0", "default_pg"), "profiling_name": "nccl:all_reduce",
                                   "input_sizes": [[3, n]], "frames": []} for n in range(9)], "pg_config": {"0": {"ranks": [0, 1]}}}, 2),
        b":W&B\xe1\xbe\0" + b"".join(struct.pack("<IHB", 0, len(x), 1) + x for x in [b"\x12\x1a\x0a\x14\x0a\x04loss\x82\x01\x0b0.512345678\x12\x02\x08\x07"] * 9),
        b"".join(b"17960728%05d %f %d\n" % (n, 2 / (n + 1), n) for n in range(40)),
        b"pid 12 rank 0 argv python train.py\nProcess 12: python train.py\nPython v3.11.4\nThread 12 (idle): \"MainThread\"\n    wait (threading.py:320)\n",
    ]
    return [seed[:LARGEST] for seed in found if seed]


def mutated(rng: random.Random, corpus: list[bytes]) -> bytes:
    """A piece of a log, or of several, with a few changes."""
    data = bytearray(_piece(rng, corpus))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5, 9))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 1:
            data[at : at + rng.randrange(1, 60)] = b""
        elif kind == 2 and data:
            data[min(at, len(data) - 1)] = rng.randrange(256)
        elif kind == 3:
            data[at:at] = _piece(rng, corpus)[:400]
        elif kind == 4:
            data[at:at] = bytes(data[at : at + rng.randrange(1, 80)]) * rng.randrange(2, 12)
        elif kind == 5:
            data[at:at] = rng.randbytes(rng.randrange(1, 20))
        elif kind == 6:
            lines = bytes(data).split(b"\n")
            rng.shuffle(lines)
            data = bytearray(b"\n".join(lines))
        else:
            data[at:at] = str(rng.choice((-1, 0, 2**31, 2**63, 10**30, rng.random(), rng.randrange(10**6)))).encode()
    if rng.random() < 0.003:  # now and then as large as the promise
        data = (data or bytearray(b"x")) * (LARGEST // max(1, len(data)) + 1)
    return bytes(data[:LARGEST])


def _piece(rng: random.Random, corpus: list[bytes]) -> bytes:
    text = rng.choice(corpus)
    size = rng.choice((40, 200, 800, 2000))
    start = rng.randrange(max(1, len(text) - size // 2))
    return text[start : start + size]


def once(data: bytes, catalog: Catalog, rng: random.Random, as_files: bool, folder: Path) -> None:
    """One diagnosis and everything that shows it."""
    try:
        if as_files:
            _write(data, rng, folder)
            found = diagnose(folder, catalog=catalog, share=rng.random() < 0.3)
        else:
            found = diagnose(text=data, catalog=catalog, share=rng.random() < 0.1)
    except SourceError:  # said in one line to the user
        return
    json.dumps(found.to_dict())
    render.as_json(found)
    render.as_markdown(found)


def _write(data: bytes, rng: random.Random, folder: Path) -> None:
    for old in folder.rglob("*"):
        if old.is_file():
            old.unlink()
    for name in rng.sample(NAMES, rng.randrange(1, 4)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        at = rng.randrange(len(data) + 1)
        part = data[at:] + data[:at] if rng.random() < 0.5 else data
        if name.endswith(".gz") and rng.random() < 0.8:
            part = gzip.compress(part)[: None if rng.random() < 0.7 else rng.randrange(1, 200)]
        path.write_bytes(part)


def cpu(action: Callable[[], None]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def run(runs: int, seed: int, out: Path) -> int:
    catalog, corpus = load_catalog(), seeds()
    failures, slowest, started = 0, 0.0, time.process_time()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number in range(runs):
            rng = random.Random(f"{seed}:{number}")
            data = mutated(rng, corpus)
            as_files = number % 7 == 0
            state = rng.getstate()
            try:
                taken = cpu(lambda d=data, r=rng, f=as_files: once(d, catalog, r, f, folder))  # type: ignore[misc]
                if taken > LIMIT:  # once more: a busy machine is no fault of the engine
                    rng.setstate(state)
                    taken = cpu(lambda d=data, r=rng, f=as_files: once(d, catalog, r, f, folder))  # type: ignore[misc]
                slowest = max(slowest, taken)
                problem = f"took {taken:.2f} s" if taken > LIMIT else ""
            except Exception as error:  # this is what the fuzzer looks for
                problem = f"{type(error).__name__}: {error}"
            if problem:
                failures += 1
                out.mkdir(parents=True, exist_ok=True)
                (out / f"{seed}-{number}.bin").write_bytes(data)
                print(f"input {number}{' as files' if as_files else ''}: {problem}", flush=True)
            if number and number % 10_000 == 0:
                print(f"{number:,} inputs, {failures} failures, slowest {slowest:.2f} s of CPU", flush=True)
    taken = time.process_time() - started
    print(f"{runs:,} inputs, {failures} failures, slowest {slowest:.2f} s of CPU, {taken / runs * 1e3:.1f} ms each")
    return 1 if failures else 0


def guided(arguments: list[str]) -> None:
    """Coverage-guided, by atheris (`pip install atheris`); its own options and corpus folders go through."""
    import atheris  # type: ignore[import-not-found,unused-ignore]

    catalog = load_catalog()

    def one(data: bytes) -> None:
        if len(data) <= LARGEST:
            once(data, catalog, random.Random(len(data)), False, Path())

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], "-timeout=5", *arguments], one)
    atheris.Fuzz()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--atheris", nargs=argparse.REMAINDER, metavar="ARG", help="all that follows goes to atheris")
    given = parser.parse_args()
    if given.atheris is not None:
        guided(given.atheris)
    sys.exit(run(given.runs, given.seed, given.out))
