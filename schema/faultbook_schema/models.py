"""What an entry of the encyclopedia says: pydantic models, a union on `kind`.

Docstrings under the fields become the descriptions in the JSON Schema, which is
what editors show. Rules that need more than one field are in `rules` and
`signature_rules`, so that each can point at its own line.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from faultbook.signatures import Signature

from .taxonomy import Taxonomy

SCHEMA = "faultbook.entry/1"
QUICK_ANSWER_WORDS = 60
Json = dict[str, Any]
ONE_LINE = r"^[^\n\r]*$"
SLUG = r"^[a-z0-9]+(-[a-z0-9]+)*$"


@dataclass(frozen=True)
class Vocabulary:
    """Annotation: a string that must be a value of the taxonomy given as validation context.

    Without `{"taxonomy": …}` in the context any string passes: a model can be built by
    hand, and only loading kb/ closes the vocabularies.
    """

    name: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return {**handler(schema), "x-vocabulary": self.name}

    def _check(self, value: str, info: ValidationInfo) -> str:
        taxonomy: Taxonomy | None = (info.context or {}).get("taxonomy")
        if taxonomy is not None and value not in taxonomy[self.name]:
            context = {"value": value[:80], "name": self.name}
            raise PydanticCustomError("vocabulary", "`{value}` is not in the vocabulary `{name}`", context)
        return value


def _sixty_words(value: str) -> str:
    words = len(value.split())
    if words > QUICK_ANSWER_WORDS:
        raise PydanticCustomError("too_long", "{words} words; at most {limit}", {"words": words, "limit": QUICK_ANSWER_WORDS})
    return value


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        host = parts.hostname
    except ValueError:
        host = None
        parts = None
    bad = parts is None or parts.scheme not in ("http", "https") or not host or parts.username is not None
    if bad or any(c.isspace() or c in "<>\"'`{}|\\" or ord(c) < 33 for c in value):
        raise PydanticCustomError("url", "not an absolute http(s) address", {})
    return value


def _date(value: str) -> str:
    try:
        known = len(value) == 10 and date.fromisoformat(value).year >= 1980
    except ValueError:
        known = False
    if not known:
        raise PydanticCustomError("bad_date", "not a date of the form YYYY-MM-DD since 1980", {})
    return value


def _inside(value: str) -> str:
    parts = value.split("/")
    if value.startswith("/") or "\\" in value or ":" in value or any(p in ("", ".", "..") for p in parts):
        raise PydanticCustomError("path_outside", "must be a plain path inside the entry's folder", {})
    return value


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300, pattern=ONE_LINE)]
Slug = Annotated[str, StringConstraints(pattern=SLUG, max_length=80)]
SignatureName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+#[a-z0-9-]+$", max_length=160)]
Url = Annotated[str, StringConstraints(max_length=600), AfterValidator(_url)]
Date = Annotated[str, AfterValidator(_date), Field(json_schema_extra={"format": "date"})]
FilePath = Annotated[str, StringConstraints(max_length=200), AfterValidator(_inside)]


class Model(BaseModel):
    """Settings shared by all parts of an entry."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False, populate_by_name=True
    )


class Affected(Model):
    """A system in which it occurs, with the versions, in the manner of OSV ranges."""

    system: Annotated[str, Vocabulary("systems")]
    introduced: Line | None = None
    """First version or date that has the fault; absent: as long as anybody knows."""
    fixed: Line | None = None
    """First version that no longer has it; absent: it can still happen."""
    note: Text | None = None


class Symptom(Model):
    observe: Text
    """What a person or a log shows, concretely: numbers, names, the order of events."""
    why: Text
    """Why this cause makes that visible."""


class Confirmation(Model):
    step: Text
    """What to find out."""
    how: Text
    """The command, code or place to look."""
    expect: Text
    """What is seen when this entry is the cause: concrete, and different from what is seen otherwise."""


class Fix(Model):
    """The code shown beside it is the `fixed` region of repro.py."""

    summary: Text
    command: Text | None = None
    """A command that applies it, where one does."""
    why: Text
    """Why it works."""
    risk: Text | None = None
    """What it costs or can break."""


