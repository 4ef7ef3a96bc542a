"""What a name means in a file of the tree: its own definition or assignment, or what an import brings in from another file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from kvdiag.source.parsed import Parsed
from kvdiag.source.syntax import named, parse, required, text

if TYPE_CHECKING:
    from tree_sitter import Node

PACKAGE = "sglang"
_MOST_BASES = 8
_DEEPEST = 4

Member = tuple[str, str, tuple["Node", ...]]
"""File, name there, and the definitions or assignments of it at the top level of that file."""


class Modules:
    """Looks names up in the files of `parsed`; what was looked up once is kept."""

    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        self._tops: dict[str, dict[str, list[Node]]] = {}
        self._members: dict[tuple[str, str], Member | None] = {}

    def root(self, file: str) -> Node:
        """The syntax tree of a file; an empty one where there is no such file."""
        found = self.parsed.root(file)
        return found if found is not None else parse(b"")

    def member(self, file: str, name: str, depth: int = 0) -> Member | None:
        """What `name` means at the top level of `file`; None for names of Python, of other packages, or of several places."""
        key = (file, name)
        if key not in self._members:
            self._members[key] = None
            self._members[key] = self._member(file, name, depth)
        return self._members[key]

    def bases(self, file: str, owner: str) -> list[tuple[str, str]]:
        """(file, class) of a class and its bases, nearest first, as far as they are in the tree."""
        found, todo = list[tuple[str, str]](), [(file, owner)]
        while todo and len(found) < _MOST_BASES:
            place, name = todo.pop(0)
            member = self.member(place, name) if name else None
            if member is None or (member[0], member[1]) in found:
                continue
            found.append((member[0], member[1]))
            for cls in member[2]:
                listed = cls.child_by_field_name("superclasses") if cls.type == "class_definition" else None
                todo += [
                    (member[0], text(node)) for node in (listed.named_children if listed else ()) if node.type == "identifier"
                ]
        return found

    def _member(self, file: str, name: str, depth: int) -> Member | None:
        here = self._top(file).get(name)
        if here:
            return file, name, tuple(here)
        if depth >= _DEEPEST:
            return None
        named_here = set(imports(self.root(file), file, name))
        if len(named_here) > 1:
            return None
        brought = named_here or {(module, name) for module in self._stars(file)}
        found = [member for module, original in brought if (member := self._in_module(module, original, depth + 1)) is not None]
        return found[0] if len(found) == 1 else None

    def _in_module(self, module: str, name: str, depth: int) -> Member | None:
        for file in (f"{module}.py", f"{module}/__init__.py"):
            data = self.parsed.tree.read(file)
            if data is not None and (name.encode() in data or b"import *" in data):
                return self.member(file, name, depth)
        return None

    def _top(self, file: str) -> dict[str, list[Node]]:
        if file not in self._tops:
            names: dict[str, list[Node]] = {}
            for name, node in _top_level(self.root(file)):
                names.setdefault(name, []).append(node)
            self._tops[file] = names
        return self._tops[file]

    def _stars(self, file: str) -> list[str]:
        statements = [node for node in self.root(file).children if node.type == "import_from_statement"]
        starred = [node for node in statements if any(child.type == "wildcard_import" for child in node.children)]
        return [module for node in starred if (module := _module(node, file))]


@lru_cache(maxsize=4)
def modules_of(parsed: Parsed) -> Modules:
    """The names of one tree's files; the same for every question about the same parsed files."""
    return Modules(parsed)


def imports(root: Node, file: str, name: str) -> Iterator[tuple[str, str]]:
    """(module as a path in the package, name there) of each import that brings in `name`, other names followed."""
    for use in named(root, name):
        part = use.parent
        if part is None or part.type not in ("dotted_name", "aliased_import"):
            continue
        if part.type == "dotted_name" and part.parent is not None and part.parent.type == "aliased_import":
            continue
        statement = part.parent
        if statement is None or statement.type != "import_from_statement":
            continue
        module = _module(statement, file)
        if module and part.id in {node.id for node in statement.children_by_field_name("name")}:
            yield module, text(part.child_by_field_name("name")) if part.type == "aliased_import" else name


def _module(statement: Node, file: str) -> str:
    """The module of an import as a path in the package, empty for one of another package."""
    written = text(statement.child_by_field_name("module_name"))
    if not written.startswith("."):
        first, _, rest = written.partition(".")
        return rest.replace(".", "/") if first == PACKAGE else ""
    below = written.lstrip(".")
    folders = file.split("/")[: -(len(written) - len(below))]
    return "/".join([*folders, *below.split(".")] if below else folders)


def _top_level(root: Node) -> Iterator[tuple[str, Node]]:
    """Definitions and assignments that run when a file is imported, those under a condition too."""
    stack = list(reversed(root.children))
    while stack:
        node = stack.pop()
        if node.type in ("class_definition", "function_definition"):
            yield text(node.child_by_field_name("name")), node
        elif node.type == "expression_statement":
            for child in node.named_children:
                if child.type in ("assignment", "augmented_assignment"):
                    left = required(child, "left")
                    names = left.named_children if left.type in ("pattern_list", "tuple_pattern") else [left]
                    yield from ((text(name), child) for name in names if name.type == "identifier")
        else:
            stack.extend(reversed(node.named_children))
