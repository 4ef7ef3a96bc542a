"""What changed in a number's path between two trees: symbols moved, expressions changed, terms added and dropped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvdiag.frozen import frozen
from kvdiag.source.parsed import Parsed
from kvdiag.source.path import PathStep, code_path
from kvdiag.source.syntax import condition, of_types, one_line, text
from kvdiag.source.tree import SourceTree

if TYPE_CHECKING:
    from tree_sitter import Node

_NAME = re.compile(r"(?<![\w.\"'])(?:[A-Za-z_][\w.]*(?:\(\))?|\d[\w.]*)")
_TEXT = re.compile(r"[fr]?(?:\"[^\"]*\"|'[^']*')")
_WORDS = frozenset(
    [
        *("self", "cls", "if", "else", "and", "or", "not", "is", "in", "None", "True", "False", "return", "for", "lambda"),
        *("int", "float", "len", "getattr", "raise", "str"),
    ]
)
_LONGEST = 300
_MOST_SHOWN = 4
_SIMPLE = ("expression_statement", "return_statement", "raise_statement", "assert_statement", "delete_statement")


@frozen
class Change:
    """One difference in a path from the older tree to the newer.

    `kind`: ``moved``, ``expression``, ``step added``, ``step dropped``; ``not followed`` where the newer tree should have the
    step and no such statement was found; ``function`` where a function of the path changed in other statements than those of
    the path. `before` and `after` are places or expressions; `added` and `dropped` the names and numbers that came into the
    expressions and that they no longer have.
    """

    kind: str
    step: str
    when: str
    sentence: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def path_changes(older: SourceTree, newer: SourceTree, number: str) -> list[Change]:
    """The changes in the path of `number` from `older` to `newer`, in the order of the path.

    Raises InputError for an unknown number.
    """
    before, after = code_path(older, number), code_path(newer, number)
    old, new = _by_step(before.steps), _by_step(after.steps)
    names = (str(before.release.release or older.name), str(after.release.release or newer.name))
    order = list(dict.fromkeys([*new, *old]))
    found = [change for key in order for change in _changes(key, old.get(key, []), new.get(key, []), names, after.missing)]
    return [*found, *_functions(older, newer, before.steps, after.steps)]


def _by_step(steps: tuple[PathStep, ...]) -> dict[tuple[str, str], list[PathStep]]:
    found: dict[tuple[str, str], list[PathStep]] = {}
    for step in steps:
        found.setdefault((step.step, step.when), []).append(step)
    return found


def _changes(
    key: tuple[str, str], old: list[PathStep], new: list[PathStep], names: tuple[str, str], missing: tuple[str, ...]
) -> Iterator[Change]:
    step, when = key
    where = f" ({when})" if when else ""
    lost = next((told for told in missing if told.startswith(f"{step}: ")), "")
    if not new and lost:
        sentence = f"{step}{where} cannot be followed into {names[1]}: {lost.partition(': ')[2]}; renamed or gone."
        yield Change("not followed", step, when, sentence, _expressions(old), ())
        return
    if not old or not new:
        kind, verb, held = ("step added", "came in", new) if new else ("step dropped", "went away", old)
        between = f"between {names[0]} and {names[1]}"
        sentence = f"{step}{where} {verb} {between}: {held[0].explains} {_places(held)[0]}: {_cut(held[0].expression)}"
        yield Change(kind, step, when, sentence, _expressions(old), _expressions(new), _names(new), _names(old))
        return
    if set(_places(old)) != set(_places(new)):
        gone, come = _only(_places(old), _places(new)), _only(_places(new), _places(old))
        if gone and come:
            yield Change("moved", step, when, f"{step}{where} moved from {', '.join(gone)} to {', '.join(come)}.", gone, come)
    gone, come = _only(_expressions(old), _expressions(new)), _only(_expressions(new), _expressions(old))
    if gone and not _expressions(new):
        sentence = f"{step}{where} cannot be followed into {names[1]}: {_places(new)[0]} has no such statement; renamed or gone."
        yield Change("not followed", step, when, f"{sentence} Before: {_cut(gone[0])}.", gone, ())
    elif gone or come:
        yield _expression(step, when, where, gone, come)


def _expression(step: str, when: str, where: str, gone: tuple[str, ...], come: tuple[str, ...]) -> Change:
    before, after = _in(gone), _in(come)
    added = tuple(name for name in after if name not in before)
    dropped = tuple(name for name in before if name not in after)
    parts = []
    if added:
        parts.append(f"{', '.join(added[:8])} came in")
    if dropped:
        parts.append(f"{', '.join(dropped[:8])} no longer named")
    terms = "; ".join(parts) or "the same names put together in another way, which may give another result"
    shown = []
    if gone:
        shown.append(f"before: {_cut(gone[0])}")
    if come:
        shown.append(f"after: {_cut(come[0])}")
    more = max(len(gone), len(come)) - 1
    rest = f" (and {more} more)" if more > 0 else ""
    return Change("expression", step, when, f"{step}{where}: {terms}; {'; '.join(shown)}{rest}.", gone, come, added, dropped)


def _functions(older: SourceTree, newer: SourceTree, old: tuple[PathStep, ...], new: tuple[PathStep, ...]) -> Iterator[Change]:
    """Functions of both paths whose other statements differ: inputs of the path's statements, returns before them."""
    shown = {_form(step.expression) + step.condition for step in (*old, *new)}
    before, after = Parsed(older), Parsed(newer)
    places = {(newer.inside(step.file), step.symbol) for step in new}
    for file, symbol in dict.fromkeys((older.inside(step.file), step.symbol) for step in old):
        scopes = before.symbol(file, symbol), after.symbol(file, symbol)
        functions = [scope for scope in scopes if scope is not None and scope.type == "function_definition"]
        if (file, symbol) not in places or len(functions) != len(scopes):
            continue
        first, second = (_statements(scope) for scope in functions)
        gone = tuple(first[form] for form in first if form not in second and form not in shown)
        come = tuple(second[form] for form in second if form not in first and form not in shown)
        if gone or come:
            count = max(len(gone), len(come))
            what = "another statement" if count == 1 else f"{count} other statements"
            sentence = f"{symbol} in {file} differs in {what}, which may give the path's statements other values."
            yield Change("function", "", "", sentence, gone[:_MOST_SHOWN], come[:_MOST_SHOWN])


