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
    """A value of the vocabulary `systems`."""
    introduced: Line | None = None
    """First version or date that has the fault; absent: as long as anybody knows."""
    fixed: Line | None = None
    """First version that no longer has it; absent: it can still happen."""
    note: Text | None = None
    """What is special about it in that system."""


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
    """What to change, in a sentence or two."""
    command: Text | None = None
    """A command that applies it, where one does."""
    why: Text
    """Why it works."""
    risk: Text | None = None
    """What it costs or can break."""


class Action(Model):
    """What to do now, before anything is understood."""

    do: Annotated[str, Vocabulary("actions")]
    """A value of the vocabulary `actions`."""
    when: Text
    """The condition under which it is the right thing."""


class NotThisIf(Model):
    entry: Slug
    """The other entry that looks like it."""
    because: Text
    """The observation that decides for the other entry."""


class Verification(Model):
    command: Text
    """A command that shows whether the fix works."""
    expect: Text
    """What is seen when the fix works."""


class Prevention(Model):
    before_launch: tuple[Text, ...] = ()
    """What to do once, before a run."""
    at_run_time: tuple[Text, ...] = ()
    """What to watch or assert while it runs."""
    after: tuple[Text, ...] = ()
    """What to look at when it has ended."""


class Monitor(Model):
    watch: Text
    """The series or line to watch."""
    alert: Text
    """The condition that should wake somebody."""
    extra_line: Text | None = None
    """One line of code that makes it visible, where stock logs do not."""


class Scale(Model):
    one_gpu: Text | None = None
    """How it looks on one GPU."""
    many_gpus: Text | None = None
    """How it looks on many."""


class Perspectives(Model):
    executive: Text | None = None
    """Cost and risk, in a sentence or two."""
    engineer: Text | None = None
    """What to know before touching the code."""
    on_call: tuple[Text, ...] = ()
    """The first five minutes, step by step."""


class StackExample(Model):
    stack: Annotated[str, Vocabulary("stacks")]
    """A value of the vocabulary `stacks`."""
    status: Annotated[str, Vocabulary("example_status")]
    """Whether the code was executed or reviewed only."""
    code: Text
    """The few lines that differ in this stack."""
    note: Text | None = None
    """What to mind."""


class Misreading(Model):
    reading: Text
    """What it is commonly taken for."""
    why: Text
    """Why that is wrong."""


class Reference(Model):
    title: Line
    """As the source calls itself."""
    url: Url
    """Absolute http(s) address, without credentials."""
    date: Date
    """When it was published or, for a living page, when it was read."""
    kind: Annotated[str, Vocabulary("reference_kinds")]
    """A value of the vocabulary `reference_kinds`."""


class Related(Model):
    entry: Slug
    """Slug of the other entry."""
    relation: Annotated[str, Vocabulary("relations")]
    """A value of the vocabulary `relations`, read from this entry to the other."""


Outcome = Literal["completes", "raises", "hangs", "killed"]
Device = Literal["cpu", "cuda"]


class Expectation(Model):
    broken: Outcome | dict[Device, Outcome]
    """How the broken run ends, as a process; by device where that differs."""


class Repro(Model):
    """How repro.py is run, and what that proves."""

    mode: Literal["real", "simulated", "recorded"]
    """real: the failure happens. simulated: something stands in for something. recorded: nothing is run, lines are quoted."""
    stands_in: Text | None = None
    """Simulated: one sentence saying what stands in for what."""
    devices: Annotated[tuple[Device, ...], Field(min_length=1)] = ("cpu",)
    """Devices it runs on; the first is the one that must prove every signature."""
    world_size: Annotated[int, Field(ge=1, le=16)] = 1
    """Number of ranks, each a process of its own."""
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
    """How the broken half ends. The fixed half must always complete."""


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
    """A file under logs/."""
    source: Url
    """Where the lines were published."""
    signatures: Annotated[tuple[Slug, ...], Field(min_length=1)]
    """Ids of this entry's signatures that fire on the file."""


class Route(Model):
    """One row of a hub's decision table."""

    when: Text
    """The evidence, in words."""
    signature: SignatureName | None = None
    """`slug#id` of the signature that is this evidence."""
    to: Slug
    """The entry that this evidence points to."""
    test: Text | None = None
    """The test that decides where the evidence cannot."""


TaggedSignature = Annotated[Signature, Field(discriminator="kind")]


