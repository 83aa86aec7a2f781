"""Inputs: files, directories of rank logs, standard input, text; compressed or not.

`discover` turns what a user names into a list of `Source` values (kind, rank, attempt,
node and stream as far as names and the first bytes tell); `open_stream` reads one of
them as plain UTF-8-compatible bytes. Every failure is a `SourceError` of one line.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Literal, cast

from . import lazy, tracking
from .model import Source, SourceKind
from .streams import COMPRESSED, Chained, SourceError, open_stream, reason, seekable
from .values import replace

__all__ = ["SourceError", "discover", "natural_key", "open_stream", "seekable"]

HEAD = 8192
"""How many bytes are looked at to tell what an input is."""
_IN_MEMORY = 8 << 20
"""Standard input beyond this goes to a temporary file."""


def discover(
    paths: Sequence[str | os.PathLike[str]] = (),
    text: str | bytes | None = None,
    stdin: BinaryIO | None = None,
) -> list[Source]:
    """All inputs, in natural order within a directory, in the order given otherwise.

    `-` among the paths, or `stdin`, reads standard input. Directories are read
    recursively; what is no log is kept with `skipped` saying why. Raises SourceError
    when a path given does not exist or cannot be read, or when nothing is readable.
    """
    found: list[Source] = []
    seen: set[tuple[int, int]] = set()
    if text is not None:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        found.append(_from_data(data, "<text>"))
    for path in paths:
        name = os.fspath(path)
        if name == "-":
            found.append(_spooled(stdin or sys.stdin.buffer, "<stdin>"))
            stdin = None
            continue
        found += _from_path(name, seen)
    if stdin is not None:
        found.append(_spooled(stdin, "<stdin>"))
    if not found:
        raise SourceError("input", "no log given")
    if all(source.skipped for source in found):
        first = found[0]
        more = f" (and {len(found) - 1} more inputs could not be read)" if len(found) > 1 else ""
        raise SourceError(first.name, first.skipped + more)
    return [replace(source, index=index) for index, source in enumerate(found)]


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key under which rank_2 comes before rank_10."""
    return [
        (0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part)
        for part in re.split(r"(\d{1,18})", name) if part
    ]


# --- finding inputs ---

_NOT_LOGS = frozenset(
    ".py .pyc .pyi .ipynb .sh .yaml .yml .toml .ini .cfg .conf .md .rst .html .css .js .ts .c .cc .cpp .cu .h .cuh"  # noqa: SIM905
    " .lock .service .env .pem .key .crt .tex .pdf .xml .svg".split()
)
_BINARY = {
    "image": ".png .jpg .jpeg .gif .webp .bmp .tiff .ico",
    "checkpoint or tensor file": ".pt .pth .ckpt .safetensors .bin .npy .npz .h5 .hdf5 .onnx .gguf .msgpack .distcp",
    "archive": ".zip .tar .tgz .7z .rar .bz2 .xz .whl .lz4",
    "media": ".mp3 .mp4 .wav .flac .avi .mov",
    "compiled code": ".so .o .a .dll .exe .cubin .ptx .class",
    "data set": ".parquet .arrow .feather .tfrecord .lmdb .mdb .db .sqlite .idx",
    "profile": ".nsys-rep .qdrep .prof .pb",
}
_BINARY_SUFFIX = {suffix: what for what, suffixes in _BINARY.items() for suffix in suffixes.split()}
_LOG_JSON = lazy.regex(r"error|trainer_state|trace|metrics|log|fr_|events?|pods?|history|results?", re.I)


def _from_path(name: str, seen: set[tuple[int, int]]) -> list[Source]:
    try:
        info = os.stat(name)
    except (OSError, ValueError) as error:
        raise SourceError(name, reason(error)) from None
    if stat.S_ISDIR(info.st_mode):
        if tracking.format_of(name):
            return [Source(0, name, "metrics", name)]
        listed = list(_from_directory(name, seen))
        sources = [s for s in listed if s is not None]
        if all(source.skipped for source in sources) and len(sources) == len(listed):
            needs = next((s for s in sources if s.skipped.startswith("needs ")), None)
            detail = f" ({len(sources)} other files)" if sources else ""
            detail = f"{detail}; {needs.name} {needs.skipped}" if needs else detail
            raise SourceError(name, f"no log in this directory{detail}")
        return sources
    if not stat.S_ISREG(info.st_mode):  # a pipe, such as <(kubectl logs …)
        try:
            with open(name, "rb") as pipe:
                return [_spooled(pipe, name)]
        except OSError as error:
            raise SourceError(name, reason(error)) from None
    if _known(info, seen):
        return []
    source = _from_file(name, name)
    if source.skipped.startswith("cannot be read"):
        raise SourceError(name, source.skipped)
    return [source]


