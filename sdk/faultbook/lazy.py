"""Regular expressions that are compiled at their first use.

A diagnosis of a small log needs few of the engine's expressions, and compiling all of them would be most of a
cold start. `regex` is `re.compile` put off; after the first use calls go straight to the compiled object's methods.
"""

from __future__ import annotations

import re
from typing import Any, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn")


class _Lazy:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(*self._given)
        for method in _METHODS:
            self.__dict__[method] = getattr(compiled, method)
        return getattr(compiled, name)


def regex(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Like `re.compile`, without its cost until a method is called."""
    return cast("re.Pattern[str]", _Lazy(pattern, flags))


def regex_bytes(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]:
    """The same for patterns over bytes."""
    return cast("re.Pattern[bytes]", _Lazy(pattern, flags))
