"""The statements of a file that print, raise or build a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvdiag.frozen import frozen
from kvdiag.source.assembly import Assembler
from kvdiag.source.strings import Resolve, percent, template_of, value
from kvdiag.source.syntax import enclosing, end_line, line, named, required, scope_of, text
from kvdiag.source.template import Choice, Hole, Template, joined, separated

if TYPE_CHECKING:
    from tree_sitter import Node

_LEVELS = frozenset(["debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log", "print"])
_TEXTUAL = (
    "string",
    "concatenated_string",
    "binary_operator",
    "parenthesized_expression",
    "conditional_expression",
    "interpolation",
    "string_content",
)


@frozen
class Message:
    """A statement and what it prints. `kind`: ``log``, ``raise``, ``assert``, or ``part`` for a text that others print."""

    file: str
    symbol: str
    line: int
    end_line: int
    kind: str
    template: Template
    node: Node


def messages_at(root: Node, file: str, places: Iterator[Node]) -> Iterator[Message]:
    """The messages that the string nodes `places` belong to: their own statement, and those that print what it builds."""
    assembler = Assembler(root)
    seen: set[int] = set()
    for place in places:
        for printing in _printing(place):
            if printing.id not in seen:
                seen.add(printing.id)
                yield from _messages(printing, file, assembler)


def _printing(place: Node) -> Iterator[Node]:
    """The node that prints, raises or returns a string, and the prints of the variable it is put into."""
    current = place
    outermost = place
    while current.parent is not None:
        parent = current.parent
        if _prints(parent):
            yield parent
            return
        if parent.type in ("raise_statement", "assert_statement"):
            yield parent
            return
        if parent.type in _TEXTUAL or (parent.type in ("argument_list", "attribute", "call") and _keeps_text(parent)):
            outermost = parent if parent.type in _TEXTUAL or parent.type == "call" else outermost
        if parent.type in ("assignment", "augmented_assignment"):
            yield from _prints_of(required(parent, "left"))
            yield outermost
            return
        if parent.type == "call" and _grows(parent):
            yield from _prints_of(required(required(parent, "function"), "object"))
            yield outermost
            return
        if parent.type == "return_statement" and current.type == "list":
            yield parent
        if parent.type.endswith("_statement") or parent.type in ("block", "module"):
            break
        current = parent
    if outermost.parent is None or outermost.parent.type != "expression_statement":
        yield outermost


def _keeps_text(node: Node) -> bool:
    """Whether a call around a text is one of the text's own (``"..".format()``, ``str()``)."""
    call = node
    while call.type != "call" and call.parent is not None:
        call = call.parent
    function = text(call.child_by_field_name("function"))
    return function in ("str", "repr") or function.rpartition(".")[2] in ("format", "join", "strip")


def _grows(call: Node) -> bool:
    function = required(call, "function")
    return function.type == "attribute" and text(required(function, "attribute")) in ("append", "extend", "write")


def _is_log(call: Node) -> bool:
    """Whether a call prints: by the last part of its name, as every logger, print and helper of a code base has it."""
    name = text(call.child_by_field_name("function")).rpartition(".")[2].lower().lstrip("_")
    if name in ("format", "join", "append"):
        return False
    words = set(name.split("_"))
    return bool(words & _LEVELS) or name.startswith(("log", "print", "warn")) or name.endswith(("log", "exit", "print"))


def _prints_of(target: Node) -> Iterator[Node]:
    """The prints, raises and returns of the function that mention the name `target`."""
    if target.type != "identifier":
        return
    scope, seen = scope_of(target), set()
    for use in named(scope, text(target)):
        for node in _around(use, scope):
            if node.start_byte >= target.start_byte and node.id not in seen:
                seen.add(node.id)
                yield node


def _around(use: Node, scope: Node) -> Iterator[Node]:
    """The statements around a name that print, raise or return it, the outermost first."""
    found, current = [], use.parent
    while current is not None and current.id != scope.id:
        if current.type in ("raise_statement", "assert_statement", "return_statement") or _prints(current):
            found.append(current)
        current = current.parent
    return reversed(found)


def _prints(node: Node) -> bool:
    return node.type == "call" and _is_log(node)


def _messages(node: Node, file: str, assembler: Assembler) -> Iterator[Message]:
    resolve = assembler.resolver(node)
    kind, template = "part", None
    if _prints(node):
        kind, template = "log", _logged(node, resolve)
    elif node.type == "raise_statement":
        kind, template = "raise", _raised(node, resolve)
    elif node.type == "assert_statement":
        kind = "assert"
        template = template_of(node.named_children[-1], resolve) if node.named_child_count > 1 else None
    elif node.type == "return_statement":
        template = assembler.value(node.named_children[0]) if node.named_child_count else None
    else:
        template = template_of(node, resolve)
    if template:
        made = joined(separated(template, (", ",)))
        yield Message(file, enclosing(node), line(node), end_line(node), kind, made, node)
        for piece in _physical(made):
            yield Message(file, enclosing(node), line(node), end_line(node), kind, piece, node)


def _logged(call: Node, resolve: Resolve) -> Template | None:
    given = [child for child in required(call, "arguments").named_children if child.type not in ("comment", "keyword_argument")]
    for index, node in enumerate(given):
        template = template_of(node, resolve)
        if template is None:
            continue
        if text(call.child_by_field_name("function")).rpartition(".")[2] == "print":
            rest = [piece for other in given[index + 1 :] for piece in (" ", *value(other, resolve, 0))]
            return (*template, *rest)
        return percent(template, given[index + 1 :], resolve) if given[index + 1 :] else template
    return None


def _raised(node: Node, resolve: Resolve) -> Template | None:
    for call in node.named_children:
        for argument in required(call, "arguments").named_children if call.type == "call" else ():
            template = template_of(argument, resolve)
            if template is not None:
                return template
    return None


def _physical(template: Template) -> list[Template]:
    """The lines of a message of several lines, as a log shows them one by one."""
    if not any(isinstance(part, str) and "\n" in part.strip("\n") for part in template):
        return []
    lines: list[list[str | Hole | Choice]] = [[]]
    for part in template:
        if not isinstance(part, str):
            lines[-1].append(part)
            continue
        first, *more = part.split("\n")
        lines[-1].append(first)
        lines.extend([piece] for piece in more)
    return [joined(tuple(parts)) for parts in lines if any(isinstance(part, str) and part.strip() for part in parts)]
