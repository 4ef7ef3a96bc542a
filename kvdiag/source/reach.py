"""What the functions of a path reach: the functions they call, the attributes of their class, the constants they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kvdiag.frozen import field, frozen, mutable
from kvdiag.source.forms import SIMPLE, is_print, own_names
from kvdiag.source.modules import imports, modules_of
from kvdiag.source.parsed import Parsed
from kvdiag.source.search import core_files, files_with
from kvdiag.source.statements import assignments
from kvdiag.source.syntax import ancestor, enclosing, find, line, named, of_types, scope_of, text

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_REACHED = 300
"""Definitions of one path that are looked at, nearest first."""
_MOST_HEIRS = 4
_TRIVIAL = frozenset(["self", "cls", "torch", "os", "math", "logger", "logging", "gc", "time", "np", "re", "json"])

Key = tuple[str, str]
"""File within the package, and qualified name there (``Class.attribute``, ``CONSTANT``)."""


@frozen
class Definition:
    """One thing reached, and how many steps it is from the path.

    `nodes`: the function, or the statements that assign it; `starts`: the statements whose names are followed further.
    """

    file: str
    name: str
    nodes: tuple[Node, ...]
    starts: tuple[Node, ...]
    steps: int


@mutable
class Reach:
    """All that was reached, nearest first; `unfollowed` are names of other objects, whose definition is not certain."""

    found: dict[Key, Definition] = field(default_factory=dict)
    unfollowed: dict[str, None] = field(default_factory=dict)


def reach(parsed: Parsed, seeds: Iterable[tuple[str, str, int]]) -> Reach:
    """What the statements `seeds` (file, function, line) need: they themselves first, then what gives their names values."""
    return _Reacher(parsed).run(seeds)


class _Reacher:
    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        self.modules = modules_of(parsed)
        self.reached = Reach()
        self.heirs: dict[str, list[Key]] = {}
        self.elsewhere: dict[Key, list[Node]] = {}

    def run(self, seeds: Iterable[tuple[str, str, int]]) -> Reach:
        lines: dict[Key, set[int]] = {}
        for file, symbol, at in seeds:
            lines.setdefault((file, symbol), set()).add(at)
        self._find_replacements({symbol for _, symbol in lines if "." in symbol})
        todo: list[Definition] = []
        for (file, symbol), wanted in lines.items():
            node = self.parsed.symbol(file, symbol)
            if node is not None and node.type == "function_definition":
                starts = (part for part in of_types(node, SIMPLE) if line(part) in wanted or part.type == "return_statement")
                self._add(Definition(file, symbol, self._with_replacements(file, symbol, node), tuple(starts), 0), todo)
        while todo:
            definition = todo.pop(0)
            for found in self._references(definition):
                self._add(found, todo)
        return self.reached

    def _with_replacements(self, file: str, symbol: str, node: Node) -> tuple[Node, ...]:
        return (node, *replaced(self.modules.root(file), symbol), *self.elsewhere.get((file, symbol), ()))

    def _find_replacements(self, symbols: set[str]) -> None:
        """Assignments of other files, wherever in them, to a method of the path."""
        needles = {f"{symbol} =".encode(): symbol for symbol in symbols}
        for file, held in files_with(self.parsed.tree, core_files(self.parsed.tree), needles):
            for symbol in (needles[needle] for needle in held):
                member = self.modules.member(file, symbol.partition(".")[0])
                if member is None or member[0] == file:
                    continue
                for statement, _ in assignments(self.modules.root(file), symbol):
                    self.elsewhere.setdefault((member[0], symbol), []).append(statement)

    def _add(self, definition: Definition, todo: list[Definition]) -> None:
        key = (definition.file, definition.name)
        if key in self.reached.found:
            return
        if len(self.reached.found) >= MOST_REACHED:
            self.reached.unfollowed[f"all beyond the nearest {MOST_REACHED}"] = None
            return
        self.reached.found[key] = definition
        todo.append(definition)

    def _references(self, definition: Definition) -> Iterator[Definition]:
        """What the statements of one definition name, and what gives their variables values; prints and types aside."""
        seen = set[tuple[int, str]]()
        replacing = (node.child_by_field_name("right") or node for node in definition.nodes[1:] if definition.starts)
        for start in (*definition.starts, *replacing):
            scope = scope_of(start)
            for node in _needed(scope, start):
                name = text(node)
                if (scope.id, name) not in seen:
                    seen.add((scope.id, name))
                    yield from self._named(definition, node, name, own_names(scope))

    def _named(self, definition: Definition, node: Node, name: str, own: Mapping[str, tuple[Node, ...]]) -> Iterator[Definition]:
        first, _, rest = name.partition(".")
        steps = definition.steps + 1
        if first in ("self", "cls") and rest:
            attribute, _, more = rest.partition(".")
            found = list(self._attribute(definition.file, _enclosing_class(node), attribute))
            for file, symbol, nodes in found:
                yield from self._used(file, symbol, nodes, steps)
            if more or not found:
                self.reached.unfollowed[name.partition("(")[0]] = None
        elif first not in own and first not in _TRIVIAL and first.isidentifier():
            member = self.modules.member(definition.file, first)
            if member is not None:
                file, symbol, nodes = member
                yield from self._used(file, symbol, nodes, steps)
            elif any(True for _ in imports(self.modules.root(definition.file), definition.file, first)):
                self.reached.unfollowed[name.partition("(")[0]] = None
        elif rest and first in own:
            self.reached.unfollowed[name.partition("(")[0]] = None

    def _used(self, file: str, symbol: str, nodes: tuple[Node, ...], steps: int) -> Iterator[Definition]:
        """A function is followed from what it returns; a class is what making one of it runs, and not followed further."""
        first = nodes[0]
        if first.type == "class_definition":
            made = find(self.modules.root(file), f"{symbol}.__init__")
            name = f"{symbol}.__init__" if made is not None else symbol
            yield Definition(file, name, (made,) if made is not None else nodes, (), steps)
        elif first.type == "function_definition":
            returned = tuple(of_types(first, ("return_statement",)))
            yield Definition(file, symbol, nodes, returned or tuple(of_types(first, SIMPLE)), steps)
        else:
            yield Definition(file, symbol, nodes, nodes, steps)

    def _attribute(self, file: str, owner: str, name: str) -> Iterator[tuple[str, str, tuple[Node, ...]]]:
        """The method of a class or its bases, or the statements that give the attribute; else those of classes made of it."""
        for place, cls in [*self.modules.bases(file, owner), *self._heirs(owner)]:
            root = self.modules.root(place)
            method = find(root, f"{cls}.{name}")
            if method is not None:
                yield place, f"{cls}.{name}", self._with_replacements(place, f"{cls}.{name}", method)
                return
            scope = find(root, cls)
            given = tuple(_given(scope, name)) if scope is not None else ()
            if given:
                yield place, f"{cls}.{name}", given
                return

    def _heirs(self, owner: str) -> list[Key]:
        """The classes that name `owner` as a base, as a server's class does with the parts it is put together from."""
        if owner not in self.heirs:
            self.heirs[owner] = []
            needles = [f"{before}{owner}{after}".encode() for before in ("(", " ") for after in (",", ")")] if owner else []
            for file, _ in files_with(self.parsed.tree, core_files(self.parsed.tree), needles):
                found = [node for node in named(self.modules.root(file), owner) if _is_base(node)]
                self.heirs[owner] += [
                    (file, text(ancestor(node, "class_definition").child_by_field_name("name"))) for node in found
                ]
                if len(self.heirs[owner]) >= _MOST_HEIRS:
                    break
        return self.heirs[owner]


