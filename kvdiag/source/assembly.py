"""Strings put together over several statements: what a variable holds where it is printed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvdiag.source.statements import assignments
from kvdiag.source.strings import Resolve, template_of, value
from kvdiag.source.syntax import of_types, required, scope_of, text
from kvdiag.source.template import SEPARATOR, Choice, Hole, Template, has_literal, joined

if TYPE_CHECKING:
    from tree_sitter import Node

_DEEPEST = 6
_BEFORE = Hole("\x01")
"""Stands for what a variable held before a branch, so that the branch's own part can be told apart."""
_GROWS = ("append", "extend", "add", "write")
_INLINE = ("with_statement", "try_statement", "block", "finally_clause", "else_clause")


class Assembler:
    """Resolves names in the texts of one file."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self._texts: dict[int, frozenset[str]] = {}

    def resolver(self, use: Node, depth: int = 0) -> Resolve:
        """What a name stands for at `use`: the text put together before it, or a text constant of the module."""

        def resolve(node: Node) -> Template | None:
            if node.type != "identifier" or depth >= _DEEPEST:
                return None
            name, scope = text(node), scope_of(use)
            if name in self._named_texts(scope):
                held = self._run(_body(scope), name, use, (), depth)
                return held if has_literal(held) else None
            if name.isupper() and scope.id != self.root.id:
                return self._constant(name, depth)
            return None

        return resolve

    def value(self, node: Node) -> Template:
        """What a returned expression holds; the elements of a list stand apart by `SEPARATOR`."""
        return self._value(node, 0)

    def _constant(self, name: str, depth: int) -> Template | None:
        for statement in self.root.children:
            for _, right in assignments(statement, name) if statement.type == "expression_statement" else ():
                return template_of(right, self.resolver(right, depth + 1))
        return None

    def _named_texts(self, scope: Node) -> frozenset[str]:
        """Names of the scope that some statement gives a text or a list of texts."""
        if scope.id not in self._texts:
            self._texts[scope.id] = frozenset(_names_of_texts(scope))
        return self._texts[scope.id]

    def _run(self, statements: Iterable[Node], name: str, use: Node, held: Template, depth: int) -> Template:
        """`held` after the statements that run before `use`."""
        for statement in statements:
            if statement.start_byte >= use.start_byte or (
                statement.type == "expression_statement" and statement.end_byte > use.start_byte
            ):
                break
            held = self._after(statement, name, use, held, depth)
        return held

    def _after(self, statement: Node, name: str, use: Node, held: Template, depth: int) -> Template:
        if statement.type == "expression_statement":
            return self._simple(statement, name, held, depth)
        if statement.type == "if_statement":
            return self._branches(statement, name, use, held, depth)
        if statement.type in ("for_statement", "while_statement"):
            once = self._run(_body(statement), name, use, (_BEFORE,), depth)
            within = statement.end_byte > use.start_byte
            return _replayed(once, held) if within else _either([once, (_BEFORE,)], held)
        if statement.type in _INLINE:
            return self._run(statement.children, name, use, held, depth)
        return held

    def _branches(self, statement: Node, name: str, use: Node, held: Template, depth: int) -> Template:
        blocks = [required(statement, "consequence"), *statement.children_by_field_name("alternative")]
        outcomes: list[Template] = []
        for block in blocks:
            inner = block.child_by_field_name("consequence") or block.child_by_field_name("body") or block
            outcome = self._run(inner.children, name, use, (_BEFORE,), depth)
            if block.start_byte <= use.start_byte < block.end_byte:
                return _replayed(outcome, held)
            outcomes.append(outcome)
        if not any(block.type == "else_clause" for block in blocks):
            outcomes.append((_BEFORE,))
        return _either(outcomes, held)

    def _simple(self, statement: Node, name: str, held: Template, depth: int) -> Template:
        node = statement.named_children[0] if statement.named_child_count else statement
        if node.type == "assignment" and text(node.child_by_field_name("left")) == name:
            right = node.child_by_field_name("right")
            return self._value(right, depth) if right is not None else held
        if node.type == "augmented_assignment" and text(node.child_by_field_name("left")) == name:
            return joined((*held, *self._added(required(node, "right"), held, depth)))
        if node.type == "call":
            function, arguments = required(node, "function"), required(node, "arguments")
            if function.type == "attribute":
                method = text(function.child_by_field_name("attribute"))
                if text(function.child_by_field_name("object")) == name and method in _GROWS and arguments.named_child_count:
                    between = () if method == "write" else (SEPARATOR,)
                    return joined((*held, *(between if held else ()), *self._value(arguments.named_children[0], depth)))
        return held

    def _added(self, right: Node, held: Template, depth: int) -> Template:
        made = self._value(right, depth)
        return (SEPARATOR, *made) if right.type == "list" and held else made

    def _value(self, node: Node, depth: int) -> Template:
        resolve = self.resolver(node, depth + 1)
        if node.type in ("list", "tuple"):
            parts: list[str | Hole | Choice] = []
            for index, child in enumerate(child for child in node.named_children if child.type != "comment"):
                parts.extend((SEPARATOR,) if index else ())
                parts.extend(value(child, resolve, depth))
            return joined(tuple(parts))
        return value(node, resolve, depth)


def _body(scope: Node) -> list[Node]:
    body = scope.child_by_field_name("body")
    return body.children if body is not None else scope.children


def _names_of_texts(scope: Node) -> Iterable[str]:
    for node in of_types(scope, ("assignment", "augmented_assignment", "call")):
        if node.type == "call":
            function = required(node, "function")
            if text(function.child_by_field_name("attribute")) in _GROWS and _holds_text(node):
                yield text(function.child_by_field_name("object"))
            continue
        left, right = required(node, "left"), node.child_by_field_name("right")
        if right is not None and left.type == "identifier" and _holds_text(right):
            yield text(left)


def _holds_text(node: Node) -> bool:
    return b'"' in (node.text or b"") or b"'" in (node.text or b"")


def _replayed(outcome: Template, held: Template) -> Template:
    parts: list[str | Hole | Choice] = []
    for part in outcome:
        if part == _BEFORE:
            parts.extend(held)
        elif isinstance(part, Choice):
            parts.append(Choice(tuple(_replayed(branch, held) for branch in part.branches)))
        else:
            parts.append(part)
    return joined(tuple(parts))


def _either(outcomes: list[Template], held: Template) -> Template:
    """What a variable holds after one of several branches: what all keep stands before the choice."""
    distinct = list(dict.fromkeys(outcomes))
    if len(distinct) == 1:
        return _replayed(distinct[0], held)
    if all(outcome and outcome[0] == _BEFORE for outcome in distinct):
        return joined((*held, Choice(tuple(outcome[1:] for outcome in distinct))))
    return (Choice(tuple(_replayed(outcome, held) for outcome in distinct)),)
