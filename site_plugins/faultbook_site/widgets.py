"""Small pieces of HTML that several pages share. All values from entries go through `markup`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import markup
from .catalogue import SEVERITIES, VISIBILITIES, Entry, words


def icon(name: str) -> str:
    """A decorative icon (the word beside it says the same); its drawing is in the style sheet, once."""
    return f'<i class="fb-i fb-i--{name}"></i>'


def severity_chip(entry: Entry) -> str:
    level = entry.get("severity")
    if level not in SEVERITIES:
        return ""
    return f'<span class="fb-chip fb-sev fb-sev--{level}">{level}</span>'


def visibility_chip(entry: Entry) -> str:
    kind = entry.get("visibility")
    if kind not in VISIBILITIES:
        return ""
    return f'<span class="fb-chip fb-vis" title="{VISIBILITIES[kind]}">{icon(kind)}{kind}</span>'


def kind_chip(entry: Entry) -> str:
    names = {"symptom": "symptom hub", "noise": "harmless noise"}
    return f'<span class="fb-chip fb-kind">{names[entry["kind"]]}</span>' if entry["kind"] in names else ""


def chips(entry: Entry) -> str:
    return severity_chip(entry) + visibility_chip(entry) + kind_chip(entry)


def tabs(group: str, label: str, panels: Sequence[tuple[str, str]]) -> str:
    """Tabs made of radio buttons: they work without JavaScript and by arrow keys.

    The style sheet shows the panel whose place equals that of the checked button (at most eight).
    """
    if not panels:
        return ""
    name = "".join(c for c in group if c.isalnum() or c == "-")
    radios = "".join(
        f'<input type="radio" name="{name}" id="{name}-{i}"{" checked" if i == 1 else ""}>'
        f'<label for="{name}-{i}">{markup.text(title)}</label>'
        for i, (title, _) in enumerate(panels, 1)
    )
    bodies = "".join(f'<div class="fb-tabs__panel">{body}</div>' for _, body in panels)
    return (
        f'<div class="fb-tabs"><fieldset class="fb-tabs__bar"><legend>{markup.text(label)}</legend>{radios}'
        f'</fieldset><div class="fb-tabs__panels">{bodies}</div></div>'
    )


def row(entry: Entry, base: str, relation: str = "", heading: int = 3) -> str:
    """An entry in a list: title, one line, chips. `base` leads to the folder of entries."""
    slug = markup.text(entry["slug"])
    facts = f'<span class="fb-row__rel">{markup.text(relation)}</span>' if relation else ""
    return (
        f'<h{heading} class="fb-row__title"><a href="{base}{slug}/">{markup.title(entry["title"])}</a></h{heading}>'
        f'<p class="fb-row__say">{markup.inline(entry.get("quick_answer", ""))}</p>'
        f'<p class="fb-row__facts">{facts}{chips(entry)}'
        f'<span class="fb-row__cat">{markup.text(words(entry.get("category", "")))}</span></p>'
    )


def paste_box(heading: str, slug: str = "") -> str:
    """The diagnosis box. Without JavaScript it says how to get the same answer on a command line.

    On the page of an entry (`slug`) it is folded, and its answer says whether this entry matches.
    """
    inside = (
        '<div class="fb-paste__ui" hidden></div>'
        '<p class="fb-paste__nojs">The same engine on your machine: '
        "<code>pip install faultbook</code>, then <code>faultbook diagnose run.log</code></p>"
    )
    if slug:
        return (
            f'<details class="fb-fold" id="check"><summary>{heading} <span>Check it against your log</span></summary>'
            f'<section class="fb-paste" data-slug="{markup.text(slug)}" aria-label="Diagnose a log">{inside}</section></details>'
        )
    return f'<section class="fb-paste" id="check" aria-label="Diagnose a log"><h2>{heading}</h2>{inside}</section>'


def table(label: str, head: Iterable[str], rows: Iterable[Iterable[str]], css: str = "") -> str:
    """Cells are finished HTML. The frame can be scrolled by keyboard on narrow screens."""
    names = list(head)
    body = "".join(
        "<tr>" + "".join(f'<td data-h="{markup.text(names[i])}">{cell}</td>' for i, cell in enumerate(cells)) + "</tr>"
        for cells in rows
    )
    if not body:
        return ""
    top = "".join(f'<th scope="col">{h}</th>' for h in names)
    return (
        f'<div class="fb-table {css}" role="region" tabindex="0" aria-label="{markup.text(label)}">'
        f'<table class="fb-t fb-t--facts"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )
