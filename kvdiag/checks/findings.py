"""Findings: rules as data, each with a named condition; the conditions that hold become sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from importlib import import_module
from typing import Any

from kvdiag import rulebook
from kvdiag.checks.facts import Facts
from kvdiag.checks.levers import ways_to_more_tokens
from kvdiag.checks.model import Finding
from kvdiag.checks.phrase import Sentence, fill
from kvdiag.checks.wanted import words
from kvdiag.errors import RuleError
from kvdiag.frozen import field, frozen
from kvdiag.rulecheck import Place, Shape

LEVELS = ("error", "warning", "note")
_SHAPE: Shape = {
    "code": (str, "a code like KV301"),
    "name": (str, "a name in lower case with hyphens"),
    "level": (str, "a level"),
    "order": (int, "a whole number"),
    "predicate": (str, "theme.condition"),
    "replaces": (list, "a list of codes"),
    "explains": (list, "a list of codes"),
    "thresholds": (dict, "a table of numbers"),
    "title": (str, "a text"),
    "message": (list, "a list of sentences"),
    "advice": (list, "a list of sentences"),
    "risk": (str, "a text"),
    "explanation": (str, "a text"),
    "raises": (list, "a list of samples"),
    "silent": (list, "a list of near misses"),
}
_REQUIRED = ("code", "name", "level", "predicate", "title", "message", "explanation", "raises", "silent")
_KEPT = (
    "code",
    "name",
    "level",
    "title",
    "message",
    "advice",
    "risk",
    "predicate",
    "order",
    "replaces",
    "explains",
    "thresholds",
)


@frozen
class Hit:
    """A condition that holds: the log lines it rests on and the values its sentences are filled with.

    `level` overrides the rule's own where the case is milder or graver, `gain` is what following the advice brings,
    `stake` the bytes it is about: of findings of one order the one about more memory comes first.
    """

    lines: tuple[int, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    gain: dict[str, Any] | None = None
    level: str = ""
    stake: Fraction = Fraction(0)


Predicate = Callable[[Facts, Mapping[str, float]], Iterable[Hit]]
"""The condition of a rule: what of a start makes it true, under the rule's thresholds."""


@frozen
class Rule:
    """One finding as its file states it, without documentation and samples.

    A finding that is `replaced` by a graver one is not told; one that another `explains` is told after it.
    """

    code: str
    name: str
    level: str
    title: str
    message: list[Sentence]
    predicate: str
    advice: list[Sentence] = field(default_factory=list)
    risk: str = ""
    order: int = 50
    replaces: list[str] = field(default_factory=list)
    explains: list[str] = field(default_factory=list)
    thresholds: dict[str, float] = field(default_factory=dict)


def judge(facts: Facts) -> list[Finding]:
    """The findings of a start: gravest first, but a cause before what it explains; what is replaced is left out."""
    raised = [(rule, hit) for rule in rules() for hit in condition(rule.predicate, rule.code)(facts, rule.thresholds)]
    replaced = {code for rule, _ in raised for code in rule.replaces}
    kept = [(rule, hit) for rule, hit in raised if rule.code not in replaced]
    kept.sort(key=lambda pair: (LEVELS.index(pair[1].level or pair[0].level), pair[0].order, -pair[1].stake, pair[0].code))
    common = words(facts) | {"more": ways_to_more_tokens(facts)}
    return [_finding(rule, hit, common) for rule, hit in _causes_first(kept)]


def told(code: str, values: Mapping[str, Any]) -> Finding:
    """The finding of one rule with its sentences filled; for what is not found in a log alone. Raises KeyError for no rule."""
    rule = {rule.code: rule for rule in rules()}[code]
    return _finding(rule, Hit(values=values), {})


def _causes_first(raised: list[tuple[Rule, Hit]]) -> list[tuple[Rule, Hit]]:
    """The same order, but each cause directly before the first of what it explains."""
    ordered: list[tuple[Rule, Hit]] = []
    seen: set[int] = set()

    def put(index: int) -> None:
        if index in seen:
            return
        seen.add(index)
        for other, (cause, _) in enumerate(raised):
            if raised[index][0].code in cause.explains:
                put(other)
        ordered.append(raised[index])

    for index in range(len(raised)):
        put(index)
    return ordered


def _finding(rule: Rule, hit: Hit, common: Mapping[str, Any]) -> Finding:
    values = {**common, **hit.values}
    return Finding(
        rule.code,
        hit.level or rule.level,
        fill([rule.title], values) or rule.name,
        fill(rule.message, values),
        fill(rule.advice, values),
        hit.lines,
        hit.gain,
        fill([rule.risk], values) if rule.risk else "",
    )


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """The shipped rules in order of their codes."""
    return tuple(Rule(**entry) for entry in rulebook.load("findings", compile_rules))


@lru_cache(maxsize=1)
def documents() -> dict[str, dict[str, Any]]:
    """The rule files whole, by code: documentation, samples that must raise the finding and near misses."""
    return {document["code"]: document for document in rulebook.load("findings")}


def compile_rules(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Checks rule files and keeps what judging needs. Raises RuleError with the place and what is wrong there."""
    seen: dict[str, str] = {}
    for document in files:
        place = Place.of(document)
        place.keys(document, _SHAPE, _REQUIRED)
        if document["level"] not in LEVELS:
            raise place.at("level").error(f"the level must be one of {', '.join(LEVELS)}, not {document['level']!r}")
        if document["code"] in seen:
            raise place.at("code").error(f"the code {document['code']} is taken by {seen[document['code']]}")
        seen[document["code"]] = place.path
    kept = [{key: document[key] for key in _KEPT if key in document} for document in files]
    return sorted(kept, key=lambda rule: str(rule["code"]))


def condition(name: str, code: str) -> Predicate:
    """The predicate ``theme.name`` of ``kvdiag/checks/predicates``. RuleError where the finding `code` has none."""
    theme, _, function = name.partition(".")
    try:
        found: Predicate = getattr(import_module(f"kvdiag.checks.predicates.{theme}"), function)
    except (ImportError, AttributeError) as error:
        raise RuleError(f"rules/findings/{code}-*.toml: no condition {name!r} in kvdiag/checks/predicates ({error})") from error
    return found
