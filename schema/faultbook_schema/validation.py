"""pydantic's errors as problems with line numbers and suggestions."""

from __future__ import annotations

import dataclasses
import json
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

from .models import KINDS, AnyEntry, EntryBase
from .problems import Problem, nearest
from .taxonomy import Taxonomy
from .yaml_nodes import MAX_PROBLEMS, Loc, Node

_CODES = {
    "missing": "missing-field",
    "missing_argument": "missing-field",
    "missing_keyword_only_argument": "missing-field",
    "extra_forbidden": "unknown-field",
    "unexpected_keyword_argument": "unknown-field",
    "vocabulary": "bad-vocabulary",
    "literal_error": "bad-vocabulary",
    "union_tag_invalid": "bad-vocabulary",
    "union_tag_not_found": "missing-field",
    "bad_date": "bad-date",
    "url": "bad-url",
    "path_outside": "path-outside",
    "too_long": "too-long",
    "string_too_long": "too-long",
}


def validate(root: Node, path: str, taxonomy: Taxonomy) -> tuple[AnyEntry | None, list[Problem]]:
    """The model of an entry, or why it is none."""
    kind = root.value.get("kind")
    if kind is None:
        hint = f"one of {', '.join(KINDS)}"
        return None, [Problem(path, root.line, "`kind` is missing", "missing-field", hint)]
    model = KINDS.get(kind.value) if isinstance(kind.value, str) else None
    if model is None:
        hint = nearest(str(kind.value), KINDS) or f"one of {', '.join(KINDS)}"
        line = root.key_lines["kind"]
        return None, [Problem(path, line, f"`kind: {_short(kind.value)}` is no kind of entry", "bad-vocabulary", hint)]
    # Strict JSON mode: lists become tuples, and nothing is converted silently.
    text = json.dumps(root.plain())
    try:
        return model.model_validate_json(text, strict=True, context={"taxonomy": taxonomy}), []  # type: ignore[return-value]
    except ValidationError as error:
        errors = error.errors(include_url=False)[:MAX_PROBLEMS]
    locs = [tuple(e["loc"]) for e in errors]
    problems = []
    for e, loc in zip(errors, locs, strict=True):
        # A tuple whose items failed is also reported as too short: say the cause only.
        if e["type"] == "too_short" and any(len(o) > len(loc) and o[: len(loc)] == loc for o in locs):
            continue
        problems.append(_problem(e, loc, root, path, model, taxonomy))
    return None, list(dict.fromkeys(problems))


def _problem(error: Any, loc: Loc, root: Node, path: str, model: type[EntryBase], taxonomy: Taxonomy) -> Problem:
    kind, context = error["type"], error.get("ctx") or {}
    name = _dotted(loc, root)
    field = str(loc[-1]) if loc else ""
    code = _CODES.get(kind, "wrong-type" if kind.endswith("_type") else "bad-value")
    message, hint = f"`{name}`: {_words(error)}", ""
    if code == "unknown-field":
        message = f"unknown field `{name}`"
        hint = nearest(field, _fields_at(model, loc[:-1]))
    elif code == "missing-field":
        message = f"`{name}` is missing" if "tag" not in kind else f"`{name}.kind` is missing"
    elif kind == "vocabulary":
        options = list(taxonomy[context["name"]])
        shown = ", ".join(options) if len(options) <= 20 else f"see `{context['name']}` in kb/taxonomy.yaml"
        message = f"`{name}: {_short(error['input'])}` is not in the vocabulary `{context['name']}`"
        hint = nearest(str(error["input"]), options) or f"one of: {shown}"
    elif code == "bad-vocabulary":
        expected = context.get("expected") or context.get("expected_tags") or ""
        options = [w.strip(" '\"") for w in str(expected).replace(" or ", ",").split(",")]
        tag = context.get("tag", error["input"])
        message = f"`{name}: {_short(tag)}` is not allowed"
        hint = nearest(str(tag), options) or f"one of: {', '.join(options)}"
    if kind == "string_pattern_mismatch":
        slug = "a-z" in str(context.get("pattern"))
        code = "bad-slug" if slug else "bad-value"
        shape = "`slug#signature-id`" if "#" in str(context.get("pattern")) else "kebab-case"
        message = f"`{name}: {_short(error['input'])}` is not {shape if slug else 'one line'}"
    if kind == "string_type":
        hint = _unquoted(error["input"])
    return Problem(path, root.line_of(loc), message, code, hint)


def _unquoted(value: Any) -> str:
    """What YAML made of a text that needed quotes."""
    if isinstance(value, dict):
        return "put it in quotes: a colon and a space begin a mapping"
    if value is None:
        return "nothing is written there"
    return "" if isinstance(value, list) else "put it in quotes"


def _words(error: Any) -> str:
    message = str(error["msg"])
    replacements = {
        "Input should be a valid": "must be a",
        "Input should be": "must be",
        "Tuple should have": "needs",
        "String should have": "must have",
        " after validation": "",
        "a array": "a list",
        "a tuple": "a list",
        "a string": "text",
        "a integer": "a whole number",
        "a dictionary": "a mapping",
        "an instance of": "a",
    }
    for old, new in replacements.items():
        message = message.replace(old, new)
    return message


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"


def _dotted(loc: Loc, root: Node) -> str:
    """`signatures[0].all[1].pattern`, without the tags that pydantic puts between."""
    node: Node | None = root
    name = ""
    for number, step in enumerate(loc):
        value = node.value if node is not None else None
        if isinstance(step, int):
            name += f"[{step}]"
            node = value[step] if isinstance(value, list) and step < len(value) else None
        elif isinstance(value, dict) and step in value:
            name += f".{step}"
            node = value[step]
        elif number == len(loc) - 1:
            name += f".{step}"
    return name.lstrip(".")


def _fields_at(model: Any, loc: Loc) -> list[str]:
    """Field names a mapping may have at `loc`, for suggestions."""
    hint: Any = model
    for step in loc:
        hint = _step(hint, step)
    return [name for option in _options(hint) for name in _names(option)]


def _step(hint: Any, step: str | int) -> Any:
    for option in _options(hint):
        if isinstance(step, int) and get_origin(option) is tuple:
            return get_args(option)[0]
        if isinstance(step, str) and step in _names(option):
            return _hint(option, step)
    for option in _options(hint):  # the tag of a union
        if _tag(option) == step:
            return option
    return None


def _options(hint: Any) -> list[Any]:
    origin = get_origin(hint)
    if origin is Annotated:
        return _options(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return [o for a in get_args(hint) for o in _options(a)]
    return [hint]


def _names(cls: Any) -> list[str]:
    if isinstance(cls, type) and issubclass(cls, BaseModel):
        return [f.alias or name for name, f in cls.model_fields.items()]
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        return [f.name for f in dataclasses.fields(cls)]
    return []


def _hint(cls: Any, name: str) -> Any:
    hints = get_type_hints(cls, include_extras=True)
    return hints.get(name, hints.get(f"{name}_"))


def _tag(cls: Any) -> Any:
    if not (isinstance(cls, type) and "kind" in _names(cls)):
        return None
    args = get_args(_hint(cls, "kind"))
    return args[0] if args else None
