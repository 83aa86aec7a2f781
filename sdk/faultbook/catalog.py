"""The compiled catalogue, read from the package, from a checkout's kb/, or from a given place.

Two files: `signatures.json` holds all a diagnosis needs and is read at once;
`catalog.json` holds the prose and is read when somebody asks for it. In a source
checkout the catalogue is made from kb/ on demand: its inputs are compared with those
it was made from, first by size and time, then by content.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from .signatures import Signature, signature_from_dict
from .values import dataclass

SIGNATURES_SCHEMA = "faultbook.signatures/1"
CATALOGUE_SCHEMA = "faultbook.catalogue/1"
ENVIRONMENT = "FAULTBOOK_CATALOGUE"

Entry = Mapping[str, Any]
"""One entry as compiled; the keys are those of the JSON Schema `signatures.schema.json`."""


class CatalogError(Exception):
    """No usable catalogue; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class EntrySignature:
    """A signature and the entry it belongs to."""

    entry: str
    signature: Signature

    @property
    def name(self) -> str:
        """`slug#id`, as evidence and routes cite it."""
        return f"{self.entry}#{self.signature.id}"


@dataclass(frozen=True)
class Catalog:
    """Entries by slug, and their signatures."""

    digest: str
    """SHA-256 (hex) of the knowledge it was compiled from."""
    entries: Mapping[str, Entry]
    """Slug → what a diagnosis says about it (no prose beyond quick answer, action and fix)."""
    rows: Sequence[Mapping[str, Any]]
    """The signatures as compiled JSON; `signatures` has them as dataclasses."""
    folder: str
    """Where the two files are."""

    @cached_property
    def signatures(self) -> tuple[EntrySignature, ...]:
        """All signatures, in the order of their entries."""
        return self.those(lambda row: True)

    def those(self, wanted: Callable[[Mapping[str, Any]], bool]) -> tuple[EntrySignature, ...]:
        """The signatures whose compiled form is wanted; each is built once, when it first is."""
        found = []
        for number, row in enumerate(self.rows):
            if wanted(row):
                made = self._built.get(number)
                if made is None:
                    made = EntrySignature(row["entry"], signature_from_dict({k: v for k, v in row.items() if k != "entry"}))
                    self._built[number] = made
                found.append(made)
        return tuple(found)

    @cached_property
    def _built(self) -> dict[int, EntrySignature]:
        return {}

    @cached_property
    def by_name(self) -> dict[str, EntrySignature]:
        """Signatures by `slug#id`."""
        return {s.name: s for s in self.signatures}

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Old slug or other name → slug; look names up through `get`, which forgives spelling."""
        return {str(alias): slug for slug, e in self.entries.items() for alias in e.get("aliases") or ()}

    def resolve(self, name: str) -> str | None:
        """The slug for a slug or an alias, however spelled."""
        if name in self.entries:
            return name
        return self._names.get(_normal(name))

    def get(self, name: str) -> Entry | None:
        """The brief of an entry by slug or alias; None for an unknown name."""
        slug = self.resolve(name)
        return self.entries[slug] if slug is not None else None

    def near_misses(self, name: str, count: int = 3) -> list[str]:
        """Slugs that the name may have meant."""
        from difflib import get_close_matches

        names = get_close_matches(_normal(name)[:100], self._names, n=count * 2, cutoff=0.6)
        return list(dict.fromkeys(self._names[n] for n in names))[:count]

    def search(self, text: str) -> list[Entry]:
        """Entries for words or for a pasted error line, best first."""
        scores = {slug: _score(entry, _words(text)) for slug, entry in self.entries.items()}
        for slug in self._matching(text):
            scores[slug] += 100
        best = sorted((-score, slug) for slug, score in scores.items() if score > 0)
        return [self.entries[slug] for _, slug in best]

    def load_entries(self) -> dict[str, Entry]:
        """Everything the encyclopedia says, by slug."""
        return self._full

    def full_entry(self, name: str) -> Entry | None:
        """Everything about an entry by slug or alias; None for an unknown name.

        Raises CatalogError when catalog.json, which is read on first use, is missing or broken."""
        slug = self.resolve(name)
        return self._full.get(slug) if slug is not None else None

    def full_json(self) -> str:
        """catalog.json as it is."""
        return _read(os.path.join(self.folder, "catalog.json"))

    @cached_property
    def _full(self) -> dict[str, Entry]:
        data = _parse(self.full_json(), os.path.join(self.folder, "catalog.json"), CATALOGUE_SCHEMA)
        return {e["slug"]: e for e in data["entries"]}

    @cached_property
    def _names(self) -> dict[str, str]:
        found = {_normal(alias): slug for alias, slug in self.aliases.items()}
        return {**found, **{_normal(slug): slug for slug in self.entries}}

    def _matching(self, text: str) -> Iterator[str]:
        """Entries one of whose log patterns matches the text."""
        from .portable import compile_pattern
        from .signatures import LogSignature

        folded = text.lower()
        records = [line.encode("utf-8", "replace")[:8192] for line in text.splitlines()[:50]]
        for item in self.signatures:
            if not isinstance(item.signature, LogSignature):
                continue
            for pattern in (*item.signature.all, *item.signature.any):
                if pattern.literals and not any(word.lower() in folded for word in pattern.literals):
                    continue
                regex = compile_pattern(pattern)
                if any(regex.search(record) for record in records):
                    yield item.entry
                    break


def load_catalog(path: str | os.PathLike[str] | None = None) -> Catalog:
    """The catalogue at `path` (a folder, or its signatures.json), else at $FAULTBOOK_CATALOGUE,
    else the package's own, made anew first where a checkout's kb/ has changed.

    Raises CatalogError, whose message is one line, when there is none or it is broken."""
    given = os.fspath(path) if path is not None else os.environ.get(ENVIRONMENT) or None
    folder = given if given is not None else _own()
    file = folder if folder.endswith(".json") else os.path.join(folder, "signatures.json")
    data = _parse(_read(file), file, SIGNATURES_SCHEMA)
    try:
        entries = {e["slug"]: e for e in data["entries"]}
        return Catalog(data["digest"], entries, data["signatures"], os.path.dirname(file))
    except (KeyError, TypeError):
        raise CatalogError(f"{file}: not a compiled catalogue") from None


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise CatalogError(f"{file}: {reason}") from None


def _parse(text: str, file: str, schema: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
        found = data["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CatalogError(f"{file}: not a compiled catalogue") from None
    if found != schema:
        raise CatalogError(f"{file}: schema is {found!r}, this version reads {schema!r}")
    return dict(data)


def _normal(name: str) -> str:
    return "-".join(re.findall(r"[^\W_]+", name.lower()))


def _words(text: str) -> list[str]:
    return [w for w in dict.fromkeys(re.findall(r"\w+", text.lower())) if len(w) > 1][:40]


def _score(entry: Entry, words: list[str]) -> int:
    """Weight of the words found: names count more than prose."""
    names = " ".join([entry["slug"], entry["title"], *(entry.get("aliases") or ())]).lower()
    prose = f"{entry.get('quick_answer', '')} {entry.get('fix', '')}".lower()
    return sum(5 * (w in names) + (w in prose) for w in words)


# --- in a source checkout: keep the catalogue current ---


def _own() -> str:
    package = os.path.dirname(os.path.abspath(__file__))
    target = os.path.join(package, "_catalogue")
    root = os.path.dirname(os.path.dirname(package))
    if os.path.isfile(os.path.join(root, "kb", "taxonomy.yaml")):
        refresh(os.path.join(root, "kb"), target)
    return target


def refresh(kb: str, target: str) -> bool:
    """Compiles kb/ into `target` unless that is current; True when it was compiled."""
    now = _stat_list(kb)
    stamp = _stamp(target)
    if stamp.get("stat") == now:
        return False
    content = _input_digest(kb)
    changed = stamp.get("content") != content
    if changed:
        _compile(kb, target)
    try:
        draft = os.path.join(target, f"stamp.{os.getpid()}.tmp")
        with open(draft, "w", encoding="utf-8") as stream:
            json.dump({"stat": now, "content": content}, stream)
        os.replace(draft, os.path.join(target, "stamp.json"))
    except OSError as error:
        raise CatalogError(f"{target}: {error.strerror}; set {ENVIRONMENT} to a compiled catalogue") from None
    return changed


def _compile(kb: str, target: str) -> None:
    """Calls the compiler of `faultbook_schema`, which registers itself as the command `compile`:
    the runtime knows the command's name only, and imports nothing of that package."""
    from importlib.metadata import entry_points

    for point in entry_points(group="faultbook.commands", name="compile"):
        try:
            command = point.load()
        except ImportError as error:
            raise CatalogError(f"kb/ cannot be compiled ({error}): pip install -e '.[schema]'") from None
        if command(["--kb", kb, "--target", target, "--keep-going", "--quiet"]) != 0:
            raise CatalogError("kb/ cannot be compiled; `faultbook compile` says why")
        return
    raise CatalogError("kb/ has changed and its compiler is not installed: pip install -e '.[schema]'")


