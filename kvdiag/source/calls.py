"""Which function a call means: of the same file, of a base class, or brought in by an import from another file of the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvdiag.source.modules import modules_of
from kvdiag.source.parsed import Parsed
from kvdiag.source.syntax import definitions, enclosing, text

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_BASES = 8


def called_function(call: Node, parsed: Parsed | None) -> Node | None:
    """The one definition a call of ``f()`` or ``self.f()`` means; None where there is none in the tree, or several.

    Without `parsed` only the file of the call is looked at.
    """
    owner, _, name = text(call.child_by_field_name("function")).rpartition(".")
    root = _root(call)
    if owner == "self":
        return _method(root, enclosing(call).partition(".")[0], name, parsed)
    if owner:
        return None
    found = _defined(root, name)
    return found[0] if len(found) == 1 else None if found else _imported(root, name, parsed)


def _root(node: Node) -> Node:
    while node.parent is not None:
        node = node.parent
    return node


def _defined(root: Node, name: str) -> list[Node]:
    return [node for qualified, node in definitions(root) if qualified == name]


def _method(root: Node, owner: str, name: str, parsed: Parsed | None) -> Node | None:
    """The method of a class or of the first of its bases that has one, as far as the bases can be found."""
    todo, seen = [(root, owner)], set[tuple[int, str]]()
    while todo and len(seen) < _MOST_BASES:
        place, cls = todo.pop(0)
        if (place.id, cls) in seen:
            continue
        seen.add((place.id, cls))
        found = _defined(place, f"{cls}.{name}")
        if found:
            return found[0] if len(found) == 1 and found[0].type == "function_definition" else None
        classes = _defined(place, cls)
        if len(classes) != 1:
            return None
        for base in _bases(classes[0]):
            if len(_defined(place, base)) == 1:
                todo.append((place, base))
            elif (elsewhere := _imported(place, base, parsed)) is not None:
                todo.append((_root(elsewhere), text(elsewhere.child_by_field_name("name"))))
            else:
                return None
    return None


def _bases(cls: Node) -> list[str]:
    listed = cls.child_by_field_name("superclasses")
    names = (
        [text(node) for node in listed.named_children if node.type in ("identifier", "attribute")] if listed is not None else []
    )
    return [name for name in names if name not in ("object", "ABC", "Protocol")]


def _imported(root: Node, name: str, parsed: Parsed | None) -> Node | None:
    """The definition that the imports of a file bring in as `name`; None where they name several."""
    file = parsed.file_of(root) if parsed is not None else None
    member = modules_of(parsed).member(file, name) if parsed is not None and file is not None else None
    found = member[2] if member is not None else ()
    return found[0] if len(found) == 1 and found[0].type in ("function_definition", "class_definition") else None
