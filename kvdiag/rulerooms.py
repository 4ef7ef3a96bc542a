"""The kinds of rules that ``kvdiag rules`` lists, shows and tests: one line here for each kind.

A module named here has ``entries() -> list[Entry]``, ``show(code) -> str`` (Markdown) and ``test() -> Iterator[Tested]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Protocol

from kvdiag.frozen import frozen

ROOMS = {
    "lines": "kvdiag.lines.documentation",
    "drift": "kvdiag.gate.documentation",
    "findings": "kvdiag.checks.documentation",
    "neighbours": "kvdiag.lines.neighbours",
}
"""Folder of ``rules/`` to the module that documents and tests it."""


@frozen
class Entry:
    """A rule in the list: its code (or the family's name), its title, and what it is a part of."""

    code: str
    title: str
    group: str


@frozen
class Tested:
    """The outcome of one embedded sample: where it stands, and what went wrong (empty where nothing did)."""

    where: str
    wrong: str = ""


class Room(Protocol):
    """What a module of `ROOMS` offers."""

    def entries(self) -> list[Entry]:
        """Its rules, in the order they are listed."""

    def show(self, code: str) -> str:
        """The documentation of one of them, as Markdown."""

    def test(self) -> Iterator[Tested]:
        """Runs the samples embedded in its files."""


def rooms() -> dict[str, Room]:
    """The rooms by name."""
    return {name: import_module(module) for name, module in ROOMS.items()}
