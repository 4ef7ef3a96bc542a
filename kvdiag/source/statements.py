"""Finding the statements of a definition that a rule names: assignments, returns, calls, prints, raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvdiag.errors import RuleError
from kvdiag.frozen import frozen
from kvdiag.source.syntax import of_types, required, text, walk

if TYPE_CHECKING:
    from tree_sitter import Node

KINDS = ("assign", "return", "call", "log", "raise")
_STRINGS = ("string", "concatenated_string")


@frozen
class Selector:
    """``assign NAME``, ``return``, ``call NAME``, ``log TEXT`` or ``raise``, each with an optional ``has TEXT``."""

    kind: str
    name: str
    holds: str

    def matches(self, statement: Node) -> Iterator[Node]:
        """The nodes of a definition that this selects, below `statement`."""
        return _FINDERS[self.kind](statement, self)


def parse_selector(written: str) -> Selector:
    """A selector from a rule file. Raises RuleError where the kind is unknown."""
    kind, _, rest = written.partition(" ")
    name, _, holds = rest.partition(" has ") if not rest.startswith("has ") else ("", "", rest[4:])
    if kind not in KINDS:
        raise RuleError(f"{written!r}: statements begin with one of {', '.join(KINDS)}")
    return Selector(kind, name, holds)


def assignments(scope: Node, name: str) -> Iterator[tuple[Node, Node]]:
    """(statement, value) of each assignment to `name` below `scope`, of whatever form.

    Forms: ``x = v``, ``x: T = v``, ``x += v``, ``(x := v)``, ``a, x = v`` (the whole value), and the keyword argument of
    a call that stands alone, ``declare(args, x=v)``. `name` is the dotted text, or the last part of it.
    """
    for node in of_types(scope, ("assignment", "augmented_assignment", "named_expression", "keyword_argument")):
        if node.type == "keyword_argument":
            if text(node.child_by_field_name("name")) == name and _declares(node):
                yield node, required(node, "value")
            continue
        target = required(node, "name" if node.type == "named_expression" else "left")
        if any(_is_name(found, name) for found in _targets(target)):
            value = node.child_by_field_name("value" if node.type == "named_expression" else "right")
            yield node, value if value is not None else node


def _declares(keyword: Node) -> bool:
    """Whether a keyword argument assigns: its call stands alone as a statement, as a declaration of defaults does."""
    call = keyword.parent.parent if keyword.parent is not None else None
    if call is None or call.type != "call" or call.parent is None or call.parent.type != "expression_statement":
        return False
    return "resolution" in text(call.child_by_field_name("function")) or "override" in text(call.child_by_field_name("function"))


def element_of(statement: Node, name: str) -> int | None:
    """Which element of an assignment's value `name` is given; None where it is given the whole."""
    target = statement.child_by_field_name("left")
    if target is None or target.type not in ("pattern_list", "tuple_pattern", "list_pattern", "tuple"):
        return None
    parts = [child for child in target.named_children if child.type != "comment"]
    return next((index for index, child in enumerate(parts) if _is_name(child, name)), None)


def _targets(target: Node) -> list[Node]:
    if target.type in ("pattern_list", "tuple_pattern", "list_pattern", "tuple"):
        return [found for child in target.named_children for found in _targets(child)]
    return [target]


def _is_name(node: Node, name: str) -> bool:
    written = text(node)
    return written == name or (node.type == "attribute" and written.endswith("." + name) and "." not in name)


def _assign(scope: Node, selector: Selector) -> Iterator[Node]:
    for statement, value in assignments(scope, selector.name):
        if selector.holds in text(value):
            yield statement


def _return(scope: Node, selector: Selector) -> Iterator[Node]:
    for node in of_types(scope, ("return_statement",)):
        if node.named_child_count and selector.holds in text(node) and not _is_bare(node):
            yield node


def _is_bare(node: Node) -> bool:
    return all(child.type in ("none", "true", "false") for child in node.named_children)


def _call(scope: Node, selector: Selector) -> Iterator[Node]:
    for node in of_types(scope, ("call",)):
        function = text(node.child_by_field_name("function"))
        if function.rpartition(".")[2] == selector.name and selector.holds in text(node):
            yield node


def _log(scope: Node, selector: Selector) -> Iterator[Node]:
    seen = set()
    for node in of_types(scope, _STRINGS):
        if node.parent is not None and node.parent.type == "concatenated_string":
            continue
        written = "".join(text(piece) for piece in walk(node) if piece.type == "string_content")
        if selector.name in written or selector.name in text(node):
            statement = _statement(node)
            if statement.id not in seen:
                seen.add(statement.id)
                yield statement


def _statement(node: Node) -> Node:
    current = node
    while current.parent is not None and current.parent.type not in ("block", "module"):
        current = current.parent
    return current


def _raise(scope: Node, selector: Selector) -> Iterator[Node]:
    for node in of_types(scope, ("raise_statement",)):
        if selector.holds in text(node):
            yield node


_FINDERS = {"assign": _assign, "return": _return, "call": _call, "log": _log, "raise": _raise}
