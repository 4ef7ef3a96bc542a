"""What changed in a number's path between two trees: symbols moved, expressions changed, terms added and dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kvdiag.frozen import frozen
from kvdiag.source.forms import behind, names_in
from kvdiag.source.forms import key as said
from kvdiag.source.pair import Pair
from kvdiag.source.path import PathStep
from kvdiag.source.tree import SourceTree

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST = 300
_MOST_SHOWN = 4
_MOST_REACHED = 6
_MOST_NAMED = 12


@frozen
class Change:
    """One difference in a path from the older tree to the newer.

    `kind`: ``moved``, ``renamed``, ``expression``, ``step added``, ``step dropped``; ``not followed`` where the newer tree
    should have the step and no such statement was found; ``function`` where a function of the path changed in other
    statements than those of the path; ``reached`` where something changed that these need and the path does not list.
    `before` and `after` are places or expressions; `added` and `dropped` the names and numbers that came into the expressions
    and that they no longer have.
    """

    kind: str
    step: str
    when: str
    sentence: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@frozen
class Comparison:
    """The changes in the order of the path; how many definitions beyond it were compared, and the names not followed."""

    changes: tuple[Change, ...]
    reached: int
    unfollowed: tuple[str, ...]


def path_changes(older: SourceTree, newer: SourceTree, number: str) -> list[Change]:
    """The changes in the path of `number` from `older` to `newer`, in the order of the path.

    Raises InputError for an unknown number.
    """
    return list(compared(older, newer, number).changes)


def compared(older: SourceTree, newer: SourceTree, number: str) -> Comparison:
    """The changes in the path of `number`, and how far was looked. Raises InputError for an unknown number."""
    pair = Pair(older, newer, number)
    old, new = _by_step(pair.before.steps), _by_step(pair.after.steps)
    order = list(dict.fromkeys([*new, *old]))
    told = set[str]()
    found = [*_renamed(pair)]
    found += [change for key in order for change in _changes(pair, key, old.get(key, []), new.get(key, []), told)]
    found += [*_functions(pair, told)]
    reached = pair.reached()
    return Comparison((*found, *_reached(pair, told, bool(found))), len(reached), pair.unfollowed())


def _by_step(steps: tuple[PathStep, ...]) -> dict[tuple[str, str], list[PathStep]]:
    found: dict[tuple[str, str], list[PathStep]] = {}
    for step in steps:
        found.setdefault((step.step, step.when), []).append(step)
    return found


def _renamed(pair: Pair) -> Iterator[Change]:
    for (file, symbol), name in pair.renamed.items():
        yield Change("renamed", "", "", f"{symbol} in {file} is called {name} in {pair.names[1]}.", (symbol,), (name,))
    for (file, symbol), names in pair.variables.items():
        listed = ", ".join(f"{old} is called {new}" for old, new in names.items())
        told = f"{listed} in {symbol} of {file}, given by the same statements."
        yield Change("renamed", "", "", told, tuple(names), tuple(names.values()))


def _changes(pair: Pair, key: tuple[str, str], old: list[PathStep], new: list[PathStep], told: set[str]) -> Iterator[Change]:
    step, when = key
    where = f" ({when})" if when else ""
    lost = next((missing for missing in pair.after.missing if missing.startswith(f"{step}: ")), "")
    if not new and lost:
        sentence = f"{step}{where} cannot be followed into {pair.names[1]}: {lost.partition(': ')[2]}; renamed or gone."
        yield Change("not followed", step, when, sentence, _expressions(old), ())
        return
    if not old or not new:
        kind, verb, held = ("step added", "came in", new) if new else ("step dropped", "went away", old)
        between = f"between {pair.names[0]} and {pair.names[1]}"
        sentence = f"{step}{where} {verb} {between}: {held[0].explains} {_places(held)[0]}: {_cut(held[0].expression)}"
        added, dropped = (names_in(_expressions(steps)) for steps in (new, old))
        yield Change(kind, step, when, sentence, _expressions(old), _expressions(new), added, dropped)
        return
    gone_places = tuple(place for place in _places(old, pair) if place not in _places(new))
    come_places = tuple(place for place in _places(new) if place not in _places(old, pair))
    if gone_places and come_places:
        sentence = f"{step}{where} moved from {', '.join(gone_places)} to {', '.join(come_places)}."
        yield Change("moved", step, when, sentence, gone_places, come_places)
    yield from _statements(pair, key, old, new, told)


def _statements(pair: Pair, key: tuple[str, str], old: list[PathStep], new: list[PathStep], told: set[str]) -> Iterator[Change]:
    """Statements of a step that the other tree does not have, in the step or in the functions it is in."""
    step, when = key
    where = f" ({when})" if when else ""
    before, after = pair.said_before(old), pair.said_after(new)
    gone = {pair.said(item): _told(item) for item in _computing(old) if pair.said(item) not in after}
    come = {said(item.expression, item.condition): _told(item) for item in _computing(new)}
    come = {form: text for form, text in come.items() if form not in before}
    if gone and not come:
        # What stands in their place is shown: the same variable given another value, another return.
        fresh = {form: text for form, text in pair.table_after(new).items() if form not in before}
        targets = {_target(text) for text in gone.values()}
        come = {form: text for form, text in fresh.items() if _target(text) in targets}
    told.update([*gone, *come])
    first, second = tuple(gone.values()), tuple(come.values())
    if gone and not come and not _expressions(new):
        sentence = f"{step}{where} cannot be followed into {pair.names[1]}: {_places(new)[0]} has no such statement; "
        yield Change("not followed", step, when, f"{sentence}renamed or gone. Before: {_cut(first[0])}.", first, ())
    elif gone or come:
        scopes = pair.scopes_before(old), pair.scopes_after(new)
        yield _expression(key, first, second, scopes, pair.new_names(old))


def _expression(
    key: tuple[str, str],
    gone: tuple[str, ...],
    come: tuple[str, ...],
    scopes: tuple[list[Node], list[Node]],
    names: Mapping[str, str],
) -> Change:
    step, when = key
    before, after = names_in(gone, names), names_in(come)
    added = [name for name in after if name not in before]
    dropped = [name for name in before if name not in after]
    # A name given by a statement of its own on one side, and written out on the other, came from nowhere and went nowhere.
    added = [name for name in added if name not in set(behind(gone, scopes[0], names)) and not _is_step(name, before, scopes[1])]
    dropped = [name for name in dropped if name not in set(behind(come, scopes[1])) and not _is_step(name, after, scopes[0])]
    parts = []
    if added:
        parts.append(f"{', '.join(added[:8])} came in")
    if dropped:
        parts.append(f"{', '.join(dropped[:8])} no longer named")
    terms = "; ".join(parts) or "the same names put together in another way, which may give another result"
    shown = [f"{word}: {_cut(texts[0])}" for word, texts in (("before", gone), ("after", come)) if texts]
    sentence = f"{step}{f' ({when})' if when else ''}: {terms}; {'; '.join(shown)}."
    return Change("expression", step, when, sentence, gone, come, tuple(added), tuple(dropped))


def _is_step(name: str, others: tuple[str, ...], scopes: list[Node]) -> bool:
    """Whether a name is a variable that only holds what `others` are named in the other tree."""
    held = set(behind((name,), scopes)) - {name}
    return bool(held) and held <= set(others)


def _functions(pair: Pair, told: set[str]) -> Iterator[Change]:
    """Functions of both paths whose other statements differ: inputs of the path's statements, returns before them."""
    told |= {pair.said(step) for step in pair.before.steps}
    told |= {said(step.expression, step.condition) for step in pair.after.steps}
    for file, symbol, first, second in pair.functions():
        gone = tuple(first[form] for form in first if form not in second and form not in told)
        come = tuple(second[form] for form in second if form not in first and form not in told)
        if gone or come:
            count = max(len(gone), len(come))
            what = "another statement" if count == 1 else f"{count} other statements"
            sentence = f"{symbol} in {file} differs in {what}, which may give the path's statements other values."
            yield Change("function", "", "", sentence, gone[:_MOST_SHOWN], come[:_MOST_SHOWN])


