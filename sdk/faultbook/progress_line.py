"""Of a diagnosis that takes long: how far the reading is, in one line of a terminal that is wiped in the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TextIO

from .model import Source
from .streams import seekable

PATIENCE = 2.0
"""Seconds for which nothing is said."""
EVERY = 0.2


class ProgressLine:
    """Told by a scan how many bytes of which input it has read."""

    def __init__(self, out: TextIO | None = None, patience: float = PATIENCE) -> None:
        self._out = out or sys.stderr
        self._from = time.monotonic() + patience
        self._shown = False

    def __call__(self, source: Source, done: int) -> None:
        now = time.monotonic()
        if now < self._from:
            return
        self._from = now + EVERY
        share = ""
        if source.path is not None and seekable(source):  # of a compressed one nobody knows the size
            with contextlib.suppress(OSError):
                share = f" ({100 * done // max(1, os.path.getsize(source.path))} %)"
        name = "".join(c for c in source.name.rsplit("/", 1)[-1] if c.isprintable())[-50:]
        print(f"\r\x1b[Kreading {name}: {done / 1e6:,.0f} MB{share}", end="", file=self._out, flush=True)
        self._shown = True

    def wipe(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=self._out, flush=True)
            self._shown = False
