"""An entry page: entry dict → Markdown. Pure, and knows nothing of the generator that will build it.

The page is a handful of Markdown headings (so that any generator finds its table of contents) with
sealed HTML blocks between them (see `markup`): the parts of an entry need more structure than Markdown has.
"""

from __future__ import annotations

from . import markup, runs
from .catalogue import Catalogue, Entry, proofs, words
from .sections import SECTIONS, entry_link
from .widgets import chips, paste_box, severity_chip

RUNS_BEFORE = "symptoms"  # "What was run" stands right below the first screen
ACTIONS = {
    "retry": "Retry",
    "exclude_node": "Exclude the node",
    "rollback": "Roll back",
    "fix_code": "Fix the code",
    "fix_config": "Fix the configuration",
    "fix_data": "Fix the data",
    "fix_environment": "Fix the environment",
    "replace_hardware": "Replace the hardware",
}


def render(entry: Entry, catalogue: Catalogue) -> str:
    """The page of one entry, for a generator that serves it at `/entries/<slug>/`."""
    box = paste_box("Is this what broke your run?", str(entry["slug"]))
    blocks = [head(entry, catalogue), first_screen(entry, catalogue), box]
    ran = runs.section(entry)
    for anchor, title, section in SECTIONS:
        if anchor == RUNS_BEFORE and ran:
            blocks += ["## What was run {#runs}", *ran]
        body = section(entry, catalogue)
        if body:
            blocks += [f"## {title} {{#{anchor}}}", body]
    blocks.append(foot(entry, catalogue))
    return "\n\n".join(f"<div>{b}</div>" if not b.startswith("#") else b for b in blocks) + "\n"


def head(entry: Entry, catalogue: Catalogue) -> str:
    category = markup.text(entry.get("category", ""))
    trail = [
        '<a href="../../browse/">All failures</a>',
        f'<a href="../../browse/?category={category}">{markup.text(catalogue.say("categories", entry.get("category", "")))}</a>',
    ]
    parent = entry.get("parent")
    if parent in catalogue.by_slug:
        trail.append(f'<a href="../{markup.text(parent)}/">{markup.title(catalogue.title(str(parent)))}</a>')
    facts = []
    systems = [catalogue.say("systems", a.get("system", "")) for a in entry.get("affects") or ()]
    if systems:
        facts.append(", ".join(dict.fromkeys(systems)))
    if entry.get("stages"):
        facts.append("during " + ", ".join(words(s) for s in entry["stages"]))
    fact = f'<span class="fb-facts__more">{markup.text(" · ".join(facts))}</span>' if facts else ""
    return (
        f'<header class="fb-head"><nav class="fb-trail" aria-label="Breadcrumb">{"".join(trail)}</nav>'
        f"<h1>{markup.title(entry['title'])}</h1>"
        f'<p class="fb-facts">{chips(entry)}{runs.badge(proofs(entry))}{fact}</p></header>'
    )


def first_screen(entry: Entry, catalogue: Catalogue) -> str:
    """Quick answer and what it looks like; beside it the fix to copy, or the causes behind a symptom, or why not to worry."""
    beside = _do(entry) or _leads(entry, catalogue) or _harmless(entry)
    return (
        f'<div class="fb-first"><p class="fb-answer">{markup.inline(entry.get("quick_answer", ""))}</p>'
        f'<div class="fb-first__cols">{_see(entry)}{beside}</div></div>'
    )


def _leads(entry: Entry, catalogue: Catalogue) -> str:
    """The causes of a symptom; which of them it is says the decision table below."""
    targets = dict.fromkeys(str(r.get("to")) for r in entry.get("routes") or ())
    known = [catalogue.by_slug[to] for to in targets if to in catalogue.by_slug]
    if not known:
        return ""
    body = "".join(f"<li>{entry_link(e['slug'], catalogue)}{severity_chip(e)}</li>" for e in known)
    return (
        '<section class="fb-do fb-leads"><h2>It is one of these</h2>'
        f'<p>A symptom, not a cause. <a href="#routes">The table below</a> tells them apart.</p><ul>{body}</ul></section>'
    )


def _harmless(entry: Entry) -> str:
    if not entry.get("harmless_unless"):
        return ""
    return (
        '<section class="fb-do" id="harmless-unless"><h2>Harmless, unless</h2>'
        f'<div class="fb-prose">{markup.prose(entry["harmless_unless"])}</div></section>'
    )


def _see(entry: Entry) -> str:
    lines = runs.matched_lines(entry) or runs.metric_lines(entry)
    printed = markup.code("\n".join(lines), "text", "as printed") if lines else ""
    seen = "".join(f"<li>{markup.inline(s.get('observe', ''))}</li>" for s in entry.get("symptoms") or ())
    if not (seen or printed):
        return ""
    return f'<section class="fb-see"><h2>What you see</h2>{printed}<ul>{seen}</ul></section>'


def _do(entry: Entry) -> str:
    fix, action = entry.get("fix") or {}, entry.get("action") or {}
    if not fix.get("summary"):
        return ""
    now = ""
    if action.get("do"):
        when = f": {markup.inline(action['when'])}" if action.get("when") else ""
        now = f'<p class="fb-action"><b>{ACTIONS.get(action["do"], markup.text(words(action["do"])))}</b>{when}</p>'
    code = (entry.get("code") or {}).get("fixed")
    return (
        f'<section class="fb-do"><h2>The fix</h2><p>{markup.inline(fix["summary"])}</p>'
        + (markup.code(fix["command"], "bash") if fix.get("command") else "")
        + (markup.code(code, "python", "tested in repro.py") if code else "")
        + f"{now}</section>"
    )


def foot(entry: Entry, catalogue: Catalogue) -> str:
    slug = markup.text(entry["slug"])
    links = [
        f'<a href="../{slug}.json">JSON</a>',
        f'<a href="../{slug}.md">Markdown</a>',
        f"<code>faultbook explain {slug}</code>",
    ]
    if catalogue.repo_url and catalogue.edit_uri:
        path = f"kb/{markup.text(entry.get('category', ''))}/{slug}/entry.yaml"
        base = markup.text(catalogue.repo_url.rstrip("/"))
        links += [
            f'<a href="{base}/{markup.text(catalogue.edit_uri)}{path}">Edit this entry</a>',
            f'<a href="{base}/issues/new?template=page-wrong.yml&amp;title=Wrong+page%3A+{slug}&amp;entry={slug}">'
            "Report a wrong page</a>",
        ]
    also = ", ".join(markup.text(a) for a in entry.get("aliases") or ())
    known = f'<p class="fb-small">Also known as: {also}</p>' if also else ""
    tags = " ".join(
        f'<a class="fb-tag" href="../../tags/{markup.text(t)}/">#{markup.text(t)}</a>' for t in entry.get("tags") or ()
    )
    known += f'<p class="fb-small">{tags}</p>' if tags else ""
    return (
        f'<footer class="fb-foot">{known}<p class="fb-small">Permanent ID <code>{slug}</code> · {" · ".join(links)}</p></footer>'
    )
