"""A kb/ with an entry written to do harm, as far as `faultbook check` lets it: everything that is free text is an attack,
and its repro.py leaves a mark wherever it is imported, run or evaluated."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml
from sample_entries import ATTACKS

from faultbook_schema.loader import load_entry
from faultbook_schema.taxonomy import load_taxonomy

SLUG = "batch-without-targets"

# The name of the mark is put together at run time: no reader of the text can tell, which is why nothing may run it.
REPRO = '''"""</code></pre><script>window.pwned=1</script>"""
MARK = "/".join({parts!r})


def mark():
    with open(MARK, "a") as file:
        file.write("executed\\n")


mark()
VARIANTS = ("", "second")


# region broken
def loss(x):  # </code><img src=x onerror=window.pwned=1>
    return mark()
# endregion


# region fixed
def loss_fixed(x):  # ```</pre><script>window.pwned=1</script>
    return mark() or 1
# endregion


class Trap:
    def __del__(self):
        mark()


def run(ctx):
    mark()


def check(out):
    mark()
'''


def sly(root: Path, folder: Path) -> tuple[Path, Path]:
    """The good kb, except that one repro.py leaves a mark: the kb, and the mark."""
    kb = folder / "checkout" / "kb"
    shutil.copytree(root / "tests" / "schema" / "good", kb)
    shutil.copy(root / "kb" / "taxonomy.yaml", kb)
    entry = kb / "data" / SLUG
    mark = folder / "mark"
    (entry / "repro.py").write_text(REPRO.format(parts=str(mark).split("/")), encoding="utf-8")
    return kb, mark


def write(root: Path, folder: Path) -> tuple[Path, Path, int]:
    """The kb, the mark that its code would leave, and how many texts of the entry hold an attack."""
    kb, mark = sly(root, folder)
    entry = kb / "data" / SLUG
    with (entry / "logs" / "broken.log").open("a", encoding="utf-8") as log:
        log.write("\n".join(ATTACKS) + "\n")
    data = yaml.safe_load((entry / "entry.yaml").read_text(encoding="utf-8").replace("date: ", "date: !!str "))
    return kb, mark, _poison(kb, entry, data)


def _poison(kb: Path, entry: Path, data: dict[str, Any]) -> int:
    """Each text in turn gets the longest attack that its field accepts."""
    taxonomy, _ = load_taxonomy(kb)
    head = (entry / "entry.yaml").read_text(encoding="utf-8").partition("schema:")[0]
    count = 0

    def accepted() -> bool:
        text = yaml.safe_dump(data, allow_unicode=True, sort_keys=False)
        (entry / "entry.yaml").write_text(head + text, encoding="utf-8")
        return not load_entry(entry, taxonomy)[1]

    assert accepted(), load_entry(entry, taxonomy)[1]
    everything = " ".join(ATTACKS)
    for holder, key in list(_texts(data)):
        before = holder[key]
        for attack in (everything, "<script>window.pwned=1</script>"):
            holder[key] = f"{before} {attack}"
            if accepted():
                count += 1
                break
            holder[key] = before
    assert accepted()
    return count


def _texts(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(inner, str):
            if key != "pattern":  # it goes on firing: diagnose has to show the entry
                yield value, key
        else:
            yield from _texts(inner)
