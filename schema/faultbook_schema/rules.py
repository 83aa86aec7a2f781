"""Rules of one entry that need more than one field, on plain data (see `signature_rules`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from . import signature_rules
from .signature_rules import Found
from .yaml_nodes import Loc

MAX_SIGNATURES = 60


def problems_of(entry: dict[str, Any]) -> Iterator[Found]:
    """All cross-field faults of an entry as read from YAML; tolerates any shape."""
    signatures = _list(entry, "signatures")
    count = len(signature_rules.patterns_of(entry))
    if count > signature_rules.MAX_PATTERNS or len(signatures) > MAX_SIGNATURES:
        message = f"{len(signatures)} signatures with {count} patterns; at most {MAX_SIGNATURES} with "
        yield (("signatures",), message + str(signature_rules.MAX_PATTERNS), "too-long", "split the entry")
        return
    seen: dict[str, int] = {}
    for index, signature in enumerate(signatures):
        yield from signature_rules.problems_of(signature, ("signatures", index))
        identifier = signature.get("id") if isinstance(signature, dict) else None
        if isinstance(identifier, str):
            if identifier in seen:
                yield (
                    ("signatures", index, "id"),
                    f"`{identifier[:80]}` is the id of two signatures",
                    "signature-id",
                    f"first as number {seen[identifier] + 1}",
                )
            seen.setdefault(identifier, index)
    none_given = entry.get("kind") == "cause" and entry.get("signatures") == []
    if none_given and entry.get("visibility") != "silent":
        yield (("signatures",), "only a silent failure may have no signature", "cross-field", "")
    yield from _todos(entry, ())
    yield from _repro(entry)
    yield from _recorded(entry, set(seen))
    for index, route in enumerate(_list(entry, "routes")):
        if isinstance(route, dict) and not route.get("signature") and not route.get("test"):
            yield (
                ("routes", index),
                "a route needs `signature` or `test`",
                "cross-field",
                "how does the reader decide?",
            )
    for index, system in enumerate(_list(entry, "affects")):
        fixed = system.get("fixed") if isinstance(system, dict) else None
        if fixed and fixed == system.get("introduced"):
            yield (("affects", index), "`introduced` equals `fixed`: no version affected", "cross-field", "")
    for name in ("tags", "aliases", "stages"):
        yield from _repeats(_list(entry, name), (name,))


def _todos(value: Any, loc: Loc) -> Iterator[Found]:
    """Texts that `faultbook new` left to be filled in; patterns may look for the word."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "pattern":
                yield from _todos(inner, (*loc, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _todos(inner, (*loc, index))
    elif isinstance(value, str) and re.search(r"\bTODO\b", value):
        name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc).lstrip(".")
        said = value.partition("TODO")[2].strip(" :")
        yield (loc, f"`{name}`: TODO is still to be filled in", "todo", said[:80])


def _repro(entry: dict[str, Any]) -> Iterator[Found]:
    repro = entry.get("repro")
    if not isinstance(repro, dict):
        return
    mode = repro.get("mode")
    if mode == "simulated" and not repro.get("stands_in"):
        yield (
            ("repro",),
            "`mode: simulated` needs `stands_in`",
            "cross-field",
            "one sentence: what stands in for what",
        )
    if mode != "simulated" and mode is not None and repro.get("stands_in"):
        yield (("repro", "stands_in"), f"`stands_in` is for `mode: simulated`, not {mode}", "cross-field", "")
    if mode == "recorded" and not _list(entry, "recorded"):
        yield (
            ("repro",),
            "`mode: recorded` needs `recorded` lines",
            "cross-field",
            "recorded: [{file: logs/recorded-1.log, source: URL, signatures: [id]}]",
        )
    world, guilty = repro.get("world_size", 1), repro.get("guilty_rank")
    if isinstance(world, int) and isinstance(guilty, int) and guilty >= world:
        message = f"rank {guilty} does not exist in a world of {world}"
        yield (("repro", "guilty_rank"), message, "cross-field", "")


def _recorded(entry: dict[str, Any], ids: set[str]) -> Iterator[Found]:
    for index, item in enumerate(_list(entry, "recorded")):
        for number, name in enumerate(_list(item, "signatures") if isinstance(item, dict) else ()):
            if isinstance(name, str) and name not in ids:
                yield (
                    ("recorded", index, "signatures", number),
                    f"no signature `{name[:80]}` in this entry",
                    "unknown-signature",
                    f"ids: {', '.join(sorted(ids)) or 'none'}",
                )


def _repeats(values: list[Any], loc: Loc) -> Iterator[Found]:
    for index, value in enumerate(values):
        if isinstance(value, str) and value in values[:index]:
            yield ((*loc, index), f"`{value[:80]}` is listed twice", "bad-value", "remove one")


def _list(data: dict[str, Any], name: str) -> list[Any]:
    value = data.get(name)
    return value if isinstance(value, list) else []
