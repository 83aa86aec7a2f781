"""A diagnosis as one HTML page that needs nothing else: no script, no request, light and dark.

All text of logs and entries is escaped, and the page's own policy forbids what could slip through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from . import lazy
from .model import Diagnosis, Evidence, Finding
from .render import HEAD, _clean, _place, _started
from .report_curves import Curve, svg

_STYLE = """

:root{color-scheme:light dark;--ink:#1c1e21;--dim:#5c6370;--line:#d5d9e0;--box:#f4f6f9;--page:#fff;--bad:#b42318;
--warn:#8a5a00;--good:#1a7f37;--calm:#1f5fbf;--accent:#0b5cad}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--dim:#a0a8b4;--line:#3a404a;--box:#20242b;--page:#15181d;
--bad:#ff8a80;--warn:#f0c060;--good:#6fd38a;--calm:#84b6ff;--accent:#7fb8ff}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:60rem;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}h3{font-size:1rem;margin:0}p{margin:.4rem 0}
a{color:var(--accent)}.dim{color:var(--dim);font-size:.9rem}.verdict{font-weight:700;letter-spacing:.04em;font-size:.85rem}
.diagnosed{color:var(--bad)}.unrecognised,.inconclusive{color:var(--warn)}.stopped{color:var(--calm)}
.healthy{color:var(--good)}section.card{border:1px solid var(--line);border-radius:8px;padding:1rem;margin:.8rem 0}
pre{background:var(--box);border-radius:6px;padding:.6rem .8rem;margin:.5rem 0;overflow-x:auto;white-space:pre-wrap;
overflow-wrap:anywhere;font:13px/1.45 ui-monospace,monospace}
.where{color:var(--dim)}table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line)}
td{overflow-wrap:anywhere}.time{white-space:nowrap;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto;display:block;background:var(--box);border-radius:6px}
svg text{fill:var(--dim);font:11px system-ui,sans-serif}.axis{fill:none;stroke:var(--line)}
.line{fill:none;stroke-width:1.5;stroke-linecap:round}.odd{stroke:var(--bad);stroke-width:1.5}
.mark{fill:none;stroke:var(--bad);stroke-width:2}.c0{stroke:#2f7fd8}.c1{stroke:#d9822b}.c2{stroke:#2e9e6b}.c3{stroke:#b04fc4}
.c4{stroke:#8b8f2a}.c5{stroke:#c94f6d}.c6{stroke:#3aa6b0}.c7{stroke:#8a7b6a}figure{margin:.8rem 0}figcaption{font-size:.9rem}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_LINK = lazy.regex(r"https?://[\w.~:/?#@!$&()*+,;=%-]+")


def as_html(diagnosis: Diagnosis, curves: Sequence[Curve] = ()) -> str:
    """The page. `curves` are the metric series to draw (`report_curves.that_mattered`)."""
    return "\n".join(_page(diagnosis, curves)) + "\n"


def _page(diagnosis: Diagnosis, curves: Sequence[Curve]) -> Iterator[str]:
    word = HEAD[diagnosis.verdict][0]
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
    yield f"<title>Faultbook: {_text(word.lower())}</title><style>{_STYLE}</style></head><body><main>"
    yield f'<p class="verdict {diagnosis.verdict}">{_text(word)}</p><h1>{_text(diagnosis.summary)}</h1>'
    if diagnosis.initiating is not None:
        yield f"<p><strong>{_text(_started(diagnosis.initiating))}</strong>: {_text(diagnosis.initiating.basis)}</p>"
    if diagnosis.diagnoses:
        yield "<h2>Findings</h2>"
        for finding in diagnosis.diagnoses:
            yield from _finding(finding)
    if diagnosis.first_abnormal is not None and diagnosis.verdict != "diagnosed":
        seen = diagnosis.first_abnormal
        yield "<h2>First abnormal line</h2>"
        yield _quoted([Evidence(str(seen["file"]), int(seen["line"]), seen.get("rank"), str(seen["text"]), "")])
    if curves:
        yield "<h2>Curves</h2>"
        for curve in curves:
            yield from _figure(curve)
    if diagnosis.timeline:
        yield "<h2>Timeline</h2>"
        yield from _timeline(diagnosis)
    if diagnosis.collateral:
        yield "<h2>Collateral (consequences, not causes)</h2><ul>"
        for storm in diagnosis.collateral:
            ranks = ", ".join(str(r) for r in storm.get("ranks", ()))
            yield f"<li>{_text(storm['count'])}× {_text(storm['what'])}" + (f" on rank {_text(ranks)}</li>" if ranks else "</li>")
        yield "</ul>"
    if diagnosis.leads:
        yield "<h2>Leads (not findings)</h2><ul>"
        yield from (f"<li>{_text(lead['text'])}</li>" for lead in diagnosis.leads)
        yield "</ul>"
    if diagnosis.not_examined:
        yield "<h2>Not examined</h2><ul>"
        yield from (f"<li>{_text(note)}</li>" for note in diagnosis.not_examined)
        yield "</ul>"
    yield "</main></body></html>"


def _finding(finding: Finding) -> Iterator[str]:
    title = _text(finding.title)
    if _LINK.fullmatch(finding.url):
        title = f'<a rel="noreferrer" href="{escape(finding.url, quote=True)}">{title}</a>'
    rank = "" if finding.rank is None else f" · rank {finding.rank}"
    yield f'<section class="card"><h3>{title}</h3>'
    yield f'<p class="dim">{_text(finding.entry)} · {_text(finding.role)} · confidence {finding.confidence:.2f}{rank}</p>'
    if finding.evidence:
        yield _quoted(finding.evidence)
    if finding.action.get("do"):
        yield f"<p><strong>Do now</strong> {_text(finding.action['do'])}: {_text(finding.action.get('when', ''))}</p>"
    if finding.fix:
        yield f"<p><strong>Fix</strong> {_text(finding.fix)}</p>"
    if finding.verify:
        yield f"<p><strong>Verify</strong> {_text(finding.verify)}</p>"
    yield "</section>"


def _quoted(evidence: Sequence[Evidence]) -> str:
    rows = (f'<span class="where">{_text(_place(e.file, e.line, e.rank))}</span>  {_text(e.text[:2000])}' for e in evidence)
    return "<pre>" + "\n".join(rows) + "</pre>"


def _figure(curve: Curve) -> Iterator[str]:
    attempt = f", attempt {curve.attempt}" if curve.attempt else ""
    yield f"<figure><figcaption><strong>{_text(curve.name)}</strong>{attempt}. {_text(curve.text)}</figcaption>"
    yield svg(curve)
    yield "</figure>"


def _timeline(diagnosis: Diagnosis) -> Iterator[str]:
    """A table for each rank, in order of ranks; what no rank is known for comes last."""
    ranks = sorted({item.get("rank") for item in diagnosis.timeline}, key=lambda r: (r is None, r or 0))
    for rank in ranks:
        yield f"<h3>{'no rank' if rank is None else f'rank {rank}'}</h3><table><tr><th>time</th><th>what</th><th>where</th></tr>"
        for item in diagnosis.timeline:
            if item.get("rank") == rank:
                place = _place(str(item.get("file", "")), int(item.get("line") or 0), None)
                yield (
                    f'<tr><td class="time">{_text(_clock(item.get("time")))}</td><td>{_text(str(item["what"])[:500])}</td>'
                    f'<td class="dim">{_text(place)}</td></tr>'
                )
        yield "</table>"


def _clock(time: object) -> str:
    """Seconds of a writer's clock: time of day, or seconds since it began counting."""
    if not isinstance(time, (int, float)) or not 0 <= time < 1e12:
        return "" if time is None or isinstance(time, (int, float)) else str(time)
    if time < 86400:
        return f"{time:.3f} s"
    seconds = int(time) % 86400
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _text(value: object) -> str:
    return escape(_clean(str(value)), quote=True)
