"""What may not stand in a sample log: somebody's secrets, name or address.

The runs print into a folder without a user's name, and quoted lines are masked by
`faultbook diagnose --share` or `faultbook new --from-log`; what is left is found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from faultbook.masking import mask_secrets, suspicious

from .problems import Problem

_HOME = re.compile(r"(?:/home|/Users|[A-Za-z]:\\+Users)[/\\]+([A-Za-z0-9_][\w.-]{0,40})")
_NOBODY = re.compile(
    r"user(?:name|-[a-z]{1,2})?|you|me|name|someone|ubuntu|runner|root|jovyan|coder|ec2-user|vscode|work|shared|conda|linuxbrew",
    re.IGNORECASE,
)
_MASK = "`faultbook new … --from-log FILE` masks a log; or write `<masked>` and /home/user"
_MOST = 5


def problems_of(shown: str, text: str) -> Iterator[Problem]:
    """Lines of one file that name somebody or hold a secret; at most five, the first ones."""
    found = 0
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if suspicious(line)]
    joined = "\n".join(line for _, line in lines)
    for number, line in lines if mask_secrets(joined) != joined else ():
        masked = mask_secrets(line)
        if masked != line and found < _MOST:
            found += 1
            what = "an e-mail address" if "<e-mail>" in masked and "<e-mail>" not in line else "a secret"
            yield Problem(shown, number, f"holds {what}", "log-secret", f"reads masked: {masked.strip()[:80]}")
    for number, line in enumerate(text.split("\n"), 1) if _HOME.search(text) else ():
        for match in _HOME.finditer(line):
            if not _NOBODY.fullmatch(match[1]) and found < _MOST:
                found += 1
                yield Problem(shown, number, f"names a person's home: {match[0][:60]}", "log-home", _MASK)
                break
