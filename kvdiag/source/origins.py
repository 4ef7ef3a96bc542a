"""Walking an expression back to where its value is born: assignments, attributes, parameters and calls within the tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvdiag.frozen import frozen, replace
from kvdiag.source.parsed import Parsed
from kvdiag.source.search import core_files, files_with
from kvdiag.source.statements import assignments, element_of
from kvdiag.source.syntax import MODULE, definitions, enclosing, line, named, of_types, one_line, required, scope_of, text

if TYPE_CHECKING:
    from tree_sitter import Node

DEEPEST = 4
MOST_ORIGINS = 24
_MOST_EACH = 4
_MOST_SEARCHED = 6
_MOST_FILES = 6


@frozen
class Origin:
    """One step back: the statement that gave a value, and how many steps it is away. `confidence` as of a path's steps."""

    file: str
    symbol: str
    line: int
    expression: str
    depth: int
    confidence: str


@frozen
class _Reference:
    """A name as it is used: ``x``, ``self.x``, ``a.b.x`` or a call of one of these."""

    name: str
    attribute: bool
    call: bool
    node: Node
    file: str
    element: int | None = None

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """What the attribute is looked up on, as a class would be named: ``self.model_runner.x`` gives modelrunner."""
        return self.name.rpartition(".")[0].rpartition(".")[2].replace("_", "").lower()


@frozen
class _Born:
    statement: Node
    value: Node
    file: str
    confidence: str
    element: int | None = None
    """Which element of the value is meant, where several names are given the elements of one value."""

    def of_class(self, name: str) -> bool:
        """Whether the statement stands in a class of that name (in lower case), a mixin of it counted."""
        owner = enclosing(self.statement).partition(".")[0].lower()
        return len(name) > 3 and owner.startswith(name)


class Walker:
    """Walks back within `parsed`'s tree; what was looked up once is not looked up again."""

    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        self._searched: dict[tuple[str, bool], list[_Born]] = {}

    def origins(self, file: str, expression: Node) -> list[Origin]:
        """The steps behind the value of `expression`, nearest first, at most `MOST_ORIGINS` of them."""
        found: list[Origin] = []
        seen: set[tuple[str, int]] = set()
        level = list(_references(file, expression))
        for depth in range(1, DEEPEST + 1):
            following: list[_Reference] = []
            for reference in level:
                for born in self._born(reference):
                    key = (born.file, born.statement.start_byte)
                    if key in seen or len(found) >= MOST_ORIGINS:
                        continue
                    seen.add(key)
                    found.append(_origin(born, depth))
                    following.extend(_references(born.file, born.value, born.element))
            level = following
        return found

    def _born(self, reference: _Reference) -> list[_Born]:
        here = _in_file(reference, self.parsed)
        if here or (not reference.attribute and not reference.call):
            return here
        return self._anywhere(reference)

    def _anywhere(self, reference: _Reference) -> list[_Born]:
        """By name over the whole tree: the likely one where there is one, possible ones where there are several."""
        key = (reference.last, reference.call)
        if key not in self._searched:
            self._searched[key] = self._search(*key) if len(self._searched) < _MOST_SEARCHED else []
        found = self._searched[key]
        own = [replace(born, confidence="likely") for born in found if born.of_class(reference.owner)]
        return [replace(born, element=reference.element) if reference.call else born for born in (own or found)[:_MOST_EACH]]

    def _search(self, name: str, call: bool) -> list[_Born]:
        needles = [f"def {name}(".encode()] if call else [f".{name} =".encode(), f" {name}: ".encode()]
        found: list[_Born] = []
        for count, (file, _) in enumerate(files_with(self.parsed.tree, core_files(self.parsed.tree), needles)):
            root = self.parsed.root(file) if count < _MOST_FILES else None
            if root is None:
                break
            if call:
                found.extend(_Born(*pair, file, "possible") for pair in _returns(root, name))
            else:
                found.extend(_Born(*pair, file, "possible", element_of(pair[0], name)) for pair in _settings(root, name))
        if len({(born.file, enclosing(born.statement)) for born in found}) == 1:
            return [replace(born, confidence="likely") for born in found]
        return found


def _origin(born: _Born, depth: int) -> Origin:
    return Origin(born.file, enclosing(born.statement), line(born.statement), one_line(born.statement), depth, born.confidence)


def _references(file: str, expression: Node, element: int | None = None) -> Iterator[_Reference]:
    """The names an expression (or one element of it) is made of, each once, the outermost attribute of each."""
    seen = set()
    if element is not None:
        while expression.type == "parenthesized_expression" and expression.named_child_count == 1:
            expression = expression.named_children[0]
        if expression.type in ("tuple", "expression_list"):
            parts = [node for node in expression.named_children if node.type != "comment"]
            expression = parts[element] if element < len(parts) else expression
        if expression.type == "call":
            function = required(expression, "function")
            yield _Reference(text(function), function.type == "attribute", True, expression, file, element)
            return
    stack = [expression]
    while stack:
        node = stack.pop()
        if node.type == "call":
            function = required(node, "function")
            if function.type in ("identifier", "attribute"):
                name = text(function)
                if ("c", name) not in seen:
                    seen.add(("c", name))
                    yield _Reference(name, function.type == "attribute", True, node, file)
                stack.extend(reversed(required(node, "arguments").named_children))
                continue
        if node.type in ("identifier", "attribute"):
            name = text(node)
            if ("n", name) not in seen and name not in ("self", "cls"):
                seen.add(("n", name))
                yield _Reference(name, node.type == "attribute", False, node, file)
            if node.type == "attribute" and b"(" in (node.text or b""):
                stack.extend(node.named_children[:1])
            continue
        if node.type == "keyword_argument":
            stack.extend(node.named_children[1:])
            continue
        stack.extend(reversed(node.named_children))


