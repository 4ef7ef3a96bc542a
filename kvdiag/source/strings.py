"""Reading string expressions: f-strings, %-formats, str.format, sums, joins and conditions as templates."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kvdiag.source.syntax import one_line, required, text
from kvdiag.source.template import Choice, Hole, Template, joined, separated, spaced

if TYPE_CHECKING:
    from tree_sitter import Node

_PERCENT = re.compile(r"%(?:\((\w+)\))?[#0\- +]*(?:\d+|\*)?(?:\.(\d+))?([diouxXeEfFgGcrsa%])")
_BRACE = re.compile(r"\{\{|\}\}|\{([^{}:!]*)(?:!([rsa]))?(?::([^{}]*))?\}")
_DEEPEST = 12
_MOST_TIMES = 200

Resolve = Callable[["Node"], "Template | None"]
"""What a name stands for where it is used, None where it is a value."""


def template_of(node: Node, resolve: Resolve, depth: int = 0) -> Template | None:
    """What `node` prints, None where it is not a text (a plain value, a call of something else)."""
    reader = _READERS.get(node.type)
    if reader is None or depth > _DEEPEST:
        return None
    made = reader(node, resolve, depth + 1)
    return joined(made) if made is not None else None


def value(node: Node, resolve: Resolve, depth: int, form: str = "") -> Template:
    """A part of a text: what the expression prints where that is known, else a hole for it."""
    known = template_of(node, resolve, depth) if not form else None
    return known if known is not None else (Hole(one_line(node), form, node),)


def argument(node: Node, resolve: Resolve, depth: int, form: str = "") -> Template:
    """A value put into a format: the text it is known to be, or whatever else it may have been."""
    known = value(node, resolve, depth, form)
    hole = Hole(one_line(node), form, node)
    return known if known == (hole,) else (Choice((known, (hole,))),)


def _string(node: Node, resolve: Resolve, depth: int) -> Template | None:
    opening = text(node.children[0]).lower() if node.children else ""
    if "b" in opening.rstrip("\"'"):
        return None
    raw = "r" in opening.rstrip("\"'")
    parts: list[str | Hole | Choice] = []
    for child in node.children[1:]:
        if child.type == "interpolation":
            parts.extend(_interpolation(child, resolve, depth))
        elif child.type == "string_content":
            parts.append(_content(child, raw, "f" in opening.rstrip("\"'")))
    return tuple(parts)


def _content(node: Node, raw: bool, formatted: bool) -> str:
    written = text(node)
    if not raw and "\\" in written:
        written = _unescaped(written)
    return written.replace("{{", "{").replace("}}", "}") if formatted else written


def _unescaped(written: str) -> str:
    try:
        return str(ast.literal_eval('"""' + written.replace('"', '\\"').replace('\\\\"', '\\"') + ' """'))[:-1]
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return written.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\'", "'")


def _interpolation(node: Node, resolve: Resolve, depth: int) -> Template:
    expression = required(node, "expression")
    form = text(node.child_by_field_name("format_specifier")).lstrip(":")
    conversion = text(node.child_by_field_name("type_conversion"))
    named = any(child.type == "=" for child in node.children)
    if not named:
        return argument(expression, resolve, depth, form or conversion)
    return (text(expression) + "=", Hole(one_line(expression), form or conversion or "!r", expression))


def _concatenated(node: Node, resolve: Resolve, depth: int) -> Template | None:
    parts: list[str | Hole | Choice] = []
    for child in node.named_children:
        if child.type != "comment":
            parts.extend(template_of(child, resolve, depth) or ())
    return tuple(parts)


def _parenthesized(node: Node, resolve: Resolve, depth: int) -> Template | None:
    inner = [child for child in node.named_children if child.type != "comment"]
    return template_of(inner[0], resolve, depth) if len(inner) == 1 else None


def _conditional(node: Node, resolve: Resolve, depth: int) -> Template | None:
    parts = [child for child in node.named_children if child.type != "comment"]
    if len(parts) != 3:
        return None
    branches = [template_of(parts[index], resolve, depth) for index in (0, 2)]
    if branches[0] is None and branches[1] is None:
        return None
    made = tuple(
        branch if branch is not None else (Hole(one_line(parts[index]), "", parts[index]),)
        for branch, index in zip(branches, (0, 2), strict=True)
    )
    return (Choice(made),)


def _binary(node: Node, resolve: Resolve, depth: int) -> Template | None:
    left, operator, right = required(node, "left"), text(required(node, "operator")), required(node, "right")
    if operator == "+":
        first, second = template_of(left, resolve, depth), template_of(right, resolve, depth)
        if first is None and second is None:
            return None
        return (*(first or value(left, resolve, depth)), *(second or value(right, resolve, depth)))
    if operator == "%":
        pattern = template_of(left, resolve, depth)
        return percent(pattern, _arguments(right), resolve, depth) if pattern is not None else None
    if operator == "*":
        known = template_of(left, resolve, depth)
        if known is None:
            return None
        times = int(text(right)) if right.type == "integer" and text(right).isdigit() else 0
        return known * times if 0 < times <= _MOST_TIMES else (Hole(one_line(node), "", node),)
    return None


def _arguments(node: Node) -> list[Node]:
    if node.type == "tuple":
        return [child for child in node.named_children if child.type != "comment"]
    if node.type == "dictionary":
        return []
    return [node]


def percent(pattern: Template, values: list[Node], resolve: Resolve, depth: int = 0) -> Template:
    """A %-format with its values put in; without values the pattern as it stands."""
    left = list(values)
    parts: list[str | Hole | Choice] = []
    for part in pattern:
        if not isinstance(part, str):
            parts.append(part)
            continue
        at = 0
        for found in _PERCENT.finditer(part):
            parts.append(part[at : found.start()])
            at = found.end()
            name, decimals, kind = found.groups()
            if kind == "%":
                parts.append("%")
                continue
            form = f".{decimals or 6}f" if kind in "fF" else {"d": "d", "i": "d", "r": "!r"}.get(kind, "")
            if left and name is None:
                parts.extend(argument(left.pop(0), resolve, depth, form))
            else:
                parts.append(Hole(name or "", form))
        parts.append(part[at:])
    return tuple(parts)


def _call(node: Node, resolve: Resolve, depth: int) -> Template | None:
    function = required(node, "function")
    given = [child for child in required(node, "arguments").named_children if child.type != "comment"]
    if function.type == "identifier" and text(function) in ("str", "repr") and len(given) == 1:
        return value(given[0], resolve, depth, "!r" if text(function) == "repr" else "")
    if function.type != "attribute":
        return resolve(node)
    held, method = required(function, "object"), text(required(function, "attribute"))
    if method == "format":
        pattern = template_of(held, resolve, depth)
        return _braces(pattern, given, resolve, depth) if pattern is not None else None
    if method in ("strip", "rstrip", "lstrip"):
        return template_of(held, resolve, depth)
    if method == "join" and len(given) == 1:
        between = template_of(held, resolve, depth)
        return _join(between, given[0], resolve, depth) if between is not None else None
    return resolve(node)


def _braces(pattern: Template, given: list[Node], resolve: Resolve, depth: int) -> Template:
    named = {text(node.child_by_field_name("name")): node.child_by_field_name("value") for node in given if _is_keyword(node)}
    plain = [node for node in given if not _is_keyword(node)]
    parts: list[str | Hole | Choice] = []
    for part in pattern:
        if not isinstance(part, str):
            parts.append(part)
            continue
        at, next_plain = 0, 0
        for found in _BRACE.finditer(part):
            parts.append(part[at : found.start()])
            at = found.end()
            if found.group() in ("{{", "}}"):
                parts.append(found.group()[0])
                continue
            name, conversion, form = found.groups()
            node = named.get(name) if name else None
            if not name or name.isdigit():
                index = int(name) if name else next_plain
                next_plain += 1
                node = plain[index] if index < len(plain) else None
            form = form or (f"!{conversion}" if conversion else "")
            parts.extend(argument(node, resolve, depth, form) if node is not None else (Hole(name or "", form),))
        parts.append(part[at:])
    return tuple(parts)


def _is_keyword(node: Node) -> bool:
    return node.type == "keyword_argument"


def _join(between: Template, items: Node, resolve: Resolve, depth: int) -> Template:
    if items.type in ("list", "tuple"):
        elements = [value(child, resolve, depth) for child in items.named_children if child.type != "comment"]
        return spaced(tuple(elements), between)
    known = resolve(items)
    if known is not None:
        return separated(known, between)
    return (Hole(one_line(items), "", items),)


def _name(node: Node, resolve: Resolve, depth: int) -> Template | None:
    del depth
    return resolve(node)


_READERS: dict[str, Callable[[Node, Resolve, int], Template | None]] = {
    "string": _string,
    "concatenated_string": _concatenated,
    "parenthesized_expression": _parenthesized,
    "conditional_expression": _conditional,
    "binary_operator": _binary,
    "call": _call,
    "identifier": _name,
    "attribute": _name,
}