def replaced(root: Node, symbol: str) -> Iterator[Node]:
    """The statements outside of any function that put something else in the place of ``Class.method``, or delete it."""
    owner, _, name = symbol.rpartition(".")
    for node in named(root, name) if owner else ():
        whole = node.parent
        statement = whole.parent if whole is not None else None
        if whole is None or statement is None or whole.type != "attribute" or text(whole) != symbol:
            continue
        if enclosing(statement) == "<module>" and (
            statement.type == "delete_statement"
            or (statement.type == "assignment" and statement.child_by_field_name("left") == whole)
        ):
            yield statement
    for call in of_types(root, ("call",)) if owner and b"setattr(" + owner.encode() in (root.text or b"") else ():
        words = [text(part).strip("\"'") for part in call.named_children[-1].named_children]
        if (
            text(call.child_by_field_name("function")) == "setattr"
            and words[:2] == [owner, name]
            and enclosing(call) == "<module>"
        ):
            yield call


def _enclosing_class(node: Node) -> str:
    """The name of the class around a node, empty where there is none."""
    owner = ancestor(node, "class_definition")
    return text(owner.child_by_field_name("name"))


def _needed(scope: Node, start: Node) -> Iterator[Node]:
    """The names (whole attributes) a statement needs: its own, its conditions', and those of what gives its variables values."""
    own = own_names(scope)
    todo, seen = [start], set[int]()
    while todo:
        statement = todo.pop()
        if statement.id in seen:
            continue
        seen.add(statement.id)
        todo += _tests_around(statement, scope)
        for node in _names_in(statement, statement.id == start.id):
            yield node
            todo += own.get(text(node).partition(".")[0], ())