def _stamp(target: str) -> dict[str, Any]:
    try:
        with open(os.path.join(target, "stamp.json"), encoding="utf-8") as stream:
            data = json.load(stream)
    except (OSError, ValueError):
        return {}
    both = all(os.path.isfile(os.path.join(target, n)) for n in ("signatures.json", "catalog.json"))
    return data if isinstance(data, dict) and both else {}


def knowledge_digest(kb: str) -> str:
    """Of everything in kb/ and proofs/ beside it, names and contents."""
    return _digest_files(_knowledge(kb))


def _input_digest(kb: str) -> str:
    return _digest_files([*_knowledge(kb), *_compiler(kb)])


def _stat_list(kb: str) -> str:
    """Cheap stand-in for the digest of contents: names, sizes and times, in one walk and without a hash: every
    command in a checkout begins with it."""
    root = os.path.dirname(os.path.abspath(kb))
    lines = []
    waiting = [os.path.abspath(kb), os.path.join(root, "proofs")]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as scan:
                for child in scan:
                    if child.name.startswith((".", "__pycache__")):
                        continue
                    if child.is_dir(follow_symlinks=False):
                        waiting.append(child.path)
                    elif child.is_file(follow_symlinks=False):
                        stat = child.stat(follow_symlinks=False)
                        lines.append(f"{child.path}\0{stat.st_size}\0{stat.st_mtime_ns}")
        except OSError:
            continue
    for name, path in _compiler(kb):
        stat = os.stat(path)
        lines.append(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}")
    lines.sort()
    return "\n".join([sys.version, *lines])


