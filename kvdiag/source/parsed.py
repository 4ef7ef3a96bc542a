"""The files of a tree that were asked for, parsed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvdiag.source.syntax import find, parse
from kvdiag.source.tree import SourceTree

if TYPE_CHECKING:
    from tree_sitter import Node


class Parsed:
    """Parses a file of `tree` when it is first asked for."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self._roots: dict[str, Node | None] = {}

    def root(self, file: str) -> Node | None:
        """The syntax tree of a file, None where the tree has no such file."""
        if file not in self._roots:
            data = self.tree.read(file)
            self._roots[file] = parse(data) if data is not None else None
        return self._roots[file]

    def file_of(self, node: Node) -> str | None:
        """The file a node is of, None where it is of none that was parsed here."""
        while node.parent is not None:
            node = node.parent
        return next((file for file, root in self._roots.items() if root == node), None)

    def symbol(self, file: str, symbol: str) -> Node | None:
        """The definition of `symbol` in `file`, None where there is none; the name must stand in the file to parse it."""
        data = self.tree.read(file)
        if data is None or symbol.rpartition(".")[2].strip("<>").encode() not in data + b"module":
            return None
        root = self.root(file)
        return find(root, symbol) if root is not None else None
