"""Turns an entry's text into HTML that cannot do anything but be read.

Entries are written by strangers, so nothing of theirs reaches a page unescaped: plain fields go
through `text`, prose fields through a CommonMark parser with raw HTML, images and non-web links
switched off. The result is then `seal`ed, so that whichever Markdown generator carries it (Python-Markdown
today) finds nothing in it to interpret: no fence, no blank line that would end an HTML block.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from pygments import highlight as pygmentize  # type: ignore[import-untyped]
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]

# Control characters include the STX/ETX that Python-Markdown uses as placeholder marks.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_SEAL = str.maketrans(
    {
        "`": "&#96;",
        "~": "&#126;",
        "*": "&#42;",
        "_": "&#95;",
        "[": "&#91;",
        "]": "&#93;",
        "\\": "&#92;",
        "{": "&#123;",
        "}": "&#125;",
        "|": "&#124;",
        "!": "&#33;",
    }
)
_PLAIN = re.compile(r"[A-Za-z0-9\s.,;:()/+=%'\"?#@$^-]*", re.ASCII)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def clean(value: object) -> str:
    """Any value as text without control characters, with plain line ends."""
    text = _ANSI.sub("", str(value)).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", text)


def text(value: object) -> str:
    """Plain text for element content and quoted attributes, inert in HTML and in Markdown."""
    return html.escape(clean(value), quote=True).translate(_SEAL).replace("\n", " ")


def title(value: object) -> str:
    """A name that may hold code between backticks, and nothing else that Markdown would read."""
    parts = re.split(r"`([^`]+)`", clean(value))
    return "".join(f"<code>{text(p)}</code>" if i % 2 else text(p) for i, p in enumerate(parts))


def attribute(value: object) -> str:
    """For templates that print a value between quotes without escaping it themselves."""
    return html.escape(" ".join(clean(value).split()), quote=True)


def seal(markup: str) -> str:
    """Finished HTML with nothing left that opens a code fence or span in Markdown."""
    return markup.replace("`", "&#96;").replace("~", "&#126;")


def is_web_url(url: str) -> bool:
    return re.match(r"https?://[^\s\"'<>]+$", url) is not None


def link(url: object, label: str) -> str:
    """An outward link where the address is a web address, else just the label (already HTML)."""
    address = clean(url).strip()
    if not is_web_url(address):
        return label
    return f'<a href="{html.escape(address, quote=True)}" rel="noopener nofollow">{label}</a>'


def code(source: object, language: str = "text", title: str = "", marks: frozenset[int] = frozenset()) -> str:
    """A highlighted block. `marks` are 1-based lines to point at (what a signature matched)."""
    body = clean(source).strip("\n")
    if marks or language == "text":
        lines = body.split("\n")
        inner = "\n".join(
            f"<mark>{html.escape(line)}</mark>" if number in marks else html.escape(line) for number, line in enumerate(lines, 1)
        )
    else:
        inner = _pygments(body, language)
    head = f'<span class="filename">{text(title)}</span>' if title else ""
    return f'<div class="highlight">{head}<pre tabindex="0"><code>{seal_code(inner)}\n</code></pre></div>'


def seal_code(inner: str) -> str:
    """Seals the content of a `pre`; an empty span keeps blank lines from ending the HTML block."""
    return "\n".join(line if line.strip() else "<span></span>" for line in seal(inner).split("\n"))


def prose(value: object) -> str:
    """A prose field (Markdown) as HTML blocks."""
    markup = _parser().render(clean(value)).rstrip("\n")
    return seal(markup.replace("<th></th>", "<td></td>"))  # a heading without words confuses screen readers


def inline(value: object) -> str:
    """A one-paragraph field: emphasis, code and links only."""
    return _inline(" ".join(clean(value).split()))


@lru_cache(maxsize=8192)
def _inline(line: str) -> str:
    if _PLAIN.fullmatch(line):  # nothing that Markdown would read; most lines of a thousand entries
        return line.replace('"', "&quot;")
    return seal(_parser().renderInline(line))


def plain(value: object) -> str:
    """Prose without its Markdown marks, for descriptions and search rows (not escaped)."""
    out = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", clean(value))
    return " ".join(re.sub(r"[`*]", "", out).split())


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    md = MarkdownIt("js-default", {"html": False, "highlight": _highlight_fence})
    md.disable(["image", "code"])
    md.validateLink = is_web_url  # type: ignore[method-assign]
    md.add_render_rule("table_open", _table_open)
    md.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return md


def _table_open(*_: Any) -> str:
    """A frame that can be scrolled by keyboard on narrow screens."""
    return '<div class="fb-table" role="group" tabindex="0" aria-label="Table"><table class="fb-t">'


def _highlight_fence(source: str, language: str, _attrs: str) -> str:
    inner = seal_code(_pygments(source.rstrip("\n"), language or "text"))
    return f'<pre tabindex="0"><code>{inner}\n</code></pre>'


@lru_cache(maxsize=4096)
def _pygments(source: str, language: str) -> str:
    lexer = _lexer(language)
    if lexer is None:
        return html.escape(source)
    out: str = pygmentize(source, lexer, _formatter())
    return out.rstrip("\n")


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=1)
def _formatter() -> Any:
    return HtmlFormatter(nowrap=True)  # making one costs more than most blocks it prints
