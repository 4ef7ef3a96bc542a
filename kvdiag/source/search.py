"""Looking over a whole tree: bytes first, syntax only where the bytes are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvdiag.source.parsed import Parsed
from kvdiag.source.statements import assignments
from kvdiag.source.syntax import definitions, enclosing, scope_of
from kvdiag.source.tree import SourceTree

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_PLACES = 12
_TESTS = re.compile(r"(?:^|/)tests?/|(?:^|/)test_")


def core_files(tree: SourceTree) -> list[str]:
    """The files of the server itself (``srt/`` and the package's own modules), nearest to the root first."""
    inside = [path for path in tree.listing if path.startswith("srt/") or "/" not in path]
    return sorted((path for path in inside if not _TESTS.search(path)), key=lambda path: (path.count("/"), path))


def other_files(tree: SourceTree) -> list[str]:
    """What else the package holds, tests last."""
    outside = [path for path in tree.listing if not path.startswith("srt/") and "/" in path]
    return sorted(outside, key=lambda path: (bool(_TESTS.search(path)), path.count("/"), path))


def files_with(tree: SourceTree, files: Iterable[str], needles: Iterable[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """(file, the needles in it) of each file that holds at least one."""
    wanted = list(needles)
    for file in files:
        data = tree.scan(file)
        held = [needle for needle in wanted if needle in data]
        if held:
            yield file, held


def moved_to(parsed: Parsed, symbols: set[str]) -> dict[str, list[tuple[str, str, Node]]]:
    """(file, symbol, definition) of each symbol wherever it is: by its whole name, else by its last part."""
    names = {symbol.rpartition(".")[2] for symbol in symbols if not symbol.startswith("<")}
    needles = {f"{word} {name}".encode() for name in names for word in ("def", "class")}
    found: list[tuple[str, str, Node]] = []
    if needles:
        for file, _ in files_with(parsed.tree, core_files(parsed.tree), needles):
            root = parsed.root(file)
            if root is not None:
                found += [(file, name, node) for name, node in definitions(root) if name.rpartition(".")[2] in names]
    return {symbol: _places(found, symbol) for symbol in symbols}


def _places(found: list[tuple[str, str, Node]], symbol: str) -> list[tuple[str, str, Node]]:
    same = [place for place in found if place[1] == symbol]
    if same:
        return same[:MOST_PLACES]
    last = symbol.rpartition(".")[2]
    if last.startswith("__"):
        return []
    return [place for place in found if place[1].rpartition(".")[2] == last][:MOST_PLACES]


def uses_of(parsed: Parsed, names: Iterable[str]) -> Iterator[tuple[str, str, Node, Node]]:
    """(file, symbol, definition, statement) of assignments to one of `names`, those nearest to the root first."""
    wanted = list(names)
    count = 0
    for file, held in files_with(parsed.tree, core_files(parsed.tree), [name.encode() for name in wanted]):
        root = parsed.root(file)
        if root is None:
            continue
        for name in held:
            for statement, _ in assignments(root, name.decode()):
                yield file, enclosing(statement), scope_of(statement), statement
                count += 1
                if count >= MOST_PLACES:
                    return
