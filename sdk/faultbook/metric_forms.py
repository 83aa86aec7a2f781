"""One line of text → the step it reports and its (name, value) pairs.

Nearly all metric lines are `name separator number` in some order, so one expression reads
them all; `SPECIAL` holds the few forms that it would misread. Nothing here keeps state between lines;
`metric_tables` reads the forms whose names stand in an earlier line.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from . import lazy
from .metric_names import Name, read_name, role_of
from .values import dataclass, field

_DECIMAL = r"(?:(?:\d{1,3}(?:,\d{3}){1,6}(?!\d)|\d{1,40})(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,5})?"
_WORD_NUMBER = r"(?:nan|NaN|NAN|Nan|inf|Inf|INF|infinity|Infinity)"
NUMBER = rf"[-+]?(?:{_DECIMAL}|{_WORD_NUMBER})"
_WORD = r"[A-Za-z_#][\w./#@%+\-]{0,63}(?:'s(?= ))?"
_PAIR = lazy.regex(
    rf"(?<![\w./#@\-])({_WORD}(?: {_WORD}){{0,5}}(?: ?\([\w/.%]{{1,16}}\))?)['\"’”\]]?"  # 1 name
    r"(?:(\s{0,4}[:=]\s{0,14})|[ \t]{1,14})"  # 2 separator, empty when blanks alone
    r"['\"‘“]?((?:tensor|array|(?:np|numpy|torch)\.\w{3,10})\(|[\[(]{1,2})?"  # 3 wrapper
    rf"({NUMBER})(?!%\|)"  # 4 value, not the percentage of a progress bar
    r"(%|[kKMGT](?:i?B)?|ms|us|s|B)?"  # 5 unit
    r"(?![\w:]\w|\w|\.\d|-\d|\s?\*)"
    r"(?: {0,3}/ {0,3}(\d{1,12})(?![\w.]))?"  # 6 total
)
_EPOCH = lazy.regex(
    r"(?<![A-Za-z])[Ee]po(?:ch)?(?:s(?=[\s:\[(=#]{0,4}\d{1,7} ?/))?[\s:\[(=#]{0,4}"
    r"(\d{1,7}(?:\.\d{1,9})?)(?: ?/ ?(\d{1,7}))?"
)
_FRACTION = lazy.regex(r"(?<![\w./:\-])(?<!% \()(?<!%\()(\d{1,9}) {0,2}/ {0,2}(\d{1,9})(?=$|[\]\s),:|\[(]|\.{3})")
_LEADING = lazy.regex(r"\s{0,8}(?:\[(?=\d{1,10}\]\s))?(\d{1,10})(?:\s{0,3}\||\]\s)")
_BAR = lazy.regex(r"(\d{1,10})(?:/(\d{1,10}))? \[(?:\d{1,3}:)?\d\d?:\d\d(?::\d\d)?(?:<|,)")
_RATE = lazy.regex(r"[<,] {0,2}(\d{1,9}(?:\.\d{1,9})?)(it/s|s/it)")
# Lines that are no observation: dotted listings of arguments, configurations, command lines.
_DUMP = lazy.regex(
    r"\w \.{5}|Namespace\(|\b\w{0,30}(?:Config|Arguments|Args)\(|\.json\b.{0,20}:"
    r"|^\s{0,60}['\"][\w./\-]{1,60}['\"]: \S{1,40}[,}]{0,2}$"
    r"|(?:^|\s)--[a-z][\w\-]{2,40}[= ]|^\s{0,12}(?:File \"|>>> |def |return |import |assert )|^\+ "
)
_EVALUATION = lazy.regex(
    r"[\[(*>#=\-\s]{0,8}(?:test|val|valid|validation|eval|evaluation|testing|validating|evaluating)"
    r"(?:\s{0,3}[:\[\]|,()\-]|\s+(?:epoch|iter|iteration|step|batch)\b|\s+\d)",
    re.IGNORECASE,
)
_CONSTRUCTOR = lazy.regex(r"Namespace\(|\b\w{0,30}(?:Config|Arguments|Args)\(")
_SPARK = lazy.regex(r"[▁▂▃▄▅▆▇█]{3}")
_SIZES = {"K": 1 << 10, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(slots=True)
class Record:
    """What one line reports."""

    pairs: list[tuple[Name, float]] = field(default_factory=list)
    step: float | None = None
    total: float | None = None
    kind: str | None = None
    """step, batch, epoch, episode: which counter `step` is."""
    counter: str = ""
    """The counter's name as printed."""
    epoch: float | None = None
    bar: bool = False
    """A progress bar, redrawn: the same counter again replaces the record."""
    rank: int | None = None
    """`rank=3` inside the line."""
    special: bool = False
    """Read by its own function: not to be read by a plan."""
    marks: list[tuple[int, int, float]] = field(default_factory=list)
    """(start, end, multiplier) of each pair's digits."""
    step_at: tuple[int, int] | None = None
    total_at: tuple[int, int] | None = None
    epoch_at: tuple[int, int] | None = None
    rank_at: tuple[int, int] | None = None