class EntryBase(Model):
    """What every kind of entry can say. Optional sections vanish from the page when absent."""

    schema_: Literal["faultbook.entry/1"] = Field(alias="schema")
    """Version of this format."""
    slug: Slug
    """Permanent ID, kebab-case, equal to the folder's name. A rename leaves an alias."""
    title: Annotated[Line, StringConstraints(min_length=5, max_length=120)]
    """As people would say it; the heading of the page."""
    category: Annotated[str, Vocabulary("categories")]
    """Where in the stack the cause sits; equal to the parent folder's name."""
    severity: Annotated[str, Vocabulary("severities")]
    """What is lost if nobody notices: a value of the vocabulary `severities`."""
    visibility: Literal["loud", "hang", "silent"]
    """loud: an error is printed. hang: nothing goes on. silent: the run looks healthy."""
    parent: Slug | None = None
    """The hub (kind symptom) this entry belongs to."""
    aliases: tuple[Line, ...] = ()
    """Old slugs, which redirect, or other names people search for."""
    tags: tuple[Annotated[str, Vocabulary("tags")], ...] = ()
    """Values of the vocabulary `tags`; each has a page."""
    affects: tuple[Affected, ...] = ()
    """Systems in which it occurs."""
    origin: Text | None = None
    """Where the mistake usually comes from."""
    stages: tuple[Annotated[str, Vocabulary("stages")], ...] = ()
    """Values of the vocabulary `stages`: when in a run it strikes."""
    applies_to: Literal["training", "inference", "both"] | None = None
    """Absent: not known."""
    quick_answer: Annotated[Text, AfterValidator(_sixty_words)]
    """At most 60 words: what it is and what to do."""
    symptoms: tuple[Symptom, ...] = ()
    """What is seen, and why this cause makes it visible."""
    mechanism: Text | None = None
    """The longer story, with numbers from the run (Markdown)."""
    confirm: tuple[Confirmation, ...] = ()
    """Checklist, cheapest first."""
    not_this_if: tuple[NotThisIf, ...] = ()
    """Entries that look alike, and the observation that decides for them."""
    verify: Verification | None = None
    """How to see that the fix works."""
    prevention: Prevention | None = None
    """How not to meet it again."""
    monitor: Monitor | None = None
    """The fingerprint to monitor."""
    scale: Scale | None = None
    """What differs between one GPU and many."""
    perspectives: Perspectives | None = None
    """The same failure for those who pay, who fix and who are on call."""
    stack_examples: tuple[StackExample, ...] = ()
    """The same mistake and fix in other stacks."""
    time_to_fix: Text | None = None
    """How long it typically takes, with the reason."""
    recurrence: Text | None = None
    """How often it comes back, and what stops that."""
    misread_as: tuple[Misreading, ...] = ()
    """What people take it for at first."""
    signatures: tuple[TaggedSignature, ...] = ()
    """What it leaves in logs and metrics."""
    references: tuple[Reference, ...] = ()
    """Sources, each with title and date."""
    related: tuple[Related, ...] = ()
    """Inverse relations are computed, never written."""
    repro: Repro | None = None
    """How repro.py is run; absent where there is nothing to run."""
    permits: tuple[Permit, ...] = ()
    """What repro.py reaches for on purpose, beyond computing; `faultbook check` finds what is not declared."""
    recorded: tuple[Recorded, ...] = ()
    """Quoted real-world lines and the signatures that fire on them."""


class CauseEntry(EntryBase):
    """One thing done wrong or broken, with its fix."""

    kind: Literal["cause"]
    """A cause has a fix."""
    symptoms: Annotated[tuple[Symptom, ...], Field(min_length=3, max_length=6)]
    """Three to six."""
    root_cause: Text
    """The one thing that is wrong, and how it leads to the failure."""
    confirm: Annotated[tuple[Confirmation, ...], Field(min_length=1)]
    """Checklist, cheapest first."""
    fix: Fix
    """What to change."""
    action: Action
    """What to do now, before anything is understood."""
    signatures: tuple[TaggedSignature, ...]
    """May be empty only for silent failures of which no stock log or metric tells."""
    references: Annotated[tuple[Reference, ...], Field(min_length=1)]
    """At least one."""
    repro: Repro
    """Required: no claim without a run."""


class SymptomEntry(EntryBase):
    """A hub: what several causes look like, and how to tell them apart. It has no fix of its own."""

    kind: Literal["symptom"]
    """A hub routes to causes."""
    routes: Annotated[tuple[Route, ...], Field(min_length=1)]
    """Decision table from evidence to entries, most telling first."""
    action: Action | None = None
    """What to do now, whatever the cause turns out to be."""


class NoiseEntry(EntryBase):
    """Looks alarming, is harmless."""

    kind: Literal["noise"]
    """Noise looks alarming and is harmless."""
    harmless_unless: Text
    """The condition under which it is not noise after all."""
    signatures: Annotated[tuple[TaggedSignature, ...], Field(min_length=1)]
    """At least one, of role `noise`."""


AnyEntry = CauseEntry | SymptomEntry | NoiseEntry
Entry = Annotated[AnyEntry, Field(discriminator="kind")]
ENTRY: TypeAdapter[AnyEntry] = TypeAdapter(Entry)
KINDS: dict[str, type[EntryBase]] = {"cause": CauseEntry, "symptom": SymptomEntry, "noise": NoiseEntry}
