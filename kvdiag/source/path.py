"""The ordered path of a number through one tree: measured, reduced, divided, clamped, rounded, allocated, printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kvdiag.frozen import frozen, replace
from kvdiag.releases import Release
from kvdiag.source.anchors import Anchor, NumberRule, StepRule, number_rule
from kvdiag.source.nearest import release_of
from kvdiag.source.parsed import Parsed
from kvdiag.source.reach import replaced
from kvdiag.source.search import moved_to, uses_of
from kvdiag.source.statements import Selector
from kvdiag.source.syntax import condition, end_line, first_error, line, one_line, signature
from kvdiag.source.tree import SourceTree, TreeRelease

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_STATEMENTS = 12
"""Statements of one symbol a step shows."""


@frozen
class PathStep:
    """One statement of a path.

    `confidence` is ``certain`` for the rule's own place in this release, ``likely`` for the same symbol at another place or
    in a tree whose release is not stated, ``possible`` for what was found by name only.
    """

    step: str
    explains: str
    when: str
    file: str
    symbol: str
    line: int
    end_line: int
    expression: str
    condition: str = ""
    confidence: str = "certain"
    permalink: str | None = None


@frozen
class CodePath:
    """The path of one number through one tree.

    `missing` names the steps that could not be found, and why; `damaged` the files of the path that are no whole Python, and
    the statements that replace a method of the path when its file is imported.
    """

    number: str
    title: str
    unit: str
    meaning: str
    release: TreeRelease
    steps: tuple[PathStep, ...]
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


def code_path(
    tree: SourceTree, name: str, parsed: Parsed | None = None, renamed: Mapping[tuple[str, str], str] | None = None
) -> CodePath:
    """The path of the number `name` (or another name of it) in `tree`. Raises InputError for an unknown number.

    `renamed` are symbols that this tree has by another name: (file, the rule's symbol) to its own.
    """
    rule = number_rule(name)
    told = release_of(tree)
    parsed = parsed or Parsed(tree)
    steps: list[PathStep] = []
    lost: list[tuple[StepRule, Anchor]] = []
    for step in rule.steps:
        step = _by_own_names(step, renamed or {})
        found, absent = _step(parsed, step, told.release)
        certain = "certain" if told.confidence == "stated" else "likely"
        steps += [made for anchor, scope in found for made in _statements(parsed, step, anchor, scope, certain)]
        lost += [(step, anchor) for anchor in absent]
    moved, missing = _moved(parsed, lost)
    steps += moved
    if not steps:
        steps = list(_by_name(parsed, rule))
    order = {step.step: index for index, step in enumerate(rule.steps)}
    steps.sort(key=lambda item: order.get(item.step, len(order)))
    errors = {file: error for file in dict.fromkeys(step.file for step in steps) if (error := _error(parsed, file))}
    steps = [_doubted(step) if step.file in errors else step for step in steps]
    dead = {told: symbol for step in steps for told, symbol in _replacements(parsed, step)}
    steps = [replace(step, confidence="possible") if step.symbol in dead.values() else step for step in steps]
    damaged = (*errors.values(), *dead)
    return CodePath(rule.number, rule.title, rule.unit, rule.meaning, told, tuple(_distinct(steps)), tuple(missing), damaged)


def _by_own_names(step: StepRule, renamed: Mapping[tuple[str, str], str]) -> StepRule:
    anchors = tuple(replace(anchor, symbol=renamed.get((anchor.file, anchor.symbol), anchor.symbol)) for anchor in step.anchors)
    return replace(step, anchors=anchors)


def _error(parsed: Parsed, file: str) -> str:
    """Where a file stops being Python, empty where it does not: such a file could not have been imported by a server."""
    root = parsed.root(parsed.tree.inside(file))
    at = first_error(root) if root is not None else None
    return f"{file} has a syntax error at line {at}; what is shown of it was read around that" if at else ""


def _replacements(parsed: Parsed, step: PathStep) -> Iterator[tuple[str, str]]:
    """Where the file of a step puts something else in the place of its method when it is imported: (sentence, symbol)."""
    root = parsed.root(parsed.tree.inside(step.file))
    for node in replaced(root, step.symbol) if root is not None else ():
        yield f"{step.file}:{line(node)} replaces {step.symbol}, of which what is shown is not run: {one_line(node)}", step.symbol


def _doubted(step: PathStep) -> PathStep:
    return replace(step, confidence="likely") if step.confidence == "certain" else step


def _step(parsed: Parsed, step: StepRule, release: Release | None) -> tuple[list[tuple[Anchor, Node]], list[Anchor]]:
    """The anchors that hold in this tree, and those expected in its release that do not."""
    expected = [anchor for anchor in step.anchors if release is None or anchor.covers(release)]
    found = [(anchor, scope) for anchor in expected if (scope := parsed.symbol(anchor.file, anchor.symbol)) is not None]
    absent = [anchor for anchor in expected if all(anchor is not other for other, _ in found)] if release else []
    return found, absent


def _statements(parsed: Parsed, step: StepRule, anchor: Anchor, scope: Node, confidence: str) -> Iterator[PathStep]:
    selectors = step.selectors
    if anchor.target:
        selectors = tuple(item for item in selectors if item.name == anchor.target) or (Selector("assign", anchor.target, ""),)
    nodes = {node.id: node for selector in selectors for node in selector.matches(scope)}
    if not nodes and any(selector.holds for selector in selectors):
        # What stands in the place of a statement that was edited is shown, with less confidence, rather than nothing.
        selectors = tuple(Selector(selector.kind, selector.name, "") for selector in selectors)
        nodes = {node.id: node for selector in selectors for node in selector.matches(scope)}
        confidence = "possible" if confidence == "possible" else "likely"
    if not nodes:
        yield _made(parsed, step, anchor, scope, scope, confidence)
        return
    for node in sorted(nodes.values(), key=lambda node: node.start_byte)[:MOST_STATEMENTS]:
        yield _made(parsed, step, anchor, scope, node, confidence)


def _made(parsed: Parsed, step: StepRule, anchor: Anchor, scope: Node, node: Node, confidence: str) -> PathStep:
    whole = node.id == scope.id
    return PathStep(
        step.step,
        step.explains,
        step.when,
        parsed.tree.place(anchor.file),
        anchor.symbol,
        line(node),
        end_line(node),
        signature(node) if whole and node.type != "module" else one_line(node),
        "" if whole else condition(node, scope),
        confidence,
        parsed.tree.permalink(anchor.file, line(node)),
    )


def _moved(parsed: Parsed, lost: list[tuple[StepRule, Anchor]]) -> tuple[list[PathStep], list[str]]:
    """Symbols that are not where the rule has them, looked for by name over the tree."""
    steps: list[PathStep] = []
    missing: list[str] = []
    places = moved_to(parsed, {anchor.symbol for _, anchor in lost})
    for step, anchor in lost:
        found = places.get(anchor.symbol, [])
        for file, symbol, scope in found:
            there = Anchor(anchor.releases, file, symbol, anchor.target)
            confidence = "likely" if symbol == anchor.symbol and len(found) == 1 else "possible"
            steps += _statements(parsed, step, there, scope, confidence)
        if not found:
            missing.append(f"{step.step}: {anchor.symbol} is not in {anchor.file}, nor anywhere else in this tree")
    return steps, missing


def _by_name(parsed: Parsed, rule: NumberRule) -> Iterator[PathStep]:
    """The last resort: every place that assigns one of the number's names."""
    step = StepRule("assigned", "Found by name only: a place that assigns a number of this name.", "", (), ())
    for file, symbol, scope, node in uses_of(parsed, rule.search):
        yield _made(parsed, step, Anchor("", file, symbol), scope, node, "possible")


def _distinct(steps: list[PathStep]) -> Iterator[PathStep]:
    seen = set()
    for step in steps:
        key = (step.step, step.file, step.line, step.end_line)
        if key not in seen:
            seen.add(key)
            yield step
