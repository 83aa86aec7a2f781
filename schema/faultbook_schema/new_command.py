"""`faultbook new SLUG`: asks what it is not told, reads a raw log, and writes an entry with only real TODOs left."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from faultbook.catalog import Catalog, load_catalog
from faultbook.sources import SourceError

from . import from_log, scaffold
from .compiler import write_catalogue
from .from_log import Reading
from .loader import entry_folders, find_kb, load_kb
from .models import SLUG
from .problems import nearest
from .similar import Similar, similar
from .taxonomy import Taxonomy, load_taxonomy

KINDS = ("cause", "symptom", "noise")
VISIBILITIES = ("loud", "hang", "silent")
NEAR = 0.15
"""Share of the words from which an entry is shown as similar."""


def new(argv: list[str]) -> int:
    """`faultbook new SLUG …`. Exit codes: 0 written, 1 the log's failure is in the catalogue already, 2 usage."""
    args = _parser().parse_args(argv)
    kb = args.kb or find_kb()
    if kb is None or not kb.is_dir():
        return _usage(f"no knowledge at {kb or 'kb/'}")
    taxonomy = load_taxonomy(kb)[0]
    complaint = _complaint(args, kb, taxonomy)
    if complaint:
        return _usage(complaint)
    raws = {item.slug: item.raw() for item in load_kb(kb, only=()).loaded}
    title = args.title or args.slug.replace("-", " ").capitalize()
    log = None
    if args.from_log is not None:
        try:
            log = from_log.read(args.from_log, _catalogue(kb), raws, title, _fixed_logs(kb))
        except (SourceError, OSError) as error:
            return _usage(str(error))
        _show(log)
    alike = log.alike if log is not None else tuple(similar(raws, title))
    near = [s for s in alike if s.share >= NEAR]
    _say("reads alike: " + (", ".join(f"{s.slug} ({s.share:.0%})" for s in near) or "no entry"))
    known = _known(log, raws) if not args.anyway and args.kind in (None, "cause") else None
    if known is not None:
        _say(f"this log is explained by `{known}` already: complete that entry, or say --anyway if this is another failure")
        return 1
    request = _request(args, title, taxonomy, log, near, raws)
    if isinstance(request, str):
        return _usage(request)
    folder = kb / request.category / request.slug
    for name, text in scaffold.files(request).items():
        path = folder / name
        if path.exists():
            print(f"{_shown(path)} kept")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(_shown(path))
    here = _shown(folder)
    _say(f"next: write {here}/repro.py, then `faultbook verify {request.slug} --record` and `faultbook check {here}`")
    return 0


def _shown(path: Path) -> str:
    """As one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="faultbook new",
        description="Scaffold an entry that is valid but for its TODOs. On a terminal it asks for what is not given.",
    )
    parser.add_argument("slug", help="permanent id, kebab-case: optimizer-state-not-restored")
    parser.add_argument("--from-log", type=Path, metavar="FILE", help="a raw log, or a folder of rank logs")
    parser.add_argument("--source", default="", metavar="URL", help="where that log is public; its lines are then quoted")
    parser.add_argument("--category", help="see `categories` in kb/taxonomy.yaml")
    parser.add_argument("--title", help="default: the slug in words")
    parser.add_argument("--kind", choices=KINDS, help="default: cause")
    parser.add_argument("--severity", default="medium", choices=["critical", "high", "medium", "low"])
    parser.add_argument("--visibility", choices=VISIBILITIES, help="default: what the log shows, else loud")
    parser.add_argument("--stack", help="see `stacks` in kb/taxonomy.yaml; default: pytorch")
    parser.add_argument("--mode", default="real", choices=["real", "simulated", "recorded"])
    ranks = parser.add_mutually_exclusive_group()
    ranks.add_argument("--world-size", type=int, metavar="N", help="ranks of the reproduction; default: 1")
    ranks.add_argument("--multi-rank", action="store_const", const=2, dest="world_size", help="the same as --world-size 2")
    parser.add_argument("--parent", metavar="SLUG", help="the hub it belongs to")
    parser.add_argument("--anyway", action="store_true", help="also when the log is explained by an entry already")
    parser.add_argument("--kb", type=Path, help="folder of the knowledge (default: found upwards)")
    return parser


def _complaint(args: argparse.Namespace, kb: Path, taxonomy: Taxonomy) -> str:
    """What is wrong with what was said, before anything is read or written."""
    if not re.fullmatch(SLUG, args.slug) or len(args.slug) > 80:
        return f"{args.slug!r} is not kebab-case (lower-case words joined by hyphens)"
    if args.world_size is not None and not 1 <= args.world_size <= 16:
        return "--world-size must be between 1 and 16"
    for name, said in (("categories", args.category), ("stacks", args.stack)):
        options = taxonomy[name]
        if said is not None and said not in options:
            what = {"categories": "category", "stacks": "stack"}[name]
            return f"no {what} {said!r} ({nearest(said, options) or 'one of ' + ', '.join(options)})"
    taken = {folder.name: folder for folder in entry_folders(kb)}
    if args.slug in taken:
        return f"{taken[args.slug]} exists"
    if args.parent and args.parent not in taken:
        return f"no entry {args.parent!r} ({nearest(args.parent, taken) or 'leave --parent out'})"
    if args.from_log is not None and not args.from_log.exists():
        return f"{args.from_log}: no such file or folder"
    if args.source and not re.match(r"https?://[^/\s]+", args.source):
        return "--source must be an http(s) address"
    return ""


def _catalogue(kb: Path) -> Catalog:
    """The catalogue of this kb/: drafts that are not usable yet are left out."""
    with tempfile.TemporaryDirectory() as folder:
        write_catalogue(kb, Path(folder), keep_going=True)
        catalogue = load_catalog(folder)
        assert catalogue.signatures is not None  # read while the folder is there
        return catalogue


def _fixed_logs(kb: Path) -> Sequence[str]:
    texts = [path.read_text("utf-8", "replace") for path in sorted(kb.glob("*/*/logs/fixed*.log")) if not path.is_symlink()]
    return ["\n".join(texts)]


def _known(log: Reading | None, raws: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The cause that explains the log, if one does."""
    if log is None or log.verdict != "diagnosed" or not log.named:
        return None
    slug, _, kind, _ = log.named[0]
    return slug if kind == "cause" and slug in raws else None


