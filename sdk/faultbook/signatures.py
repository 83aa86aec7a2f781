"""The signature grammar: what an entry may say about logs and metrics.

Plain frozen dataclasses, defined here once (see `values`). `faultbook_schema` validates YAML into
them with pydantic (through the plain `__pydantic_config__` attribute, so nothing
is imported here) and exports their JSON Schema; the engine reads them from the
compiled catalogue with `signature_from_dict`.
"""

from __future__ import annotations

from typing import Any, Literal

from .values import dataclass, defaults, names

Role = Literal["root", "cascade", "teardown", "confirmation", "advice", "noise"]
"""root: can start a failure by itself. cascade: the same fault seen by a neighbour.
teardown: the launcher cleaning up. confirmation: names the cause of an event already
seen. advice: text that suggests, never an observation. noise: harmless by itself."""

STRICT = {"extra": "forbid", "use_attribute_docstrings": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A regular expression over one log line, in the portable subset (see `portable`)."""

    __pydantic_config__ = STRICT

    pattern: str
    """Matched anywhere in a line whose prefixes (rank, time, colour) are still in place."""
    ignore_case: bool = False
    """ASCII letters only."""
    at_least: int = 1
    """How many lines of one rank and attempt must match."""
    anchors: tuple[str, ...] = ()
    """Author's choice of required literals; by default they are derived from the pattern."""
    literals: tuple[str, ...] = ()
    """Filled by the compiler: every matching line contains at least one of these
    (case-insensitively). Never written by hand."""
    source: str = ""
    """Where the line comes from when no run here printed it: library, version, URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """Greatest distance between the first and last matched line of one rank and attempt."""

    __pydantic_config__ = STRICT

    lines: int | None = None
    """In lines of the log."""
    seconds: float | None = None
    """In seconds, where both lines carry a time of one clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """A quantifier over the ranks on which the signature holds."""

    __pydantic_config__ = STRICT

    quantifier: Literal["exactly_one", "all", "all_on_one_host", "at_least"]
    """exactly_one, all, all_on_one_host, or at_least with `count`."""
    count: int | None = None
    """For `at_least`: how many ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`left op factor × right`, both sides captures of matched patterns (or a number).

    Sizes (`3.05 GiB`, `512.00 MiB`), durations (`600000 ms`) and numbers are
    compared in bytes, seconds and as they are.
    """

    __pydantic_config__ = STRICT

    left: str
    """Name of a capture."""
    op: Literal["<", "<=", ">", ">=", "==", "!="]
    """The comparison."""
    right: str | float
    """Name of a capture, a text, or a number."""
    factor: float = 1.0
    """Multiplies the right side."""
    type: Literal["number", "bytes", "seconds", "text"] = "number"
    """How both sides are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSignature:
    """Patterns over single lines, combined within one rank and attempt."""

    __pydantic_config__ = STRICT

    kind: Literal["log"]
    """A log signature looks at lines."""
    id: str
    """Unique within the entry, kebab-case."""
    role: Role
    """What a match means; see the signature language."""
    all: tuple[Pattern, ...] = ()
    """Every one must match a line."""
    any: tuple[Pattern, ...] = ()
    """At least one must match a line."""
    none: tuple[Pattern, ...] = ()
    """Must not occur. Three-valued: on a truncated, folded or missing log it is unknown,
    and the signature then holds only with lowered confidence."""
    ordered: bool = False
    """`all` must match in the order given."""
    within: Within | None = None
    """How close together the lines of `all` must be."""
    ranks: Ranks | None = None
    """On how many ranks it must hold."""
    where: tuple[Comparison, ...] = ()
    """Comparisons of what was captured."""
    not_evidence_of: tuple[str, ...] = ()
    """Slugs that a reader could wrongly conclude from this match."""
    note: str = ""
    """For the reader of the entry."""


Test = Literal[
    "nonfinite", "above", "below", "rises", "falls", "spike", "plateau",
    "equals", "zero", "grows", "rank_ratio", "rank_differs", "missing",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """One test over one metric series; the tests are the detectors of `detectors`."""

    __pydantic_config__ = STRICT

    series: tuple[str, ...]
    """Names as frameworks print them, first present wins; `role:loss` means whatever
    series was inferred to play that role."""
    test: Test
    """The name of a detector."""
    value: float | None = None
    """above, below, equals: the threshold or constant."""
    ln_of: int | None = None
    """equals: ln of this number of classes, instead of `value`."""
    factor: float | None = None
    """rises, falls: × against the running extreme. rank_ratio: ratio between ranks."""
    z: float | None = None
    """spike: robust z-score."""
    tolerance: float | None = None
    """equals, plateau, rank_differs: relative tolerance."""
    records: int | None = None
    """plateau, grows: how many records the window spans."""
    patience: int = 1
    """For how many consecutive records the test must hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSignature:
    """Predicates over series of one rank (or between ranks), in any order or in sequence."""

    __pydantic_config__ = STRICT

    kind: Literal["metric"]
    """A metric signature looks at series of numbers."""
    id: str
    """Unique within the entry, kebab-case."""
    role: Role
    """What a match means; see the signature language."""
    all: tuple[Predicate, ...] = ()
    """Every one must hold."""
    any: tuple[Predicate, ...] = ()
    """At least one must hold."""
    none: tuple[Predicate, ...] = ()
    """None may hold; unknown where the series is not printed."""
    ordered: bool = False
    """Each predicate of `all` must first hold no earlier (by step) than the one before."""
    warmup: int = 0
    """Records at the start of each series that are not looked at."""
    observed_in: Literal["stock_log", "extra_line", "probe"]
    """stock_log: logs hold the series as they are. extra_line: one printed line is needed. probe: a probe is."""
    extra_line: str = ""
    """The one line of code to add when stock logs do not hold the series."""
    within_steps: int | None = None
    """On the broken run the signature fires within this many steps (proven by verify)."""
    not_evidence_of: tuple[str, ...] = ()
    """Slugs that a reader could wrongly conclude from this match."""
    note: str = ""
    """For the reader of the entry."""


Signature = LogSignature | MetricSignature


def signature_from_dict(data: dict[str, Any]) -> Signature:
    """Builds a signature from compiled JSON; raises KeyError or TypeError on foreign shapes."""
    cls, part = {"log": (LogSignature, Pattern), "metric": (MetricSignature, Predicate)}[data["kind"]]
    values = _with_tuples(data)
    for name in ("all", "any", "none"):
        if name in values:
            values[name] = tuple(part(**_with_tuples(p)) for p in values[name])
    if "where" in values:
        values["where"] = tuple(Comparison(**c) for c in values["where"])
    for name, kind in (("within", Within), ("ranks", Ranks)):
        if values.get(name) is not None:
            values[name] = kind(**values[name])
    signature: Signature = cls(**values)
    return signature


def _with_tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def to_dict(value: Any) -> Any:
    """A signature as JSON-ready data, defaults left out (so that rebuilds are stable)."""
    if fields := names(value):
        usual = defaults(value)
        found = {n: getattr(value, n) for n in fields}
        return {n: to_dict(v) for n, v in found.items() if n not in usual or v != usual[n]}
    if isinstance(value, (tuple, list)):
        return [to_dict(v) for v in value]
    return value
