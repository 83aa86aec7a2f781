"""Inputs: what is found, what names say, and clear words where something cannot be read."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from faultbook import streams
from faultbook.model import Source
from faultbook.sources import SourceError, discover, natural_key, open_stream


def write(root: Path, *names: str, data: bytes = b"step 1\n") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def read(source: Source) -> bytes:
    with open_stream(source) as stream:
        return stream.read()


# --- finding ---


def test_one_file_keeps_the_name_given(tmp_path: Path) -> None:
    write(tmp_path, "train.log")
    (found,) = discover([tmp_path / "train.log"])
    assert (found.index, found.name, found.kind, found.rank, found.skipped) == (0, str(tmp_path / "train.log"), "log", None, "")


def test_several_files_keep_the_order_given_and_none_is_read_twice(tmp_path: Path) -> None:
    write(tmp_path, "b.log", "a.log")
    (tmp_path / "link.log").symlink_to(tmp_path / "b.log")
    found = discover([tmp_path / "b.log", tmp_path / "a.log", tmp_path / "link.log", tmp_path])
    assert [(s.index, Path(s.name).name) for s in found] == [(0, "b.log"), (1, "a.log")]


def test_a_directory_is_read_in_natural_order(tmp_path: Path) -> None:
    write(tmp_path, "rank_10.log", "rank_2.log", "rank_0.log", "node-10/x.log", "node-9/x.log")
    assert [s.name for s in discover([tmp_path])] == ["rank_0.log", "rank_2.log", "rank_10.log", "node-9/x.log", "node-10/x.log"]
    assert [s.rank for s in discover([tmp_path])] == [0, 2, 10, None, None]


def test_torchruns_log_directory(tmp_path: Path) -> None:
    for attempt in (0, 1):
        for local in (0, 1):
            write(tmp_path, f"run7_ab12/attempt_{attempt}/{local}/stdout.log", f"run7_ab12/attempt_{attempt}/{local}/stderr.log")
    write(tmp_path, "run7_ab12/attempt_0/1/error.json", data=b'{"message": {"message": "ValueError: x", "extraInfo": {}}}')
    found = {s.name: s for s in discover([tmp_path])}
    assert len(found) == 9
    error = found["run7_ab12/attempt_0/1/error.json"]
    assert (error.kind, error.attempt, error.local_rank, error.rank) == ("error_json", 0, 1, None)
    last = found["run7_ab12/attempt_1/0/stderr.log"]
    assert (last.kind, last.attempt, last.local_rank, last.stream) == ("log", 1, 0, "stderr")


@pytest.mark.parametrize("given", ["run/attempt_1/3/stderr.log", "attempt_1/3/stderr.log"])
def test_an_attempts_file_given_alone_says_the_same(tmp_path: Path, given: str) -> None:
    write(tmp_path, given)
    (found,) = discover([tmp_path / given])
    assert (found.attempt, found.local_rank, found.stream) == (1, 3, "stderr")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rank_3.log", {"rank": 3}),
        ("rank3.out", {"rank": 3}),
        ("train-rank12.log.gz", {"rank": 12}),
        ("rank_3/stderr.log", {"rank": 3, "stream": "stderr"}),
        ("local_rank_2.log", {"rank": None, "local_rank": 2}),
        ("fr/fr_trace_rank3.json", {"rank": 3, "kind": "flight_recorder"}),
        ("nccl_trace_rank_3", {"rank": 3, "kind": "flight_recorder"}),
        ("worker-3.log", {"rank": None, "node": "worker-3"}),
        ("node-1/train.log", {"node": "node-1"}),
        ("dmesg-node-0.log", {"node": "node-0", "kind": "kernel"}),
        ("slurm-4711.err", {"stream": "stderr", "rank": None}),
        ("slurm-4711.out", {"stream": "mixed", "rank": None}),
        ("job-4711-3.out", {"rank": None}),
        ("sacct.txt", {"kind": "scheduler"}),
        ("py-spy-rank1.txt", {"kind": "stacks", "rank": 1}),
        ("nvidia-smi.txt", {"kind": "gpu"}),
        ("franklin_4.log", {"rank": None}),
    ],
)
def test_names_say_rank_node_attempt_stream_and_kind(tmp_path: Path, name: str, expected: dict[str, object]) -> None:
    write(tmp_path, name, data=gzip.compress(b"x\n") if name.endswith(".gz") else b"x\n")
    (found,) = discover([tmp_path])
    assert {key: getattr(found, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "head", "kind"),
    [
        ("a.txt", b"[    0.000000] Linux version 6.1\n", "kernel"),
        ("a.txt", b"Process 71: python train.py\nPython v3.11.4 (/usr/bin/python3.11)\n\nThread 71 (idle)\n", "stacks"),
        ("a.txt", b"==============NVSMI LOG==============\n", "gpu"),
        ("a.txt", b"JobID|JobName|State|ExitCode\n", "scheduler"),
        ("pods.txt", b"NAME   READY   STATUS    RESTARTS\n", "scheduler"),
        ("trainer_state.json", b'{\n  "best_metric": null,\n  "best_model_checkpoint": null,\n "log_history": []}', "metrics"),
        ("metrics.jsonl", b'{"step": 1, "loss": 2.0}\n{"step": 2, "loss": NaN}\n', "metrics"),
        ("out.jsonl", b'{"step": 1, "message": "starting"}\n', "log"),
        ("loss.csv", b"step,loss\n1,2.5\n", "metrics"),
        ("notes.csv", b"a single column\n", "log"),
        ("dump.json", b'{"version": "2.10", "pg_config": {}, "entries": []}', "flight_recorder"),
        ("trace.bin.txt", b"\x80\x02}q\x00(X\x07\x00\x00\x00entriesq\x01", "flight_recorder"),
        ("plain.log", b"Traceback (most recent call last):\n", "log"),
    ],
)
def test_the_first_bytes_say_what_an_input_is(tmp_path: Path, name: str, head: bytes, kind: str) -> None:
    write(tmp_path, name, data=head)
    (found,) = discover([tmp_path / name])
    assert (found.kind, found.skipped) == (kind, "")


def test_hidden_files_and_loops_of_links_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "run/a.log", ".cache/x.log", "run/.hidden.log")
    (tmp_path / "run" / "again").symlink_to(tmp_path)
    (tmp_path / "dangling.log").symlink_to(tmp_path / "gone")
    assert [s.name for s in discover([tmp_path])] == ["run/a.log"]


def test_empty_files_stay_because_silence_is_evidence(tmp_path: Path) -> None:
    write(tmp_path, "rank_0.log")
    write(tmp_path, "rank_1.log", data=b"")
    assert [(s.rank, s.skipped) for s in discover([tmp_path])] == [(0, ""), (1, "")]
    assert read(discover([tmp_path / "rank_1.log"])[0]) == b""


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("loss.png", b"\x89PNG", "image"), ("model.pt", b"PK\x03\x04", "checkpoint"), ("x.log", b"\x7fELF\x02", "compiled code"),
        ("y.out", bytes(range(256)) * 20, "binary data"), ("z.txt", b"\x80\x04\x95abc", "pickle"),
        ("train.py", b"import torch\n", "source"),
        ("config.json", b'{"hidden_size": 8}', "JSON of another kind"), ("run.zip", b"PK\x03\x04", "archive"),
    ],
)
def test_what_is_no_log_is_kept_with_the_reason(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    write(tmp_path, "a.log")
    write(tmp_path, name, data=data)
    skipped = [s for s in discover([tmp_path]) if s.skipped]
    assert [s.name for s in skipped] == [name] and why in skipped[0].skipped


def test_a_log_with_some_nuls_is_no_binary(tmp_path: Path) -> None:
    write(tmp_path, "a.log", data=b"\0" * 10 + b"step 1\n" * 20 + b"\x1b[31mred\x1b[0m\n" * 100)
    assert discover([tmp_path])[0].skipped == ""


# --- reading ---


def test_text_and_bytes_are_inputs() -> None:
    assert read(discover(text="grüße\n")[0]) == "grüße\n".encode()
    assert read(discover(text=b"\xff\n")[0]) == b"\xff\n"
    assert discover(text='{"message": {"message": "x"}}')[0].kind == "error_json"


def test_standard_input_is_read_once_and_can_be_read_again() -> None:
    (found,) = discover(["-"], stdin=io.BytesIO(b"CUDA out of memory\n"))
    assert found.name == "<stdin>" and read(found) == read(found) == b"CUDA out of memory\n"
    assert read(discover(stdin=io.BytesIO(gzip.compress(b"zipped\n")))[0]) == b"zipped\n"


def test_a_long_standard_input_goes_to_a_file_and_not_to_memory() -> None:
    (found,) = discover(["-"], stdin=io.BytesIO(b"0123456789abcde\n" * (1 << 20)))
    assert found.data is None and found.path is not None
    assert os.path.getsize(found.path) == 16 << 20
    os.unlink(found.path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_an_input_like_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"from a pipe\n"))
    writer.start()
    (found,) = discover([tmp_path / "pipe"])
    writer.join()
    assert read(found) == b"from a pipe\n"


def test_compressed_files_are_read_as_what_they_hold(tmp_path: Path) -> None:
    write(tmp_path, "rank_1.log.gz", data=gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    (found,) = discover([tmp_path])
    assert (found.rank, found.kind, read(found)) == (1, "log", b"one\ntwo\n")
    write(tmp_path, "named-only.log.gz", data=b"plain\n")
    assert read(discover([tmp_path / "named-only.log.gz"])[0]) == b"plain\n"


def test_gz_is_read_without_the_accelerator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    write(tmp_path, "a.log.gz", data=gzip.compress(b"one\n" * 100_000))
    assert read(discover([tmp_path])[0]) == b"one\n" * 100_000


def test_zst_files_are_read(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    frames = zstandard.ZstdCompressor().compress(b"one\n") + zstandard.ZstdCompressor().compress(b"two\n" * 100_000)
    write(tmp_path, "a.log.zst", data=frames)
    assert read(discover([tmp_path])[0]) == b"one\n" + b"two\n" * 100_000


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the standard library reads zst")
def test_missing_zst_support_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    write(tmp_path, "a.log.zst", data=b"\x28\xb5\x2f\xfd\x00")
    with pytest.raises(SourceError, match="pip install zstandard"):
        discover([tmp_path / "a.log.zst"])
    write(tmp_path, "b.log")
    assert [bool(s.skipped) for s in discover([tmp_path])] == [True, False]


def test_a_cut_compressed_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    data = gzip.compress(os.urandom(50_000).hex().encode())
    write(tmp_path, "cut.log.gz", data=data[:-20_000])
    assert 10_000 < len(read(discover([tmp_path / "cut.log.gz"])[0])) < 100_000
    write(tmp_path, "broken.log.gz", data=data[:4] + b"\xff" * 50)
    with pytest.raises(SourceError, match=r"broken\.log\.gz"):
        discover([tmp_path / "broken.log.gz"])


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfa\nb\n", "\ufeffa\nb\n".encode("utf-16-le"), "a\nb\n".encode("utf-16"),
                                  "\ufeffa\nb\n".encode("utf-16-be")])
def test_byte_order_marks_and_utf_16_are_undone(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, "a.log", data=data)
    assert read(discover([tmp_path])[0]) == b"a\nb\n"


def test_a_long_utf_16_file_is_decoded_piece_by_piece() -> None:
    text = "größer 😀 " * 20_000
    assert read(discover(text=text.encode("utf-16"))[0]).decode() == text


# --- what cannot be read ---


def test_a_missing_path_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as error:
        discover([tmp_path / "nope.log"])
    assert str(error.value) == f"{tmp_path / 'nope.log'}: no such file or directory"
    assert error.value.path == str(tmp_path / "nope.log") and error.value.message == "no such file or directory"


def test_a_directory_without_logs_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no log in this directory"):
        discover([tmp_path])
    write(tmp_path, "model.pt", "train.py")
    with pytest.raises(SourceError, match=r"no log in this directory \(2 other files\)"):
        discover([tmp_path])


def test_a_binary_file_given_alone_is_one_clear_line(tmp_path: Path) -> None:
    write(tmp_path, "model.safetensors")
    with pytest.raises(SourceError, match="not a log: checkpoint or tensor file"):
        discover([tmp_path / "model.safetensors"])


def test_nothing_given_is_one_clear_line() -> None:
    with pytest.raises(SourceError, match="no log given"):
        discover([])


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_an_impossible_path_is_one_clear_line(path: str) -> None:
    with pytest.raises(SourceError) as error:
        discover([path])
    assert "\n" not in str(error.value)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions differ")
def test_a_file_without_permission_is_one_clear_line(tmp_path: Path) -> None:
    """As another user where the tests run as root, who may read everything."""
    write(tmp_path, "secret.log", "open.log")
    (tmp_path / "secret.log").chmod(0)
    tmp_path.chmod(0o755)
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from faultbook.sources import discover, SourceError\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "print([s.skipped for s in discover(['.'])])\n"
        "try: discover(['secret.log'])\n"
        "except SourceError as error: print(error)\n"
    )
    package = str(Path(streams.__file__).parent.parent)
    done = subprocess.run([sys.executable, "-c", program, package], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "['', 'cannot be read: permission denied']", "secret.log: cannot be read: permission denied"
    ], done.stderr


def test_natural_order_is_total() -> None:
    names = ["a10", "a2", "a", "10", "2", "b1a", "a2b", "a02", "²", "a1b2", "a1b10"]
    assert sorted(names, key=natural_key).index("a2") < sorted(names, key=natural_key).index("a10")
    assert sorted(["a1b10", "a1b2"], key=natural_key) == ["a1b2", "a1b10"]


def test_a_job_that_calls_nvidia_smi_first_is_a_log_all_the_same(tmp_path: Path) -> None:
    table = (
        "Thu Oct 16 01:38:22 2025\n+-------+\n| NVIDIA-SMI 570.158.01             Driver Version: 570.158.01     |\n"
        "|=======+=======|\n|   0  NVIDIA H800   On  |   00000000:19:00.0 Off |   0 |\n+-------+\n"
    )
    alone, job = tmp_path / "gpus.txt", tmp_path / "slurm-1.out"
    alone.write_text(table, "utf-8")
    job.write_text(f"{table}\n[rank0]: starting\nstep 1 loss 2.0\nstep 2 loss 1.9\n", "utf-8")
    assert [s.kind for s in discover([str(alone), str(job)])] == ["gpu", "log"]