def _show(log: Reading) -> None:
    named = "; ".join(f"{slug} ({title}, {confidence:.0%})" for slug, title, _, confidence in log.named[:3])
    _say(f"diagnose says: {log.verdict}" + (f": {named}" if named else ""))
    for proposal in log.proposals:
        _say(f"line {proposal.line}, {proposal.why}: {proposal.text}")
        _say(f"  pattern: {proposal.pattern.pattern}   (scanned for {proposal.pattern.literals[0]!r})")
    if not log.proposals:
        _say("no line of it looks abnormal and can be told from healthy lines: the signature may have to read metrics")


def _request(
    args: argparse.Namespace,
    title: str,
    taxonomy: Taxonomy,
    log: Reading | None,
    near: Sequence[Similar],
    raws: Mapping[str, Mapping[str, Any]],
) -> scaffold.Request | str:
    """The scaffold's settings: as said, else as asked, else as guessed from the log; or what is missing."""
    ask = Asker(sys.stdin.isatty() and sys.stderr.isatty())
    try:
        title = args.title or ask.text("title", title)
        category = args.category or ask.choice("category", list(taxonomy["categories"]), None)
        if category is None:
            return f"--category is needed (one of {', '.join(taxonomy['categories'])})"
        kind = args.kind or ask.choice("kind", KINDS, "cause")
        visibility = args.visibility or ask.choice("visibility", VISIBILITIES, log.visibility if log else "loud")
        stack = args.stack or ask.choice("stack", list(taxonomy["stacks"]), "pytorch")
        ranks = args.world_size or ask.number("ranks of the reproduction", min(2, log.world_size) if log else 1, 16)
    except EOFError:
        return "the questions were not answered"
    hubs = [slug for slug, _, named_kind, _ in log.named if named_kind == "symptom"] if log else []
    parent = args.parent or (hubs[0] if hubs and hubs[0] in raws else None)
    return scaffold.Request(
        slug=args.slug,
        title=title,
        category=category,
        kind=kind or "cause",
        severity=args.severity,
        visibility=visibility or "loud",
        mode=args.mode,
        world_size=ranks,
        parent=parent,
        today=date.today(),
        stack=stack or "pytorch",
        patterns=tuple((p.pattern.pattern, p.text) for p in log.proposals) if log else (),
        sample=log.sample if log and log.proposals else "",
        source=args.source,
        nearest=tuple(s.slug for s in near[:2] if s.slug != parent),
    )


@dataclass(frozen=True, slots=True)
class Asker:
    """Questions on a terminal; elsewhere every answer is the default."""

    live: bool

    def text(self, name: str, default: str) -> str:
        return self._answer(f"{name} [{default}]") or default

    def choice(self, name: str, options: Sequence[str], default: str | None) -> str | None:
        while self.live:
            said = self._answer(f"{name} ({', '.join(options)})" + (f" [{default}]" if default else ""))
            if not said and default:
                return default
            if said in options:
                return said
            _say(f"no {name} {said!r} {nearest(said, options)}".rstrip())
        return default

    def number(self, name: str, default: int, most: int) -> int:
        while self.live:
            said = self._answer(f"{name} [{default}]") or str(default)
            if said.isdecimal() and 1 <= int(said) <= most:
                return int(said)
            _say(f"a number from 1 to {most}")
        return default

    def _answer(self, question: str) -> str:
        if not self.live:
            return ""
        print(f"{question}: ", end="", file=sys.stderr, flush=True)
        return input().strip()


def _say(text: str) -> None:
    print("".join(c if c.isprintable() else " " for c in text), file=sys.stderr)


def _usage(message: str) -> int:
    print(f"faultbook new: {message}", file=sys.stderr)
    return 2
