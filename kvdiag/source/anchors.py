"""``rules/numbers``: where each number is computed, by symbol and release, never by line."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.errors import InputError, RuleError
from kvdiag.frozen import frozen
from kvdiag.releases import Release, parse_release
from kvdiag.source.statements import Selector, parse_selector


@frozen
class Anchor:
    """A symbol in a file in some releases; `target` is the assignment meant, empty for what the step's selectors find."""

    releases: str
    file: str
    symbol: str
    target: str = ""

    def covers(self, release: Release) -> bool:
        """Whether the symbol is expected in `release`; a range without an end holds for every later release too."""
        return any(_covers(part, release) for part in self.releases.split(","))


@frozen
class StepRule:
    """One step of a number's path and the places it has had."""

    step: str
    explains: str
    when: str
    selectors: tuple[Selector, ...]
    anchors: tuple[Anchor, ...]


@frozen
class NumberRule:
    """All that ``rules/numbers`` says of one number."""

    number: str
    title: str
    unit: str
    meaning: str
    aliases: tuple[str, ...]
    search: tuple[str, ...]
    steps: tuple[StepRule, ...]


@lru_cache(maxsize=1024)
def _bounds(part: str) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    first, dots, last = part.strip().partition("..")
    return parse_release(first).key, None if dots and not last else parse_release(last or first).key


def _covers(part: str, release: Release) -> bool:
    low, high = _bounds(part)
    return low <= release.key and (high is None or release.key <= high)


@lru_cache(maxsize=1)
def number_rules() -> dict[str, NumberRule]:
    """Every number by its name. Raises RuleError naming the file where a rule is not of the shape."""
    rules = (_number(document) for document in rulebook.load("numbers"))
    return {rule.number: rule for rule in rules}


def is_number(name: str) -> bool:
    """Whether `name` is a number's name or one of its other names."""
    return any(name == rule.number or name in rule.aliases for rule in number_rules().values())


def number_rule(name: str) -> NumberRule:
    """The rule of a number by its name or one of its other names. Raises InputError that names the known ones."""
    rules = number_rules()
    wanted = name.strip()
    for rule in rules.values():
        if wanted == rule.number or wanted in rule.aliases:
            return rule
    every = [*rules, *(alias for rule in rules.values() for alias in rule.aliases)]
    near = difflib.get_close_matches(wanted, every, 3)
    meant = f" Did you mean {', '.join(near)}?" if near else ""
    raise InputError(f"{name}: no rule for this number.{meant} Known: {', '.join(sorted(rules))}")


def _number(document: dict[str, Any]) -> NumberRule:
    where = str(document["_path"])
    try:
        steps = tuple(_step(step, f"{where}: step {index}") for index, step in enumerate(document["step"], 1))
        return NumberRule(
            document["number"],
            document["title"],
            document["unit"],
            document["meaning"],
            tuple(document["aliases"]),
            tuple(document["search"]),
            steps,
        )
    except KeyError as error:
        raise RuleError(f"{where}: the key {error} is missing") from None


def _step(step: dict[str, Any], where: str) -> StepRule:
    selectors = tuple(parse_selector(written) for written in step.get("statements", ()))
    anchors = tuple(_anchor(written, where) for written in step["at"])
    return StepRule(step["step"], step["explains"], step.get("when", ""), selectors, anchors)


def _anchor(written: str, where: str) -> Anchor:
    """``RANGES FILE SYMBOL`` or ``RANGES FILE SYMBOL : TARGET``."""
    place, colon, target = written.partition(" : ")
    parts = place.split()
    if len(parts) != 3:
        raise RuleError(f"{where}: {written!r} is not RANGES FILE SYMBOL or RANGES FILE SYMBOL : TARGET")
    return Anchor(parts[0], parts[1], parts[2], target.strip() if colon else "")
