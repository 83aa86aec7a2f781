"""The sections of an entry page below the first screen. Each returns HTML, empty when it has nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import markup, measured
from .catalogue import Catalogue, Entry, related, words
from .widgets import chips, table, tabs

Section = Callable[[Entry, Catalogue], str]


def items(values: Iterable[object], tag: str = "ul") -> str:
    body = "".join(f"<li>{markup.inline(v)}</li>" for v in values)
    return f"<{tag}>{body}</{tag}>" if body else ""


def entry_link(slug: object, catalogue: Catalogue) -> str:
    if slug not in catalogue.by_slug:
        return f"<code>{markup.text(slug)}</code>"
    return f'<a href="../{markup.text(slug)}/">{markup.title(catalogue.title(str(slug)))}</a>'


def symptoms(entry: Entry, _: Catalogue) -> str:
    rows = [
        f"<dt>{markup.inline(s.get('observe', ''))}</dt><dd>{markup.inline(s.get('why', ''))}</dd>"
        for s in entry.get("symptoms") or ()
    ]
    return f'<dl class="fb-symptoms">{"".join(rows)}</dl>' if rows else ""


def root_cause(entry: Entry, _: Catalogue) -> str:
    parts = [f'<div class="fb-prose">{markup.prose(entry["root_cause"])}</div>'] if entry.get("root_cause") else []
    facts = [("Where it usually comes from", entry.get("origin")), ("Recurrence", entry.get("recurrence"))]
    parts += [f'<p class="fb-fact"><b>{k}</b> {markup.inline(v)}</p>' for k, v in facts if v]
    return "".join(parts)


def mechanism(entry: Entry, _: Catalogue) -> str:
    return f'<div class="fb-prose">{markup.prose(entry["mechanism"])}</div>' if entry.get("mechanism") else ""


def confirm(entry: Entry, _: Catalogue) -> str:
    steps = []
    for number, step in enumerate(entry.get("confirm") or (), 1):
        how = f'<div class="fb-check__how">{markup.prose(step["how"])}</div>' if step.get("how") else ""
        expect = f'<p class="fb-check__expect"><b>Expect</b> {markup.inline(step["expect"])}</p>' if step.get("expect") else ""
        steps.append(
            f'<li><label><input type="checkbox" data-check="{number}"> '
            f"<span>{markup.inline(step.get('step', ''))}</span></label>{how}{expect}</li>"
        )
    if not steps:
        return ""
    return f'<ol class="fb-check" data-entry="{markup.text(entry["slug"])}">{"".join(steps)}</ol>'


def not_this_if(entry: Entry, catalogue: Catalogue) -> str:
    rows = [
        f"<li>{markup.inline(n.get('because', ''))} <span>See</span> {entry_link(n.get('entry'), catalogue)}</li>"
        for n in entry.get("not_this_if") or ()
    ]
    wrong = [
        f"<li>Read as <em>{markup.inline(str(m.get('reading', '')).rstrip('. '))}</em>: {markup.inline(m.get('why', ''))}</li>"
        for m in entry.get("misread_as") or ()
    ]
    both = "".join(rows) + "".join(wrong)
    return f'<ul class="fb-not">{both}</ul>' if both else ""


def fix(entry: Entry, _: Catalogue) -> str:
    given = entry.get("fix") or {}
    parts = [
        f'<p class="fb-fact"><b>{label}</b> {markup.inline(given[key])}</p>'
        for key, label in (("why", "Why it works"), ("risk", "Risk"))
        if given.get(key)
    ]
    if entry.get("time_to_fix"):
        parts.append(f'<p class="fb-fact"><b>Time to fix</b> {markup.inline(entry["time_to_fix"])}</p>')
    check = entry.get("verify") or {}
    if check.get("command"):
        parts.append('<p class="fb-fact"><b>Verify the fix</b></p>' + markup.code(check["command"], "bash"))
    if check.get("expect"):
        parts.append(f'<p class="fb-check__expect"><b>Expect</b> {markup.inline(check["expect"])}</p>')
    return "".join(parts)


def prevention(entry: Entry, _: Catalogue) -> str:
    given = entry.get("prevention") or {}
    columns = "".join(
        f"<div><h3>{label}</h3>{items(given[key])}</div>"
        for key, label in (("before_launch", "Before launch"), ("at_run_time", "At run time"), ("after", "Afterwards"))
        if given.get(key)
    )
    watch = entry.get("monitor") or {}
    parts = [f'<div class="fb-columns">{columns}</div>'] if columns else []
    if watch.get("watch"):
        parts.append(f'<p class="fb-fact"><b>Fingerprint to monitor</b> {markup.inline(watch["watch"])}</p>')
    if watch.get("alert"):
        parts.append(f'<p class="fb-fact"><b>Alert when</b> {markup.inline(watch["alert"])}</p>')
    if watch.get("extra_line"):
        parts.append(markup.code(watch["extra_line"], "python", "log this line"))
    return "".join(parts)


def scale(entry: Entry, _: Catalogue) -> str:
    given = entry.get("scale") or {}
    body = "".join(
        f"<div><h3>{label}</h3><p>{markup.inline(given[key])}</p></div>"
        for key, label in (("one_gpu", "One GPU"), ("many_gpus", "Many GPUs"))
        if given.get(key)
    )
    return f'<div class="fb-columns">{body}</div>' if body else ""


def perspectives(entry: Entry, _: Catalogue) -> str:
    given = entry.get("perspectives") or {}
    panels = []
    for key, label in (("engineer", "Engineer"), ("on_call", "On call: first five minutes"), ("executive", "Executive")):
        value = given.get(key)
        if value:
            body = items(value, "ol") if isinstance(value, (list, tuple)) else markup.prose(value)
            panels.append((label, f'<div class="fb-prose">{body}</div>'))
    return tabs("views", "Who is asking", panels)


def stack_examples(entry: Entry, catalogue: Catalogue) -> str:
    panels = []
    for example in entry.get("stack_examples") or ():
        status = "Executed" if example.get("status") == "executed" else "Reviewed, not executed"
        note = f" · {markup.inline(example['note'])}" if example.get("note") else ""
        body = markup.code(example["code"], "python") if example.get("code") else ""
        panels.append((catalogue.say("stacks", example.get("stack", "")), f'{body}<p class="fb-small">{status}{note}</p>'))
    return tabs("stacks", "Stack", panels[:8])


def detectability(entry: Entry, catalogue: Catalogue) -> str:
    """Hits on labelled real logs and false alarms."""
    found = measured.of(entry, catalogue.measured)
    if not found:
        return ""
    hits = f"{found['named']} of {found['labelled']}" if found["labelled"] else "none at hand"
    cells = (
        (hits, "real failures labelled with this entry that were named so"),
        (f"{found['wrong']} of {found['cases']}", "real failures that were wrongly given this name"),
        (f"{found['alarms']} of {found['healthy']}", "healthy logs on which it raised an alarm"),
    )
    body = "".join(f"<div><dt>{text}</dt><dd>{number}</dd></div>" for number, text in cells)
    return (
        f'<dl class="fb-measured">{body}</dl><p class="fb-small">Counted on {markup.text(found["date"])}, on logs that the '
        'engine was developed against; unseen ones will do worse: <a href="../../how-well-it-works/">how well it works</a>.</p>'
    )


def signatures(entry: Entry, catalogue: Catalogue) -> str:
    rows = []
    for s in entry.get("signatures") or ():
        where = {
            "stock_log": "stock logs",
            "extra_line": "one extra logged line",
            "probe": "a probe",
        }.get(s.get("observed_in", ""), "stock logs" if s.get("kind") == "log" else "")
        extra = markup.code(s["extra_line"], "python", "log this line") if s.get("extra_line") else ""
        limits = [f"Not evidence of {words(x)}." for x in s.get("not_evidence_of") or ()]
        notes = " ".join([*([str(s["note"])] if s.get("note") else []), *limits])
        note = f'<p class="fb-small">{markup.inline(notes)}</p>' if notes else ""
        name = markup.text(s.get("id", ""))
        rows.append(
            (
                f'<code id="sig-{name}">{name}</code><p class="fb-small">{markup.text(s.get("role", ""))}<br>look in {where}</p>',
                f"{_conditions(s)}{note}{extra}",
            )
        )
    if not rows:
        return ""
    return detectability(entry, catalogue) + table("Signatures", ("Signature", "Holds when"), rows, "fb-table--sigs")


def _conditions(signature: Mapping[str, Any]) -> str:
    joined = {"all": "all of, in this order" if signature.get("ordered") else "all of", "any": "any of", "none": "none of"}
    out = []
    for group, label in joined.items():
        tests = signature.get(group) or ()
        if tests:
            lead = "" if group == "all" and len(tests) == 1 else f'<span class="fb-small">{label}</span>'
            out.append(lead + "<ul>" + "".join(f"<li>{_condition(t)}</li>" for t in tests) + "</ul>")
    ranks = signature.get("ranks")
    if ranks:
        count = f" {ranks['count']}" if ranks.get("count") else ""
        out.append(f'<span class="fb-small">ranks: {markup.text(words(ranks.get("quantifier", "")))}{markup.text(count)}</span>')
    return "".join(out)


TESTS = {
    "nonfinite": "is NaN or infinite",
    "above": "is above",
    "below": "is below",
    "rises": "rises",
    "falls": "falls",
    "spike": "spikes",
    "plateau": "stays flat",
    "equals": "equals",
    "zero": "is zero",
    "grows": "keeps growing",
    "rank_ratio": "ratio between ranks",
    "rank_differs": "differs between ranks",
    "missing": "is missing",
}


def _condition(test: Mapping[str, Any]) -> str:
    if "pattern" in test:
        times = f" × {test['at_least']}" if test.get("at_least", 1) != 1 else ""
        source = f'<br><span class="fb-small">quoted from {markup.text(test["source"])}</span>' if test.get("source") else ""
        return f"<code>{markup.text(test['pattern'])}</code>{markup.text(times)}{source}"
    series = test.get("series") or ()
    name = series[0] if isinstance(series, (list, tuple)) and series else series
    detail = [
        f"{label}{test[key]}"
        for key, label in (
            ("value", ""),
            ("ln_of", "ln "),
            ("factor", "× "),
            ("z", "z "),
            ("tolerance", "± "),
            ("records", "over records: "),
        )
        if test.get(key) is not None and (key, test[key]) != ("tolerance", 0)
    ]
    if test.get("patience", 1) != 1:
        detail.append(f"for {test['patience']} records")
    says = TESTS.get(test.get("test", ""), words(test.get("test", "")))
    return f"<code>{markup.text(name)}</code> {markup.text(' '.join([says, *detail]))}"


def affects(entry: Entry, catalogue: Catalogue) -> str:
    rows = [
        (
            markup.text(catalogue.say("systems", a.get("system", ""))),
            markup.text(a.get("introduced") or "any version"),
            markup.text(a.get("fixed") or "–"),
            markup.inline(a.get("note") or ""),
        )
        for a in entry.get("affects") or ()
    ]
    return table("Affected systems", ("System", "Since", "Fixed in", "Note"), rows)


def related_table(entry: Entry, catalogue: Catalogue) -> str:
    rows = []
    for slug, relation in related(entry, catalogue):
        other = catalogue.by_slug[slug]
        rows.append(
            (
                entry_link(slug, catalogue),
                markup.text(relation),
                markup.text(catalogue.say("categories", other.get("category", ""))),
                f"<span>{chips(other)}</span>",
            )
        )
    return table("Related failures", ("Failure", "Relation", "Category", "Severity"), rows)


def references(entry: Entry, _: Catalogue) -> str:
    rows = []
    for r in entry.get("references") or ():
        about = " · ".join(str(r[k]) for k in ("kind", "date") if r.get(k))
        rows.append(
            f"<li>{markup.link(r.get('url', ''), markup.text(r.get('title', '')))} "
            f'<span class="fb-small fb-nowrap">{markup.text(about)}</span></li>'
        )
    return f'<ul class="fb-refs">{"".join(rows)}</ul>' if rows else ""


def routes(entry: Entry, catalogue: Catalogue) -> str:
    """The decision table of a hub."""
    rows = []
    for r in entry.get("routes") or ():
        test = markup.inline(r["test"]) if r.get("test") else ""
        seen = f'<p class="fb-small">recognised by <code>{markup.text(r["signature"])}</code></p>' if r.get("signature") else ""
        target = catalogue.by_slug.get(r.get("to"))
        rows.append(
            (
                markup.inline(r.get("when", "")) + seen,
                test,
                entry_link(r.get("to"), catalogue) + (f"<br>{chips(target)}" if target else ""),
            )
        )
    return table("Which cause is it?", ("If you see", "Test that decides", "It is"), rows, "fb-table--routes")


SECTIONS: tuple[tuple[str, str, Section], ...] = (
    ("routes", "Which cause is it?", routes),
    ("symptoms", "Symptoms", symptoms),
    ("root-cause", "Root cause", root_cause),
    ("mechanism", "Mechanism", mechanism),
    ("confirm", "Confirm it", confirm),
    ("not-this-if", "It is not this if", not_this_if),
    ("fix", "About the fix", fix),
    ("prevention", "Prevention", prevention),
    ("scale", "Scale", scale),
    ("perspectives", "Perspectives", perspectives),
    ("stacks", "In your stack", stack_examples),
    ("affects", "Affected versions", affects),
    ("signatures", "How it is recognised", signatures),
    ("related", "Related failures", related_table),
    ("references", "References", references),
)