def _digest_files(files: Sequence[tuple[str, str]]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for name, path in files:
        with open(path, "rb") as stream:
            content = stream.read()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _knowledge(kb: str) -> list[tuple[str, str]]:
    root = os.path.dirname(os.path.abspath(kb))
    proofs = os.path.join(root, "proofs")
    return [*_walk(kb, "kb"), *(_walk(proofs, "proofs") if os.path.isdir(proofs) else ())]


def _compiler(kb: str) -> list[tuple[str, str]]:
    """The sources that decide what is compiled from kb/."""
    root = os.path.dirname(os.path.abspath(kb))
    runtime = os.path.dirname(os.path.abspath(__file__))
    schema = os.path.join(root, "schema", "faultbook_schema")
    runner = os.path.join(root, "sdk", "faultbook_repro", "core")
    own = [(n, os.path.join(runtime, n)) for n in ("literals.py", "portable.py", "signatures.py")]
    return [
        *(pair for pair in own if os.path.isfile(pair[1])),
        *(pair for folder, name in ((schema, "schema"), (runner, "runner")) if os.path.isdir(folder)
          for pair in _walk(folder, name) if pair[0].endswith(".py")),
    ]  # fmt: skip


def _walk(folder: str, name: str) -> list[tuple[str, str]]:
    """(name with slashes, path) of all plain files, sorted by name; hidden ones left out."""
    found = []
    stack = [(folder, name)]
    while stack:
        here, prefix = stack.pop()
        try:
            with os.scandir(here) as scan:
                children = list(scan)
        except OSError:
            continue
        for child in children:
            if child.name.startswith((".", "__pycache__")):
                continue
            if child.is_dir(follow_symlinks=False):
                stack.append((child.path, f"{prefix}/{child.name}"))
            elif child.is_file(follow_symlinks=False):
                found.append((f"{prefix}/{child.name}", child.path))
    return sorted(found)
