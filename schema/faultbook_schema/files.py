"""The files of an entry: logs and repro.py, read as text and checked against what the entry says."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultbook.portable import compile_pattern
from faultbook.signatures import Pattern

from . import access, regions
from .problems import Problem, nearest
from .regions import Code
from .signature_rules import MAX_PATTERN, MAX_PATTERNS, faults_of, literals_of, patterns_of

if TYPE_CHECKING:
    from .loader import LoadedEntry

MAX_LOG = 256 * 1024
MAX_REPRO = 64 * 1024
_LOG_NAME = re.compile(r"(broken|fixed)(-[\w.]+)*\.log|recorded-[\w.-]+\.(log|txt|json|csv|jsonl)")


def read_bytes(folder: Path, name: str, shown: str, limit: int) -> tuple[bytes | None, Problem | None]:
    """A plain file inside the folder; links and special files are refused, so that an entry
    can neither read the machine it is checked on nor block it."""
    path = folder / name
    try:
        if path.resolve().parent != folder.resolve() / Path(name).parent or path.is_symlink():
            return None, Problem(shown, 1, "leads out of the entry's folder (a link?)", "unreadable")
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None, Problem(shown, 1, "is not a plain file", "unreadable")
            return file.read(limit), None
    except FileNotFoundError:
        return None, Problem(shown, 1, "is missing", "missing-file")
    except (OSError, ValueError) as error:
        return None, Problem(shown, 1, f"cannot be read: {getattr(error, 'strerror', None) or error}", "unreadable")


def read_files(item: LoadedEntry, raw: dict[str, Any]) -> tuple[dict[str, str], Code | None, list[Problem]]:
    """Logs by name, the regions of repro.py, and what is wrong with either."""
    folder = item.folder
    base = item.path.removesuffix("entry.yaml")
    problems: list[Problem] = []
    problems += [
        Problem(f"{base}{name}", 1, "no such file belongs to an entry", "unexpected-file", "entry.yaml, repro.py, logs/")
        for name in _names(folder)
        if name not in ("entry.yaml", "repro.py", "logs", "__pycache__")
    ]
    logs, found = read_logs(item)
    problems += found
    problems += _recorded(item, raw, logs)
    code, found = _repro(item, raw, base)
    problems += found
    raw_repro = raw.get("repro")
    repro: dict[str, Any] = raw_repro if isinstance(raw_repro, dict) else {}
    if repro.get("mode") in ("real", "simulated"):
        for half in ("broken", "fixed"):
            if not any(n == f"{half}.log" or n.startswith(f"{half}-") for n in logs):
                problems.append(
                    item.problem(
                        ("repro",),
                        f"logs/{half}.log is missing",
                        "missing-file",
                        f"`faultbook verify {item.slug} --record` prints it",
                    )
                )
    return logs, code, problems


def read_logs(item: LoadedEntry) -> tuple[dict[str, str], list[Problem]]:
    """File name under logs/ → text, and what is wrong with those files."""
    base = item.path.removesuffix("entry.yaml")
    logs: dict[str, str] = {}
    problems: list[Problem] = []
    for name in _names(item.folder / "logs"):
        shown = f"{base}logs/{name}"
        data, problem = read_bytes(item.folder, f"logs/{name}", shown, MAX_LOG + 1)
        if data is None:
            problems += [problem] if problem else []
            continue
        if len(data) > MAX_LOG:
            problems.append(Problem(shown, 1, f"larger than {MAX_LOG:,} bytes", "too-large", "keep the lines that matter"))
        # Logs are quoted as they were printed; bytes that are no UTF-8 are part of that.
        logs[name] = data[:MAX_LOG].decode("utf-8", "replace")
        if not _LOG_NAME.fullmatch(name):
            hint = "broken[-variant].log, fixed[-variant].log, recorded-N.log"
            problems.append(Problem(shown, 1, "is no broken, fixed or recorded log", "unexpected-file", hint))
    return logs, problems


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    except OSError:
        return []


def _recorded(item: LoadedEntry, raw: dict[str, Any], logs: dict[str, str]) -> list[Problem]:
    problems = []
    recorded = raw.get("recorded")
    said = set()
    for index, quoted in enumerate(recorded if isinstance(recorded, list) else ()):
        name = quoted.get("file") if isinstance(quoted, dict) else None
        if not isinstance(name, str):
            continue
        said.add(name)
        if ".." in name.split("/") or name.startswith("/") or "\\" in name:
            continue  # reported as path-outside by the model
        if name.removeprefix("logs/") not in logs or not name.startswith("logs/"):
            hint = nearest(name, [f"logs/{n}" for n in logs]) or "recorded lines live in logs/"
            problems.append(item.problem(("recorded", index, "file"), f"`{name[:80]}` is missing", "missing-file", hint))
    base = item.path.removesuffix("entry.yaml")
    for name in logs:
        if name.startswith("recorded-") and f"logs/{name}" not in said:
            problems.append(
                Problem(
                    f"{base}logs/{name}",
                    1,
                    "nothing in `recorded` cites this file",
                    "unexpected-file",
                    "say where the lines come from",
                )
            )
    return problems


def _repro(item: LoadedEntry, raw: dict[str, Any], base: str) -> tuple[Code | None, list[Problem]]:
    repro = raw.get("repro")
    mode = repro.get("mode") if isinstance(repro, dict) else None
    data, problem = read_bytes(item.folder, "repro.py", f"{base}repro.py", MAX_REPRO + 1)
    if data is None:
        if problem and problem.code == "missing-file":
            if mode in ("real", "simulated"):
                return None, [item.problem(("repro",), "repro.py is missing", "missing-file", f"`mode: {mode}` runs one")]
            return None, []
        return None, [problem] if problem else []
    shown = f"{base}repro.py"
    if len(data) > MAX_REPRO:
        return None, [Problem(shown, 1, f"larger than {MAX_REPRO:,} bytes", "too-large")]
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return None, [Problem(shown, data.count(b"\n", 0, error.start) + 1, "not UTF-8", "not-utf8")]
    code, _ = regions.cut(source)
    permits = raw.get("permits")
    read = (*regions.problems_of(source), *regions.todos(source), *access.problems_of(source, permits))
    problems = [Problem(shown, *found) for found in read]
    for index, kind in access.unused(source, permits):
        text = f"repro.py makes no use of `{kind}`"
        problems.append(item.problem(("permits", index), text, "cross-field", "leave the permit out"))
    if mode is not None:
        problems += _leaks(raw, source, shown, simulated=mode == "simulated")
    return code, problems


def _leaks(raw: dict[str, Any], source: str, shown: str, *, simulated: bool) -> list[Problem]:
    """Lines of a reproduction that already hold the text a signature looks for.

    A real run must print it by itself. A simulated one may say it, if the pattern cites
    where the line comes from.
    """
    patterns = patterns_of(raw)
    if len(patterns) > MAX_PATTERNS:  # reported by the rules
        return []
    found = []
    lines = [(n, line[:1000].encode("utf-8")) for n, line in enumerate(source.splitlines(), 1)]
    folded = source.lower()
    for pattern in patterns:
        unusable = len(pattern.text) > MAX_PATTERN or faults_of(pattern.text, pattern.ignore_case)
        if unusable or (simulated and pattern.source):
            continue
        literals = literals_of(pattern.text, pattern.ignore_case)
        if literals and not any(word in folded for word in literals):
            continue
        regex = compile_pattern(Pattern(pattern=pattern.text, ignore_case=pattern.ignore_case))
        message = f"holds the text that signature `{pattern.signature[:60]}` looks for"
        hint = (
            "cite where the line comes from: `source` of the pattern"
            if simulated
            else "the failure must print it by itself, or say `mode: simulated`"
        )
        found += [Problem(shown, n, message, "repro-text", hint) for n, line in lines if regex.search(line)]
    return found
