"""JSON Schemas of everything others may read or write: `python -m faultbook_schema.export`.

entry.schema.json is what editors use for entry.yaml (its closed vocabularies come from
kb/taxonomy.yaml); catalogue and signatures describe the compiled files, diagnosis the
`--json` output.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from faultbook import catalog, model

from .loader import find_kb
from .models import ENTRY
from .taxonomy import Taxonomy, load_taxonomy

Json = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": "array", "items": TEXT}


def schemas(taxonomy: Taxonomy) -> dict[str, Json]:
    """File name → JSON Schema."""
    entry = _with_vocabularies(ENTRY.json_schema(), taxonomy)
    return {
        "entry.schema.json": _headed("An entry of the encyclopedia (kb/<category>/<slug>/entry.yaml)", entry),
        "signatures.schema.json": _headed("signatures.json: all that an engine needs", _signatures(entry)),
        "catalogue.schema.json": _headed("catalog.json: every entry in full", _catalogue(entry)),
        "diagnosis.schema.json": _headed("The output of `faultbook diagnose --json`", _diagnosis()),
    }


def _headed(title: str, schema: Json) -> Json:
    return {"$schema": DIALECT, "title": title, **{k: v for k, v in schema.items() if k != "title"}}


def _with_vocabularies(schema: Json, taxonomy: Taxonomy) -> Json:
    """`x-vocabulary: tags` → a definition with the values, and their rubrics for editors that show them."""
    names: set[str] = set()

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(v) for v in value]
        if not isinstance(value, dict):
            return value
        name = value.get("x-vocabulary")
        if not isinstance(name, str):
            return {k: walk(v) for k, v in value.items()}
        names.add(name)
        kept = {k: v for k, v in value.items() if k in ("description", "default")}
        return {**kept, "$ref": f"#/$defs/taxonomy.{name}"}

    done: Json = walk(schema)
    for name in sorted(names):
        terms = taxonomy[name].values()
        done["$defs"][f"taxonomy.{name}"] = {
            "type": "string",
            "enum": [t.name for t in terms],
            "markdownEnumDescriptions": [t.rubric for t in terms],
        }
    return done


def _signatures(entry: Json) -> Json:
    """The compiled file; its signatures are those of entries with their literals filled in."""
    definitions = _only(entry["$defs"], "LogSignature", "MetricSignature")
    for name in ("LogSignature", "MetricSignature"):
        definitions[name]["properties"]["entry"] = {**TEXT, "description": "Slug of the entry it belongs to."}
        definitions[name]["required"] = sorted({*definitions[name]["required"], "entry"})
    entry_of = {
        "type": "object",
        "properties": {
            **{n: TEXT for n in ("slug", "kind", "title", "category", "severity", "visibility", "quick_answer")},
            "parent": {"type": ["string", "null"]},
            "ancestors": {**TEXTS, "description": "Parents upwards, nearest first."},
            "aliases": TEXTS,
            "action": {
                "type": ["object", "null"],
                "properties": {"do": TEXT, "when": TEXT},
                "required": ["do", "when"],
                "additionalProperties": False,
            },
            "fix": {**TEXT, "description": "Summary of the fix; empty where the entry has none."},
            "fix_code": {**TEXT, "description": "The `fixed` region of repro.py."},
            "verify": {**TEXT, "description": "command → what is seen when the fix works"},
            "routes": {"type": "array", "items": {"type": "object"}},
            "harmless_unless": TEXT,
        },
        "additionalProperties": False,
    }
    entry_of["required"] = sorted(entry_of["properties"])  # type: ignore[call-overload]
    return _file(
        catalog.SIGNATURES_SCHEMA,
        {
            "entries": {"type": "array", "items": entry_of},
            "signatures": {
                "type": "array",
                "items": {"anyOf": [{"$ref": f"#/$defs/{n}"} for n in ("LogSignature", "MetricSignature")]},
            },
        },
        definitions,
    )


def _catalogue(entry: Json) -> Json:
    """Full entries: what the author wrote, and what was computed."""
    definitions = copy.deepcopy(entry["$defs"])
    computed: Json = {
        "ancestors": {**TEXTS, "description": "Parents upwards, nearest first."},
        "code": {
            "type": "object",
            "properties": {n: TEXT for n in ("broken", "fixed", "diff")},
            "additionalProperties": False,
            "description": "The regions of repro.py; empty where there is none.",
        },
        "logs": {"type": "object", "additionalProperties": TEXT, "description": "File name → text."},
        "proofs": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Records of runs whose digest matches the entry as it is.",
        },
        "inverse_related": {"type": "array", "items": {"$ref": "#/$defs/Related"}},
    }
    kinds = ("CauseEntry", "SymptomEntry", "NoiseEntry")
    for name in kinds:
        definitions[name]["properties"] |= computed
        # Empty fields are left out of the compiled file.
        required = {*definitions[name]["required"], *computed, "signatures"}
        definitions[name]["required"] = sorted(required)
    words = {
        "type": "object",
        "properties": {"title": TEXT, "rubric": TEXT},
        "required": ["rubric", "title"],
    }
    vocabularies = {
        "type": "object",
        "additionalProperties": {"type": "object", "additionalProperties": words},
        "description": "kb/taxonomy.yaml: vocabulary → value → title and rubric.",
    }
    return _file(
        catalog.CATALOGUE_SCHEMA,
        {
            "entries": {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/{n}"} for n in kinds]}},
            "taxonomy": vocabularies,
        },
        definitions,
    )


def _diagnosis() -> Json:
    schema = TypeAdapter(model.Diagnosis).json_schema(mode="serialization")
    schema["properties"] = {"schema": {"const": model.SCHEMA, "type": "string"}, **schema["properties"]}
    schema["required"] = sorted(schema["properties"])  # to_dict() leaves nothing out
    schema["additionalProperties"] = False
    for definition in schema.get("$defs", {}).values():
        definition["required"] = sorted(definition["properties"])
        definition["additionalProperties"] = False
    return schema


def _file(name: str, properties: Json, definitions: Json) -> Json:
    digest = {**TEXT, "description": "SHA-256 of the knowledge it was compiled from."}
    properties = {"schema": {"const": name, "type": "string"}, "digest": digest, **properties}
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
        "$defs": definitions,
    }


def _only(definitions: Json, *names: str) -> Json:
    """The named definitions and those they refer to."""
    found: Json = {}
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = copy.deepcopy(definitions[name])
            wanted += [n for n in definitions if f'"#/$defs/{n}"' in json.dumps(found[name])]
    return dict(sorted(found.items()))


def write(kb: Path, target: Path) -> list[Path]:
    """Writes the schemas into `target`; returns the files that changed."""
    taxonomy, problems = load_taxonomy(kb)
    if problems:
        raise SystemExit("\n".join(map(str, problems)))
    changed = []
    for name, schema in schemas(taxonomy).items():
        path = target / name
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m faultbook_schema.export", description=__doc__)
    parser.add_argument("--kb", type=Path, help="folder of the knowledge (default: found upwards)")
    parser.add_argument("--target", type=Path, help="folder to write to (default: schema/ beside kb/)")
    args = parser.parse_args()
    kb = args.kb or find_kb()
    if kb is None:
        raise SystemExit("no kb/ here or above")
    for path in write(kb, args.target or kb.resolve().parent / "schema"):
        print(path)


if __name__ == "__main__":
    main()
