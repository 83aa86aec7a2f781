"""What other tools get: SARIF that code hosts accept, a page that needs nothing else, a job summary."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from faultbook.model import Diagnosis, Evidence, Finding, Initiating
from faultbook.report_curves import Curve, Mark, svg
from faultbook.report_html import as_html
from faultbook.sarif import to_sarif

HOSTILE = "</pre><script>alert(1)</script>\"'><img src=x onerror=alert(1)> \x1b[31m \u202e"
TOKEN = "hf_" + "a1B2" * 8

# What the SARIF 2.1.0 schema requires of the parts that are written here.
TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
PLACE = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "id": {"type": "integer", "minimum": -1},
        "message": TEXT,
        "physicalLocation": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "artifactLocation": {"type": "object", "properties": {"uri": {"type": "string", "pattern": r"^[^\s<>\"\\]+$"}}},
                "region": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"startLine": {"type": "integer", "minimum": 1}},
                },
            },
        },
    },
}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": {
            "type": "object",
            "required": ["tool"],
            "additionalProperties": False,
            "properties": {
                "tool": {"type": "object", "required": ["driver"], "properties": {"driver": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"rules": {"type": "array", "uniqueItems": True, "items": {
                        "type": "object",
                        "required": ["id"],
                        "properties": {"shortDescription": TEXT, "help": TEXT, "helpUri": {"type": "string"}},
                    }}},
                }}},
                "invocations": {"type": "array", "items": {
                    "type": "object",
                    "required": ["executionSuccessful"],
                    "properties": {"toolExecutionNotifications": {"type": "array", "items": {
                        "type": "object", "required": ["message"], "properties": {"message": TEXT}}}},
                }},
                "results": {"type": "array", "items": {
                    "type": "object",
                    "required": ["message"],
                    "additionalProperties": False,
                    "properties": {
                        "ruleId": {"type": "string"},
                        "ruleIndex": {"type": "integer", "minimum": -1},
                        "level": {"enum": ["none", "note", "warning", "error"]},
                        "rank": {"type": "number", "minimum": -1, "maximum": 100},
                        "message": TEXT,
                        "locations": {"type": "array", "items": PLACE},
                        "relatedLocations": {"type": "array", "items": PLACE},
                        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                        "properties": {"type": "object"},
                    },
                }},
                "properties": {"type": "object"},
            },
        }},
    },
}  # fmt: skip


def finding(role: str, *lines: int, entry: str = "a-failure", text: str = "boom", file: str = "logs/rank 3.log") -> Finding:
    evidence = tuple(Evidence(file, n, 3, text, f"{entry}#s") for n in lines)
    return Finding(entry, f"{entry} title", role, 0.9, 3, evidence, {"do": "retry", "when": "once"}, "Do this.", "run it",
                   f"https://example.org/{entry}/")  # fmt: skip


def diagnosis(text: str = "boom") -> Diagnosis:
    return Diagnosis(
        verdict="diagnosed",
        summary=f"A failure {text}",
        diagnoses=(finding("primary", 12, 40, text=text), finding("collateral", 50, entry="b-failure", text=text)),
        initiating=Initiating("rank", 3, "node-0", f"rank 3 raised alone {text}", "strong"),
        collateral=({"what": text, "count": 7, "ranks": [0, 1]},),
        leads=({"text": text, "file": None, "line": None},),
        not_examined=(text,),
        timeline=(
            {"rank": 3, "time": 86400.0 * 400 + 3723, "file": "a.log", "line": 3, "what": f"raised {text}"},
            {"rank": None, "time": None, "file": "a.log", "line": 9, "what": "stopped"},
            {"rank": 0, "time": 12.5, "file": "b.log", "line": 4, "what": "lost a peer"},
        ),
    )


def test_sarif_has_the_required_structure_and_places_lines():
    sarif = to_sarif(diagnosis(HOSTILE))
    jsonschema.validate(sarif, SARIF)
    primary, collateral = sarif["runs"][0]["results"]
    assert (primary["ruleId"], primary["level"], collateral["level"]) == ("a-failure", "error", "note")
    place = primary["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "logs/rank%203.log"}, "region": {"startLine": 12}}
    assert [x["physicalLocation"]["region"]["startLine"] for x in primary["relatedLocations"]] == [40]
    rules = sarif["runs"][0]["tool"]["driver"]["rules"]
    assert [rules[r["ruleIndex"]]["id"] for r in (primary, collateral)] == ["a-failure", "b-failure"]


def test_sarif_of_a_failure_without_a_name_points_at_the_first_abnormal_line():
    unknown = Diagnosis("unrecognised", "No entry.", first_abnormal={"file": "x.log", "line": 5, "rank": None, "text": "boom"})
    jsonschema.validate(to_sarif(unknown), SARIF)
    (result,) = to_sarif(unknown)["runs"][0]["results"]
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 5
    assert to_sarif(Diagnosis("healthy", "Fine."))["runs"][0]["results"] == []


def test_a_stopped_run_raises_no_alert_and_virtual_lines_have_no_place():
    stopped = Diagnosis("stopped", "Preempted.", (finding("primary", 1, file="incident"),))
    jsonschema.validate(to_sarif(stopped), SARIF)
    (result,) = to_sarif(stopped)["runs"][0]["results"]
    assert (result["level"], result["locations"]) == ("note", [])


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(page)
    return parser.found


CURVE = Curve(HOSTILE, 0, ((0, (0, 1, 2, 3), (1.0, 0.5, math.nan, 9e4)), (1, (0, 1), (1.0, math.inf))),
              (Mark(3, 9e4, 0), Mark(1, math.nan, 1)), HOSTILE)  # fmt: skip


def test_the_page_has_no_script_and_asks_for_nothing():
    page = as_html(diagnosis(HOSTILE), [CURVE])
    found = elements(page)
    tags = {tag for tag, _ in found}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "form", "input", "base", "use", "image"}
    for tag, attributes in found:
        assert not any(name.startswith("on") or name in ("src", "srcset", "style", "xlink:href") for name in attributes)
        assert "href" not in attributes or tag == "a"
    assert "url(" not in page and "@import" not in page
    assert "default-src 'none'" in page and "prefers-color-scheme:dark" in page
    assert not any(char in page for char in "\x1b\u202e")


def test_the_page_says_who_what_and_when():
    page = as_html(diagnosis())
    order = [page.index(part) for part in ("DIAGNOSED", "Started on rank 3", "a-failure title", "logs/rank 3.log:12", "Do this.")]
    assert order == sorted(order)
    lanes = re.findall(r"<h3>(rank \d+|no rank)</h3><table>", page)
    assert lanes == ["rank 0", "rank 3", "no rank"]  # a table for each rank
    assert "01:02:03" in page and "12.500 s" in page


def test_a_curve_shows_lines_per_rank_and_what_is_not_finite():
    drawn = svg(CURVE)
    assert drawn.count('class="line') == 2 and "rank 1" in drawn
    assert drawn.count('class="odd"') == 2 and drawn.count('class="mark"') == 2
    assert "nan" not in re.sub(r'aria-label="[^"]*"', "", drawn) and "<script" not in drawn


@pytest.mark.parametrize("values", [(), (math.nan,) * 3, (0.0,), (5.0, 5.0), (-1e308, 1e308), (1e-300, 1e300), (1.0,) * 10_000])
def test_any_series_can_be_drawn(values: tuple[float, ...]):
    steps = tuple(float(n) for n in range(len(values)))
    drawn = svg(Curve("loss", 0, ((None, steps, values),), (), ""))
    assert len(drawn) < 40_000
    assert not re.search(r'(?:[MLVHv]|c[xy]="| y=")-?(?:nan|inf)', drawn)


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "GITHUB_STEP_SUMMARY"}
    command = [sys.executable, "-m", "faultbook.cli", "diagnose", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**clean, **env})


def test_the_command_writes_all_forms_masked_with_the_curves_that_mattered(tmp_path: Path, root: Path):
    log, page, summary = tmp_path / "run.log", tmp_path / "report.html", tmp_path / "summary.md"
    text = (root / "kb/model/learned-temperature-collapse/logs/broken.log").read_text()
    log.write_text(f"{text}\nTraceback (most recent call last):\nValueError: loss is nan; report with token {TOKEN} refused\n")
    summary.write_text("# before\n")
    done = run(str(log), "--sarif", "--html", str(page), "--github-summary", GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 1, done.stderr
    jsonschema.validate(json.loads(done.stdout), SARIF)
    assert summary.read_text().startswith("# before\n### Faultbook: diagnosed")
    html = page.read_text()
    assert "<figcaption><strong>temperature</strong>" in html and html.count("<svg") >= 1
    for shown in (done.stdout, html, summary.read_text()):
        assert TOKEN not in shown
    plain = json.loads(run(str(log), "--json").stdout)
    assert plain["diagnoses"][0]["entry"] == "learned-temperature-collapse"  # asking for curves changes no answer
    assert json.loads(run(str(log), "--json", "--html", str(page)).stdout) == plain


def test_without_a_summary_file_the_markdown_is_printed_and_a_bad_path_is_one_line(tmp_path: Path):
    log = tmp_path / "a.log"
    log.write_text("step=1 loss=1\nTraceback (most recent call last):\nKeyError: 'widget'\n")
    assert run(str(log), "--github-summary").stdout.startswith("### Faultbook: unrecognised")
    bad = run(str(log), "--html", str(tmp_path / "no" / "such.html"))
    assert (bad.returncode, "such.html: " in bad.stderr) == (2, True)
    assert "Traceback" not in bad.stderr
