"""The little language of ``rules/lines``: a printed line with its values left out.

``{name:kind}`` is a value, ``⟦A|B⟧`` a choice, ``⟦A⟧`` optional text. Kinds:

``d``       a whole number                    ``.2f``  a number with that many decimals
``f``       a number as Python's repr has it  ``b``    True or False
``w``       a word: no blank, comma, colon, quote or bracket, no full stop at its end
``t``       text up to whatever follows it

Matching scans each value once from where it stands and never looks back over it, and a choice is decided at its own
place, so that the time is linear in the length of the line for every template that can be written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kvdiag.errors import RuleError

Item = Any
"""``"literal"`` or ``["f", name, kind]`` or ``["a", sequence, sequence, ...]``: JSON data, for the rule cache."""
Sequence = list[Item]

_SCAN = {
    "d": re.compile(r"[+-]?[0-9]++(?!\.[0-9])"),
    "f": re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?|nan|inf)"),
    "b": re.compile(r"True|False|None"),
    "w": re.compile(r"[^\s,;:'\"()\[\]]*[^\s,;:'\"()\[\].]"),
}
_DECIMALS = re.compile(r"\.(\d)f")
_TEXT_TRIES = 4
_TOKEN = re.compile(r"\{([^{}:]*):([^{}]*)\}|([⟦|⟧])|(\{\{|\}\})")


def parse_template(text: str, where: str = "template") -> Sequence:
    """The parsed form of a template. Raises RuleError naming `where` and the column of what is wrong."""
    stack: list[list[Sequence]] = [[[]]]
    position = 0
    for token in _TOKEN.finditer(text):
        _literal(stack[-1][-1], text[position : token.start()])
        position = token.end()
        name, kind, mark, brace = token.groups()
        if brace:
            _literal(stack[-1][-1], brace[0])
        elif mark == "⟦":
            stack.append([[]])
        elif mark and len(stack) == 1:
            if mark == "|":
                _literal(stack[-1][-1], "|")
                continue
            raise RuleError(f"{where}: column {token.start() + 1}: ⟧ without ⟦")
        elif mark == "|":
            stack[-1].append([])
        elif mark == "⟧":
            branches = stack.pop()
            if len(branches) == 1:
                branches.append([])
            stack[-1][-1].append(["a", *branches])
        else:
            if kind not in _SCAN and kind != "t" and not _DECIMALS.fullmatch(kind):
                raise RuleError(f"{where}: column {token.start() + 1}: no kind {kind!r}; use d, .2f, f, b, w or t")
            stack[-1][-1].append(["f", name, kind])
    if len(stack) > 1:
        raise RuleError(f"{where}: ⟦ without ⟧")
    _literal(stack[0][0], text[position:])
    return stack[0][0]


def _literal(sequence: Sequence, text: str) -> None:
    if not text:
        return
    if sequence and isinstance(sequence[-1], str):
        sequence[-1] += text
    else:
        sequence.append(text)


def field_names(sequence: Sequence) -> Iterator[tuple[str, str]]:
    """(name, kind) of every value in a parsed template, in order."""
    for item in sequence:
        if isinstance(item, str):
            continue
        if item[0] == "f":
            yield item[1], item[2]
        else:
            for branch in item[1:]:
                yield from field_names(branch)


def heads(sequence: Sequence) -> list[str]:
    """The literals a matching text can begin with; empty where it can begin with a value."""
    if not sequence:
        return [""]
    first = sequence[0]
    if isinstance(first, str):
        return [first]
    if first[0] == "f":
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


_Rest = tuple[Sequence, int, Any] | None
Found = list[tuple[str, str, str]]


def match_template(sequence: Sequence, text: str, start: int = 0) -> tuple[Found, int] | None:
    """Values of `text` from `start` on as (name, kind, printed text), and where the match ended; None if it does not.

    A match may end before the text does; the caller decides whether what is left is allowed.
    """
    found: Found = []
    end = _match(sequence, 0, text, start, found, None)
    return None if end < 0 else (found, end)


def _match(sequence: Sequence, index: int, text: str, at: int, found: Found, rest: _Rest) -> int:
    while True:
        if index == len(sequence):
            if rest is None:
                return at
            sequence, index, rest = rest
            continue
        item = sequence[index]
        index += 1
        if isinstance(item, str):
            if not text.startswith(item, at):
                return -1
            at += len(item)
        elif item[0] == "f":
            name, kind = item[1], item[2]
            if kind == "t":
                return _match_text(name, sequence, index, text, at, found, rest)
            end = _scan(kind, text, at)
            if end < 0:
                return -1
            found.append((name, kind, text[at:end]))
            at = end
        else:
            mark = len(found)
            for branch in item[1:]:
                end = _match(branch, 0, text, at, found, (sequence, index, rest))
                if end >= 0:
                    return end
                del found[mark:]
            return -1


def _scan(kind: str, text: str, at: int) -> int:
    pattern = _SCAN.get(kind)
    if pattern is None:
        found = _SCAN["f"].match(text, at)
        if not found:
            return -1
        decimals = found.group().partition(".")[2]
        if found.group()[-3:] not in ("nan", "inf") and len(decimals) != int(kind[1:-1]):
            return -1
        return found.end()
    found = pattern.match(text, at)
    return found.end() if found else -1


def _match_text(name: str, sequence: Sequence, index: int, text: str, at: int, found: Found, rest: _Rest) -> int:
    following = _following(sequence, index, rest)
    if following is None:
        found.append((name, "t", text[at:]))
        return len(text)
    mark = len(found)
    position = at
    for _ in range(_TEXT_TRIES):
        ends = [end for literal in following if literal and (end := text.find(literal, position)) >= 0]
        if "" in following:
            ends.append(len(text))
        if not ends:
            return -1
        end = min(ends)
        found.append((name, "t", text[at:end]))
        result = _match(sequence, index, text, end, found, rest)
        if result >= 0:
            return result
        del found[mark:]
        position = end + 1
    return -1


def _following(sequence: Sequence, index: int, rest: _Rest) -> list[str] | None:
    """Literals that can follow a text value; None where it reaches to the end of the line."""
    remaining = sequence[index:]
    while rest is not None:
        remaining = remaining + rest[0][rest[1] :]
        rest = rest[2]
    begins = heads(remaining)
    return None if begins in ([], [""]) else begins