def _from_directory(root: str, seen: set[tuple[int, int]]) -> Iterator[Source | None]:
    """Files below a directory, hidden ones left out; None for one that was listed before,
    under whatever name."""
    visited: set[tuple[int, int]] = set()
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            info = os.stat(folder)
            if _known(info, visited):
                continue
            entries = sorted(os.scandir(folder), key=lambda e: natural_key(e.name))
        except OSError as error:
            if folder == root:
                raise SourceError(root, reason(error)) from None
            name = os.path.relpath(folder, root)
            yield Source(0, name, "log", folder, skipped=f"cannot be read: {reason(error)}")
            continue
        folders = []
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                info = entry.stat()
            except OSError:
                continue  # a dangling link
            if tracking.private(entry.path):
                continue
            if stat.S_ISDIR(info.st_mode):
                if tracking.format_of(entry.path):
                    yield Source(0, os.path.relpath(entry.path, root), "metrics", entry.path)
                else:
                    folders.append(entry.path)
            elif stat.S_ISREG(info.st_mode):
                name = os.path.relpath(entry.path, root)
                yield None if _known(info, seen) else _from_file(entry.path, name, info.st_size, listed=True)
        waiting += reversed(folders)


def _known(info: os.stat_result, seen: set[tuple[int, int]]) -> bool:
    """Whether this file was met before; remembers it. Systems without inodes never say so."""
    key = (info.st_dev, info.st_ino)
    if info.st_ino == 0:
        return False
    if key in seen:
        return True
    seen.add(key)
    return False


def _from_file(path: str, name: str, size: int | None = None, listed: bool = False) -> Source:
    """One file; `listed` when a directory named it, so that non-logs are left out."""
    source = Source(0, name, "log", path, **_facts_of_name(name))
    stem, suffix = os.path.splitext(_plain_name(name).lower())
    if tracking.format_of(path):
        return replace(source, kind="metrics", skipped=tracking.obstacle(path))
    if what := _BINARY_SUFFIX.get(suffix):
        return replace(source, skipped=f"not a log: {what}")
    if listed and suffix in _NOT_LOGS:
        return replace(source, skipped="not a log: source or configuration")
    if listed and suffix == ".json" and not _LOG_JSON.search(stem):
        return replace(source, skipped="not a log: JSON of another kind")
    if size == 0:
        return replace(source, kind=_kind(_plain_name(name), b""))
    try:
        with open_stream(source) as stream:
            head = stream.read(HEAD)
    except SourceError as error:
        return replace(source, skipped=f"cannot be read: {error.message}")
    kind = _kind(_plain_name(name), head)
    if kind != "flight_recorder" and (what := _binary(head)):
        return replace(source, skipped=f"not a log: {what}")
    return replace(source, kind=kind, node=source.node or _node_in(kind, head))


def _node_in(kind: SourceKind, head: bytes) -> str | None:
    """The one node that `kubectl describe` or `scontrol show job` names."""
    names = set(_NODE_FIELD.findall(head)) if kind == "scheduler" else set()
    return names.pop().decode("ascii", "replace") if len(names) == 1 else None


_NODE_FIELD = lazy.regex_bytes(rb"(?:(?:^|\n)Node: +|\bBatchHost=)([\w.\-]{1,200})")


def _from_data(data: bytes, name: str) -> Source:
    source = Source(0, name, "log", data=data)
    with open_stream(source) as stream:
        head = stream.read(HEAD)
    kind = _kind("", head)
    skipped = "" if kind == "flight_recorder" else _binary(head)
    return replace(source, kind=kind, skipped=f"not a log: {skipped}" if skipped else "")


def _spooled(stream: BinaryIO, name: str) -> Source:
    """A pipe's content, kept in memory while small: later stages read it again."""
    import tempfile  # this and gzip are slow to import, and rarely needed

    try:
        data = _read_up_to(stream, _IN_MEMORY)
        if data[:2] == b"\x1f\x8b":  # zcat was forgotten
            import gzip

            data, stream = b"", cast(BinaryIO, gzip.GzipFile(fileobj=Chained(data, stream)))
            data = _read_up_to(stream, _IN_MEMORY)
        if len(data) < _IN_MEMORY:
            return _from_data(data, name)
        with tempfile.NamedTemporaryFile(prefix="faultbook-", suffix=".log", delete=False) as spool:
            atexit.register(_remove, spool.name)
            spool.write(data)
            while chunk := stream.read(1 << 20):
                spool.write(chunk)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(name, reason(error)) from None
    return replace(_from_data(data[:HEAD], name), data=None, path=spool.name)


