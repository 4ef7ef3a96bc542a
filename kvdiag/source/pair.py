"""Two trees side by side along one number's path: the same functions under whatever name, and what they reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from kvdiag.frozen import frozen
from kvdiag.source.forms import key, renamed_function, renamed_variables, statements
from kvdiag.source.parsed import Parsed
from kvdiag.source.path import PathStep, code_path
from kvdiag.source.reach import Definition, Reach, reach
from kvdiag.source.syntax import condition, enclosing, one_line, scope_of
from kvdiag.source.tree import SourceTree

if TYPE_CHECKING:
    from tree_sitter import Node

Place = tuple[str, str]
"""File within the package, and symbol."""


@frozen
class Reached:
    """A definition that a path needs: what it says in the older and in the newer tree, empty where it is not reached there."""

    file: str
    name: str
    before: Mapping[str, str]
    after: Mapping[str, str]


class Pair:
    """`before` and `after`: the number's path in the older and the newer tree; `names` what the two are called.

    `renamed`: functions of the path that the newer tree has by another name; `variables`: variables of its functions likewise.
    Raises InputError for an unknown number.
    """

    def __init__(self, older: SourceTree, newer: SourceTree, number: str) -> None:
        self.older, self.newer = Parsed(older), Parsed(newer)
        self.before, self.after = code_path(older, number, self.older), code_path(newer, number, self.newer)
        self.names = (str(self.before.release.release or older.name), str(self.after.release.release or newer.name))
        self.renamed = dict(self._renamed_functions())
        if self.renamed:
            self.after = code_path(newer, number, self.newer, self.renamed)
        self.functions_renamed = {old.rpartition(".")[2]: new.rpartition(".")[2] for (_, old), new in self.renamed.items()}
        self.variables = dict(self._renamed_variables())

    def _renamed_functions(self) -> Iterator[tuple[Place, str]]:
        for file, symbol in self._places():
            lost, before, after = self.older.symbol(file, symbol), self.older.root(file), self.newer.root(file)
            if lost is None or lost.type != "function_definition" or before is None or after is None:
                continue
            if self.newer.symbol(file, symbol) is None and (name := renamed_function(lost, symbol, before, after)):
                yield (file, symbol), name

    def _renamed_variables(self) -> Iterator[tuple[Place, dict[str, str]]]:
        moved = self._moved()
        for place in self._places():
            first = self._function(self.older, place)
            second = self._function(self.newer, moved.get(place, self._there(place)))
            names = renamed_variables(first, second, self.functions_renamed) if first is not None and second is not None else {}
            if names:
                yield place, names

    def _moved(self) -> dict[Place, Place]:
        """Where a step that stands in one function of each tree went to."""
        found: dict[Place, Place] = {}
        for which in dict.fromkeys((step.step, step.when) for step in self.before.steps):
            sides = ((self.before, self.older.tree), (self.after, self.newer.tree))
            before, after = (
                {(tree.inside(step.file), step.symbol) for step in path.steps if (step.step, step.when) == which}
                for path, tree in sides
            )
            if len(before) == len(after) == 1 and before != after:
                found.setdefault(*before, *after)
        return found

    def _places(self) -> dict[Place, None]:
        return dict.fromkeys((self.older.tree.inside(step.file), step.symbol) for step in self.before.steps)

    def _there(self, place: Place) -> Place:
        return place[0], self.renamed.get(place, place[1])

    def _function(self, parsed: Parsed, place: Place) -> Node | None:
        scope = parsed.symbol(*place)
        return scope if scope is not None and scope.type == "function_definition" else None

    def _names(self, place: Place) -> dict[str, str]:
        return {**self.functions_renamed, **self.variables.get(place, {})}

    def new_names(self, steps: list[PathStep]) -> dict[str, str]:
        """Old name to new name, of functions and of the variables of the functions that steps of the older tree stand in."""
        places = [(self.older.tree.inside(step.file), step.symbol) for step in steps]
        return {old: new for place in places for old, new in self._names(place).items()} or self.functions_renamed

    def said(self, step: PathStep) -> str:
        """What a step of the older tree says, in the newer tree's names."""
        return key(step.expression, step.condition, self._names((self.older.tree.inside(step.file), step.symbol)))

    def said_before(self, steps: list[PathStep]) -> set[str]:
        """All that the older tree says in a step and in the functions it stands in, in the newer tree's names."""
        places = dict.fromkeys((self.older.tree.inside(step.file), step.symbol) for step in steps)
        functions = ((place, scope) for place in places if (scope := self._function(self.older, place)) is not None)
        return {said for place, scope in functions for said in statements(scope, self._names(place))} | {*map(self.said, steps)}

    def said_after(self, steps: list[PathStep]) -> set[str]:
        """All that the newer tree says in a step and in the functions it stands in."""
        return {*self.table_after(steps), *(key(step.expression, step.condition) for step in steps)}

    def table_after(self, steps: list[PathStep]) -> dict[str, str]:
        """What the statements of the functions say that a step of the newer tree stands in, to their text."""
        found: dict[str, str] = {}
        for scope in self.scopes_after(steps):
            found |= statements(scope)
        return found

    def scopes_before(self, steps: list[PathStep]) -> list[Node]:
        """The functions of the older tree that a step stands in."""
        return self._scopes(self.older, steps)

    def scopes_after(self, steps: list[PathStep]) -> list[Node]:
        """The functions of the newer tree that a step stands in."""
        return self._scopes(self.newer, steps)

    def _scopes(self, parsed: Parsed, steps: list[PathStep]) -> list[Node]:
        places = dict.fromkeys((parsed.tree.inside(step.file), step.symbol) for step in steps)
        return [scope for place in places if (scope := self._function(parsed, place)) is not None]

    def functions(self) -> Iterator[tuple[str, str, dict[str, str], dict[str, str]]]:
        """(file, symbol, what it says before, after) of each function that both paths have; both in the newer tree's names."""
        after = {(self.newer.tree.inside(step.file), step.symbol) for step in self.after.steps}
        for place in self._places():
            first, second = self._function(self.older, place), self._function(self.newer, self._there(place))
            if first is not None and second is not None and self._there(place) in after:
                yield *place, statements(first, self._names(place)), statements(second)

    def unfollowed(self) -> tuple[str, ...]:
        """Names of other objects that the newer path's statements need and whose definition is not certain, nearest first."""
        return tuple(self._reaches[1].unfollowed)

    @cached_property
    def _reaches(self) -> tuple[Reach, Reach]:
        before, after = (
            reach(parsed, [(parsed.tree.inside(step.file), step.symbol, step.line) for step in path.steps])
            for parsed, path in ((self.older, self.before), (self.newer, self.after))
        )
        return before, after

    def reached(self) -> list[Reached]:
        """What the two paths need beyond their own functions, nearest first; what moved to another file is found by its name."""
        before, after = (reached.found for reached in self._reaches)
        names = self.functions_renamed
        own = [{f"{place[0]} {place[1]}" for place, item in found.items() if item.steps == 0} for found in (before, after)]
        moved = {item.name: item for place, item in after.items() if place not in before}
        taken = set[Place]()
        found = []
        for place, item in before.items():
            other = after.get(place) or moved.get(item.name)
            if other is not None:
                taken.add((other.file, other.name))
            found.append(
                Reached(item.file, item.name, _says(item, own[0], names), _says(other, own[1]) if other is not None else {})
            )
        found += [Reached(item.file, item.name, {}, _says(item, own[1])) for place, item in after.items() if place not in taken]
        return [item for item in found if item.before or item.after]


def _says(item: Definition, own: set[str], names: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a definition says; of the path's functions (`own`) only what replaces them, as these are compared by themselves."""
    said: dict[str, str] = {}
    for node in item.nodes[1:] if item.steps == 0 else item.nodes:
        if node.type in ("function_definition", "class_definition"):
            said |= statements(node, names) if f"{item.file} {item.name}" not in own else {}
        elif f"{item.file} {enclosing(node)}" not in own:
            written, under = one_line(node), condition(node, scope_of(node))
            said[key(written, under, names)] = f"{written}   if {under}" if under else written
    return said
