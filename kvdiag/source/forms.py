"""What statements say, their layout and consistent new names aside: so that two trees can be compared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from kvdiag.source.syntax import condition, definitions, of_types, one_line, required, text

if TYPE_CHECKING:
    from tree_sitter import Node

SIMPLE = ("expression_statement", "return_statement", "raise_statement", "assert_statement", "delete_statement")
"""Statements that hold no others."""
GIVING = ("assignment", "augmented_assignment", "named_expression", "for_statement", "for_in_clause")
"""What gives a variable its value."""
Names = Mapping[str, str]
"""Old name to new name."""
_NAME = re.compile(r"(?<![\w.\"'])(?:[A-Za-z_][\w.]*(?:\(\))?|\d[\w.]*)")
_TEXT = re.compile(r"[fr]?(?:\"[^\"]*\"|'[^']*')")
_WORDS = frozenset(
    [
        *("self", "cls", "if", "else", "and", "or", "not", "is", "in", "None", "True", "False", "return", "for", "lambda"),
        *("int", "float", "len", "getattr", "raise", "str"),
    ]
)


def form(expression: str, names: Names | None = None) -> str:
    """What an expression or statement says, with `names` replaced; its own text where it is no Python by itself."""
    return _form(expression, tuple(sorted(names.items())) if names else ())


@lru_cache(maxsize=8192)
def _form(expression: str, names: tuple[tuple[str, str], ...]) -> str:
    try:
        tree = ast.parse(expression)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return expression
    known = dict(names)
    for node in ast.walk(tree) if known else ():
        if isinstance(node, ast.Name):
            node.id = known.get(node.id, node.id)
        elif isinstance(node, ast.Attribute):
            node.attr = known.get(node.attr, node.attr)
    return ast.dump(tree)


def statements(scope: Node, names: Names | None = None) -> dict[str, str]:
    """What the simple statements of a definition say under their conditions, to their text; and its defaults.

    Prints and texts that stand alone are left out.
    """
    found: dict[str, str] = {}
    for node in of_types(scope, (*SIMPLE, "default_parameter", "typed_default_parameter")):
        only = node.named_children[0] if node.named_child_count and node.type in SIMPLE else node
        if only.type in ("string", "concatenated_string") or (only.type == "call" and is_print(only)):
            continue
        written, under = one_line(node), condition(node, scope)
        found.setdefault(key(written, under, names), f"{written}   if {under}" if under else written)
    return found


def is_print(call: Node) -> bool:
    """Whether a call only tells something."""
    return text(call.child_by_field_name("function")).startswith(("log", "print", "warnings."))


def key(expression: str, under: str, names: Names | None = None) -> str:
    """What a statement and the condition it stands under say."""
    return f"{form(expression, names)} if {form(under, names)}" if under else form(expression, names)


@lru_cache(maxsize=256)
def own_names(scope: Node) -> Mapping[str, tuple[Node, ...]]:
    """Parameters and variables of a function, names that mean nothing outside of it, and what gives them values."""
    names: dict[str, list[Node]] = {}
    if scope.type != "function_definition":
        return {}
    for node in required(scope, "parameters").named_children:
        names.setdefault(text(next(of_types(node, ("identifier",)), None)), []).append(node)
    for node in of_types(scope, GIVING):
        left = required(node, "name" if node.type == "named_expression" else "left")
        for found in of_types(left, ("identifier",)) if left.type not in ("attribute", "subscript") else ():
            names.setdefault(text(found), []).append(node)
    return {name: tuple(nodes) for name, nodes in names.items()}


def renamed_variables(before: Node, after: Node, names: Names) -> dict[str, str]:
    """Variables of a function that have another name in the other tree: all that gives them values is the same there."""
    old, new = own_names(before), own_names(after)
    gone, come = [name for name in old if name not in new], [name for name in new if name not in old]
    found: dict[str, str] = {}
    for _ in gone:
        for name in gone:
            told = {other: _values(after, new[other], {}) for other in come if other not in found.values()}
            fits = [o for o, said in told.items() if said == _values(before, old[name], {**names, **found, name: o})]
            if name not in found and len(fits) == 1:
                found[name] = fits[0]
    return found


def _values(scope: Node, nodes: tuple[Node, ...], names: Names) -> list[str]:
    places = [node.id for node in required(scope, "parameters").named_children]
    return [
        f"parameter {places.index(node.id)}"
        if node.id in places
        else key(one_line(node).partition("\n")[0], condition(node, scope), names)
        for node in nodes
    ]


def renamed_function(lost: Node, symbol: str, before: Node, after: Node) -> str:
    """The name that the function `symbol` of the file `before` has in `after`, empty where none there says the same."""
    owner, _, last = symbol.rpartition(".")
    known = {name for name, _ in definitions(before)}
    fits = []
    for name, node in definitions(after):
        if name in known or name.rpartition(".")[0] != owner or node.type != "function_definition":
            continue
        names = {last: name.rpartition(".")[2]}
        names |= renamed_variables(lost, node, names)
        if list(statements(lost, names)) == list(statements(node)):
            fits.append(name)
    return fits[0] if len(fits) == 1 else ""


def names_in(expressions: tuple[str, ...], names: Names | None = None) -> tuple[str, ...]:
    """The names and numbers in expressions by their last part: whose attribute a value is says nothing of the sum."""
    found = (name for told in expressions for name in _NAME.findall(_TEXT.sub("", told)))
    last = (name if name[0].isdigit() else name.rpartition(".")[2].removesuffix("()") for name in found)
    new = names or {}
    return tuple(dict.fromkeys(new.get(name, name) for name in last if name and name not in _WORDS))


def behind(expressions: tuple[str, ...], scopes: list[Node], names: Names | None = None) -> Iterator[str]:
    """The names behind the variables that expressions name: those of what gives them values in the functions `scopes`."""
    wanted = set(names_in(expressions))
    for scope in scopes:
        for name, nodes in own_names(scope).items():
            if name in wanted:
                given = tuple(one_line(node) for node in nodes if node.type in GIVING[:3])
                yield from (found for found in names_in(given, names) if not found[0].isdigit())
