"""What people see: terminal text, Markdown that a log cannot break out of, JSON in a fixed order."""

from __future__ import annotations

import io
import json

from faultbook import render
from faultbook.model import Diagnosis, Evidence, Finding, Initiating

HOSTILE = "</code><script>alert(1)</script> ``` [x](javascript:1) | `a` \x1b[31mred"


def diagnosis(text: str = "RuntimeError: boom") -> Diagnosis:
    return Diagnosis(
        verdict="diagnosed",
        summary="A Failure; it started on rank 3.",
        diagnoses=(
            Finding(
                entry="a-failure",
                title="A Failure",
                role="primary",
                confidence=0.9,
                rank=3,
                evidence=(Evidence("rank_3.log", 12, 3, text, "a-failure#s"),),
                action={"do": "fix_code", "when": "always"},
                fix="Do this.",
                verify="run it",
                url="https://example.org/a-failure/",
            ),
        ),
        initiating=Initiating("rank", 3, "node-0", "rank 3 raised alone", "strong"),
    )


def test_piped_text_is_plain_and_says_rank_evidence_action_and_fix():
    out = io.StringIO()
    render.print_text(diagnosis(), out)
    text = out.getvalue()
    assert "\x1b" not in text
    for part in ("DIAGNOSED", "Started on rank 3", "rank_3.log:12 [rank 3]", "RuntimeError: boom", "fix_code", "Do this."):
        assert part in text


def test_markdown_keeps_log_text_inside_its_fence():
    markdown = render.as_markdown(diagnosis(HOSTILE))
    fence = "````text"
    assert fence in markdown  # longer than the log's own run of three
    inside = markdown.split(fence)[1].split("\n   ````\n")[0]
    assert "<script>" in inside
    assert "<script>" not in markdown.replace(inside, "")


def test_markdown_escapes_log_text_outside_fences():
    hostile = Diagnosis(verdict="unrecognised", summary=HOSTILE, leads=({"text": HOSTILE},), not_examined=(HOSTILE,))
    markdown = render.as_markdown(hostile)
    assert "<script>" not in markdown
    assert "[x](javascript" not in markdown


def test_json_is_the_contract():
    data = json.loads(render.as_json(diagnosis()))
    assert data["schema"] == "faultbook.diagnosis/1"
    assert data["diagnoses"][0]["evidence"][0] == {
        "file": "rank_3.log",
        "line": 12,
        "rank": 3,
        "text": "RuntimeError: boom",
        "signature": "a-failure#s",
    }
    assert data["initiating"] == {
        "scope": "rank",
        "rank": 3,
        "node": "node-0",
        "basis": "rank 3 raised alone",
        "confidence": "strong",
    }


def test_a_log_cannot_drive_the_terminal():
    text = render.as_text(diagnosis("\x1b]0;owned\x07\x1b[2J\x9b31m gone \u202e desrever"))
    assert not any(char in text for char in "\x1b\x07\x9b\u202e")


def test_exit_codes():
    verdicts = ("diagnosed", "unrecognised", "inconclusive", "stopped", "healthy")
    codes = {v: Diagnosis(verdict=v, summary="").exit_code for v in verdicts}
    assert codes == {"diagnosed": 1, "unrecognised": 3, "inconclusive": 3, "stopped": 4, "healthy": 0}