class Action(Model):
    """What to do now, before anything is understood."""

    do: Annotated[str, Vocabulary("actions")]
    when: Text
    """The condition under which it is the right thing."""


class NotThisIf(Model):
    entry: Slug
    because: Text
    """The observation that decides for the other entry."""


class Verification(Model):
    command: Text
    expect: Text
    """What is seen when the fix works."""


class Prevention(Model):
    before_launch: tuple[Text, ...] = ()
    at_run_time: tuple[Text, ...] = ()
    after: tuple[Text, ...] = ()


class Monitor(Model):
    watch: Text
    """The series or line to watch."""
    alert: Text
    """The condition that should wake somebody."""
    extra_line: Text | None = None
    """One line of code that makes it visible, where stock logs do not."""


class Scale(Model):
    one_gpu: Text | None = None
    many_gpus: Text | None = None


class Perspectives(Model):
    executive: Text | None = None
    """Cost and risk, in a sentence or two."""
    engineer: Text | None = None
    on_call: tuple[Text, ...] = ()
    """The first five minutes, step by step."""


class StackExample(Model):
    stack: Annotated[str, Vocabulary("stacks")]
    status: Annotated[str, Vocabulary("example_status")]
    code: Text
    note: Text | None = None


class Misreading(Model):
    reading: Text
    """What it is commonly taken for."""
    why: Text
    """Why that is wrong."""


class Reference(Model):
    title: Line
    url: Url
    date: Date
    """When it was published or, for a living page, when it was read."""
    kind: Annotated[str, Vocabulary("reference_kinds")]


class Related(Model):
    entry: Slug
    relation: Annotated[str, Vocabulary("relations")]


Outcome = Literal["completes", "raises", "hangs", "killed"]
Device = Literal["cpu", "cuda"]


class Expectation(Model):
    broken: Outcome | dict[Device, Outcome]
    """How the broken run ends, as a process; by device where that differs."""


class Repro(Model):
    """How repro.py is run, and what that proves."""

    mode: Literal["real", "simulated", "recorded"]
    stands_in: Text | None = None
    """Simulated: one sentence saying what stands in for what."""
    devices: Annotated[tuple[Device, ...], Field(min_length=1)] = ("cpu",)
    world_size: Annotated[int, Field(ge=1, le=16)] = 1
    timeout_s: Annotated[float, Field(gt=0, le=120)] = 20
    """Hard deadline of one run, in seconds."""
    collective_timeout_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Time-out of the process group, in seconds."""
    guilty_rank: Annotated[int, Field(ge=0)] | None = None
    """The rank that ctx.guilty is by default."""
    flight_recorder: bool = False
    """Dump the gloo flight recorder as JSON beside the rank logs."""
    rlimits: dict[Literal["as", "fsize", "nproc", "cpu", "nofile"], Annotated[int, Field(ge=0)]] = {}
    """Overrides of the runner's resource limits."""
    isolation: Literal["warm", "fresh"] = "warm"
    """warm: forked from a parent that has imported torch. fresh: an interpreter of its own."""
    preload: tuple[Line, ...] = ()
    """Modules the warm parent imports as well, e.g. `transformers`."""
    expect: Expectation | None = None


class Permit(Model):
    """Something that repro.py needs beyond computing in its own folder, for the reviewer; the sandbox holds it all the same."""

    access: Literal["processes", "network", "native_code", "files", "dynamic_code"]
    """processes: starts or signals some. network: sockets (loopback only, there is no other). native_code: ctypes, compiled
    extensions. files: names files outside its folder. dynamic_code: imports or runs what the text does not show."""
    because: Text
    """Why the failure cannot be shown without it."""


class Recorded(Model):
    """Real-world lines, quoted line by line."""

    file: FilePath
    source: Url
    signatures: Annotated[tuple[Slug, ...], Field(min_length=1)]
    """Ids of this entry's signatures that fire on the file."""


class Route(Model):
    """One row of a hub's decision table."""

    when: Text
    """The evidence, in words."""
    signature: SignatureName | None = None
    """`slug#id` of the signature that is this evidence."""
    to: Slug
    test: Text | None = None
    """The test that decides where the evidence cannot."""


