"""What a statement prints, as data: literal text, holes where values stand, choices where the source branches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvdiag.frozen import frozen

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_PARTS = 400


@frozen
class Hole:
    """A value in a line: the expression that gives it, and the format it is printed with (``.2f``, ``d``, ``!r``)."""

    expression: str
    format: str = ""
    node: Node | None = None


@frozen
class Choice:
    """One of several texts, as a condition decides."""

    branches: tuple[Template, ...]


Template = tuple["str | Hole | Choice", ...]


def joined(parts: Template) -> Template:
    """The same template with neighbouring literals in one piece; very long ones end in a hole."""
    found: list[str | Hole | Choice] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    if len(found) > _MOST_PARTS:
        return (*found[:_MOST_PARTS], Hole("..."))
    return tuple(found)


def has_literal(template: Template) -> bool:
    """Whether some printed form has literal text."""
    return any(
        bool(part.strip()) if isinstance(part, str) else isinstance(part, Choice) and any(map(has_literal, part.branches))
        for part in template
    )


def shown(template: Template, taken: Iterator[int]) -> str:
    """The template as text, values as ``{expression:format}``, with the branches `taken` where the source chooses."""
    pieces = []
    for part in template:
        if isinstance(part, str):
            pieces.append(part)
        elif isinstance(part, Hole):
            pieces.append("{" + part.expression + (":" + part.format if part.format else "") + "}")
        else:
            pieces.append(shown(part.branches[next(taken)], taken))
    return "".join(pieces)


SEPARATOR = "\x00"
"""Stands between the elements of a list until it is known what joins them."""


def separated(template: Template, between: Template) -> Template:
    """The template with `between` where elements of a list meet; it may be absent, as elements may be."""
    found: list[str | Hole | Choice] = []
    for part in template:
        if isinstance(part, Choice):
            found.append(Choice(tuple(separated(branch, between) for branch in part.branches)))
        elif isinstance(part, str) and SEPARATOR in part:
            for index, piece in enumerate(part.split(SEPARATOR)):
                found.extend((Choice((between, ())), piece) if index else (piece,))
        else:
            found.append(part)
    return joined(tuple(found))


def spaced(elements: tuple[Template, ...], between: Template) -> Template:
    """The elements of a list with the joining text between them."""
    parts: list[str | Hole | Choice] = []
    for index, element in enumerate(elements):
        parts.extend((*between, *element) if index else element)
    return tuple(parts)
