"""`faultbook verify`: exit 0 when all is proven, 1 when not, 2 for a usage error."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .changed import Changes, changes_since
from .core.entry import entry_folders, find_kb
from .core.runner import RunnerError, cuda_missing
from .core.spec import SpecError
from .isolation import held
from .proofs import is_current, make_proof, remove_proof, write_proof
from .recording import record_logs
from .summary import Review, as_markdown, print_review, publish
from .table import as_json, print_mutants, print_problems, print_table
from .verify import Notice, Result, skipped, verify_all


def verify(argv: list[str]) -> int:
    """The command. Runs the code of the entries named, in a sandbox."""
    options = _options(argv)
    if importlib.util.find_spec("torch") is None:
        print("faultbook: `faultbook verify` needs torch: pip install 'faultbook[repro]'", file=sys.stderr)
        return 2
    try:
        kb = (options.kb or find_kb()).resolve()
        changes = changes_since(options.changed, kb) if options.changed else None
        if changes is None and not options.slugs and not options.all:
            raise SpecError("name entries by slug, or --all, or --changed BASE")
        folders = entry_folders(kb, options.slugs) if changes is None else list(changes.folders)
        results = _run(folders, options)
    except (SpecError, RunnerError) as error:
        print(f"faultbook: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("faultbook: interrupted", file=sys.stderr)
        return 130
    proofs = options.proofs or kb.parent / "proofs"
    review = _review(kb, changes, results, proofs, options.device) if changes is not None else Review()
    for result in results:
        _write(result, proofs, record=options.record)
    summary = as_markdown(results, review) if options.github_summary else ""
    if summary and not publish(summary) and not options.json:
        print(summary, end="")
    elif options.json:
        print(json.dumps(as_json(results), indent=1))
    else:
        print_table(results)
        print_problems(results)
        print_mutants(results)
        print_review(review)
        _summary(results)
    tried = [r for r in results if not r.skipped]
    return 0 if review.clean and all(r.proven and not r.survivors for r in tried) else 1


def _run(folders: list[Path], options: argparse.Namespace) -> list[Result]:
    """Runs them, isolated, as an unprivileged user; refuses where that is not possible."""
    if options.device == "cuda" and (reason := cuda_missing()):
        return skipped(folders, options.device, reason)
    if not folders:
        return []

    def work(keep: Path | None) -> list[Result]:
        with _progress(len(folders), quiet=options.json) as (notice, done):
            return verify_all(
                folders,
                options.device,
                jobs=options.jobs,
                repeat=options.repeat,
                with_mutants=options.mutate,
                keep=keep,
                notice=notice,
                done=done,
            )

    return held(work, trust=options.trust, reads=folders, keep=options.keep.resolve() if options.keep else None)


def _review(kb: Path, changes: Changes, results: list[Result], proofs: Path, device: str) -> Review:
    """What a change does to the rest of the knowledge, by `faultbook check` of all of it."""
    from faultbook_schema.check import check
    from faultbook_schema.loader import load_kb

    aliases = {a for i in load_kb(kb).loaded for a in i.raw().get("aliases") or ()} if changes.removed else set()
    ran = {result.slug for result in results}
    return Review(
        problems=check(kb).problems,
        removed=tuple(slug for slug in changes.removed if slug not in aliases),
        unrun=tuple(folder.name for folder in changes.folders if folder.name not in ran),
        unrecorded=tuple(r.slug for r in results if r.proven and not is_current(proofs, r.folder, r.device)),
        unseen=tuple(name for name in changes.records if name.split(".")[1:2] != [device]),
    )


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="faultbook verify",
        description="Run both halves of entries, and say whether each is proven: the broken half shows the "
        "declared outcome and its signatures fire; the fixed half does the same work, passes, and keeps them "
        "silent.",
        epilog="exit codes: 0 all proven, 1 not all proven (or a mutant survived), 2 usage error",
    )
    parser.add_argument("slugs", nargs="*", metavar="SLUG", help="entries, by slug or by folder")
    parser.add_argument("--all", action="store_true", help="every entry that has a reproduction")
    parser.add_argument(
        "--changed",
        metavar="BASE",
        help="the entries that differ from this commit or branch (origin/main), and `faultbook check` of everything",
    )
    parser.add_argument(
        "--github-summary", action="store_true", help="a table and what failed, as Markdown, to $GITHUB_STEP_SUMMARY"
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run reproductions even where they cannot be isolated, and as yourself: read every repro.py first",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="prove each entry N times (flakiness)"
    )
    parser.add_argument(
        "--mutate", action="store_true", help="falsify runs and signatures; every mutant must die"
    )
    parser.add_argument(
        "--record",
        "--write-logs",
        action="store_true",
        dest="record",
        help="write what the runs printed into logs/ of the entry",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep every run's logs and records here")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs at once, each with its own server"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kb", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--proofs", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.repeat < 1 or options.jobs < 1:
        parser.error("--repeat and --jobs start at 1")
    return options


def _write(result: Result, proofs: Path, *, record: bool) -> None:
    """The proof record, and on request the logs of the entry."""
    if result.skipped:
        return
    if record and result.pairs and result.device == "cpu":
        # Also when not proven: the author of a signature needs to see what it has to match.
        record_logs(result.folder, list(result.pairs))
    if not result.proven:
        remove_proof(proofs, result.slug, result.device)
        return
    write_proof(proofs, make_proof(result))


def _summary(results: list[Result]) -> None:
    tried = [r for r in results if not r.skipped]
    proven = sum(r.proven for r in tried)
    runs = sum(r.runs for r in tried)
    skipped = len(results) - len(tried)
    tail = f", {skipped} skipped" if skipped else ""
    print(f"\n{proven} of {len(tried)} proven, {runs} runs in {sum(r.seconds for r in tried):.1f} s{tail}")


@contextlib.contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[tuple[Notice, Callable[[Result], None]]]:
    """On a terminal a live line on stderr, elsewhere a line every ten seconds; silent under --json."""
    text, finished = ["starting (imports torch once)"], [0]
    stop = threading.Event()
    started = time.monotonic()
    live = sys.stderr.isatty()

    def show() -> None:
        shown = False
        while not stop.wait(0.2 if live else 10.0):
            if time.monotonic() - started < 2.0:
                continue
            line = f"[{finished[0]}/{total}] {text[0]} · {time.monotonic() - started:.0f} s"
            if live:
                line = f"\r\x1b[K{line[:110]}"
            print(line, end="" if live else "\n", file=sys.stderr, flush=True)
            shown = live
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def notice(what: str) -> None:
        text[0] = what

    def done(result: Result) -> None:
        finished[0] += 1

    thread = threading.Thread(target=show, daemon=True)
    if not quiet:
        thread.start()
    try:
        yield notice, done
    finally:
        stop.set()
        if not quiet:
            thread.join()