TaggedSignature = Annotated[Signature, Field(discriminator="kind")]


class EntryBase(Model):
    """What every kind of entry can say. Optional sections vanish from the page when absent."""

    schema_: Literal["faultbook.entry/1"] = Field(alias="schema")
    slug: Slug
    """Permanent ID, kebab-case, equal to the folder's name. A rename leaves an alias."""
    title: Annotated[Line, StringConstraints(min_length=5, max_length=120)]
    category: Annotated[str, Vocabulary("categories")]
    """Where in the stack the cause sits; equal to the parent folder's name."""
    severity: Annotated[str, Vocabulary("severities")]
    visibility: Literal["loud", "hang", "silent"]
    parent: Slug | None = None
    """The hub (kind symptom) this entry belongs to."""
    aliases: tuple[Line, ...] = ()
    """Old slugs, which redirect, or other names people search for."""
    tags: tuple[Annotated[str, Vocabulary("tags")], ...] = ()
    affects: tuple[Affected, ...] = ()
    origin: Text | None = None
    """Where the mistake usually comes from."""
    stages: tuple[Annotated[str, Vocabulary("stages")], ...] = ()
    applies_to: Literal["training", "inference", "both"] | None = None
    quick_answer: Annotated[Text, AfterValidator(_sixty_words)]
    """At most 60 words: what it is and what to do."""
    symptoms: tuple[Symptom, ...] = ()
    mechanism: Text | None = None
    """The longer story, with numbers from the run (Markdown)."""
    confirm: tuple[Confirmation, ...] = ()
    """Checklist, cheapest first."""
    not_this_if: tuple[NotThisIf, ...] = ()
    verify: Verification | None = None
    prevention: Prevention | None = None
    monitor: Monitor | None = None
    """The fingerprint to monitor."""
    scale: Scale | None = None
    """What differs between one GPU and many."""
    perspectives: Perspectives | None = None
    stack_examples: tuple[StackExample, ...] = ()
    time_to_fix: Text | None = None
    recurrence: Text | None = None
    misread_as: tuple[Misreading, ...] = ()
    signatures: tuple[TaggedSignature, ...] = ()
    references: tuple[Reference, ...] = ()
    related: tuple[Related, ...] = ()
    """Inverse relations are computed, never written."""
    repro: Repro | None = None
    permits: tuple[Permit, ...] = ()
    """What repro.py reaches for on purpose, beyond computing; `faultbook check` finds what is not declared."""
    recorded: tuple[Recorded, ...] = ()


class CauseEntry(EntryBase):
    """One thing done wrong or broken, with its fix."""

    kind: Literal["cause"]
    symptoms: Annotated[tuple[Symptom, ...], Field(min_length=3, max_length=6)]
    """Three to six."""
    root_cause: Text
    confirm: Annotated[tuple[Confirmation, ...], Field(min_length=1)]
    """Checklist, cheapest first."""
    fix: Fix
    action: Action
    signatures: tuple[TaggedSignature, ...]
    """May be empty only for silent failures of which no stock log or metric tells."""
    references: Annotated[tuple[Reference, ...], Field(min_length=1)]
    repro: Repro


class SymptomEntry(EntryBase):
    """A hub: what several causes look like, and how to tell them apart. It has no fix of its own."""

    kind: Literal["symptom"]
    routes: Annotated[tuple[Route, ...], Field(min_length=1)]
    """Decision table from evidence to entries, most telling first."""
    action: Action | None = None


class NoiseEntry(EntryBase):
    """Looks alarming, is harmless."""

    kind: Literal["noise"]
    harmless_unless: Text
    """The condition under which it is not noise after all."""
    signatures: Annotated[tuple[TaggedSignature, ...], Field(min_length=1)]


AnyEntry = CauseEntry | SymptomEntry | NoiseEntry
Entry = Annotated[AnyEntry, Field(discriminator="kind")]
ENTRY: TypeAdapter[AnyEntry] = TypeAdapter(Entry)
KINDS: dict[str, type[EntryBase]] = {"cause": CauseEntry, "symptom": SymptomEntry, "noise": NoiseEntry}