def _read_up_to(stream: BinaryIO, size: int) -> bytes:
    parts, total = [], 0
    while total < size and (chunk := stream.read(min(1 << 20, size - total))):
        parts.append(chunk)
        total += len(chunk)
    return b"".join(parts)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


# --- what a name says ---

_RANK = lazy.regex(r"(?:^|[^a-z])rank[ _.\-]?(\d{1,6})(?!\d)|(?:^|[^a-z])(?:trace|dump)_(\d{1,6})(?:\.\w+)?$", re.I)
_LOCAL_RANK = lazy.regex(r"local[ _.\-]?rank[ _.\-]?(\d{1,4})(?!\d)", re.I)
_ATTEMPT = lazy.regex(r"attempt[_-](\d{1,4})(?!\d)", re.I)
_NODE = lazy.regex(r"(?<![a-z])((?:node|host|worker|pod|compute|gpu-?node|machine)[-_]?\d{1,6})(?!\d)", re.I)


def _plain_name(name: str) -> str:
    """Base name without a compression suffix."""
    return COMPRESSED.sub("", os.path.basename(name))


_NAME_WORDS = ("rank", "attempt", "trace", "dump", "node", "host", "worker", "pod", "compute", "machine")


def _facts_of_name(name: str) -> dict[str, Any]:
    base = _plain_name(name)
    lowered = name.lower()
    if not any(word in lowered for word in _NAME_WORDS):
        return {"stream": _stream_of(base.lower())}
    parts = name.replace("\\", "/").split("/")[:-1]
    facts: dict[str, Any] = {"stream": _stream_of(base.lower())}
    for position, part in enumerate(parts):
        if attempt := _ATTEMPT.fullmatch(part):
            facts["attempt"] = int(attempt.group(1))
            below = parts[position + 1] if position + 1 < len(parts) else ""
            if below.isdigit() and below.isascii() and len(below) < 6:
                facts["local_rank"] = int(below)
    if (attempt := _ATTEMPT.search(base)) and "attempt" not in facts:
        facts["attempt"] = int(attempt.group(1))
    if local := _LOCAL_RANK.search(base):
        facts["local_rank"] = int(local.group(1))
    elif rank := _RANK.search(base) or next(filter(None, (_RANK.fullmatch(p) for p in reversed(parts))), None):
        facts["rank"] = int(rank.group(1) or rank.group(2))
    for part in [*parts, base]:
        if node := _NODE.search(part):
            facts["node"] = node.group(1)
            break
    return facts


def _stream_of(base: str) -> Literal["stdout", "stderr", "mixed"]:
    if "stderr" in base or base.endswith(".err"):
        return "stderr"
    return "stdout" if "stdout" in base else "mixed"


# --- what the first bytes say ---

