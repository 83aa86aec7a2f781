"""Entry → Markdown is pure, complete, and inert whatever the entry holds."""

from __future__ import annotations

import html.parser
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sample_entries as sample

markdown = pytest.importorskip("markdown")
pytest.importorskip("markdown_it")

from faultbook_site import catalogue as cat  # noqa: E402
from faultbook_site import machine, markup, runs  # noqa: E402
from faultbook_site.curves import figures  # noqa: E402
from faultbook_site.render import render  # noqa: E402


def page(entry: dict[str, Any], *others: dict[str, Any]) -> str:
    """The driver that stands in for mkdocs: all that a page needs of a generator."""
    everything = cat.from_json(sample.catalogue(entry, *others))
    body = markdown.markdown(render(entry, everything), extensions=["attr_list", "toc"])
    return f"<!doctype html><title>x</title><body>{body}"


class Elements(html.parser.HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(k, v or "") for k, v in attrs]
        if tag not in ("input", "br", "meta", "link", "path", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("path", "line"):
            return
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_render_needs_no_generator() -> None:
    code = (
        "import sys, faultbook_site.render, faultbook_site.pages, faultbook_site.machine;"
        "print([m for m in sys.modules if m.split('.')[0] in ('mkdocs', 'material', 'torch', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_five_pages_without_mkdocs(tmp_path: Path) -> None:
    entries = [sample.temperature(), sample.hang(), sample.hub(), sample.noise(), sample.hostile()]
    everything = cat.from_json(sample.catalogue(*entries))
    for entry in entries:
        body = markdown.markdown(render(entry, everything), extensions=["attr_list", "toc"])
        (tmp_path / f"{entry['slug']}.html").write_text(body, encoding="utf-8")
    for entry in entries:
        parsed = Elements((tmp_path / f"{entry['slug']}.html").read_text(encoding="utf-8"))
        assert parsed.tags.count("h1") == 1
        assert not parsed.unbalanced and parsed.open == [], (entry["slug"], parsed.unbalanced, parsed.open)


def test_every_field_is_on_the_page() -> None:
    entry = sample.temperature()
    text = " ".join(Elements(page(entry, sample.hub(), sample.hang())).text.split())
    for given in (
        entry["title"],
        "looks wonderful",
        "the scale, not the embedding",
        "every value, so nothing stops it",
        "It crosses zero",
        "Log the temperature",
        "a value below 0.01",
        "clamp it after each step",
        "zero cannot be crossed",
        "needs its parameter",
        "retrieval accuracy does not follow",
        "Clamp the scale at 100",
        "Compare retrieval accuracy",
        "Within a hundred steps",
        "best loss ever",
        "One missing clamp",
        "Roll back to where",
        "an hour",
        "Every run until",
        "temperature-below-floor",
        "one extra logged line",
        "Learning Transferable Visual Models",
        "class BoundedTemperature",
        "class Temperature(",
        "broken.log",
        "fixed.log",
        "torch 2.13.0+cpu",
        "2026-11-30",
        "Proven by a real run",
        "logit-scale-collapse",
        "Fails",
        "Fixed",
        "Diff",
    ):
        assert given in text, given
    assert "see also" in text and "critical" in text  # related table carries severity


@pytest.mark.parametrize(
    "field", ["mechanism", "not_this_if", "prevention", "scale", "perspectives", "stack_examples", "references"]
)
def test_a_section_without_content_vanishes(field: str) -> None:
    entry = sample.temperature()
    heading = {
        "mechanism": "mechanism",
        "not_this_if": "not-this-if",
        "prevention": "prevention",
        "scale": "scale",
        "perspectives": "perspectives",
        "stack_examples": "stacks",
        "references": "references",
    }[field]
    assert f"{{#{heading}}}" in render(entry, cat.from_json(sample.catalogue()))
    entry.pop("monitor"), entry.pop("misread_as")
    entry[field] = None
    assert f"{{#{heading}}}" not in render(entry, cat.from_json(sample.catalogue()))


def test_badge_only_with_a_proof_record() -> None:
    entry = sample.temperature()
    assert "fb-proof--real" in page(entry)
    entry["proofs"][0]["variants"][0]["fixed"]["check"] = False
    assert "fb-proof--" not in page(entry)
    entry["proofs"] = []
    assert "fb-proof--" not in page(entry) and "No proof record" in page(entry)
    assert "Proven by simulation" in page(sample.hang()) and "stands in for NCCL" in page(sample.hang())


def test_highlights_what_the_signature_matched() -> None:
    text = page(sample.hang())
    assert '<mark data-n="6">' in text and '<mark data-n="1">' not in text


def test_a_hub_is_a_decision_table() -> None:
    text = page(sample.hub(), sample.temperature())
    assert 'href="../learned-temperature-collapse/"' in text and "Freeze the temperature" in text
    assert "The fix" not in text


def test_hostile_entry_is_only_text() -> None:
    source = page(sample.hostile(), sample.hub())
    parsed = Elements(source)
    assert not {"script", "iframe", "img", "style", "object", "embed", "meta", "link", "base"} & set(parsed.tags)
    for name, value in parsed.attributes:
        assert not name.startswith("on"), (name, value)
        if name in ("href", "src"):
            assert not value.strip().lower().startswith(("javascript", "data", "vbscript")), value
    assert "window.pwned" in parsed.text  # shown to the reader, as text
    assert "wzxhzdk:0" in parsed.text and "\x02" not in source  # no placeholder of the Markdown library was forged


def test_blocks_hold_no_blank_line_and_no_fence() -> None:
    """Any Markdown generator ends an HTML block at a blank line; none may open a code fence in it."""
    for entry in (sample.temperature(), sample.hang(), sample.hostile()):
        for block in render(entry, cat.from_json(sample.catalogue())).strip().split("\n\n"):
            assert block.startswith(("<div>", "## ")), block[:80]
            assert "`" not in block and "~" not in block


def test_prose_keeps_markdown_and_drops_html() -> None:
    assert markup.inline("a `b` *c* [d](https://e.example/)") == 'a <code>b</code> <em>c</em> <a href="https://e.example/">d</a>'
    assert "<b>" not in markup.inline("<b>x</b>") and "href" not in markup.inline("[x](javascript:1)")
    assert "<img" not in markup.prose("![x](https://t.example/x.png)")


def test_plain_markdown_survives_fences_in_code() -> None:
    entry = sample.temperature()
    entry["code"]["fixed"] = "'''\n```\nx\n```\n'''\n"
    text = machine.to_markdown(entry, cat.from_json(sample.catalogue()))
    assert "````python\n'''\n```\nx\n```\n'''\n````" in text


def test_long_logs_are_cut_around_the_matches() -> None:
    text = "\n".join(["line"] * 300 + ["Timed out waiting 5ms for recv operation"] + ["line"] * 300)
    block = runs.log_block("broken.log", text, runs.patterns(sample.hang()))
    assert 'data-n="301"' in block and 'data-n="299"' in block and 'data-n="601"' in block and 'data-n="100"' not in block
    assert "lines not shown" in block


def test_curves_show_where_it_stopped_being_a_number() -> None:
    def run(broken: list[Any], fixed: list[Any]) -> cat.Run:
        halves = [{"curves": [{"name": "loss", "steps": [0.0, 1.0, 2.0, 3.0], "values": v}]} for v in (broken, fixed)]
        return cat.Run("", halves[0], halves[1])

    [block] = figures([run([1.0, 0.5, "nan", "nan"], [1.0, 0.5, 0.4, 0.3])], ["loss"])
    drawn = re.findall(r'<path class="fb-plot__(broken|fixed)" d="([^"]+)"', block)
    assert [half for half, _ in drawn] == ["fixed", "broken"] and "NaN at 2" in block
    assert all(re.fullmatch(r"([ML][\d.]+ [\d.]+)+", d) for _, d in drawn) and drawn[1][1].count("L") == 1
    assert "log scale" in figures([run([0.0, 1e-6, 1.0, 7e3], [1.0, 1.0, 1.0, 1.0])], ["loss"])[0]
    assert figures([run(["nan"] * 4, ["inf"] * 4)], ["loss"]) == []


def test_metric_entry_shows_the_lines_on_which_it_fired() -> None:
    assert [line.split()[1] for line in runs.metric_lines(sample.temperature())] == ["0", "42", "47"]
    shortened = sample.temperature()
    shortened["logs"]["logs/broken.log"] += "… 12 lines left out …\n"  # the numbers no longer hold
    assert runs.metric_lines(shortened) == []


def test_json_ld_is_valid_and_cannot_close_its_script() -> None:
    from faultbook_site import seo

    facts = seo.meta(sample.hostile(), "https://x.example/")
    assert "</script" not in facts["jsonld"] and "<" not in facts["title"] and '"' not in facts["description"]
    graph = json.loads(seo.meta(sample.temperature(), "https://x.example/")["jsonld"])["@graph"]
    assert [g["@type"] for g in graph] == ["TechArticle", "FAQPage"] and len(graph[1]["mainEntity"]) == 3
