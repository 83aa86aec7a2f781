"""What must hold of every diagnosis: it depends on the bytes alone, survives masking, and never fails."""

# ruff: noqa: E501  (lines of logs are as long as they are)

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import faultbook
from faultbook import examine, pregate, sampling, scan
from faultbook.catalog import Catalog, load_catalog
from faultbook.gates import choose_gate
from faultbook.masking import Pseudonyms, mask_secrets
from faultbook.model import Diagnosis
from faultbook.sources import SourceError

BLOCKS = (97, 4096, 1 << 16)
SLOWEST = 1.0
"""Seconds of CPU that 64 KiB may take, whatever they hold."""


@pytest.fixture(scope="module")
def catalog(root: Path) -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def logs(root: Path) -> dict[str, str]:
    """What reproductions of the catalogue printed: real lines of many failures."""
    found = sorted(root.glob("kb/*/*/logs/*.log"))
    assert len(found) > 20
    return {str(p.relative_to(root)): p.read_text(encoding="utf-8", errors="replace") for p in found}


def job(lines: int = 1500, ranks: int = 4) -> str:
    """A tee'd log of several ranks with coloured and redrawn lines, that ends in an exception on one of them."""
    rng = random.Random(5)
    found = [f"[rank{r}]: world_size={ranks} rank={r} local_rank={r} pid={4000 + r}" for r in range(ranks)]
    for step in range(lines // ranks):
        for rank in range(ranks):
            loss = f"{{'loss': {3 - step * 1e-3 + rng.random() / 9:.4f}, 'grad_norm': {rng.random():.3f}, 'epoch': {step / 99:.2f}}}"
            found.append(f"\x1b[36m[rank{rank}]:\x1b[0m {loss}" if step % 9 == 0 else f"[rank{rank}]: {loss}")
        if step % 40 == 0:
            found.append("".join(f"\rTraining: {p}%|{'█' * (p // 20)}| {p}/100 [00:{p % 60:02d}<01:00, 1.5it/s]" for p in range(0, 90, 30)))
            found.append(f"node-1:{4000 + step}:77 [0] NCCL INFO Channel 00/32 : 0[0] -> 1[1] via P2P/CUMEM")
    found += [
        "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "/app/train.py", line 61, in <module>',
        "[rank2]:     loss = model(batch)",
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
        "[rank0]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3843",
    ]
    return "\n".join(found)


@pytest.fixture(params=["whole", "sampled"])
def texts(request: pytest.FixtureRequest, logs: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Logs to try, once read whole and once as if they were too large for that."""
    if request.param == "sampled":
        monkeypatch.setattr(examine, "WHOLE", 2000)
        monkeypatch.setattr(sampling, "LINES", 120)
    names = sorted(logs)
    return [job(), *(logs[name] for name in names[:: max(1, len(names) // 12)])]


def test_the_answer_does_not_depend_on_how_the_bytes_were_read(
    texts: list[str], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled = examine.WHOLE < 1 << 20
    for text in texts:
        expected = faultbook.diagnose(text=text, catalog=catalog).to_dict()
        assert any("were read from" in note for note in expected["not_examined"]) == (sampled and len(text.encode()) > 2000)
        for block in BLOCKS:
            monkeypatch.setattr(scan, "BLOCK", block)
            assert faultbook.diagnose(text=text, catalog=catalog).to_dict() == expected
        monkeypatch.setattr(scan, "BLOCK", 1 << 19)


def test_the_answer_is_the_same_through_every_gate(texts: list[str], catalog: Catalog) -> None:
    gates = [g for g in ("python", "hyperscan", "ahocorasick") if _installed(g)]
    for text in texts:
        answers = [faultbook.diagnose(text=text, catalog=catalog, gate=gate).to_dict() for gate in gates]
        assert all(answer == answers[0] for answer in answers)


def _installed(gate: str) -> bool:
    try:
        choose_gate([b"abcd"], gate)
    except ValueError:
        return False
    return True


def test_leaving_out_signatures_that_a_small_input_cannot_hold_changes_nothing(
    logs: dict[str, str], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {n: t for n, t in logs.items() if len(t) < pregate.SMALL // 2}
    names = sorted(small)
    for name in names[:: max(1, len(names) // 60)]:
        with monkeypatch.context() as patched:
            fast = faultbook.diagnose(text=small[name], catalog=catalog).to_dict()
            patched.setattr(pregate, "of_small", lambda sources: None)
            assert faultbook.diagnose(text=small[name], catalog=catalog).to_dict() == fast, name


def test_a_file_a_compressed_file_and_a_text_get_one_answer(tmp_path: Path, catalog: Catalog) -> None:
    import gzip

    text = job()
    (tmp_path / "train.log").write_text(text, encoding="utf-8", newline="")
    with gzip.open(tmp_path / "train.log.gz", "wb") as stream:
        stream.write(text.encode())
    answers = [_told(faultbook.diagnose(tmp_path / name, catalog=catalog)) for name in ("train.log", "train.log.gz")]
    assert answers[0] == answers[1] == _told(faultbook.diagnose(text=text, catalog=catalog))


def _told(diagnosis: Diagnosis) -> object:
    """The answer without file names."""
    told = json.loads(json.dumps(diagnosis.to_dict()))

    def strip(value: object) -> object:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k != "file"}
        return [strip(v) for v in value] if isinstance(value, list) else value

    told.pop("not_examined")
    return strip(told)


def test_hash_seeds_change_nothing(tmp_path: Path, logs: dict[str, str], root: Path) -> None:
    names = sorted(logs)
    paths = []
    for number, text in enumerate([job(), *(logs[n] for n in names[:: max(1, len(names) // 8)])]):
        paths.append(tmp_path / f"{number}.log")
        paths[-1].write_text(text, encoding="utf-8", newline="")
    code = (
        "import sys, json, faultbook\n"
        "from faultbook.catalog import load_catalog\n"
        "c = load_catalog()\n"
        "print(json.dumps([faultbook.diagnose(p, catalog=c, share=True).to_dict() for p in sys.argv[1:]]\n"
        "      + [faultbook.diagnose(*sys.argv[1:], catalog=c).to_dict()]))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code, *map(str, paths)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, check=True,
        ).stdout
        for seed in range(5)
    }  # fmt: skip
    assert len(answers) == 1


def verdict(diagnosis: Diagnosis) -> object:
    """What must survive masking: the verdict, the entries in order, and the initiating rank."""
    start = diagnosis.initiating
    return (
        diagnosis.verdict,
        [(f.entry, f.role, f.rank) for f in diagnosis.diagnoses],
        None if start is None else (start.scope, start.rank, start.confidence),
    )


def test_a_masked_log_gets_the_verdict_of_the_log_as_it_was(shared: Path, catalog: Catalog) -> None:
    different = []
    cases = [json.loads(line) for line in (shared / "cases" / "dev.jsonl").read_text(encoding="utf-8").splitlines()]
    for case in cases:
        text = case["log"]
        names = Pseudonyms()
        names.learn([text])
        expected = verdict(faultbook.diagnose(text=text, catalog=catalog))
        for masked in (mask_secrets(text), names.mask(mask_secrets(text))):
            if verdict(faultbook.diagnose(text=masked, catalog=catalog)) != expected:
                different.append(case["id"])
    assert different == []


def test_a_log_of_our_own_masked_gets_the_same_verdict(logs: dict[str, str], catalog: Catalog) -> None:
    names = sorted(logs)
    for name in names[:: max(1, len(names) // 60)]:
        pseudonyms = Pseudonyms()
        pseudonyms.learn([logs[name]])
        masked = pseudonyms.mask(logs[name])
        assert verdict(faultbook.diagnose(text=masked, catalog=catalog)) == verdict(
            faultbook.diagnose(text=logs[name], catalog=catalog)
        ), name


# --- whatever it is given ---

FRAGMENTS = (
    "[rank0]: ", "[rank7]:", "3: ", "\x1b[31m", "\x1b[0m", "\r", "\r\n", "\n", "\0", "█", "\\n", "\\u001b[1m", "{'loss': nan}",
    '{"step": 1, "loss": 2.5}', "Traceback (most recent call last):\n", '  File "/app/train.py", line 3, in f\n', "    x()\n",
    "ValueError: ", "torch.OutOfMemoryError: CUDA out of memory.", "NCCL WARN ", "exitcode: -9", "srun: error: node-1: task 3: Killed",
    "[E901 12:00:00.123456789 ProcessGroupNCCL.cpp:616] ", "2026-05-01 12:00:00,123 ", "step 5/100 loss 1e309", "Epoch [1/2][3/4]",
    "error_file: ", " (pid: 12) ", "rank: 1 (local_rank: 1)", "world_size=99999999", "[[", "]]", "((((((", "|" * 40, "a" * 300, "9" * 400,
    "=" * 60, "%", "Killed process 4 (python)", "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED", "-" * 80, ": ", "::::", "\t\t", "'", '"',
)  # fmt: skip
_PIECES = st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=30), st.integers(-(10**25), 10**25).map(str))
_INPUTS = st.one_of(
    st.binary(max_size=2000),
    st.lists(_PIECES, max_size=120).map("".join),
    st.tuples(st.lists(_PIECES, min_size=1, max_size=8).map("".join), st.integers(2, 4000)).map(lambda p: (p[0] * p[1])[: 64 << 10]),
)


def cpu(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


@settings(max_examples=250, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=_INPUTS)
def test_no_text_makes_a_diagnosis_fail_or_hang(data: bytes | str) -> None:
    catalog = load_catalog()

    def diagnose() -> None:
        try:
            answer = faultbook.diagnose(text=data, catalog=catalog)
        except SourceError:  # no log at all: said in one line
            return
        json.dumps(answer.to_dict())

    taken = cpu(diagnose)
    if taken > SLOWEST:  # once more, since a busy machine is no fault of the engine
        taken = cpu(diagnose)
    assert taken <= SLOWEST


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_large_log_in_another_encoding_is_read_like_any_other(
    encoding: str, tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examine, "WHOLE", 2000)
    monkeypatch.setattr(sampling, "LINES", 200)
    answers = []
    for name, codec in (("plain", "utf-8"), ("other", encoding)):
        (tmp_path / f"{name}.log").write_bytes(job().encode(codec))
        answers.append(_told(faultbook.diagnose(tmp_path / f"{name}.log", catalog=catalog)))
    assert answers[0] == answers[1]


# --- all real cases (long: FAULTBOOK_LONG=1) ---

LONG = pytest.mark.skipif(not os.environ.get("FAULTBOOK_LONG"), reason="minutes; FAULTBOOK_LONG=1 runs it")


@LONG
def test_every_real_case_is_answered_the_same_however_it_is_read(
    shared: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read whole and as if it were too large for that; in blocks of 13, 97 and 4,096 bytes; through every gate."""
    gates = [g for g in ("python", "hyperscan", "ahocorasick") if _installed(g)]
    different = []
    cases = [json.loads(line) for line in (shared / "cases" / "dev.jsonl").read_text(encoding="utf-8").splitlines()]
    for whole, lines in ((examine.WHOLE, sampling.LINES), (2000, 120)):
        monkeypatch.setattr(examine, "WHOLE", whole)
        monkeypatch.setattr(sampling, "LINES", lines)
        for case in cases:
            expected = faultbook.diagnose(text=case["log"], catalog=catalog).to_dict()
            for block in (13, 97, 4096):
                monkeypatch.setattr(scan, "BLOCK", block)
                if faultbook.diagnose(text=case["log"], catalog=catalog).to_dict() != expected:
                    different.append((case["id"], whole, f"blocks of {block}"))
            monkeypatch.setattr(scan, "BLOCK", 1 << 19)
            for gate in gates:
                if faultbook.diagnose(text=case["log"], catalog=catalog, gate=gate).to_dict() != expected:
                    different.append((case["id"], whole, gate))
    assert different == []


@LONG
def test_every_real_case_is_answered_the_same_in_twenty_processes(shared: Path, catalog: Catalog, tmp_path: Path) -> None:
    """With one copy of the catalogue, so that nobody's edit of kb/ meanwhile counts."""
    compiled = shutil.copytree(Path(faultbook.__file__).parent / "_catalogue", tmp_path / "catalogue")
    code = (
        "import sys, json, faultbook\n"
        "from faultbook.catalog import load_catalog\n"
        "c = load_catalog()\n"
        "for line in open(sys.argv[1], encoding='utf-8'):\n"
        "    print(json.dumps(faultbook.diagnose(text=json.loads(line)['log'], catalog=c, share=True).to_dict()))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code, str(shared / "cases" / "dev.jsonl")],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "FAULTBOOK_CATALOGUE": str(compiled)},
            capture_output=True, check=True,
        ).stdout
        for seed in range(20)
    }  # fmt: skip
    assert len(answers) == 1
