"""The `faultbook` command. Exit codes: see `EXIT_CODES`; bad input gets one line, never a traceback."""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import __version__

if TYPE_CHECKING:
    from .catalog import Catalog
    from .model import Series

EXIT_CODES = """exit codes:
  0   healthy; or the command did what was asked
  1   diagnosed: a known failure was found; or (check, verify, score) something did not hold
  2   usage or bad input (missing file, not a log, unknown entry)
  3   unrecognised or inconclusive: something failed that no entry explains, or the log does not tell
  4   stopped from outside: user, time limit, preemption
  70  internal error (please report it)
"""

# Commands of the other packages of this distribution, found by entry point: the runtime imports none of them.
EXTRAS = {"check": "schema", "new": "schema", "compile": "schema", "verify": "repro"}


class CliError(Exception):
    """Bad input, said in one line."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    # A short-lived process that makes few cycles: collecting as often as a server does is a quarter of a cold start.
    gc.set_threshold(100_000, 50, 50)
    try:
        if arguments and arguments[0] in EXTRAS:
            return _delegate(arguments[0], arguments[1:])
        args = _parser().parse_args(arguments)
        run: Callable[[argparse.Namespace], int] = args.run
        code = run(args)
        sys.stdout.flush()
        return code
    except CliError as error:
        return _complain(str(error), 2)
    except BrokenPipeError:
        # The reader (head, less) has gone: not an error of ours. Python would complain at exit otherwise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except Exception as error:
        if os.environ.get("FAULTBOOK_DEBUG"):
            raise
        where = _innermost(error)
        return _complain(
            f"internal error: {type(error).__name__}: {error} ({where}); "
            "please report it, FAULTBOOK_DEBUG=1 shows the traceback",
            70,
        )


def command() -> None:
    """The program: `main`, and then the process ends at once. Taking apart what a diagnosis has made, object by
    object, would be a seventh of a cold start; nothing of it is a file or a thread."""
    code = main()
    if sys.argv[1:2] == ["diagnose"]:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _complain(message: str, code: int) -> int:
    print(f"faultbook: {message}", file=sys.stderr)
    return code


def _innermost(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "?"
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _delegate(name: str, argv: list[str]) -> int:
    from importlib.metadata import entry_points

    for point in entry_points(group="faultbook.commands", name=name):
        try:
            command = point.load()
        except ImportError as error:
            missing = getattr(error, "name", None) or str(error)
            raise CliError(
                f"`faultbook {name}` needs {missing}: pip install 'faultbook[{EXTRAS[name]}]'"
            ) from None
        return int(command(argv) or 0)
    raise CliError(f"`faultbook {name}` is not part of this installation: pip install 'faultbook[{EXTRAS[name]}]'")


class _Parser(argparse.ArgumentParser):
    """Knows the terminal's width: to find it out, argparse would import `shutil`, and with it every compression module."""

    def __init__(self, **options: Any) -> None:
        try:
            width = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
        except (ValueError, OSError):
            width = 80
        formatter = options.pop("formatter_class", argparse.HelpFormatter)
        super().__init__(formatter_class=functools.partial(formatter, width=max(width, 20) - 2), **options)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="faultbook",
        description="Name the failure that broke a training run, and the rank it started on.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"faultbook {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    diagnose = commands.add_parser("diagnose", help="what broke this run, and where it started")
    diagnose.add_argument("paths", nargs="+", metavar="PATH", help="log files, directories of rank logs, or - for stdin")
    form = diagnose.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the machine-readable diagnosis")
    form.add_argument("--markdown", action="store_true", help="for an issue or a job summary")
    form.add_argument("--sarif", action="store_true", help="SARIF 2.1.0, for code scanning and editors")
    diagnose.add_argument("--github-summary", action="store_true",
                          help="append Markdown to $GITHUB_STEP_SUMMARY (print it where that is not set)")  # fmt: skip
    diagnose.add_argument("--html", metavar="FILE", help="also write a self-contained page, with curves where metrics mattered")
    diagnose.add_argument("--gate", choices=["hyperscan", "ahocorasick", "python"], help=argparse.SUPPRESS)
    diagnose.add_argument("--share", action="store_true", help="replace users, hosts, paths and addresses by pseudonyms")
    diagnose.set_defaults(run=_diagnose)

    scan = commands.add_parser("scan", help="which known lines stand in which of very many files (no verdict)")
    scan.add_argument("paths", nargs="+", metavar="PATH")
    scan.add_argument("--engine", choices=["local", "process", "dask", "ray"], default="local",
                      help="where files are read (default: one after the other, here)")  # fmt: skip
    scan.add_argument("--workers", type=int, metavar="N", help="processes of --engine process (default: one per core)")
    scan.add_argument("--json", action="store_true")
    scan.set_defaults(run=_scan)

    run = commands.add_parser("run", help="run a launcher unchanged; when it fails or hangs, say why")
    run.add_argument("--hang-after", type=float, metavar="SECONDS", help="silence after which evidence is saved and reported")
    run.add_argument("--stop-on-hang", action="store_true", help="then also end the job (default: leave it alone)")
    run.add_argument("--out", metavar="DIR", help="incident bundle (default: faultbook-run-<time>)")
    run.add_argument("--logs", action="append", default=[], metavar="DIR",
                     help="folder into which the ranks write their logs (torchrun's --log-dir is found by itself)")  # fmt: skip
    run.add_argument("--rank-logs", action="store_true",
                     help="have torchrun keep a log per rank in the bundle; its lines then carry the local rank")  # fmt: skip
    run.add_argument("--no-hook", action="store_true", help="put nothing on the ranks' PYTHONPATH")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD …")
    run.set_defaults(run=_run)

    watch = commands.add_parser("watch", help="follow logs and report each new finding once")
    watch.add_argument("paths", nargs="+", metavar="PATH")
    watch.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="least time between two looks")
    watch.add_argument("--once-idle", type=float, metavar="SECONDS", help="end after this long without new bytes")
    watch.set_defaults(run=_watch)

    explain = commands.add_parser("explain", help="an entry in full")
    explain.add_argument("slug")
    explain.add_argument("--json", action="store_true")
    explain.set_defaults(run=_explain)

    listing = commands.add_parser("list", help="all entries")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(run=_list)

    search = commands.add_parser("search", help="entries by words or by a pasted error line")
    search.add_argument("words", nargs="+")
    search.add_argument("--json", action="store_true")
    search.set_defaults(run=_search)

    catalog = commands.add_parser("catalog", help="the whole catalogue")
    catalog.add_argument("--json", action="store_true", help="accepted for symmetry; JSON is the only form")
    catalog.set_defaults(run=_catalog)

    score = commands.add_parser("score", help="how right the engine is on labelled cases")
    score.add_argument("cases", metavar="FILE.jsonl")
    score.add_argument("--json", action="store_true")
    score.add_argument("--list", action="store_true", help="also every case that was not answered exactly")
    score.set_defaults(run=_score)

    helps = {
        "check": "validate entries of a kb/ (extra: schema)",
        "new": "scaffold an entry (extra: schema)",
        "verify": "run reproductions and prove entries (extra: repro)",
        "compile": "write the compiled catalogue (extra: schema)",
    }
    for name, text in helps.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def _diagnose(args: argparse.Namespace) -> int:
    from . import render
    from .diagnosis import diagnose
    from .sources import SourceError

    catalog = _load()
    series: list[Series] = []
    look = (lambda seen: series.extend(seen.series)) if args.html else None
    line = None
    if sys.stderr.isatty():
        from .progress_line import ProgressLine

        line = ProgressLine()
    try:
        result = diagnose(*args.paths, catalog=catalog, gate=args.gate, share=args.share, look=look, told=line)
    except SourceError as error:
        raise CliError(str(error)) from None
    finally:
        if line is not None:
            line.wipe()
    if args.html:
        from .report_curves import that_mattered
        from .report_html import as_html

        _write(args.html, as_html(result, that_mattered(result, series, catalog)))
    if args.github_summary:
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            _write(summary, render.as_markdown(result) + "\n", append=True)
        elif not (args.json or args.sarif):
            args.markdown = True
    if args.json:
        print(render.as_json(result))
    elif args.sarif:
        from .sarif import as_sarif

        print(as_sarif(result))
    elif args.markdown:
        print(render.as_markdown(result), end="")
    else:
        render.print_text(result)
    return result.exit_code


