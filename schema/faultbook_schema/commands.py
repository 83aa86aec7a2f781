"""`faultbook check`, `faultbook new`, `faultbook compile`: found by the CLI through entry points.

Exit codes: 0 all well, 1 kb/ has problems, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from . import advice, fixes, healthy
from .check import check as check_kb
from .compiler import write_catalogue
from .loader import find_kb
from .problems import CODES, InvalidKnowledge, Problem, nearest

URL = f"https://faultbook.github.io/{advice.PAGE}/"


def check(argv: list[str]) -> int:
    """`faultbook check [PATH…]`"""
    parser = argparse.ArgumentParser(
        prog="faultbook check",
        description="Validate entries: fields, prose, patterns, files, links, and every signature on every log.",
        epilog=f"each message ends with its code; docs/{advice.PAGE}.md explains it with an example, and so does --explain CODE",
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="entries to report on (default: all)")
    parser.add_argument("--fix", action="store_true", help="mend what is mechanical: misspelt vocabulary, layout")
    parser.add_argument("--explain", metavar="CODE", help="say what a code means and what to do")
    parser.add_argument("--healthy", action="append", type=Path, default=[], metavar="PATH",
                        help="healthy logs, or folders of them, on which no signature may fire")  # fmt: skip
    parser.add_argument("--kb", type=Path, help="folder of the knowledge (default: found upwards)")
    parser.add_argument("--json", action="store_true", help="machine-readable report")
    args = parser.parse_args(argv)
    if args.explain is not None:
        return _explain(args.explain)
    for path in (*args.paths, *args.healthy):
        if not path.exists():
            return _usage("check", f"{path}: no such file or folder")
    kb = args.kb or find_kb(args.paths[0] if args.paths else None) or find_kb()
    if kb is None or not kb.is_dir():
        return _usage("check", f"no knowledge at {kb or 'kb/'}")
    try:
        healthy_logs = healthy.healthy_texts(args.healthy)
        report = check_kb(kb, args.paths, healthy_logs)
        if args.fix and _fix(kb, report.problems):
            report = check_kb(kb, args.paths, healthy_logs)
    except OSError as error:
        return _usage("check", f"{error.filename}: {error.strerror}")
    if args.paths and not report.entries:
        return _usage("check", f"{args.paths[0]}: no entry of {kb} is there")
    if args.json:
        print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        for problem in report.problems:
            shown = str(problem) if problem.hint else f"{problem} ({advice.do(problem.code).rstrip('.')})"
            print(f"{shown} [{problem.code}]")
        count = len(report.problems)
        print(
            f"{report.entries} entries, {report.signatures} signatures, {report.logs} logs: "
            f"{count or 'no'} problem{'' if count == 1 else 's'} in {report.seconds:.1f} s",
            file=sys.stderr,
        )
        if count:
            print(f"what a code means: `faultbook check --explain CODE`, or {URL}#CODE", file=sys.stderr)
    return 1 if report.problems else 0


def _fix(kb: Path, problems: Sequence[Problem]) -> list[str]:
    """Mends entry by entry, and says what was done on stderr."""
    by_file: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.path.endswith("/entry.yaml"):
            by_file.setdefault(problem.path, []).append(problem)
    done = [line for path, found in by_file.items() for line in fixes.fix(kb.parent / kb.name / path.split("/", 1)[1], found)]
    for line in done:
        print(f"fixed {line}", file=sys.stderr)
    return done


def _explain(code: str) -> int:
    if code not in CODES:
        return _usage("check", f"no code `{code}` ({nearest(code, CODES) or 'codes stand in brackets behind messages'})")
    given = advice.ADVICE[code]
    print(f"{code}: {CODES[code]}\n{given.do}" + (f"\nfor example: {given.good}" if given.good else ""))
    return 0


def new(argv: list[str]) -> int:
    """`faultbook new SLUG …`"""
    from .new_command import new as run  # the engine is only needed here

    return run(argv)


def compile_catalogue(argv: list[str]) -> int:
    """`faultbook compile`"""
    parser = argparse.ArgumentParser(prog="faultbook compile", description="Write the compiled catalogue.")
    parser.add_argument("--kb", type=Path, help="folder of the knowledge (default: found upwards)")
    parser.add_argument("--target", type=Path, default=Path("build/catalogue"), help="folder to write to")
    parser.add_argument("--keep-going", action="store_true", help="leave unusable entries out, for drafts")
    parser.add_argument("--quiet", action="store_true", help="say nothing when all is well")
    args = parser.parse_args(argv)
    kb = args.kb or find_kb()
    if kb is None or not kb.is_dir():
        return _usage("compile", f"no knowledge at {kb or 'kb/'}")
    left_out: list[str] = []
    try:
        written = write_catalogue(kb, args.target, keep_going=args.keep_going, left_out=left_out)
    except InvalidKnowledge as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        return _usage("compile", f"{error.filename}: {error.strerror}")
    if left_out:
        some = ", ".join(left_out[:5]) + (", …" if len(left_out) > 5 else "")
        message = f"faultbook: {len(left_out)} unusable entries left out ({some}); see `faultbook check`"
        print(message, file=sys.stderr)
    if not args.quiet:
        print("\n".join(str(path) for path in written))
    return 0


def _usage(command: str, message: str) -> int:
    print(f"faultbook {command}: {message}", file=sys.stderr)
    return 2
