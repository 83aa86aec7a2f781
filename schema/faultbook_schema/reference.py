"""The page about the fields of an entry, made from the models: `python -m faultbook_schema.reference`.

Field, type, whether it is required and what it means come from the models; the examples stand here, and a test
validates each against its field, and the page against this program.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .export import schemas
from .loader import find_kb
from .reference_examples import EXAMPLES
from .taxonomy import Taxonomy, load_taxonomy

Json = dict[str, Any]

KINDS = {"CauseEntry": "A cause", "SymptomEntry": "A hub", "NoiseEntry": "Noise"}
PARTS = {
    "What the page says": [
        "Affected", "Symptom", "Confirmation", "Fix", "Action", "NotThisIf", "Verification", "Prevention", "Monitor", "Scale",
        "Perspectives", "StackExample", "Misreading", "Reference", "Related", "Route",
    ],
    "What is run": ["Repro", "Expectation", "Permit", "Recorded"],
    "Signatures": ["LogSignature", "Pattern", "Within", "Ranks", "Comparison", "MetricSignature", "Predicate"],
}  # fmt: skip
HEAD = """# Fields of an entry

Made from the models by `python -m faultbook_schema.reference`; editors with a YAML language server show the same while you
type (the first line of each `entry.yaml` names the schema). `faultbook new` writes all that is required. An optional field
that is absent leaves no gap on the page. What each message of `faultbook check` means is on
[its own page](check-messages.md); how signatures are matched, in [the signature language](signature-language.md).

An entry is one YAML document without anchors, aliases or tags, at most 256 KiB. *Text* may hold Markdown; *line* is text
without a line break of at most 300 characters; *slug* is lower-case words joined by hyphens.
"""


def page(taxonomy: Taxonomy) -> str:
    """The whole page as Markdown."""
    schema = schemas(taxonomy)["entry.schema.json"]
    parts: Json = schema["$defs"]
    common = [name for name in parts["CauseEntry"]["properties"] if all(name in parts[kind]["properties"] for kind in KINDS)]
    special = {"kind", "action", "root_cause", "fix", "routes", "harmless_unless"}
    shared = [name for name in common if name not in special]
    lines = [HEAD, "## Every entry", "", *_table(parts, "SymptomEntry", shared, base=True)]
    for kind, title in KINDS.items():
        properties = parts[kind]["properties"]
        needs = {name for name in shared if name in parts[kind]["required"] and name not in _always(parts)}
        own = ["kind", *(name for name in properties if name != "kind" and (name not in shared or name in needs))]
        lines += ["", f"## {title}", "", parts[kind].get("description", ""), "", *_table(parts, kind, own)]
    for title, names in PARTS.items():
        lines += ["", f"## {title}"]
        for name in names:
            part = parts[name]
            said = " ".join(str(part.get("description", "")).split())
            lines += ["", f"### {name}", *(["", said] if said else []), "", *_table(parts, name, list(part["properties"]))]
    closed = "Closed: `kb/taxonomy.yaml` has each value with its rubric; new values are added there."
    lines += ["", "## Vocabularies", "", closed, ""]
    used = sorted(name.removeprefix("taxonomy.") for name in parts if name.startswith("taxonomy."))
    lines += ["| vocabulary | values |", "| --- | --- |"]
    lines += [f"| `{name}` | {', '.join(f'`{value}`' for value in taxonomy[name])} |" for name in used]
    return "\n".join(lines) + "\n"


def _always(parts: Json) -> set[str]:
    """Required of every kind."""
    return set.intersection(*(set(parts[kind]["required"]) for kind in KINDS))


def _table(parts: Json, part: str, names: list[str], base: bool = False) -> list[str]:
    required = _always(parts) if base else set(parts[part].get("required", ()))
    rows = ["| field | type | required | meaning | example |", "| --- | --- | --- | --- | --- |"]
    for name in names:
        field = parts[part]["properties"][name]
        meaning = " ".join(str(field.get("description", "") or _described(parts, field)).split())
        default = field.get("default")
        if default not in (None, "", [], {}, ()):
            meaning += f" Default: `{_plain(default)}`."
        example = EXAMPLES.get((part, name)) or EXAMPLES.get(("EntryBase", name), "")
        shown = f"`{example}`" if example else ""
        rows.append(f"| `{name}` | {_type(field)} | {'yes' if name in required else ''} | {_cell(meaning)} | {_cell(shown)} |")
    return rows


def _described(parts: Json, field: Json) -> str:
    name = str(field.get("$ref", "")).rpartition("/")[2]
    return str(parts.get(name, {}).get("description", ""))


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_plain, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _type(field: Json) -> str:
    """In words, linked to the part of the page that says more."""
    if "$ref" in field:
        name = str(field["$ref"]).rpartition("/")[2]
        if name.startswith("taxonomy."):
            return f"[one of {name.removeprefix('taxonomy.')}](#vocabularies)"
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field or "oneOf" in field:
        options = [_type(option) for option in field.get("anyOf") or field["oneOf"] if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(options))
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kind = field.get("type")
    if kind == "array":
        low, high = field.get("minItems"), field.get("maxItems")
        count = f"{low} to {high} × " if low and high else f"at least {low} × " if low else "list of "
        return count + _type(field.get("items", {}))
    if kind == "object":
        return "mapping"
    if kind == "string":
        return _text(field)
    return {"integer": "integer", "number": "number", "boolean": "true or false"}.get(str(kind), "text") + _limits(field)


def _text(field: Json) -> str:
    if field.get("format") == "date":
        return "date (YYYY-MM-DD)"
    pattern = str(field.get("pattern", ""))
    if "#" in pattern:
        return "slug#signature"
    if pattern.startswith("^[a-z0-9]"):
        return "slug"
    return "line" if "\\n" in pattern else "text"


def _limits(field: Json) -> str:
    low = field.get("minimum", field.get("exclusiveMinimum"))
    high = field.get("maximum")
    if low is None and high is None:
        return ""
    if high is None:
        return f", from {low}"
    return f", up to {high}" if low is None else f", {low} to {high}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m faultbook_schema.reference", description=__doc__)
    parser.add_argument("--target", type=Path, help="file to write (default: docs/schema-reference.md beside kb/)")
    args = parser.parse_args()
    kb = find_kb()
    if kb is None:
        raise SystemExit("no kb/ here or above")
    target = args.target or kb.resolve().parent / "docs" / "schema-reference.md"
    target.write_text(page(load_taxonomy(kb)[0]), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
