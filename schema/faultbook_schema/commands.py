"""`faultbook check`, `faultbook new`, `faultbook compile`: found by the CLI through entry points.

Exit codes: 0 all well, 1 kb/ has problems, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from . import advice, fixes, healthy, scaffold
from .check import check as check_kb
from .compiler import write_catalogue
from .loader import entry_folders
from .models import SLUG
from .problems import CODES, InvalidKnowledge, Problem, nearest
from .taxonomy import load_taxonomy


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
    parser = argparse.ArgumentParser(prog="faultbook new", description="Scaffold an entry that is valid but for its TODOs.")
    parser.add_argument("slug", help="permanent id, kebab-case: optimizer-state-not-restored")
    parser.add_argument("--category", required=True, help="see `categories` in kb/taxonomy.yaml")
    parser.add_argument("--title", help="default: the slug in words")
    parser.add_argument("--kind", default="cause", choices=["cause", "symptom", "noise"])
    parser.add_argument("--severity", default="medium", choices=["critical", "high", "medium", "low"])
    parser.add_argument("--visibility", default="loud", choices=["loud", "hang", "silent"])
    parser.add_argument("--mode", default="real", choices=["real", "simulated", "recorded"])
    parser.add_argument("--world-size", type=int, default=1, metavar="N", help="ranks of the reproduction")
    parser.add_argument("--parent", metavar="SLUG", help="the hub it belongs to")
    parser.add_argument("--kb", type=Path, help="folder of the knowledge (default: found upwards)")
    args = parser.parse_args(argv)
    kb = args.kb or find_kb()
    if kb is None or not kb.is_dir():
        return _usage("new", f"no knowledge at {kb or 'kb/'}")
    if not re.fullmatch(SLUG, args.slug) or len(args.slug) > 80:
        return _usage("new", f"{args.slug!r} is not kebab-case (lower-case words joined by hyphens)")
    if not 1 <= args.world_size <= 16:
        return _usage("new", "--world-size must be between 1 and 16")
    categories = load_taxonomy(kb)[0]["categories"]
    if args.category not in categories:
        hint = nearest(args.category, categories) or f"one of {', '.join(categories)}"
        return _usage("new", f"no category {args.category!r} ({hint})")
    taken = {folder.name: folder for folder in entry_folders(kb)}
    if args.slug in taken:
        return _usage("new", f"{taken[args.slug]} exists")
    if args.parent and args.parent not in taken:
        return _usage("new", f"no entry {args.parent!r} ({nearest(args.parent, taken) or 'leave --parent out'})")
    request = scaffold.Request(
        args.slug, args.title or args.slug.replace("-", " ").capitalize(), args.category, args.kind,
        args.severity, args.visibility, args.mode, args.world_size, args.parent, date.today(),
    )  # fmt: skip
    folder = kb / args.category / args.slug
    for name, text in scaffold.files(request).items():
        path = folder / name
        if path.exists():
            print(f"{path} kept")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
    print(f"next: fill in the TODOs, then `faultbook check {folder}`", file=sys.stderr)
    return 0


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


def find_kb(start: Path | None = None) -> Path | None:
    """kb/ in this folder or one above."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "kb" / "taxonomy.yaml").is_file():
            return folder / "kb"
        if folder.name == "kb" and (folder / "taxonomy.yaml").is_file():
            return folder
    return None


def _usage(command: str, message: str) -> int:
    print(f"faultbook {command}: {message}", file=sys.stderr)
    return 2
