"""kb/ → the catalogue: signatures.json, all an engine needs, and catalog.json with the prose.

The same kb/ always gives the same bytes: sorted entries and keys, no times, no paths
of the machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from faultbook.catalog import CATALOGUE_SCHEMA, SIGNATURES_SCHEMA, knowledge_digest
from faultbook.signatures import LogSignature, Pattern, Signature, to_dict

from . import files
from .digest import entry_digest, proof_digest, source_digest
from .links import ancestors
from .loader import Knowledge, LoadedEntry, load_kb
from .problems import InvalidKnowledge
from .signature_rules import literals_of

LOG_LINES, LOG_BYTES = 400, 48 * 1024
MAX_PROOF = 1024 * 1024
INVERSE = {
    "causes": "caused_by", "caused_by": "causes", "looks_like": "looks_like",
    "often_with": "often_with", "see_also": "see_also",
}  # fmt: skip
Json = dict[str, Any]


def write_catalogue(kb: Path, target: Path, *, keep_going: bool = False, left_out: list[str] | None = None) -> list[Path]:
    """Compiles kb/ into `target`; returns the files written.

    Raises InvalidKnowledge with every problem. With `keep_going` entries that cannot be
    read are left out (their slugs appended to `left_out`) and references to them
    dropped: for trying things in a checkout, never for what is published.
    """
    knowledge = load_kb(kb)
    if knowledge.problems and not keep_going:
        raise InvalidKnowledge(knowledge.problems)
    if left_out is not None:
        left_out += [item.slug for item in knowledge.loaded if item.entry is None]
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, data in compile_knowledge(knowledge).items():
        path = target / name
        text = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_bytes(text.encode() + b"\n")
        os.replace(draft, path)
        written.append(path)
    return written


def compile_knowledge(knowledge: Knowledge) -> dict[str, Json]:
    """File name → content, of everything usable in kb/."""
    entries = knowledge.entries
    raws = {slug: _pruned(item, entries) for slug, item in entries.items()}
    digest = knowledge_digest(str(knowledge.kb))
    proofs = _proofs(knowledge)
    full, brief, signatures = [], [], []
    for slug, item in entries.items():
        assert item.entry is not None
        data = raws[slug]
        compiled = [to_dict(with_literals(s)) for s in item.entry.signatures]
        up = ancestors(slug, raws)
        code = item.code.to_dict() if item.code is not None else {}
        full.append(
            {
                **data,
                "signatures": compiled,
                "ancestors": up,
                "code": code,
                "logs": {name: shortened(text) for name, text in sorted(item.logs.items())},
                "proofs": proofs.get(slug, []),
                "inverse_related": _inverse(slug, raws),
            }
        )
        brief.append(_brief(data, up, code))
        signatures += [{"entry": slug, **signature} for signature in compiled]
    return {
        "signatures.json": {
            "schema": SIGNATURES_SCHEMA, "digest": digest, "entries": brief, "signatures": signatures,
        },
        "catalog.json": {
            "schema": CATALOGUE_SCHEMA, "digest": digest, "entries": full,
            "taxonomy": knowledge.taxonomy.to_dict(),
        },
    }  # fmt: skip


def with_literals(signature: Signature) -> Signature:
    """The signature with the literals of its patterns filled in."""
    if not isinstance(signature, LogSignature):
        return signature
    return replace(
        signature,
        all=_filled(signature.all), any=_filled(signature.any), none=_filled(signature.none),
    )  # fmt: skip


def _filled(patterns: Sequence[Pattern]) -> tuple[Pattern, ...]:
    return tuple(replace(p, literals=literals_of(p.pattern, p.ignore_case, p.anchors)) for p in patterns)


def _pruned(item: LoadedEntry, entries: Mapping[str, LoadedEntry]) -> Json:
    """An entry as JSON, empty fields and references to absent entries left out."""
    assert item.entry is not None
    data: Json = _without_empty(item.entry.model_dump(mode="json", by_alias=True, exclude={"signatures"}))
    if data.get("parent") not in entries:
        data.pop("parent", None)
    for name, key in (("not_this_if", "entry"), ("related", "entry"), ("routes", "to")):
        if name in data:
            data[name] = [row for row in data[name] if row[key] in entries]
    return data


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        cleaned = {key: _without_empty(v) for key, v in value.items()}
        return {key: v for key, v in cleaned.items() if v not in (None, [], {}, "")}
    return [_without_empty(v) for v in value] if isinstance(value, list) else value


def _brief(data: Json, up: list[str], code: Json) -> Json:
    fix, verify = data.get("fix") or {}, data.get("verify")
    return {
        **{name: data[name] for name in ("slug", "kind", "title", "category", "severity", "visibility")},
        "parent": data.get("parent"),
        "ancestors": up,
        "aliases": data.get("aliases", []),
        "action": data.get("action"),
        "fix": fix.get("summary", ""),
        "fix_code": code.get("fixed", ""),
        "verify": f"{verify['command']} → {verify['expect']}" if verify else "",
        "quick_answer": data["quick_answer"],
        "routes": data.get("routes", []),
        "harmless_unless": data.get("harmless_unless", ""),
    }


def _inverse(slug: str, raws: Mapping[str, Json]) -> list[Json]:
    """What other entries say about this one, turned round."""
    found = {
        (other, INVERSE[row["relation"]])
        for other, data in raws.items()
        for row in data.get("related", ())
        if row["entry"] == slug and row["relation"] in INVERSE
    }
    return [{"entry": other, "relation": relation} for other, relation in sorted(found)]


def shortened(text: str) -> str:
    """A log as a page can carry it: its first and last lines, with a note where lines are left out."""
    lines = text.splitlines()
    if len(lines) <= LOG_LINES and len(text) <= LOG_BYTES:
        return text
    half = LOG_LINES // 2
    budget = LOG_BYTES // 2
    head, tail = _fitting(lines[:half], budget), _fitting(lines[half:][-half:][::-1], budget)[::-1]
    left_out = len(lines) - len(head) - len(tail)
    note = [f"… {left_out:,} lines left out …"] if left_out else []
    return "\n".join([*head, *note, *tail]) + "\n"


def _fitting(lines: list[str], budget: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        line = line if len(line) <= 4000 else line[:4000] + " …"
        budget -= len(line) + 1
        if budget < 0:
            break
        kept.append(line)
    return kept


def _proofs(knowledge: Knowledge) -> dict[str, list[Json]]:
    """slug → proof records that still hold: their digest is that of the present entry and runner."""
    folder = knowledge.kb.resolve().parent / "proofs"
    runner_folder = knowledge.kb.resolve().parent / "sdk" / "faultbook_repro" / "core"
    runner = source_digest(runner_folder) if runner_folder.is_dir() else ""
    digests: dict[str, str] = {}
    found: dict[str, list[Json]] = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        slug = path.name.split(".")[0]
        item = knowledge.entries.get(slug)
        if item is None:
            continue
        data, _ = files.read_bytes(folder, path.name, path.name, MAX_PROOF)
        try:
            record = json.loads(data or b"")
        except (ValueError, RecursionError):
            continue
        if slug not in digests:
            digests[slug] = proof_digest(entry_digest(item.folder), runner)
        if isinstance(record, dict) and record.get("digest") == digests[slug]:
            found.setdefault(slug, []).append(record)
    return found