def _reached(pair: Pair, told: set[str], differs: bool) -> Iterator[Change]:
    """What the path's statements need, does not stand in the path's functions, and differs."""
    found = [item for item in pair.reached() if (item.before.keys() ^ item.after.keys()) - told]
    both = [item for item in found if item.before and item.after]
    for item in both[:_MOST_REACHED] if both or differs else found[:_MOST_REACHED]:
        gone = tuple(text for form, text in item.before.items() if form not in item.after)
        come = tuple(text for form, text in item.after.items() if form not in item.before)
        sentence = f"Also different, not among the listed statements, which need it: {item.name} in {item.file}."
        yield Change("reached", "", "", sentence, gone[:_MOST_SHOWN], come[:_MOST_SHOWN])
    rest = [item.name for item in both[_MOST_REACHED:]]
    if rest:
        more = f" and {len(rest) - _MOST_NAMED} more" if len(rest) > _MOST_NAMED else ""
        sentence = f"Further away and different too: {', '.join(rest[:_MOST_NAMED])}{more}."
        yield Change("reached", "", "", sentence, (), ())


def _computing(steps: list[PathStep]) -> list[PathStep]:
    """A symbol shown by its signature computes nothing itself."""
    return [step for step in steps if not step.expression.startswith(("def ", "class "))]


def _told(step: PathStep) -> str:
    return f"{step.expression}   if {step.condition}" if step.condition else step.expression


def _expressions(steps: list[PathStep]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_told, _computing(steps))))


def _target(told: str) -> str:
    """What a statement gives a value: the variable, or ``return``."""
    left, equals, _ = told.partition("=")
    return left.strip(" +-*/<>|&") if equals and not told.startswith("return") else told.split(" ")[0]


def _places(steps: list[PathStep], pair: Pair | None = None) -> tuple[str, ...]:
    """Files are named from the package on, so that a wheel and a checkout compare; renamed symbols by their new name."""
    new = pair.renamed if pair else {}
    files = ((step.file.rpartition("sglang/")[2], step.symbol) for step in steps)
    return tuple(dict.fromkeys(f"{file} {new.get((file, symbol), symbol)}" for file, symbol in files))


def _cut(written: str) -> str:
    return written if len(written) <= _LONGEST else written[:_LONGEST] + " ..."