def _in_file(reference: _Reference, parsed: Parsed) -> list[_Born]:
    root = parsed.root(reference.file)
    if root is None:
        return []
    if reference.call:
        found = [_Born(*pair, reference.file, "certain", reference.element) for pair in _called(root, reference)]
    elif reference.attribute:
        scope = _class_of(reference.node) if reference.name.startswith(("self.", "cls.")) else root
        pairs = [pair for pair in assignments(scope or root, reference.name) if pair[0].id != _own(reference.node)]
        found = [_Born(*pair, reference.file, "certain", element_of(pair[0], reference.name)) for pair in pairs]
    else:
        found = [_Born(*pair, reference.file, "certain", element_of(pair[0], reference.name)) for pair in _local(root, reference)]
    return found[-_MOST_EACH:]


def _own(node: Node) -> int:
    """The assignment a reference stands on the left of, so that it is not given as its own origin."""
    parent = node.parent
    return parent.id if parent is not None and parent.type in ("assignment", "augmented_assignment") else -1


def _local(root: Node, reference: _Reference) -> Iterator[tuple[Node, Node]]:
    scope = scope_of(reference.node)
    before = [pair for pair in assignments(scope, reference.name) if pair[0].start_byte < reference.node.start_byte]
    if before:
        yield from before
    elif _is_parameter(scope, reference.name):
        yield from _given(root, scope, reference.name)
    else:
        for statement in root.children:
            yield from assignments(statement, reference.name) if statement.type == "expression_statement" else ()


def _is_parameter(scope: Node, name: str) -> bool:
    parameters = scope.child_by_field_name("parameters")
    return parameters is not None and any(text(node) == name for node in of_types(parameters, ("identifier",)))


def _given(root: Node, function: Node, name: str) -> Iterator[tuple[Node, Node]]:
    """What the calls of a function in its own file give for a parameter."""
    called = text(function.child_by_field_name("name"))
    names = [_parameter_name(node) for node in required(function, "parameters").named_children]
    for call in _calls_of(root, called):
        offset = 1 if required(call, "function").type == "attribute" and names[:1] in (["self"], ["cls"]) else 0
        plain = [node for node in required(call, "arguments").named_children if node.type != "comment"]
        for index, node in enumerate(plain):
            if node.type == "keyword_argument":
                if text(required(node, "name")) == name:
                    yield call, required(node, "value")
            elif index + offset < len(names) and names[index + offset] == name:
                yield call, node


def _calls_of(root: Node, called: str) -> Iterator[Node]:
    """The calls of a function by its name's last part."""
    for node in named(root, called):
        parent = node.parent
        if parent is not None and parent.type == "attribute":
            parent = parent.parent
        if parent is not None and parent.type == "call":
            yield parent


def _parameter_name(node: Node) -> str:
    names = [text(found) for found in of_types(node, ("identifier",))]
    return names[0] if names else ""


def _called(root: Node, reference: _Reference) -> Iterator[tuple[Node, Node]]:
    """The return statements of the function a call means, in the same class before elsewhere in the file."""
    wanted = reference.last
    found = [
        (name, node) for name, node in definitions(root) if name.rpartition(".")[2] == wanted and node.type != "class_definition"
    ]
    if reference.name.startswith("self."):
        own = enclosing(reference.node).split(".")[0]
        found = [item for item in found if item[0].startswith(own + ".")] or found
    elif not reference.attribute:
        found = [item for item in found if "." not in item[0]] or found
    for _, node in found[:_MOST_EACH]:
        yield from _returned(node)


def _returned(function: Node) -> Iterator[tuple[Node, Node]]:
    for statement in of_types(function, ("return_statement",)):
        if statement.named_child_count:
            yield statement, statement.named_children[0]


def _returns(root: Node, name: str) -> Iterator[tuple[Node, Node]]:
    for qualified, node in definitions(root):
        if qualified.rpartition(".")[2] == name and node.type == "function_definition":
            yield from _returned(node)


def _settings(root: Node, name: str) -> Iterator[tuple[Node, Node]]:
    """Assignments to an attribute, and the field of a class that declares it."""
    for statement, value in assignments(root, name):
        if enclosing(statement) != MODULE:
            yield statement, value


def _class_of(node: Node) -> Node | None:
    current = node.parent
    while current is not None and current.type != "class_definition":
        current = current.parent
    return current
