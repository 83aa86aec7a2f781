"""What `verify` needs of an entry: its signatures, its recorded lines, its reproduction.

Read leniently, so that an entry whose prose is still missing can already be proven;
`faultbook check` is the strict reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultbook.signatures import LogSignature, Signature

from .spec import Spec, SpecError, make_spec, read_yaml


@dataclass(frozen=True, slots=True)
class Entry:
    slug: str
    folder: Path
    kind: str
    mode: str
    """real | simulated | recorded"""
    signatures: tuple[Signature, ...]
    recorded: tuple[tuple[str, tuple[str, ...]], ...]
    """(file, ids of the signatures that fire on it)"""
    spec: Spec | None
    """None when the mode is `recorded`: nothing to run."""

    @property
    def claimed(self) -> tuple[Signature, ...]:
        """The signatures that claim what the broken run prints.

        All but those shown to fire on recorded lines, and those whose every pattern
        cites a source because no run here can print it.
        """
        elsewhere = {name for _, names in self.recorded for name in names}
        return tuple(s for s in self.signatures if s.id not in elsewhere and not _cited(s))


def _cited(signature: Signature) -> bool:
    if not isinstance(signature, LogSignature):
        return False
    patterns = (*signature.all, *signature.any)
    return bool(patterns) and all(p.source for p in patterns)


def load_entry(folder: Path) -> Entry | None:
    """None for an entry without reproduction and without recorded lines (hubs, noise)."""
    path = folder / "entry.yaml"
    data = read_yaml(path)
    slug = str(data.get("slug", folder.name))
    settings = data.get("repro")
    recorded = _recorded(slug, data)
    if not isinstance(settings, dict):
        if not recorded:
            return None
        settings = {"mode": "recorded"}
    mode = str(settings.get("mode", "real"))
    spec = None
    if mode != "recorded":
        if not (folder / "repro.py").is_file():
            raise SpecError(f"{slug}: mode {mode} needs a repro.py")
        spec = make_spec(folder / "repro.py", slug, dict(settings))
    return Entry(slug, folder, str(data.get("kind", "cause")), mode, _signatures(slug, data), recorded, spec)


def _recorded(slug: str, data: dict[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for item in data.get("recorded") or ():
        if not isinstance(item, dict) or not isinstance(item.get("file"), str):
            raise SpecError(f"{slug}: recorded: each item names a file")
        if ".." in Path(item["file"]).parts or Path(item["file"]).is_absolute():
            raise SpecError(f"{slug}: recorded: {item['file']} leads out of the entry's folder")
        found.append((item["file"], tuple(str(name) for name in item.get("signatures") or ())))
    return tuple(found)


def _signatures(slug: str, data: dict[str, Any]) -> tuple[Signature, ...]:
    """With the schema's own types, so that a number written `1e9` is one here as well."""
    from pydantic import TypeAdapter, ValidationError

    from faultbook_schema.models import TaggedSignature

    adapter: TypeAdapter[Signature] = TypeAdapter(TaggedSignature)
    found = []
    for number, raw in enumerate(data.get("signatures") or (), 1):
        try:
            found.append(adapter.validate_python(raw))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"][1:])
            raise SpecError(f"{slug}: signature {number}: {where}: {first['msg']}") from None
    return tuple(found)


def find_kb(start: Path | None = None) -> Path:
    """kb/ of the checkout that holds the current folder, else of this source checkout."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / "kb" / "taxonomy.yaml").is_file():
            return folder / "kb"
    raise SpecError("no kb/ here: run this in a source checkout of Faultbook")


def entry_folders(kb: Path, names: list[str]) -> list[Path]:
    """Folders of the entries named by slug or path; all of kb/ when none is named."""
    folders = {path.parent.name: path.parent for path in sorted(kb.glob("*/*/entry.yaml"))}
    if not names:
        return list(folders.values())
    chosen = []
    for name in names:
        path = Path(name)
        if name in folders:
            chosen.append(folders[name])
        elif (path / "entry.yaml").is_file():
            chosen.append(path.resolve())
        else:
            import difflib

            near = difflib.get_close_matches(name, folders, n=1)
            raise SpecError(f"no entry {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
    return chosen