def _write(path: str, text: str, append: bool = False) -> None:
    try:
        # A lone surrogate of a file's name must not cost the report.
        with open(path, "a" if append else "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        raise CliError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _run(args: argparse.Namespace) -> int:
    import time
    from pathlib import Path

    from . import launch, render

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise CliError("run: give the command after --, e.g. `faultbook run -- torchrun --nproc-per-node 8 train.py`")
    folder = Path(args.out or time.strftime("faultbook-run-%Y%m%d-%H%M%S"))

    def say(text: str) -> None:
        print(f"faultbook: {text}", file=sys.stderr, flush=True)

    try:
        result = launch.run(
            command,
            folder,
            hang_after=args.hang_after,
            stop_on_hang=args.stop_on_hang,
            hook=not args.no_hook,
            logs=args.logs,
            rank_logs=args.rank_logs,
            say=say,
            report=lambda diagnosis: render.print_text(diagnosis, sys.stderr),
        )
    except OSError as error:
        raise CliError(f"run: {error.filename or command[0]}: {error.strerror}") from None
    if result.code or result.hung:
        say(f"incident bundle: {result.folder}")
    # The job's own code, so that schedulers see what they would have seen.
    return launch.exit_code(result.code)


def _watch(args: argparse.Namespace) -> int:
    from . import render
    from .live import watch
    from .sources import SourceError

    try:
        for news in watch(args.paths, every=args.every, idle=args.once_idle):
            render.print_text(news)
            print()
            sys.stdout.flush()
    except SourceError as error:
        raise CliError(str(error)) from None
    return 0


def _scan(args: argparse.Namespace) -> int:
    import json

    from .fanout import EngineMissing, scan_folder, to_dict
    from .sources import SourceError

    if args.workers is not None and args.workers < 1:
        raise CliError("--workers: at least 1")
    try:
        files = scan_folder(args.paths, _load(), args.engine, args.workers)
    except (SourceError, EngineMissing) as error:
        raise CliError(str(error)) from None
    if args.json:
        print(json.dumps(to_dict(files, args.engine), indent=2, ensure_ascii=False))
        return 0
    from .render import _cut

    rows = [[_cut(f.file), str(s.line), str(s.count), s.role, s.signature, _cut(s.text, 100)] for f in files for s in f.seen]
    _table(["file", "line", "count", "role", "signature", "first line"], rows)
    read = [f for f in files if not f.skipped]
    size = sum(f.size for f in read) / 1e6
    print(f"{len(read)} files, {size:.1f} MB, {sum(bool(f.seen) for f in read)} with known lines, "
          f"{len(files) - len(read)} skipped", file=sys.stderr)  # fmt: skip
    return 0


def _load() -> Catalog:
    from .catalog import CatalogError, load_catalog

    try:
        return load_catalog()
    except CatalogError as error:
        raise CliError(str(error)) from None


def _explain(args: argparse.Namespace) -> int:
    import json

    from .explain import entry_text

    catalog = _load()
    entry = catalog.full_entry(args.slug)
    if entry is None:
        near = ", ".join(catalog.near_misses(args.slug))
        raise CliError(f"no entry {args.slug!r}" + (f"; did you mean {near}?" if near else ""))
    print(json.dumps(entry, indent=2, ensure_ascii=False) if args.json else entry_text(entry), end="\n")
    return 0


def _list(args: argparse.Namespace) -> int:
    import json

    entries = [e for _, e in sorted(_load().entries.items())]
    if args.json:
        keys = ("slug", "aliases", "title", "kind", "category", "severity", "visibility")
        print(json.dumps({"entries": [{k: e.get(k) for k in keys} for e in entries]}, indent=2, ensure_ascii=False))
        return 0
    _table(["entry", "title", "category", "severity", "visibility"],
           [[e["slug"], e["title"], e["category"], e["severity"], e["visibility"]] for e in entries])  # fmt: skip
    return 0


def _search(args: argparse.Namespace) -> int:
    import json

    found = _load().search(" ".join(args.words))
    if args.json:
        print(json.dumps({"entries": [{"slug": e["slug"], "title": e["title"]} for e in found]}, indent=2))
    elif found:
        _table(["entry", "title"], [[e["slug"], e["title"]] for e in found])
    else:
        print("nothing found")
    return 0


def _score(args: argparse.Namespace) -> int:
    import json
    from functools import partial

    from .diagnosis import diagnose
    from .score import ScoreError, read_cases, report, score

    catalog = _load()
    try:
        cases = read_cases(args.cases)
    except ScoreError as error:
        raise CliError(str(error)) from None

    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done}/{total}", end="" if done < total else "\n", file=sys.stderr, flush=True)

    run = partial(diagnose, catalog=catalog)
    result = score(cases, frozenset(catalog.entries), run, progress)
    print(json.dumps(result.totals(), indent=2) if args.json else report(result, args.list), end="\n" if args.json else "")
    return 0


def _catalog(args: argparse.Namespace) -> int:
    print(_load().full_json(), end="")
    return 0


def _table(head: list[str], rows: list[list[str]]) -> None:
    """A rich table on a terminal, tab-separated text in a pipe."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text
        except ImportError:
            pass
        else:
            table = Table(*head, box=None, header_style="bold")
            for row in rows:
                table.add_row(*map(Text, row))  # as it is: `[rank0]` in a log is no markup
            Console().print(table)
            return
    for row in rows:
        print("\t".join(row))


if __name__ == "__main__":
    command()