_names: dict[str, Name | None] = {}


def name_of(raw: str) -> Name | None:
    """`read_name`, remembered; the memory is bounded because logs are untrusted."""
    try:
        return _names[raw]
    except KeyError:
        if len(_names) > 20_000:
            _names.clear()
        name = _names[raw] = read_name(raw)
        return name


def number(text: str, unit: str = "") -> float | None:
    """A printed number; sizes (`9.95G`, `12.76GB`, `3782M`) become bytes, since prints switch units."""
    try:
        value = float(text.replace(",", "") if "," in text else text)
    except ValueError:
        return None
    if unit and unit[0] in _SIZES:
        return value * _SIZES[unit[0]]
    return value


def _factor(unit: str | None) -> float:
    return float(_SIZES[unit[0]]) if unit and unit[0] in _SIZES else 1.0


def read_line(text: str) -> Record | None:
    """The record of one line whose prefixes are peeled, or None when it reports no metric."""
    for needle, reader in SPECIAL:
        if needle in text:
            special = reader(text)
            if special is not None:
                special.special = True
                return special
    if "/global_step=" in text:  # DeepSpeed's timer joins its counters by slashes
        text = text.replace("/micro_step=", " micro_step=").replace("/global_step=", " global_step=")
    record = Record()
    setting = known = False
    for match in _PAIR.finditer(text):
        raw, separator, wrapper, digits, unit, _ = match.groups()
        name = name_of(raw)
        if name is None:
            continue
        kind = name.kind
        if kind == "metric":
            if not separator and _is_prose(name.text, digits, text):
                continue
            if wrapper and wrapper[0] in "[(" and name.role != "lr":
                continue  # a shape or a list
        elif kind == "setting":
            setting = True
            if name.text == "rank" and digits.isdigit() and len(digits) < 7:
                record.rank, record.rank_at = int(digits), match.span(4)
            continue
        elif kind != "plain":
            _take_counter(record, name, match)
            continue
        elif not separator or wrapper:
            continue
        value = number(digits, unit or "")
        if value is not None:
            record.pairs.append((name, value))
            record.marks.append((*match.span(4), _factor(unit)))
            known = known or kind == "metric"
    if not record.pairs and text.lstrip().startswith("|"):
        return _row(text)
    named = record.step is not None
    if record.kind not in ("step", "batch") or record.epoch is None:
        _find_counter(record, text)
    if not known:
        # Names that nobody knows count beside a counter that is called one, in a line without settings.
        if setting or not named:
            record.pairs.clear()
            record.marks.clear()
        if record.step is None:
            return None
    elif record.step is None and setting:
        return None
    if _DUMP.search(text) is not None and (not named or _CONSTRUCTOR.search(text) is not None):
        # A printed configuration has no loss: a lone `"loss": 2.5,` is a record printed over lines.
        if not (len(record.pairs) == 1 and record.pairs[0][0].role in ("loss", "eval_loss", "grad_norm")):
            return None
        if text.lstrip()[:1] not in "'\"" or '"loss_scale"' in text:
            return None
    if "wandb" in text[:80] and _SPARK.search(text[:400]) is not None:
        return None
    if text[:1].lower() in "tve[(*>#=- " and _EVALUATION.match(text):
        _evaluated(record)
    return record


def _evaluated(record: Record) -> None:
    """`Test: [10/242] Loss 5.27`: the head of the line says that the numbers are not of training."""
    record.counter = f"eval {record.counter}"
    for index, (name, value) in enumerate(record.pairs):
        role = role_of(f"eval {name.text}")
        if "train" not in name.text.lower() and name.role != "lr":
            record.pairs[index] = (Name(f"eval {name.text}", name.kind, role or name.role), value)


