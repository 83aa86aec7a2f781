"""What must not leave the machine: secrets always, names of people and machines when shared.

`mask_secrets` hides credentials and e-mail addresses in anything that is shown or written.
`Pseudonyms` additionally gives users, hosts, addresses and paths stable other names in what
is made to be shared. Both work line by line or on whole texts, keep the number of lines,
and keep the words that signatures look for: they replace values, never messages, and file
names at the end of a path stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from . import lazy

MASK = "<masked>"

_NAMED = (
    r"(?:[A-Z0-9_]*(?:API_?KEY|ACCESS_?KEY|SECRET|PASSWORD|PASSWD|AUTH_TOKEN|HF_TOKEN|HUB_TOKEN|HUGGING_FACE_HUB_TOKEN"
    r"|GITHUB_TOKEN|GH_TOKEN|ACCESS_TOKEN|SESSION_TOKEN|REFRESH_TOKEN|PRIVATE_KEY|CREDENTIALS?)[A-Z0-9_]*)"
)
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    # lines of a private key whose beginning is elsewhere
    (lazy.regex(r"(?m)^([^\n]{0,80}?)\b(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{76})(?=\r?$)"), rf"\1{MASK}"),
    (lazy.regex(r"\bhf_[A-Za-z0-9]{16,}"), f"hf_{MASK}"),
    (lazy.regex(r"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{16,}"), f"sk-{MASK}"),
    (lazy.regex(r"\b(gh[pousr]_|github_pat_|glpat-|xox[abprs]-|npm_|pypi-|dckr_pat_|nvapi-|tskey-)[A-Za-z0-9_-]{16,}"),
     rf"\1{MASK}"),
    (lazy.regex(r"\b(AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b"), rf"\1{MASK}"),
    (lazy.regex(r"\bAIza[A-Za-z0-9_-]{30,}"), f"AIza{MASK}"),
    (lazy.regex(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)?"), MASK),
    (lazy.regex(r"\b(Bearer|Basic|Token)([ :]+)(?=[A-Za-z0-9+/._=-]*\d)[A-Za-z0-9+/._=-]{16,}", re.I), rf"\1\2{MASK}"),
    (lazy.regex(r"((?:wandb|weights ?& ?biases|netrc|api[ _-]?key|login)\b[^\n]{0,60}?)\b[0-9a-f]{40}\b", re.I), rf"\1{MASK}"),
    (lazy.regex(r"\b(wandb_v\d_)[A-Za-z0-9_]{16,}"), rf"\1{MASK}"),
    (lazy.regex(r"([a-z][a-z0-9+.-]{1,20}://)[^\s:/@'\"]{0,80}:[^\s@/'\"]{1,200}@", re.I), rf"\1{MASK}@"),
    (lazy.regex(r"([?&](?:sig|signature|X-Amz-Signature|X-Amz-Credential|X-Amz-Security-Token|token|key|api_key|password)=)"
                r"[^&\s'\"<]{6,}", re.I), rf"\1{MASK}"),
    (lazy.regex(rf"\b({_NAMED}['\"]?\s*[=:]\s*['\"]?)(?!None\b|null\b|True\b|False\b|<)[^\s'\",;&|)}}\]]{{6,}}", re.I),
     rf"\1{MASK}"),
    (lazy.regex(r"(--(?:[a-z-]*(?:token|password|secret|api-?key))[ =])(?!<)[^\s'\"-][^\s'\"]{5,}", re.I), rf"\1{MASK}"),
    (lazy.regex(r"\b[A-Za-z0-9][\w.+-]{0,63}@(?!\d)(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,18}\b(?![:/]\w)"), "<e-mail>"),
)
_PRIVATE_KEY = lazy.regex(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)([^-]{1,20000})")
_HINTS = ("hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_", "glpat", "xox", "npm_", "pypi-", "dckr", "nvapi",
          "tskey", "akia", "asia", "aroa", "aida", "aiza", "eyj", "bearer", "basic", "token", "wandb", "biases", "netrc", "api",
          "login", "://", "sig", "key", "pass", "secret", "credential", "@")
"""Lower case; every pattern above needs one of them, or a long run."""
_RUN = lazy.regex(r"[A-Za-z0-9+/]{64}")


def suspicious(text: str) -> bool:
    """Whether a text holds anything that `mask_secrets` starts from; false for most lines, and quick to say."""
    folded = text.lower()
    return any(word in folded for word in _HINTS) or _RUN.search(text) is not None


def mask_secrets(text: str) -> str:
    """The text without credentials and e-mail addresses; lines stay lines."""
    if not suspicious(text):
        return text
    text = _PRIVATE_KEY.sub(lambda match: match[1] + re.sub(r"[^\r\n]+", MASK, match[2]), text)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


_HOME = lazy.regex(r"(?P<base>(?:/home|/Users|/users|/u|/scratch|/lustre/\w+|/data/home|[A-Za-z]:\\+Users)[/\\]+)"
                   r"(?P<user>[A-Za-z0-9_][\w.-]{0,40})")
_PATH = lazy.regex(r"(?<![\w./:<>-])(?P<path>/(?:[\w.+@=<>-]+/){2,}|[A-Za-z]:\\(?:[\w .+@=<>-]+\\){2,})")
_USER = lazy.regex(r"(?P<base>\b(?:user(?:name)?)[=:] ?['\"]?)(?P<user>[A-Za-z_][\w.-]{1,30})\b(?=['\"]?(?:[\s,;)]|$))",
                   re.I)
_IPV4 = lazy.regex(r"(?<![\w.])(?P<ip>(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d))(?![\w]|\.\d)")
_IPV6 = lazy.regex(r"(?<![\w:.])(?P<ip>(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}"
                   r"|(?:[0-9a-f]{1,4}:){1,6}:(?:[0-9a-f]{1,4}:){0,5}[0-9a-f]{1,4}|::ffff:[\d.]+)(?![\w:.])", re.I)
_HOSTS: tuple[re.Pattern[str], ...] = (
    # where logs name a host: NCCL's host:pid:tid, torchelastic's block, schedulers, pdsh and journald prefixes, URLs
    lazy.regex(r"(?m)^(?P<before>(?:\[?[\d T:.,-]{1,40}\]?[ ]{1,4})?(?:\d{1,6}: )?)(?P<host>[A-Za-z][\w.-]*):\d+:\d+ \["),
    lazy.regex(r"(?P<before>\b(?:host(?:name)?|node(?:name|list)?|master_addr|machine|instance|server)['\"]?\s*[:=]\s*['\"]?)"
               r"(?P<host>[A-Za-z][\w.-]*\d[\w.-]*)", re.I),
    lazy.regex(r"(?P<before>\b(?:slurmstepd-|srun: error: |on node |ON |from node |Node ))(?P<host>[A-Za-z][\w.-]*\d[\w.-]*)"),
    lazy.regex(r"(?P<before>(?<=\w)@)(?P<host>[A-Za-z][\w.-]+)(?=:|\b)"),
    lazy.regex(r"(?m)^(?P<before>[A-Z][a-z]{2} +\d+ [\d:]{8} )(?P<host>[A-Za-z][\w.-]*)(?= )"),
    lazy.regex(r"(?<![\w.@/-])(?P<before>)(?P<host>[A-Za-z][\w-]*(?:\.[\w-]+)*\.(?:internal|local|cluster|lan|intra|corp|svc|compute))\b"),
    lazy.regex(r"(?P<before>\[)(?P<host>[A-Za-z][\w.-]+)(?=\]:\d{2,5}\b)"),
)
_PUBLIC = lazy.regex(r"localhost|127\.|0\.0\.0\.0|255\.|::1?$", re.I)
_VERSION = lazy.regex(r"(?:version|torch|cuda|cudnn|nccl|driver|python|release|toolkit|==|[^\w]v)[ :=(\"']{0,3}$", re.I)
_SYSTEM_ROOTS = ("/usr/", "/opt/", "/lib", "/proc/", "/sys/", "/dev/", "/etc/", "/var/", "/tmp/", "/bin/", "/root/")
_NEUTRAL = frozenset(["node", "host", "localhost", "rank", "worker", "master", "none", "null", "unknown", "true", "false"])


class Pseudonyms:
    """Stable other names within one object: the same host is `node-a` everywhere.

    The first name met is `a`. Keep one object for everything that is shared together;
    `table` says which name stands for what, and is not to be shared.
    """

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {"node": {}, "user": {}, "ip": {}, "dir": {}}
        self._known: re.Pattern[str] | None = None

    @property
    def table(self) -> Mapping[str, str]:
        """Real name → pseudonym."""
        return {real: name for kind in self._names.values() for real, name in kind.items()}

    def learn(self, texts: Iterable[str], hosts: Iterable[str] = ()) -> None:
        """Collects names first, so that a host recognised in one line is masked in all of them."""
        for host in hosts:
            self._name("node", host)
        for text in texts:
            self._apply(text)
        self._known = None

    def mask(self, text: str) -> str:
        """The text with secrets masked and names replaced; lines stay lines."""
        text = self._apply(mask_secrets(text))
        return self._known_names(text)

    def _apply(self, text: str) -> str:
        text = _HOME.sub(lambda m: m["base"] + self._user(m["user"]), text)
        text = _USER.sub(lambda m: m["base"] + self._user(m["user"]), text)
        for pattern in _HOSTS:
            text = pattern.sub(self._host, text)
        text = _IPV4.sub(self._ip, text)
        text = _IPV6.sub(self._ip, text)
        return _PATH.sub(self._path, text)

    def _known_names(self, text: str) -> str:
        """Names met anywhere else: as whole words only, and none that is an ordinary word."""
        if self._known is None:
            names = [n for kind in ("node", "user") for n in self._names[kind] if len(n) > 3 and n.lower() not in _NEUTRAL]
            if not names:
                return text
            words = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True) if not n.isalpha() or len(n) > 5)
            self._known = re.compile(rf"(?<![\w.-])(?:{words})(?![\w-])") if words else re.compile(r"(?!)")
        table = {**self._names["user"], **self._names["node"]}
        return self._known.sub(lambda m: table.get(m[0], m[0]), text)

    def _host(self, match: re.Match[str]) -> str:
        whole, host = match[0], match["host"]
        if _PUBLIC.match(host) or host.lower() in _NEUTRAL:
            return whole
        start = match.start("host") - match.start()
        return whole[:start] + self._name("node", host) + whole[start + len(host):]

    def _user(self, user: str) -> str:
        return user if user.lower() in _NEUTRAL else self._name("user", user)

    def _ip(self, match: re.Match[str]) -> str:
        version = _VERSION.search(match.string, max(0, match.start() - 24), match.start())
        return match["ip"] if version or _PUBLIC.match(match["ip"]) else self._name("ip", match["ip"])

    def _path(self, match: re.Match[str]) -> str:
        """Own directories become one name each; what a message needs (the file, library
        directories) stays."""
        path = match["path"]
        for known in ("site-packages", "dist-packages", "lib/python", "torch/", "nccl"):
            at = path.find(known)
            if at > 0:
                return self._name("dir", path[:at].rstrip("/\\")) + "/" + path[at:]
        if path.startswith(_SYSTEM_ROOTS):
            return path
        return self._name("dir", path.rstrip("/\\")) + "/"

    def _name(self, kind: str, real: str) -> str:
        names = self._names[kind]
        if real not in names:
            if any(real in other.values() for other in self._names.values()):
                return real  # already a pseudonym
            names[real] = f"{kind}-{_letters(len(names))}"
            self._known = None
        return names[real]


def _letters(number: int) -> str:
    """a … z, aa, ab …"""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text
