"""Masks a finished diagnosis: the verdict is decided on the log as it is, so masking cannot change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .masking import Pseudonyms, mask_secrets
from .model import Diagnosis
from .values import names

OURS = frozenset({"entry", "title", "role", "verdict", "signature", "action", "fix", "verify", "url", "scope", "confidence"})
"""Fields that hold the catalogue's or the engine's own words."""


def masked(diagnosis: Diagnosis, share: bool = False, hosts: Iterable[str] = ()) -> Diagnosis:
    """Secrets always; with `share` also users, hosts, addresses and paths, by stable pseudonyms."""
    if not share:
        shown: Diagnosis = _over(diagnosis, mask_secrets)
        return shown
    pseudonyms = Pseudonyms()
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    _over(diagnosis, note)
    node = diagnosis.initiating.node if diagnosis.initiating is not None else None
    pseudonyms.learn(texts, [*hosts, *([node] if node else [])])
    shared: Diagnosis = _over(diagnosis, lambda text: pseudonyms.mask(mask_secrets(text)))
    return shared


def _over(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if fields := names(value):
        new = {n: getattr(value, n) if n in OURS else _over(getattr(value, n), change) for n in fields}
        return type(value)(**new)
    if isinstance(value, Mapping):
        return {k: v if k in OURS else _over(v, change) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_over(v, change) for v in value)
    return value