def _statements(scope: Node) -> dict[str, str]:
    """The simple statements of a function under their conditions; prints and texts that stand alone are left out."""
    found: dict[str, str] = {}
    for node in of_types(scope, _SIMPLE):
        only = node.named_children[0] if node.named_child_count else node
        if only.type in ("string", "concatenated_string") or (only.type == "call" and text(only).startswith(("log", "print"))):
            continue
        written, under = one_line(node), condition(node, scope)
        found.setdefault(_form(written) + under, f"{written}   if {under}" if under else written)
    return found


def _form(expression: str) -> str:
    """What an expression says, its layout, quotes and trailing commas aside."""
    import ast

    try:
        return ast.dump(ast.parse(expression))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return expression


def _places(steps: list[PathStep]) -> tuple[str, ...]:
    """Files are named from the package on, so that a wheel and a checkout compare."""
    return tuple(dict.fromkeys(f"{_from_package(step.file)} {step.symbol}" for step in steps))


def _from_package(file: str) -> str:
    return file.rpartition("sglang/")[2]


def _expressions(steps: list[PathStep]) -> tuple[str, ...]:
    """What the steps compute, with the conditions they stand under; a symbol shown by its signature computes nothing itself."""
    computing = (step for step in steps if not step.expression.startswith(("def ", "class ")))
    told = (f"{step.expression}   if {step.condition}" if step.condition else step.expression for step in computing)
    return tuple(dict.fromkeys(told))


def _names(steps: list[PathStep]) -> tuple[str, ...]:
    return _in(_expressions(steps))


def _in(expressions: tuple[str, ...]) -> tuple[str, ...]:
    """The names in expressions by their last part: whose attribute a value is says nothing of the sum."""
    found = (name for told in expressions for name in _NAME.findall(_TEXT.sub("", told)))
    last = (name if name[0].isdigit() else name.rpartition(".")[2].removesuffix("()") for name in found)
    return tuple(dict.fromkeys(name for name in last if name and name not in _WORDS))


def _only(these: tuple[str, ...], those: tuple[str, ...]) -> tuple[str, ...]:
    known = {_parts(item) for item in those}
    return tuple(item for item in these if _parts(item) not in known)


def _parts(item: str) -> tuple[str, str]:
    expression, _, under = item.partition("   if ")
    return _form(expression), _form(under)


def _cut(written: str) -> str:
    return written if len(written) <= _LONGEST else written[:_LONGEST] + " ..."
