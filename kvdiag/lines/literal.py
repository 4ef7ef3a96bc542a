"""Reading Python literals out of a log: the values of a ``server_args=`` dump, without ever evaluating anything."""

from __future__ import annotations

import re
from functools import lru_cache
from math import isfinite
from typing import Any

_DEEPEST = 32
_STRING = re.compile(r"""[bru]{0,2}'((?:[^'\\]|\\.)*+)'|[bru]{0,2}"((?:[^"\\]|\\.)*+)\"""", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,4})?(?![\w.])")
_ANGLE = re.compile(r"<[^<>]*+>")
_WORD = re.compile(r"[A-Za-z_][\w.]*+")
_BLANK = re.compile(r"\s*+")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_CONSTANTS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_CLOSING = {"[": "]", "(": ")", "{": "}"}


class _CutError(Exception):
    """The text ends, or stops being a literal, within a value."""


def parse_arguments(text: str) -> tuple[dict[str, Any], bool]:
    """The arguments in ``ServerArgs(a=1, b='x')`` or ``{'a': 1, 'b': 'x'}`` (the value of a server_args dump).

    Returns the arguments read and whether the dump was whole; where it is cut, the argument the cut falls in is left
    out. Objects that are no literals (enum members, nested dataclasses) come back as their text.
    """
    arguments, whole = _parsed(text)
    return dict(arguments), whole


@lru_cache(maxsize=4)
def _parsed(text: str) -> tuple[dict[str, Any], bool]:
    """One dump is looked at several times: to tell starts apart, to mend lines, and for its values."""
    opened = re.match(r"\s*(?:[A-Za-z_][\w.]*)?\(|\s*\{", text)
    if not opened:
        return {}, False
    arguments: dict[str, Any] = {}
    at = opened.end()
    try:
        while True:
            at = _skip(text, at)
            if text[at : at + 1] in (")", "}"):
                return arguments, True
            name, at = _name(text, at)
            value, at = _value(text, at, 0)
            at = _skip(text, at)
            if text[at : at + 1] not in (",", ")", "}"):
                return arguments, False
            arguments[name] = value
            if text[at] == ",":
                at += 1
    except _CutError:
        return arguments, False


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _name(text: str, at: int) -> tuple[str, int]:
    quoted = _STRING.match(text, at)
    word = quoted or _WORD.match(text, at)
    if not word:
        raise _CutError
    name = (quoted.group(1) or quoted.group(2) or "") if quoted else word.group()
    at = _skip(text, word.end())
    if text[at : at + 1] not in ("=", ":"):
        raise _CutError
    return name, at + 1


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    at = _skip(text, at)
    if at >= len(text) or depth > _DEEPEST:
        raise _CutError
    opening = text[at]
    if opening in _CLOSING:
        return _container(text, at, depth)
    string = _STRING.match(text, at)
    if string:
        raw = string.group(1) if string.group(1) is not None else string.group(2)
        return _ESCAPE.sub(_unescape, raw), string.end()
    number = _NUMBER.match(text, at)
    if number:
        return _number(number.group()), number.end()
    angle = _ANGLE.match(text, at)
    if angle:
        return angle.group(), angle.end()
    word = _WORD.match(text, at)
    if not word:
        raise _CutError
    after = word.end()
    if text[after : after + 1] == "(":
        _, end = _container(text, after, depth)
        return text[at:end], end
    return _CONSTANTS.get(word.group(), word.group()), after


def _container(text: str, at: int, depth: int) -> tuple[Any, int]:
    """A list, tuple, set or dict (or the arguments of a call, whose value the caller does not use)."""
    closing = _CLOSING[text[at]]
    items: list[Any] = []
    pairs: dict[Any, Any] = {}
    keyed = False
    at += 1
    while True:
        at = _skip(text, at)
        if text[at : at + 1] == closing:
            return (pairs if keyed or (closing == "}" and not items) else items), at + 1
        item, at = _value(text, at, depth + 1)
        at = _skip(text, at)
        if text[at : at + 1] in (":", "="):
            keyed = True
            value, at = _value(text, at + 1, depth + 1)
            pairs[item if isinstance(item, (str, int, float, bool, type(None))) else str(item)] = value
            at = _skip(text, at)
        else:
            items.append(item)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != closing:
            raise _CutError


def _number(text: str) -> int | float | str:
    """The number; text that Python reads as infinity, or that is too long for a number, stays text."""
    if len(text) > 40:
        return text
    if not any(mark in text for mark in ".eE"):
        return int(text)
    number = float(text)
    return number if isfinite(number) else text


def _unescape(found: re.Match[str]) -> str:
    code = found.group(1)
    if len(code) == 1:
        return _ESCAPES.get(code, code)
    number = int(code[1:], 16)
    return chr(number) if number < 0x110000 else found.group()
