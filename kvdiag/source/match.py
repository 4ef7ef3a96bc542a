"""Whether a template could have printed a text, and the values it then had; bounded work for any input."""

from __future__ import annotations

import re

from kvdiag.frozen import frozen
from kvdiag.source.template import Choice, Hole, Template

_NUMBER = r"(?:[+-]?[0-9]++(?:\.[0-9]++)?(?:e[+-]?[0-9]++)?|[+-]?(?:nan|inf))"
_DECIMALS = re.compile(r"[<>^=+\- ]?\d*,?\.(\d+)([fF%])")
_WHOLE = re.compile(r"[<>^=+\- ]?\d*,?d|,|[<>^]?\d+")
_SEVERAL = re.compile(r"[^(\[{'\"]*?[:,] ")
_NAME = re.compile(r"[\w.]+")
_INTEGER = re.compile(r" *+[+-]?[0-9]++(?:,[0-9]{3})*+")
_MOST_STEPS = 4000
_MOST_ENDS = 8


@frozen
class Fit:
    """How a text was printed: the values in order, and how many characters of it are the template's own.

    `taken`: which branch each choice of the template took, in the order of the text.
    """

    values: tuple[tuple[Hole, str], ...]
    literal: int
    taken: tuple[int, ...] = ()


class _Spent(Exception):  # noqa: N818 - not an error: the work allowed for one template is done
    pass


def fit(template: Template, printed: str) -> Fit | None:
    """The values with which `template` prints `printed` (blanks at its end aside); None where it does not."""
    for strict in (True, False):
        matcher = _Matcher(printed, strict)
        try:
            end = matcher.run(template, 0, 0, None)
        except (_Spent, RecursionError):
            continue
        if end is not None:
            free = sum(len("".join(text.split())) for _, text in matcher.values)
            return Fit(tuple(matcher.values), len("".join(printed.split())) - free, tuple(matcher.taken))
    return None


_Rest = tuple[Template, int, "_Rest | None"]


class _Matcher:
    """One attempt; `strict` holds the value of a plain name to one thing: no ``a: b`` or ``a, b`` outside of brackets."""

    def __init__(self, printed: str, strict: bool) -> None:
        self.printed = printed
        self.strict = strict
        self.end = len(printed.rstrip())
        self.values: list[tuple[Hole, str]] = []
        self.taken: list[int] = []
        self.steps = 0

    def run(self, template: Template, index: int, at: int, rest: _Rest | None) -> int | None:
        while True:
            self.steps += 1
            if self.steps > _MOST_STEPS:
                raise _Spent
            if index == len(template):
                if rest is None:
                    return at if at >= self.end else None
                template, index, rest = rest
                continue
            part = template[index]
            index += 1
            if isinstance(part, str):
                if not self.printed.startswith(part, at):
                    # Blanks at the end of a line are often cut off with it.
                    stripped = part.rstrip()
                    if not (stripped != part and at + len(stripped) >= self.end and self.printed.startswith(stripped, at)):
                        return None
                    part = stripped
                at += len(part)
            elif isinstance(part, Choice):
                return self._choice(part, template, index, at, rest)
            else:
                return self._hole(part, template, index, at, rest)

    def _choice(self, part: Choice, template: Template, index: int, at: int, rest: _Rest | None) -> int | None:
        mark, chosen = len(self.values), len(self.taken)
        for number, branch in enumerate(part.branches):
            self.taken.append(number)
            end = self.run(branch, 0, at, (template, index, rest))
            if end is not None:
                return end
            del self.values[mark:], self.taken[chosen:]
        return None

    def _hole(self, hole: Hole, template: Template, index: int, at: int, rest: _Rest | None) -> int | None:
        mark, chosen = len(self.values), len(self.taken)
        for end in self._ends(hole, template, index, at, rest):
            if self.strict and _SEVERAL.match(self.printed, at, end) and _NAME.fullmatch(hole.expression):
                continue
            self.values.append((hole, self.printed[at:end]))
            result = self.run(template, index, end, rest)
            if result is not None:
                return result
            del self.values[mark:], self.taken[chosen:]
        return None

    def _ends(self, hole: Hole, template: Template, index: int, at: int, rest: _Rest | None) -> list[int]:
        """Where the value may end, nearest first."""
        exact = _value_end(hole.format, self.printed, at)
        if exact is not None:
            return [exact] if exact >= 0 else []
        return self._before(_heads(template, index, rest), at)

    def _before(self, following: list[str] | None, at: int) -> list[int]:
        if following is None:
            ends = [found.end() for found in re.finditer(r"[\w.\-/]+|\s+|[^\w\s]", self.printed[at : at + 400])][: _MOST_ENDS * 2]
            return [at + end for end in (0, *ends)] + [len(self.printed)]
        ends = []
        for literal in following:
            if not literal:
                ends.append(len(self.printed))
                continue
            position = at
            for _ in range(_MOST_ENDS):
                found = self.printed.find(literal, position)
                if found < 0:
                    break
                ends.append(found)
                position = found + 1
        return sorted(set(ends))


def _value_end(form: str, printed: str, at: int) -> int | None:
    """Where a formatted number ends; -1 where no such number stands here; None where the format says nothing."""
    decimals = _DECIMALS.fullmatch(form)
    if decimals:
        found = re.compile(r" *+" + _NUMBER).match(printed, at)
        if not found:
            return -1
        digits = found.group().partition(".")[2]
        is_number = found.group().strip()[-3:] not in ("nan", "inf")
        if is_number and len(digits) != int(decimals.group(1)):
            return -1
        end = found.end()
        if decimals.group(2) == "%":
            return end + 1 if printed.startswith("%", end) else -1
        return end
    if form == "d" or (_WHOLE.fullmatch(form) and form):
        found = _INTEGER.match(printed, at)
        if form != "d" and not form.endswith("d") and not found:
            return None
        return found.end() if found and form.endswith(("d", ",")) else (None if not form.endswith("d") else -1)
    return None


def _heads(template: Template, index: int, rest: _Rest | None) -> list[str] | None:
    """The texts that can follow a value: [""] the end, None a value of any kind."""
    while index == len(template):
        if rest is None:
            return [""]
        template, index, rest = rest
    part = template[index]
    if isinstance(part, str):
        return [part.rstrip()] if index + 1 == len(template) and rest is None else [part]
    if isinstance(part, Hole):
        return None
    found: list[str] = []
    for branch in part.branches:
        begins = _heads(branch, 0, (template, index + 1, rest))
        if begins is None:
            return None
        found.extend(begins)
    return found
