"""Numbers under a header line: CSV, Markdown, `|` columns, YOLO's loose columns."""

from __future__ import annotations

from . import lazy
from .metric_forms import NUMBER, Record, count, name_of, number
from .metric_names import Name


class Table:
    """Numbers under a header line: CSV, Markdown, `|` columns, YOLO's loose columns."""

    def __init__(self) -> None:
        self.names: tuple[Name, ...] = ()
        self.separator: str | None = None
        self.misses = 0

    def header(self, text: str) -> bool:
        """Takes the line as a header if it is nothing but names, one of a known metric or counter."""
        if len(text) > 1000 or any(c in text for c in "=:;{}") or _DIGIT.search(text):
            return False
        cells, separator = _cells(text)
        if len(cells) < 2 or len(cells) > 60:
            return False
        names = [name_of(cell) if _CELL.fullmatch(cell) else None for cell in cells]
        if None in names or sum(n is not None and n.kind not in ("plain", "setting") for n in names) < 2:
            return False
        self.names, self.separator, self.misses = tuple(n for n in names if n is not None), separator, 0
        return True

    def row(self, text: str) -> Record | None:
        """A row of the table in force; after a few lines of other shape the table is over."""
        if not self.names:
            return None
        cells, _ = _cells(text, self.separator)
        if not cells or all(set(cell) <= set("-=:+ ") for cell in cells):
            return None
        values = [_value(cell) for cell in cells[: len(self.names)]]
        numbers = sum(v is not None for v in values)
        loose = self.separator is None
        if loose and (numbers < len(values) or len(values) < len(self.names)):
            numbers = 0
        if (
            len(values) < len(self.names)
            or (not loose and len(cells) != len(self.names))
            or numbers < 2
            or numbers < (len(values) + 1) // 2
        ):
            self.misses += 1
            if self.misses > 20:
                self.names = ()
            return None
        self.misses = 0
        record = Record()
        for name, cell, value in zip(self.names, cells, values, strict=False):
            if value is None:
                continue
            if name.kind in ("step", "batch", "epoch", "episode"):
                digits, _, total = cell.partition("/")
                count(record, name, digits, total if total.isdigit() else "", (0, 0), None)
            elif name.kind in ("metric", "plain"):
                record.pairs.append((name, value))
        record.bar = loose and ("%|" in text or "━" in text)
        return record if record.pairs else None


_DIGIT = lazy.regex(r"\d{3}|(?<![A-Za-z@])\d+\.\d")
_CELL = lazy.regex(r"['\"]?[A-Za-z_#][\w .()/@%#\-]{0,39}['\"]?")
_CELL_VALUE = lazy.regex(rf"['\"]?({NUMBER})(%|[kKMGT](?:i?B)?|s|ms)?(?:/\d{{1,9}})?:?['\"]?")


def _value(cell: str) -> float | None:
    match = _CELL_VALUE.fullmatch(cell)
    return number(match[1], match[2] or "") if match is not None else None


def _cells(text: str, separator: str | None = "") -> tuple[list[str], str | None]:
    """Cells and the separator; None is white space."""
    if separator == "":
        stripped = text.strip()
        if "|" in stripped.strip("|"):
            separator = "|"
        elif "\t" in stripped:
            separator = "\t"
        elif "," in stripped:
            separator = ","
        else:
            separator = None
    if separator is None:
        return text.split(), None
    return [cell.strip() for cell in text.strip().strip(separator if separator == "|" else "\n").split(separator)], separator
