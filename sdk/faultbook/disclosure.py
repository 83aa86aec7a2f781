"""Masks a finished diagnosis: the verdict is decided on the log as it is, so masking cannot change it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .masking import Pseudonyms, mask_secrets
from .model import Diagnosis

OURS = frozenset({"entry", "title", "role", "verdict", "signature", "action", "fix", "verify", "url", "scope", "confidence"})
"""Fields that hold the catalogue's or the engine's own words."""


def masked(diagnosis: Diagnosis, share: bool = False, hosts: Iterable[str] = ()) -> Diagnosis:
    """Secrets always; with `share` also users, hosts, addresses and paths, by stable pseudonyms."""
    if not share:
        shown: Diagnosis = _over(diagnosis, mask_secrets)
        return shown
    names = Pseudonyms()
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    _over(diagnosis, note)
    node = diagnosis.initiating.node if diagnosis.initiating is not None else None
    names.learn(texts, [*hosts, *([node] if node else [])])
    shared: Diagnosis = _over(diagnosis, lambda text: names.mask(mask_secrets(text)))
    return shared


def _over(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        new = {
            f.name: getattr(value, f.name) if f.name in OURS else _over(getattr(value, f.name), change)
            for f in dataclasses.fields(value)
        }
        return type(value)(**new)
    if isinstance(value, Mapping):
        return {k: v if k in OURS else _over(v, change) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_over(v, change) for v in value)
    return value