_STOP = frozenset(
    [
        "or",
        "in",
        "the",
        "a",
        "an",
        "use",
        "will",
        "on",
        "for",
        "with",
        "from",
        "by",
        "if",
        "and",
        "of",
        "no",
        "not",
        "this",
        "that",
        "your",
        "any",
    ]
)


def _is_prose(name: str, digits: str, text: str) -> bool:
    """Whether `name number`, separated by blanks alone, is a piece of a sentence."""
    if " " in name and (name.count(" ") > 2 or not _STOP.isdisjoint(name.lower().split(" "))):
        return True
    if digits[-1] in "nNfFyY":  # nan, inf, infinity are words: `NaN losses` is no value
        return re.search(rf"{re.escape(digits)} [a-z]+", text) is not None and "  " not in text and "|" not in text
    return False


PRIORITY = {"step": 4, "batch": 3, "episode": 2, "epoch": 1, None: 0}


def _take_counter(record: Record, name: Name, match: re.Match[str]) -> None:
    count(record, name, match[4], match[6] or "", match.span(4), match.span(6))


def count(record: Record, name: Name, digits: str, total: str, at: tuple[int, int], total_at: tuple[int, int] | None) -> None:
    """Takes a counter of the line, if it is of a better kind than the one it has."""
    value = number(digits)
    if value is None or value != value or abs(value) > 1e15:
        return
    if name.kind == "epoch":
        record.epoch, record.epoch_at = value, at
    if PRIORITY[name.kind] > PRIORITY[record.kind]:
        record.step, record.kind, record.counter, record.step_at = value, name.kind, name.text, at
        record.total = float(total) if total else None
        record.total_at = total_at if total else None


def _find_counter(record: Record, text: str) -> bool:
    """Counters that are no `name value` pair: `Epoch: [0][16/5005]`, `106/106 [`, `100 |`."""
    start = 0
    if "po" in text and (record.epoch is None or record.kind in (None, "epoch")):
        match = _EPOCH.search(text, 0, 400)
        if match is not None:
            start = match.end()
            if record.epoch is None:
                record.epoch, record.epoch_at = float(match[1]), match.span(1)
            if record.step is None:
                _set(record, match, "epoch", "epoch")
    if "/" in text:
        bar = _BAR.search(text, start, start + 800) if ":" in text and "[" in text else None
        if bar is not None:
            record.bar = True
            if record.kind in (None, "epoch"):
                _set(record, bar, "batch", "bar")
        elif record.kind in (None, "epoch"):
            match = _FRACTION.search(text, start, start + 400)
            if match is not None and float(match[1]) <= float(match[2]):
                _set(record, match, "batch", "fraction")
                record.bar = "[=" in text or "━" in text or ">." in text
    if record.step is None:
        match = _LEADING.match(text)
        if match is not None:
            _set(record, match, "step", "leading")
    return record.step is not None


def _set(record: Record, match: re.Match[str], kind: str, counter: str) -> None:
    record.step, record.step_at, record.kind, record.counter = float(match[1]), match.span(1), kind, counter
    total = match[2] if match.re.groups > 1 else None
    record.total = float(total) if total else None
    record.total_at = match.span(2) if total else None


def step_of(text: str) -> tuple[str, float, float | None] | None:
    """(counter, value, total) of any line that shows progress, metrics or not."""
    record = Record()
    for match in _PAIR.finditer(text[:2000]):
        name = name_of(match[1])
        if name is not None and name.kind not in ("metric", "plain", "setting"):
            _take_counter(record, name, match)
    _find_counter(record, text[:2000])
    if record.step is None or record.kind is None:
        return None
    return record.kind, record.step, record.total


# Forms that the general expression would misread, found by a literal. -------------------

_SCALE = lazy.regex(r"Attempted loss scale: (\d[\d.e+\-]{0,30}\d|\d),? ?(?:reducing to (\d[\d.e+\-]{0,30}\d|\d))?")
_TACOTRON = lazy.regex(
    rf"(?:^|\s)([Tt]rain loss|[Vv]alidation loss) (\d{{1,9}}):? ({NUMBER})"
    rf"(?: [Gg]rad [Nn]orm ({NUMBER}))?"
)
_DARKNET = lazy.regex(rf"^\s{{0,4}}(\d{{1,9}}): ({NUMBER}), ({NUMBER}) avg(?: loss)?, ({NUMBER}) rate")
_REGION = lazy.regex(rf"Region \d{{1,4}} Avg IOU: ({NUMBER}).{{0,300}}?count: (\d{{1,9}})")
_ROW = lazy.regex(rf"^\s{{0,8}}\|\s{{0,20}}([A-Za-z_][\w/.\- ]{{0,40}}?)\s{{0,40}}\|\s{{0,20}}({NUMBER})\s{{0,20}}\|\s*$")
_SENTENCE = lazy.regex(
    rf"((?:[A-Za-z]{{1,20}} )?[A-Za-z_]{{0,30}}[Ll]oss) (?:at|after) (?:step|iteration|iter|epoch) (\d{{1,10}})"
    rf"[^|:=]{{0,40}}(?:\|[^|:=]{{0,40}})?(?:[:=]|\bis\b) {{0,4}}({NUMBER})(?!\w)"
)
_ESTIMATOR = lazy.regex(r"global_step/sec: ([\d.]{1,20})")


