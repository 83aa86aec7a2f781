"""Takes this machine out of a run's log: paths, host, user, addresses, ports.

Narrow on purpose: the text is to stay what torch prints, and only what differs between
two machines that run the same reproduction is replaced.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

_RULES: tuple[tuple[str, str], ...] = (
    # gloo prints peers as [127.0.0.1]:40213 and [::ffff:127.0.0.1]:40213
    (r"(\[(?:::ffff:)?(?:127\.0\.0\.1|::1|localhost)\]):\d+", r"\1:40000"),
    (r"\b(127\.0\.0\.1|localhost):\d{2,5}\b", r"\1:40000"),
    (r"\b(?:10|172|192|100)\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", "10.0.0.1"),
    (r"(?:/[\w.+-]+)*/(?:site|dist)-packages/", "site-packages/"),
    (r"(?:/[\w.+-]+)+/faultbook-[\w]+/runs/\d+/", ""),
)


def mask(text: str, folder: Path | None = None) -> str:
    """`text` as any machine would have printed it."""
    if folder is not None:
        text = text.replace(f"{folder}/", "").replace(str(folder), ".")
    for pattern, replacement in _machine():
        text = re.sub(pattern, replacement, text)
    return text


@lru_cache(maxsize=1)
def _machine() -> tuple[tuple[str, str], ...]:
    rules = list(_RULES)
    prefixes = {sys.prefix, sys.base_prefix, os.path.realpath(sys.executable)}
    stdlib = sysconfig.get_paths()["stdlib"]
    rules.append((re.escape(stdlib) + "/", "python/"))
    rules += [
        (re.escape(p) + r"(?=[/\s\"':]|$)", "python")
        for p in sorted(prefixes, key=len, reverse=True)
        if len(p) > 5
    ]
    package = str(Path(__file__).resolve().parent)
    rules.append((re.escape(package) + "/", "faultbook_repro/"))
    host = socket.gethostname()
    if len(host) > 2 and host != "localhost":
        rules.append((rf"(?<![\w-]){re.escape(host)}(?![\w-])", "node-a"))
    home = os.path.expanduser("~")
    if len(home) > 2:
        rules.append((re.escape(home) + r"(?=[/\s\"':]|$)", "~"))
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    if len(user) > 3 and user not in ("root", "nobody", "user", "runner"):
        rules.append((rf"\b{re.escape(user)}\b", "user"))
    return tuple(rules)
