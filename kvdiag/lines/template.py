"""The little language of ``rules/lines``: a printed line with its values left out.

``{name:kind}`` is a value, ``⟦A|B⟧`` a choice, ``⟦A⟧`` optional text. Kinds:

``d``       a whole number                    ``.2f``   a number with that many decimals
``f``       a number as Python's repr has it  ``b``     True, False or None
``w``       a word: no blank, comma, colon, quote or bracket, no full stop at its end
``v``       a word that is read as a number, True, False or None where it is one
``a|b``     one of the texts named            ``t``     text up to whatever follows it, within a line
                                              ``m``     the same over line breaks

What could make matching slow or unclear is refused when a template is parsed: two values with nothing between them, text
whose end no separator marks, and one name for two values of the same line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Item = Any
"""``"literal"``, ``["f", name, kind]``, ``["t", name, ends, kind]`` or ``["a", sequence, ...]``: JSON data, for the cache.

The ``ends`` of a text are the literals that can follow it; an empty one is the end of the line.
"""
Sequence = list[Item]

KINDS = ("d", "f", "b", "w", "v")
TEXTS = ("t", "m")
SEPARATORS = " \t\n,;:'\"()[]"
"""What no word holds."""
DECIMALS = re.compile(r"\.(\d)f")
_TOKEN = re.compile(r"\{([^{}:]*):([^{}]*)\}|([⟦|⟧])|(\{\{|\}\})")


class TemplateError(Exception):
    """What is wrong with a template, and at which of its columns (counted from 1; 0 for the whole of it)."""

    def __init__(self, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.column = column


def parse_template(text: str) -> Sequence:
    """The parsed form of a template. Raises TemplateError."""
    stack: list[list[Sequence]] = [[[]]]
    position = 0
    for token in _TOKEN.finditer(text):
        _literal(stack[-1][-1], text[position : token.start()])
        position = token.end()
        name, kind, mark, brace = token.groups()
        column = token.start() + 1
        if brace:
            _literal(stack[-1][-1], brace[0])
        elif mark:
            _structure(stack, mark, column)
        else:
            stack[-1][-1].append(_value(name, kind, column))
    if len(stack) > 1:
        raise TemplateError("⟦ without ⟧", len(text))
    _literal(stack[0][0], text[position:])
    sequence = stack[0][0]
    _close(sequence, [])
    _unique(sequence)
    return sequence


def _structure(stack: list[list[Sequence]], mark: str, column: int) -> None:
    """Opens, divides or closes a choice; a ``|`` outside of one is a literal."""
    if mark == "⟦":
        stack.append([[]])
    elif len(stack) == 1:
        if mark == "⟧":
            raise TemplateError("⟧ without ⟦", column)
        _literal(stack[-1][-1], mark)
    elif mark == "|":
        stack[-1].append([])
    else:
        branches = stack.pop()
        if len(branches) == 1:
            branches.append([])
        stack[-1][-1].append(["a", *branches])


def _value(name: str, kind: str, column: int) -> Item:
    if kind in TEXTS:
        return ["t", name, [], kind]
    if "|" in kind:
        kind = "|".join(sorted(kind.split("|"), key=len, reverse=True))
    elif kind not in KINDS and not DECIMALS.fullmatch(kind):
        raise TemplateError(f"no kind {kind!r}; use d, .2f, f, b, w, v, t, m or texts parted by |", column)
    return ["f", name, kind]


def _literal(sequence: Sequence, text: str) -> None:
    if not text:
        return
    if sequence and isinstance(sequence[-1], str):
        sequence[-1] += text
    else:
        sequence.append(text)


def _close(sequence: Sequence, after: Sequence) -> None:
    """Notes at each text what can follow it; `after` is what comes behind this sequence."""
    for index, item in enumerate(sequence):
        if isinstance(item, str):
            continue
        remaining = [*sequence[index + 1 :], *after]
        if item[0] == "a":
            for branch in item[1:]:
                _close(branch, remaining)
            continue
        begins = heads(remaining)
        if not begins:
            raise TemplateError(f"the value {item[1]!r} is followed by another value with nothing between them")
        if item[0] == "t":
            item[2] = list(dict.fromkeys(begins))
            for literal in item[2]:
                if literal and remaining != [literal] and not any(mark in literal for mark in SEPARATORS):
                    raise TemplateError(f"{literal!r} after the text {item[1]!r} holds no blank, comma, colon or bracket")


def _unique(sequence: Sequence, names: frozenset[str] = frozenset()) -> frozenset[str]:
    """The names in use after a sequence; the branches of one choice may share theirs."""
    for item in sequence:
        if isinstance(item, str):
            continue
        if item[0] == "a":
            names = names.union(*(_unique(branch, names) for branch in item[1:]))
        elif item[1] in names:
            raise TemplateError(f"the name {item[1]!r} stands for two values of one line")
        else:
            names |= {item[1]}
    return names


def field_names(sequence: Sequence) -> Iterator[tuple[str, str]]:
    """(name, kind) of every value in a parsed template, in order."""
    for item in sequence:
        if isinstance(item, str):
            continue
        if item[0] == "a":
            for branch in item[1:]:
                yield from field_names(branch)
        else:
            yield item[1], item[3] if item[0] == "t" else item[2]


def heads(sequence: Sequence) -> list[str]:
    """The literals a matching text can begin with; empty where it can begin with a value."""
    if not sequence:
        return [""]
    first = sequence[0]
    if isinstance(first, str):
        return [first]
    if first[0] != "a":
        return []
    found: list[str] = []
    for branch in first[1:]:
        begins = heads([*branch, *sequence[1:]])
        if not begins:
            return []
        found.extend(begins)
    return found


def longest_literal(sequence: Sequence) -> str:
    """The longest literal that every matching text holds (outside of choices)."""
    return max((item for item in sequence if isinstance(item, str)), key=len, default="")