def _row(text: str) -> Record | None:
    """One name and one number between bars, as stable-baselines prints them one below the other."""
    match = _ROW.match(text)
    name = name_of(match[1]) if match is not None else None
    value = number(match[2]) if match is not None else None
    if match is None or name is None or value is None:
        return None
    if name.kind in ("metric", "plain"):
        return Record([(name, value)], marks=[(*match.span(2), 1.0)])
    record = Record()
    if name.kind != "setting":
        count(record, name, match[2], "", match.span(2), None)
    return record if record.step is not None else None


def _scale(text: str) -> Record | None:
    match = _SCALE.search(text)
    if match is None:
        return None
    value = number(match[2] or match[1])
    return Record([(Name("loss scale", "metric", "loss_scale"), value)]) if value is not None else None


def _tacotron(text: str) -> Record | None:
    match = _TACOTRON.search(text)
    if match is None:
        return None
    value = number(match[3])
    if value is None:
        return None
    record = Record([(Name(match[1], "metric", role_of(match[1])), value)], float(match[2]), None, "step", "train")
    norm = number(match[4]) if match[4] else None
    if norm is not None:
        record.pairs.append((Name("Grad Norm", "metric", "grad_norm"), norm))
    return record


def _sentence(text: str) -> Record | None:
    """`validation loss at iteration 1000 | lm loss value: 2.3E+00`, `loss at step 10 is 2.5`."""
    match = _SENTENCE.search(text)
    value = number(match[3]) if match is not None else None
    if match is None or value is None:
        return None
    return Record([(Name(match[1], "metric", role_of(match[1])), value)], float(match[2]), None, "step", "sentence")


def _darknet(text: str) -> Record | None:
    match = _DARKNET.match(text)
    if match is None:
        return None
    values = [number(match[i]) for i in (2, 3, 4)]
    names = (Name("loss", "metric", "loss"), Name("avg loss", "metric", "loss"), Name("rate", "metric", "lr"))
    pairs = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
    return Record(pairs, float(match[1]), None, "step", "darknet")


def _region(text: str) -> Record | None:
    """Means over the objects of one image: with `count: 0` they are -nan and mean nothing."""
    match = _REGION.search(text)
    if match is None:
        return None
    value = number(match[1]) if match[2] != "0" else None
    return Record([(Name("Avg IOU", "metric", "accuracy"), value)]) if value is not None else Record()


def _estimator(text: str) -> Record | None:
    match = _ESTIMATOR.search(text)
    value = number(match[1]) if match is not None else None
    return Record([(Name("global_step/sec", "metric", "throughput"), value)]) if value is not None else None


_MEMORY = lazy.regex(rf"Memory info of \S{{1,40}} \S{{1,80}}: current: ({NUMBER}), peak: ({NUMBER})")


def _memory(text: str) -> Record | None:
    """`Memory info of GPU /physical_device:GPU:0: current: 0.18, peak: 2.55`: names that mean nothing by themselves."""
    match = _MEMORY.search(text)
    if match is None:
        return None
    values = zip(("current memory", "peak memory"), match.groups(), strict=True)
    found = [(Name(name, "metric", "memory"), number(digits)) for name, digits in values]
    return Record(pairs=[(name, value) for name, value in found if value is not None])


SPECIAL: tuple[tuple[str, Callable[[str], Record | None]], ...] = (
    ("Attempted loss scale", _scale),
    (" avg", _darknet),
    ("oss at ", _sentence),
    ("oss after ", _sentence),
    ("Region ", _region),
    ("rain loss ", _tacotron),
    ("alidation loss ", _tacotron),
    ("global_step/sec", _estimator),
    ("Memory info of ", _memory),
)