def _tests_around(statement: Node, scope: Node) -> Iterator[Node]:
    current = statement.parent
    while current is not None and current.id != scope.id:
        for branch in (current, *current.children_by_field_name("alternative")) if current.type == "if_statement" else (current,):
            test = branch.child_by_field_name("condition")
            if test is not None:
                yield test
        current = current.parent


def _names_in(statement: Node, prints: bool) -> Iterator[Node]:
    """The names in a statement, types aside; those in prints only where these are what was asked for."""
    stack = [statement]
    while stack:
        node = stack.pop()
        if node.type == "type" or (node.type == "call" and not prints and is_print(node)):
            continue
        if node.type in ("identifier", "attribute"):
            yield node
            inner = node.child_by_field_name("object")
            if inner is not None and inner.type not in ("identifier", "attribute"):
                stack.append(inner)
        elif node.type in ("keyword_argument", "default_parameter", "typed_default_parameter"):
            stack.extend(node.named_children[1:])
        elif node.type in ("if_statement", "for_statement", "while_statement"):
            stack.extend(part for part in node.named_children if part.type not in ("block", "elif_clause", "else_clause"))
        else:
            stack.extend(reversed(node.named_children))


def _given(scope: Node, name: str) -> Iterator[Node]:
    """The statements in a class that give an attribute: ``self.x = v``, ``x: T = v``, whatever the operator."""
    for node in named(scope, name):
        whole = node.parent if node.parent is not None and node.parent.type == "attribute" else node
        statement = whole.parent
        if whole.type == "attribute" and text(whole) != f"self.{name}":
            continue
        while statement is not None and statement.type in ("pattern_list", "tuple_pattern"):
            statement = statement.parent
        if statement is None or statement.type not in ("assignment", "augmented_assignment"):
            continue
        left = statement.child_by_field_name("left")
        in_class = whole.type == "attribute" or ancestor(statement, "function_definition", "class_definition") == scope
        if left is not None and left.start_byte <= whole.start_byte < left.end_byte and in_class:
            yield statement


def _is_base(node: Node) -> bool:
    listed = node.parent
    return (
        listed is not None
        and listed.type == "argument_list"
        and listed.parent is not None
        and listed.parent.type == "class_definition"
    )
