"""The map of the failures: first all of them at a glance, then what each looks like from outside and the causes behind it."""

from __future__ import annotations

from collections.abc import Iterable

from . import markup
from .catalogue import SEVERITIES, VISIBILITIES, Catalogue, Entry, in_order, words
from .widgets import icon

ENTRIES = "../entries/"


def page(catalogue: Catalogue) -> str:
    groups: dict[str, list[Entry]] = {}
    for entry in in_order(catalogue.by_slug.values()):
        groups.setdefault(str(entry.get("category", "")), []).append(entry)
    blocks = [
        '<header class="fb-head"><h1>Families of failures</h1><p class="fb-lead">Every failure of the book on one screen, '
        "then by family: what it looks like from outside, and the causes behind it.</p></header>",
        _overview(groups, catalogue),
        *(_section(name, members, catalogue) for name, members in sorted(groups.items())),
    ]
    return "\n\n".join(f"<div>{b}</div>" for b in blocks if b) + "\n"


def _overview(groups: dict[str, list[Entry]], catalogue: Catalogue) -> str:
    """Category by way of showing; each dot an entry."""
    head = "".join(
        f'<th scope="col">{icon(kind)}<span>{markup.text(say)}</span><span>{kind}</span></th>'
        for kind, say in VISIBILITIES.items()
    )
    rows = []
    for name, members in sorted(groups.items()):
        cells = "".join(f"<td>{''.join(_dot(e) for e in members if e.get('visibility') == kind)}</td>" for kind in VISIBILITIES)
        link = f'<a href="#{_anchor(name)}">{markup.text(catalogue.say("categories", name))}</a>'
        rows.append(f'<tr><th scope="row">{link}</th>{cells}</tr>')
    if not rows:
        return ""
    key = "".join(f'<span class="fb-dot--{s}"><i class="fb-spot"></i>{s}</span>' for s in SEVERITIES)
    return (
        '<div class="fb-map" role="region" tabindex="0" aria-label="All failures at a glance">'
        f"<table><thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="fb-map__key">{key}<span><i class="fb-spot fb-spot--hub"></i>symptom with several causes</span></p>'
    )


def _dot(entry: Entry) -> str:
    level = entry["severity"] if entry.get("severity") in SEVERITIES else "low"
    shape = " fb-spot--hub" if entry["kind"] == "symptom" else ""
    title = markup.seal(markup.attribute(entry["title"]))
    address = f"{ENTRIES}{markup.text(entry['slug'])}/"
    return f'<a class="fb-dot--{level}" href="{address}" title="{title}" aria-label="{title}"><i class="fb-spot{shape}"></i></a>'


def _anchor(category: str) -> str:
    return "family-" + "".join(c for c in category if c.isalnum() or c == "-")


def _section(name: str, members: list[Entry], catalogue: Catalogue) -> str:
    def is_root(entry: Entry) -> bool:
        return entry.get("parent") not in catalogue.by_slug

    def leads_on(entry: Entry) -> bool:
        return entry["slug"] in catalogue.children or bool(entry.get("routes"))

    trees = "".join(
        f'<div class="fb-tree"><ul>{_node(e, catalogue, frozenset())}</ul></div>' for e in members if is_root(e) and leads_on(e)
    )
    alone = [e for e in members if is_root(e) and not leads_on(e)]
    head = "On their own"
    if not (trees or alone):  # each hangs below a failure of another family; the overview links here all the same
        alone, head = members, "Cases of failures in other families"
    rest = f'<div class="fb-tree fb-tree--alone"><h3>{head}</h3><ul>{_leaves(alone)}</ul></div>' if alone else ""
    title = f'<h2 id="{_anchor(name)}">{markup.text(catalogue.say("categories", name))} <small>{len(members)}</small></h2>'
    return f'<section class="fb-family">{title}<div class="fb-trees">{trees}{rest}</div></section>'


def _leaves(entries: Iterable[Entry]) -> str:
    return "".join(f"<li>{_name(e)}</li>" for e in entries)


def _name(entry: Entry, category: str = "") -> str:
    level = entry["severity"] if entry.get("severity") in SEVERITIES else "low"
    shape = " fb-spot--hub" if entry["kind"] == "symptom" else ""
    other = (
        f" <small>{markup.text(words(entry.get('category', '')))}</small>" if category not in ("", entry.get("category")) else ""
    )
    return (
        f'<a class="fb-dot--{level}" href="{ENTRIES}{markup.text(entry["slug"])}/"><i class="fb-spot{shape}"></i>'
        f"<span>{markup.title(entry['title'])}{other}</span></a>"
    )


def _node(entry: Entry, catalogue: Catalogue, above: frozenset[str], category: str = "") -> str:
    """A symptom with what is below it: its own causes, then those in other families that its table leads to."""
    slug = str(entry["slug"])
    if slug in above:  # a loop of parents would never end
        return ""
    own = [catalogue.by_slug[s] for s in catalogue.children.get(slug, ())]
    inside = "".join(_node(child, catalogue, above | {slug}, str(entry.get("category", ""))) for child in in_order(own))
    elsewhere = [
        catalogue.by_slug[to]
        for to in dict.fromkeys(str(r.get("to")) for r in entry.get("routes") or ())
        if to in catalogue.by_slug and to not in catalogue.children.get(slug, ()) and to not in above
    ]
    if elsewhere:
        links = ", ".join(f'<a href="{ENTRIES}{markup.text(e["slug"])}/">{markup.title(e["title"])}</a>' for e in elsewhere)
        say = f"<summary>also leads to {len(elsewhere)} elsewhere</summary>"
        inside += f'<li class="fb-tree__also"><details>{say}{links}</details></li>'
    below = f"<ul>{inside}</ul>" if inside else ""
    return f"<li>{_name(entry, category)}{below}</li>"