_KINDS_BY_NAME: tuple[tuple[SourceKind, tuple[str, ...], re.Pattern[str]], ...] = (
    ("flight_recorder", ("trace", "recorder"),
     lazy.regex(r"(?:^|[_-])fr_?trace|nccl_trace|comm_lib_trace|flight_?recorder", re.I)),
    ("kernel", ("dmesg", "kern"), lazy.regex(r"^(?:dmesg|kern(?:el)?)\b|[-_.]dmesg\b|^kern\.log", re.I)),
    ("scheduler", ("sacct", "scontrol", "squeue", "sinfo", "kubectl", "pod", "k8s", "events"),
     lazy.regex(r"^(?:sacct|scontrol|squeue|sinfo|kubectl|pods?|k8s|events)\b|[-_.](?:sacct|scontrol)\b", re.I)),
    ("stacks", ("spy", "stack"), lazy.regex(r"py-?spy|^stacks?\b", re.I)),
    ("gpu", ("smi", "dcgm"), lazy.regex(r"nvidia-?smi|rocm-?smi|^dcgm", re.I)),
)  # fmt: skip
"""Kind, words of which such a name holds one, expression."""
_KINDS_BY_HEAD: tuple[tuple[SourceKind, bytes, re.Pattern[bytes]], ...] = (
    ("error_json", b"{", lazy.regex_bytes(rb'\s*\{\s*"message"\s*:\s*(?:\{|"(?s:.)*"(?:timestamp|extraInfo|errorCode)")')),
    ("flight_recorder", b"{",
     lazy.regex_bytes(rb'\s*\{(?s:.)*"(?:pg_config|pg_status|collective_seq_id|nccl_version|comm_lib_version)"')),
    ("flight_recorder", b"\x80", lazy.regex_bytes(rb"\x80[\x02-\x05](?s:.)*(?:entries|nccl_version|pg_config)")),
    ("metrics", b"{", lazy.regex_bytes(rb'\s*\{(?s:.)*"(?:log_history|best_model_checkpoint|best_global_step)"')),
    ("kernel", b"<[", lazy.regex_bytes(rb"(?:<\d+>)?\[ *\d+\.\d{6}\] ")),
    ("scheduler", b"JLN", lazy.regex_bytes(rb"\s*(?:JobID(?:Raw)?[ |]|JobId=\d|LAST SEEN +TYPE|NAME +READY +STATUS)")),
    ("stacks", b"Pp", lazy.regex_bytes(rb"Process \d+: .*\r?\nPython v\d|pid \d+ rank \S+ argv ")),
    ("gpu", b"=+MTWFSE",
     lazy.regex_bytes(rb"\s*=+ ?NVSMI LOG ?=+|\s*ECC Errors\r?\n +Volatile\r?\n"
                      rb"|\s*(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [\d :]+\r?\n)?\+-+\+\r?\n\| NVIDIA-SMI")),
)  # fmt: skip
"""Kind, the first characters of which such a file has one, expression."""
_JSON_TEXT = lazy.regex_bytes(rb'"(?:message|log|msg|text|body|line|event)"\s*:\s*"', re.I)
_JSON_NUMBERS = lazy.regex_bytes(rb'\s*\{[^\n]*"[^"\n]+"\s*:\s*-?(?:\d|NaN|Infinity)')


_REPORT_LINE = lazy.regex_bytes(
    rb"\s*$|[|+=]|GPU [0-9A-Fa-f]{4,8}:|[A-Z][a-z]{2} [A-Z][a-z]{2} [\d :]+$| *[A-Za-z][\w .()/+\-]{0,60}(?: *:(?: .*)?)?\r?$"
)


def _report_alone(head: bytes) -> bool:
    """Whether nothing but nvidia-smi's report stands there: many a job's script calls it before it trains."""
    whole = head.splitlines()[:-1] if len(head) >= HEAD else head.splitlines()
    return all(_REPORT_LINE.match(line) for line in whole) and b"Traceback" not in head


def _kind(base: str, head: bytes) -> SourceKind:
    lowered = base.lower()
    for kind, words, by_name in _KINDS_BY_NAME:
        if any(word in lowered for word in words) and by_name.search(base):
            return kind
    first = head.lstrip()[:1]
    for kind, firsts, by_head in _KINDS_BY_HEAD:
        if first and first in firsts and by_head.match(head) and (kind != "gpu" or _report_alone(head)):
            return kind
    suffix = os.path.splitext(base.lower())[1]
    if suffix in (".csv", ".tsv") and re.match(rb"[^\n]*[,\t][^\n]*\r?\n[^\n]*\d", head):
        return "metrics"
    if suffix in (".jsonl", ".ndjson", ".json") and _JSON_NUMBERS.match(head):
        return "log" if _JSON_TEXT.search(head) else "metrics"
    return "log"


_MAGIC = (
    (b"\x89PNG", "image"), (b"\xff\xd8\xff", "image"), (b"GIF8", "image"), (b"PK\x03\x04", "archive or checkpoint"),
    (b"\x80\x02", "pickle"), (b"\x80\x03", "pickle"), (b"\x80\x04", "pickle"), (b"\x80\x05", "pickle"),
    (b"\x7fELF", "compiled code"), (b"%PDF", "document"), (b"BZh", "archive"), (b"\xfd7zXZ", "archive"),
    (b"PAR1", "data set"), (b"\x93NUMPY", "array"), (b"\x89HDF", "data set"), (b"SQLite format 3", "data base"),
)


def _binary(head: bytes) -> str:
    """What kind of binary it is; empty for text, in which some NULs and odd bytes are normal."""
    for magic, what in _MAGIC:
        if head.startswith(magic):
            return what
    text = head.lstrip(b"\0")  # a log that was cut in place while it was written begins with NULs
    control = sum(text.count(bytes([c])) for c in (*range(0, 7), *range(14, 27), 28, 29, 30, 31))
    return "binary data" if control > max(16, len(text) * 0.05) else ""
