"""The pages beside the entries: home, browse, tags, families. All pure: catalogue → Markdown."""

from __future__ import annotations

import html
import json

from . import markup
from .catalogue import SEVERITIES, VISIBILITIES, Catalogue, Entry, in_order, proofs
from .widgets import icon, paste_box, row, severity_chip, table

FACETS = ("category", "severity", "visibility", "kind", "system", "stage", "evidence", "proof", "device", "action")
VISIBILITY_SAY = {
    "loud": "An exception, a signal, an exit code. The log says something; the first line that says it is rarely the last.",
    "hang": "No error, no progress. One rank waits for another that went a different way.",
    "silent": "The loss curve looks fine, or nearly. Only the numbers tell.",
}

# Layers broken along a fault: decoration only.
STRATA = (
    '<svg class="fb-strata" viewBox="0 0 400 260" aria-hidden="true">'
    + "".join(
        f'<path class="fb-strata__{i % 3}" d="M0 {y}H{258 - y * 0.4:.0f}l-{h * 0.4:.0f} {h}H0z'
        f'M{262 - (y + 34) * 0.4:.0f} {y + 34}H400v{h}H{262 - (y + 34 + h) * 0.4:.0f}z"/>'
        for i, (y, h) in enumerate(((8, 10), (30, 22), (62, 6), (80, 34), (124, 12), (146, 26), (182, 8), (200, 20)))
    )
    + '<path class="fb-strata__line" d="M262 0L158 260"/></svg>'
)


def wrap(*blocks: str) -> str:
    return "\n\n".join(f"<div>{b}</div>" for b in blocks if b) + "\n"


def home(catalogue: Catalogue) -> str:
    entries = list(catalogue.by_slug.values())
    proven = sum(1 for e in entries if any(p.mode == "real" for p in proofs(e)))
    count = f"{len(entries)} {'failure' if len(entries) == 1 else 'failures'}"
    stats = f"<b>{count}</b>" + (f", <b>{proven}</b> proven by a real run" if proven else "")
    hero = (
        f'<header class="fb-hero">{STRATA}<h1>What broke your training run?</h1>'
        f'<p class="fb-hero__say">The open encyclopedia of ML-training failures. {stats}: '
        "the code that fails, the code that passes, and what both printed.</p>"
        '<form class="fb-find" role="search" action="browse/" method="get">'
        '<label for="fb-find">Search by error line, symptom or name</label>'
        '<div><input id="fb-find" name="q" type="search" autocomplete="off" spellcheck="false" '
        'placeholder="loss is NaN, hangs at all_reduce …">'
        '<button type="submit">Search</button></div>'
        '<ol class="fb-find__hits" hidden></ol></form></header>'
    )
    ways = "".join(_way(kind, entries) for kind in VISIBILITIES)
    return wrap(
        hero,
        paste_box("Or give it your log"),
        f'<section class="fb-ways" aria-label="By how it shows">{ways}</section>',
        '<section class="fb-creed"><h2>No claim without a run</h2><ol>'
        "<li><b>It fails.</b> Each entry carries a program that shows the symptom, in seconds, on a laptop.</li>"
        "<li><b>The fix passes.</b> The same workload, a few lines changed, completes and meets a positive check.</li>"
        "<li><b>The signature tells them apart.</b> It matches what the failing run printed, and nothing else’s log.</li>"
        "<li><b>Limits are said.</b> Where hardware is not at hand the page says simulated, or recorded.</li>"
        f'</ol>{_counted(catalogue)}<p><a href="how-it-is-proven/">How an entry is proven</a></p></section>',
    )


def _counted(catalogue: Catalogue) -> str:
    """What tests/measure.py found on real logs, in a sentence; nothing where it was not run."""
    found = catalogue.measured
    if not found.get("cases"):
        return ""
    names = found["names"]
    return (
        f"<p>Of {found['cases']} real failure logs that it was developed against, {names['exact']} get the right name, "
        f"{names['family']} the right family, {names['wrong']} a wrong name, and the rest none. On {found['healthy']} logs of "
        f'healthy runs it raised {found["alarms"]} alarms. <a href="how-well-it-works/">How well it works</a></p>'
    )


def _way(kind: str, entries: list[Entry]) -> str:
    mine = in_order(e for e in entries if e.get("visibility") == kind and e["kind"] != "noise")
    links = "".join(
        f'<li><a href="entries/{markup.text(e["slug"])}/">{markup.title(e["title"])}</a>{severity_chip(e)}</li>' for e in mine[:5]
    )
    listing = f"<ul>{links}</ul>" if links else ""
    return (
        f'<div class="fb-way"><h2>{icon(kind)}{VISIBILITIES[kind]}</h2><p>{VISIBILITY_SAY[kind]}</p>{listing}'
        f'<p class="fb-small"><a href="browse/?visibility={kind}">Browse all {kind} failures</a></p></div>'
    )


