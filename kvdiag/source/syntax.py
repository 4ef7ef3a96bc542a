"""Python source as a syntax tree: definitions by qualified name, statements, and their text on one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MODULE = "<module>"
LONGEST_EXPRESSION = 600
_SCOPES = ("class_definition", "function_definition")
_LAYOUT = re.compile(r"(?<!\s)\s*\n\s*")


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter_python
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_python.language()))


def parse(data: bytes) -> Node:
    """The root of the syntax tree; text that is no Python gives a tree with error nodes, never an exception."""
    return _parser().parse(data).root_node


def first_error(root: Node) -> int | None:
    """The line of the first place that is no Python, None where all is."""
    if not root.has_error:
        return None
    return min((line(node) for node in walk(root) if node.is_error or node.is_missing), default=1)


def text(node: Node | None) -> str:
    """The source text of a node as it stands."""
    return node.text.decode("utf-8", "replace") if node is not None and node.text is not None else ""


def one_line(node: Node | None) -> str:
    """The source text on one line, without comments and line layout, cut where it is very long."""
    if node is None:
        return ""
    raw = node.text or b""
    pieces, at = [], node.start_byte
    for comment in of_types(node, ("comment",)):
        pieces.append(raw[at - node.start_byte : comment.start_byte - node.start_byte])
        at = comment.end_byte
    pieces.append(raw[at - node.start_byte :])
    flat = _LAYOUT.sub(" ", b"".join(pieces).decode("utf-8", "replace"))
    flat = flat.replace("( ", "(").replace("[ ", "[").replace(", )", ")").replace(" )", ")").replace(" ]", "]").strip()
    return flat if len(flat) <= LONGEST_EXPRESSION else flat[:LONGEST_EXPRESSION] + " ..."


def required(node: Node, field: str) -> Node:
    """The part of a node that the grammar demands of its type; in damaged text too, which else gives another type of node."""
    return node.children_by_field_name(field)[0]


def line(node: Node) -> int:
    """The line a node begins on, counted from 1."""
    return int(node.start_point[0]) + 1


def end_line(node: Node) -> int:
    """The line a node ends on, counted from 1."""
    return int(node.end_point[0]) + 1


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it in the order of the text."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(current.children))


def of_types(node: Node, types: tuple[str, ...]) -> Iterator[Node]:
    """The nodes of these types below `node`, in the order of the text."""
    return (found for found in walk(node) if found.type in types)


def named(scope: Node, name: str) -> Iterator[Node]:
    """The identifiers `name` within `scope` in the order of the text: bytes first, the syntax tree only where they are."""
    data, needle = scope.text or b"", name.encode()
    at = data.find(needle) if needle else -1
    while at >= 0:
        start = scope.start_byte + at
        node = scope.descendant_for_byte_range(start, start + len(needle))
        if node is not None and node.type == "identifier" and node.start_byte == start and node.text == needle:
            yield node
        at = data.find(needle, at + len(needle))


def definitions(root: Node) -> Iterator[tuple[str, Node]]:
    """(qualified name, definition) of every class and function, nested ones too (``Class.method.inner``)."""
    stack: list[tuple[str, Node]] = [("", root)]
    while stack:
        prefix, node = stack.pop()
        if node.type in _SCOPES:
            name = f"{prefix}.{text(node.child_by_field_name('name'))}".lstrip(".")
            yield name, node
            stack.extend((name, child) for child in reversed(required(node, "body").children))
        elif node.type not in ("expression_statement", "return_statement", "import_from_statement"):
            stack.extend((prefix, child) for child in reversed(node.children))


def find(root: Node, symbol: str) -> Node | None:
    """The definition with that qualified name, the last one as Python has it; the root for `MODULE`."""
    if symbol == MODULE:
        return root
    scopes = [root]
    for name in symbol.split("."):
        scopes = [child for scope in scopes for child in _named(scope, name)]
    return scopes[-1] if scopes else None


def _named(scope: Node, name: str) -> Iterator[Node]:
    body = required(scope, "body") if scope.type in _SCOPES else scope
    stack = list(reversed(body.children))
    while stack:
        node = stack.pop()
        if node.type in _SCOPES:
            if text(node.child_by_field_name("name")) == name:
                yield node
        elif node.type not in ("expression_statement", "return_statement", "import_from_statement"):
            stack.extend(reversed(node.children))


def enclosing(node: Node) -> str:
    """The qualified name of the definition around a node, `MODULE` at the top level."""
    names = []
    current = node.parent
    while current is not None:
        if current.type in _SCOPES:
            names.append(text(current.child_by_field_name("name")))
        current = current.parent
    return ".".join(reversed(names)) or MODULE


def scope_of(node: Node) -> Node:
    """The function around a node, or the module."""
    return ancestor(node, "function_definition")


def ancestor(node: Node, *types: str) -> Node:
    """The nearest node of these types around a node; the root where there is none."""
    current = node
    while current.parent is not None:
        current = current.parent
        if current.type in types:
            return current
    return current


def signature(node: Node) -> str:
    """``def name(parameters) -> type`` or ``class Name(bases)`` on one line."""
    name = text(node.child_by_field_name("name"))
    if node.type == "class_definition":
        return f"class {name}{one_line(node.child_by_field_name('superclasses'))}"
    returns = node.child_by_field_name("return_type")
    arrow = f" -> {one_line(returns)}" if returns is not None else ""
    return f"def {name}{one_line(node.child_by_field_name('parameters'))}{arrow}"


def condition(node: Node, within: Node) -> str:
    """All that must hold inside `within` for a statement to run, outermost first; empty where it always runs.

    The tests of the branches around it, the branches before them not taken, and the exceptions it answers. What an earlier
    statement of the same block returns or raises is not among them.
    """
    tests: list[str] = []
    current = node
    while current.parent is not None and current.id != within.id:
        tests = [*_entered_by(current, current.parent), *tests]
        current = current.parent
    return " and ".join(tests)


def _entered_by(part: Node, whole: Node) -> list[str]:
    """What must hold for `part`, a child of `whole`, to run."""
    test = whole.child_by_field_name("condition")
    if whole.type in ("if_statement", "while_statement") and part.type == "block":
        return [_operand(test)]
    if whole.type == "if_statement" and part.type in ("elif_clause", "else_clause"):
        before = [child for child in whole.children_by_field_name("alternative") if child.start_byte < part.start_byte]
        refused = [f"not {_operand(branch.child_by_field_name('condition'), True)}" for branch in (whole, *before)]
        return [*refused, _operand(part.child_by_field_name("condition"))] if part.type == "elif_clause" else refused
    if whole.type == "except_clause" and part.type == "block":
        return [one_line(whole).partition(":")[0]]
    return []


def _operand(test: Node | None, negated: bool = False) -> str:
    loose = test is not None and (negated or test.type == "conditional_expression" or " or " in text(test))
    return f"({one_line(test)})" if loose and test is not None and test.type != "parenthesized_expression" else one_line(test)
