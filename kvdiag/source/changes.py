"""What changed in a number's path between two trees: symbols moved, expressions changed, terms added and dropped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from kvdiag.frozen import frozen
from kvdiag.source.path import PathStep, code_path
from kvdiag.source.tree import SourceTree

_NAME = re.compile(r"(?<![\w.\"'])[A-Za-z_][\w.]*(?:\(\))?")
_TEXT = re.compile(r"[fr]?(?:\"[^\"]*\"|'[^']*')")
_WORDS = frozenset(
    [
        *("self", "cls", "if", "else", "and", "or", "not", "is", "in", "None", "True", "False", "return", "for", "lambda"),
        *("int", "float", "max", "min", "len", "getattr", "raise", "str"),
    ]
)
_LONGEST = 300


@frozen
class Change:
    """One difference in a path from the older tree to the newer.

    `kind`: ``moved``, ``expression``, ``step added``, ``step dropped``. `before` and `after` are places or expressions;
    `added` and `dropped` the names that came into the expressions and went out of them.
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
    return [change for key in order for change in _changes(key, old.get(key, []), new.get(key, []), names)]


def _by_step(steps: tuple[PathStep, ...]) -> dict[tuple[str, str], list[PathStep]]:
    return {key: list(group) for key, group in groupby(steps, lambda step: (step.step, step.when))}


def _changes(key: tuple[str, str], old: list[PathStep], new: list[PathStep], names: tuple[str, str]) -> Iterator[Change]:
    step, when = key
    where = f" ({when})" if when else ""
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
    if gone or come:
        yield _expression(step, when, where, gone, come)


def _expression(step: str, when: str, where: str, gone: tuple[str, ...], come: tuple[str, ...]) -> Change:
    before, after = _in(gone), _in(come)
    added = tuple(name for name in after if name not in before)
    dropped = tuple(name for name in before if name not in after)
    parts = []
    if added:
        parts.append(f"{', '.join(added[:8])} came in")
    if dropped:
        parts.append(f"{', '.join(dropped[:8])} went out")
    terms = "; ".join(parts) or "the same terms otherwise put together"
    shown = []
    if gone:
        shown.append(f"before: {_cut(gone[0])}")
    if come:
        shown.append(f"after: {_cut(come[0])}")
    more = max(len(gone), len(come)) - 1
    rest = f" (and {more} more)" if more > 0 else ""
    return Change("expression", step, when, f"{step}{where}: {terms}; {'; '.join(shown)}{rest}.", gone, come, added, dropped)


def _places(steps: list[PathStep]) -> tuple[str, ...]:
    """Files are named from the package on, so that a wheel and a checkout compare."""
    return tuple(dict.fromkeys(f"{_from_package(step.file)} {step.symbol}" for step in steps))


def _from_package(file: str) -> str:
    return file.rpartition("sglang/")[2]


def _expressions(steps: list[PathStep]) -> tuple[str, ...]:
    """What the steps compute; a symbol shown by its signature computes nothing by itself."""
    return tuple(dict.fromkeys(step.expression for step in steps if not step.expression.startswith(("def ", "class "))))


def _names(steps: list[PathStep]) -> tuple[str, ...]:
    return _in(_expressions(steps))


def _in(expressions: tuple[str, ...]) -> tuple[str, ...]:
    """The names in expressions by their last part: whose attribute a value is says nothing of the sum."""
    found = (name.rpartition(".")[2].removesuffix("()") for text in expressions for name in _NAME.findall(_TEXT.sub("", text)))
    return tuple(dict.fromkeys(name for name in found if name and name not in _WORDS))


def _only(these: tuple[str, ...], those: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(item for item in these if item not in those)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