def facets(entry: Entry) -> dict[str, list[str]]:
    """The values of an entry for each facet of the browse page."""
    shown = proofs(entry)
    kinds = {s.get("kind") for s in entry.get("signatures") or ()}
    found: dict[str, list[str]] = {
        "category": [str(entry.get("category", ""))],
        "severity": [str(entry.get("severity", ""))],
        "visibility": [str(entry.get("visibility", ""))],
        "kind": [str(entry["kind"])],
        "system": [str(a.get("system", "")) for a in entry.get("affects") or ()],
        "stage": [str(s) for s in entry.get("stages") or ()],
        "evidence": [str(k) for k in sorted(k for k in kinds if k)],
        "proof": [p.mode for p in shown] or ["none"],
        "device": [p.device for p in shown],
        "action": [str((entry.get("action") or {}).get("do", ""))],
    }
    return {name: list(dict.fromkeys(v for v in values if v)) for name, values in found.items()}


def browse(catalogue: Catalogue) -> str:
    rows = []
    for entry in in_order(catalogue.by_slug.values()):
        data = html.escape(json.dumps(facets(entry), separators=(",", ":")), quote=True)
        more = " ".join(str(a) for a in [*(entry.get("aliases") or ()), *(entry.get("tags") or ())])
        rows.append(
            f'<li class="fb-row" data-f="{markup.seal(data)}" data-more="{markup.text(more)}">'
            f"{row(entry, '../entries/', heading=2)}</li>"
        )
    said = {facet: catalogue.titles.get(of, {}) for facet, of in (("category", "categories"), ("system", "systems"))}
    names = html.escape(json.dumps(said, separators=(",", ":")), quote=True)
    return wrap(
        '<header class="fb-head"><h1>All failures</h1></header>',
        '<div class="fb-browse"><form class="fb-facets" hidden aria-label="Filter"'
        f' data-names="{markup.seal(names)}"></form>'
        '<div class="fb-browse__list"><p class="fb-browse__count" role="status"></p>'
        f'<ol class="fb-rows">{"".join(rows)}</ol></div></div>',
    )


def tag(name: str, entries: list[Entry]) -> str:
    rows = "".join(f'<li class="fb-row">{row(e, "../../entries/", heading=2)}</li>' for e in in_order(entries))
    return wrap(
        '<header class="fb-head"><nav class="fb-trail" aria-label="Breadcrumb"><a href="../">Tags</a></nav>'
        f"<h1>#{markup.text(name)}</h1></header>",
        f'<ol class="fb-rows">{rows}</ol>',
    )


def tags(catalogue: Catalogue) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in catalogue.by_slug.values():
        for name in entry.get("tags") or ():
            found.setdefault(str(name), []).append(entry)
    return dict(sorted(found.items()))


def tag_index(catalogue: Catalogue) -> str:
    links = "".join(
        f'<li><a class="fb-tag" href="{markup.text(name)}/">#{markup.text(name)}</a> {len(entries)}</li>'
        for name, entries in tags(catalogue).items()
    )
    return wrap('<header class="fb-head"><h1>Tags</h1></header>', f'<ul class="fb-taglist">{links}</ul>')


def _links(entries: list[Entry]) -> str:
    body = "".join(
        f'<li class="fb-dot fb-dot--{e["severity"] if e.get("severity") in SEVERITIES else "low"}">'
        f'<a href="../entries/{markup.text(e["slug"])}/">{markup.title(e["title"])}</a></li>'
        for e in entries
    )
    return f"<ul>{body}</ul>"


def proof_page(catalogue: Catalogue) -> str:
    """Every current proof record: what was run where, with which versions, when."""
    rows = []
    for entry in sorted(catalogue.by_slug.values(), key=lambda e: str(e["title"]).lower()):
        name = f'<a href="../entries/{markup.text(entry["slug"])}/">{markup.text(entry["title"])}</a>'
        for record in proofs(entry):
            variants = ", ".join(r.variant for r in record.runs if r.variant) or "one"
            versions = ", ".join(f"{k} {v}" if k != "platform" else v for k, v in record.versions)
            cells = (record.mode, record.device, variants, versions, record.date)
            rows.append((name, *(markup.text(c) for c in cells)))
    missing = [e for e in catalogue.by_slug.values() if e["kind"] == "cause" and not proofs(e)]
    without = (
        f"<h2>Causes without a current record</h2>{_links(in_order(missing))}"
        if missing
        else "<p>Every cause has a current record.</p>"
    )
    head = ("Entry", "Mode", "Device", "Variants", "Versions", "Date")
    return wrap(
        '<header class="fb-head"><h1>Proof records</h1><p>A record counts only while the digest of the entry’s signatures, its '
        "reproduction and the runner is the one that was run.</p></header>",
        table("Proof records", head, rows) + without,
    )
