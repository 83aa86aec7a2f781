"""Reads a pickle of plain values without Python's unpickler: dicts, lists, tuples, text, numbers; nothing is ever called.

Restricting the unpickler's globals is not enough for a file from a stranger. Its C code makes room for as many memo
entries as an opcode asks for: 1.6 kB of ordinary log text took 2.5 s and gigabytes that way. And a tuple that holds
itself twice, forty times over, is hashed for ever. Here the memo is a dictionary, and keys are text and numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

MOST_STEPS = 50_000_000


class PickleError(ValueError):
    """Not a pickle of plain values; one clear line."""


_MARK = object()
_CONSTANTS: dict[int, Callable[[], Any]] = {
    ord("N"): lambda: None, 0x88: lambda: True, 0x89: lambda: False,
    ord("]"): list, ord("}"): dict, ord(")"): tuple, ord("("): lambda: _MARK,
}  # fmt: skip
_U8, _U16, _U32, _U64, _I32 = map(struct.Struct, ("<B", "<H", "<I", "<Q", "<i"))
_FIXED = {ord("J"): _I32, ord("K"): _U8, ord("M"): _U16, ord("G"): struct.Struct(">d")}
_TEXT = {ord("X"): _U32, 0x8C: _U8, 0x8D: _U64, ord("T"): _I32, ord("U"): _U8, ord("B"): _U32, ord("C"): _U8}
_BYTES = frozenset(b"BC")
_MEMO = {ord("q"): _U8, ord("r"): _U32, ord("h"): _U8, ord("j"): _U32}
_PUT = frozenset(b"qr")
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}


def loads(data: bytes) -> Any:
    """The value. Raises PickleError for anything that is more than plain values."""
    try:
        return _run(data)
    except (struct.error, IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError, OverflowError) as error:
        raise PickleError(f"damaged ({type(error).__name__})") from None


def _run(data: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    at, steps = 0, 0
    while at < len(data):
        code = data[at]
        at += 1
        steps += 1
        if make := _CONSTANTS.get(code):
            stack.append(make())
        elif slot := _MEMO.get(code):
            (index,) = slot.unpack_from(data, at)
            at += slot.size
            if code in _PUT:
                memo[index] = stack[-1]
            else:
                stack.append(memo[index])
        elif size := _TEXT.get(code):
            (length,) = size.unpack_from(data, at)
            at += size.size
            if length < 0 or at + length > len(data):
                raise PickleError("it ends in the middle of a text")
            raw = data[at : at + length]
            stack.append(raw if code in _BYTES else raw.decode("utf-8", "surrogatepass"))
            at += length
        elif fixed := _FIXED.get(code):
            stack.append(fixed.unpack_from(data, at)[0])
            at += fixed.size
        elif code == 0x8A:  # an integer, little-endian, in as many bytes as the first one says
            stack.append(int.from_bytes(data[at + 1 : at + 1 + data[at]], "little", signed=True))
            at += 1 + data[at]
        elif count := _TUPLES.get(code):
            if len(stack) < count:
                raise PickleError("damaged (a tuple of nothing)")
            stack[-count:] = [tuple(stack[-count:])]
        elif code in b"eutld":
            items = _to_mark(stack)
            _many(code, items, stack)
        elif code == ord("a"):
            item = stack.pop()
            _list(stack).append(item)
        elif code == ord("s"):
            value, key = stack.pop(), stack.pop()
            _many(ord("u"), [key, value], stack)
        elif code == 0x94:
            memo[len(memo)] = stack[-1]
        elif code == 0x80:
            at += 1
        elif code == 0x95:
            at += 8
        elif code == ord("."):
            if len(stack) != 1 or stack[0] is _MARK:
                raise PickleError("damaged (it ends before its value is complete)")
            return stack[0]
        else:
            raise PickleError(f"refused opcode {bytes([code])!r}: more than plain values")
        if steps > MOST_STEPS:
            raise PickleError("too long")
    raise PickleError("it ends before its value is complete")


def _to_mark(stack: list[Any]) -> list[Any]:
    items: list[Any] = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    items.reverse()
    return items


def _list(stack: list[Any]) -> list[Any]:
    if not isinstance(stack[-1], list):
        raise PickleError("damaged (no list to add to)")
    return stack[-1]


def _many(code: int, items: list[Any], stack: list[Any]) -> None:
    if code == ord("e"):
        _list(stack).extend(items)
    elif code == ord("t"):
        stack.append(tuple(items))
    elif code == ord("l"):
        stack.append(items)
    else:
        target = stack[-1] if code == ord("u") else {}
        if not isinstance(target, dict) or len(items) % 2:
            raise PickleError("damaged (no dictionary to add to)")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, int, float, bytes)):
                raise PickleError("refused a key that is neither text nor a number")
            target[key] = value
        if code == ord("d"):
            stack.append(target)
