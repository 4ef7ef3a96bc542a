"""Line families and their variants, loaded from ``rules/lines`` and indexed by how a line begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.frozen import frozen
from kvdiag.lines.template import Sequence, heads, longest_literal

HEAD = 6
"""Characters of a line's beginning that the index is keyed by."""

MORE_BREAKS = 8
"""Line breaks that free text at the end of a record is allowed."""


@frozen
class Variant:
    """One printed shape of a family: its number within the family, its releases, its parsed template.

    `also` names the other families whose subject the line is too (the text stands in one file only). `breaks` is the
    number of line breaks the record can hold; `digits` is set where the template's own words hold digits, `excerpt` where
    no release ends its line there and only people who quote one do.
    """

    family: str
    number: int
    releases: str
    sequence: Sequence
    also: tuple[str, ...]
    breaks: int
    digits: bool
    excerpt: bool


class Formats:
    """The index from a line's beginning to the variants that can match it; variants are made when first asked for."""

    def __init__(self, index: dict[str, Any]) -> None:
        self._rows: list[list[Any]] = index["variants"]
        self._by_head: dict[str, list[int]] = index["by_head"]
        self._by_needle: list[list[Any]] = index["by_needle"]
        self._units: dict[str, dict[str, str]] = index["units"]
        self._made: dict[int, Variant] = {}

    def candidates(self, text: str) -> Iterator[Variant]:
        """Variants whose literals allow them to match `text`, in order of families and variants."""
        yield from self.starting(text)
        for needle, number in self._by_needle:
            if needle in text:
                yield self._variant(number)

    def heads(self, text: str) -> Iterator[tuple[str, str]]:
        """(how a known line begins, its family) for the lines that begin with the same characters as `text`."""
        for number in self._by_head.get(text[:HEAD], ()):
            variant = self._variant(number)
            for head in heads(variant.sequence):
                yield head, variant.family

    def fields(self, family: str) -> Iterable[str]:
        """The names of a family's fields."""
        return self._units[family]

    def starting(self, text: str) -> Iterator[Variant]:
        """Variants with a beginning of their own that `text` shares."""
        for number in self._by_head.get(text[:HEAD], ()):
            yield self._variant(number)

    def variants_of(self, family: str) -> Iterator[Variant]:
        """All variants of a family."""
        for number, row in enumerate(self._rows):
            if row[0] == family:
                yield self._variant(number)

    def unit(self, family: str, field: str) -> str:
        """The unit of a field of a family, empty where it has none."""
        return self._units[family].get(field, "")

    def _variant(self, number: int) -> Variant:
        made = self._made.get(number)
        if made is None:
            family, place, releases, sequence, also, breaks, digits, excerpt = self._rows[number]
            made = self._made[number] = Variant(family, place, releases, sequence, tuple(also), breaks, digits, excerpt)
        return made


@lru_cache(maxsize=1)
def formats() -> Formats:
    """The index of the shipped line formats."""
    return Formats(rulebook.load("lines", compile_index))


def compile_index(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Checks rule documents, parses their templates and indexes them by how a line begins; the result is JSON data.

    Raises RuleError with file, line and column of what is wrong.
    """
    from kvdiag.lines.families import check

    rows: list[list[Any]] = []
    by_head: dict[str, list[int]] = {}
    by_needle: list[list[Any]] = []
    units: dict[str, dict[str, str]] = {}
    counts: dict[str, int] = {}
    for document in documents:
        sequences = check(document)
        fields = units.setdefault(document["family"], {})
        for name, entry in document.get("fields", {}).items():
            fields[name] = (entry[0] if isinstance(entry, list) else entry)["unit"]
        for number, (variant, sequence) in enumerate(
            zip(document["variant"], sequences, strict=True), counts.get(document["family"], 0) + 1
        ):
            counts[document["family"]] = number
            begins = heads(sequence)
            if begins and all(len(begin) >= HEAD for begin in begins):
                for key in dict.fromkeys(begin[:HEAD] for begin in begins):
                    by_head.setdefault(key, []).append(len(rows))
            else:
                by_needle.append([longest_literal(sequence), len(rows)])
            digits = any(mark.isdigit() for literal in _literals(sequence) for mark in literal)
            also = variant.get("also", [])
            excerpt = variant.get("excerpt", False)
            rows.append([document["family"], number, variant["releases"], sequence, also, _breaks(sequence), digits, excerpt])
    return {"variants": rows, "by_head": by_head, "by_needle": by_needle, "units": units}


def _literals(sequence: Sequence) -> Iterator[str]:
    for item in sequence:
        if isinstance(item, str):
            yield item
        elif item[0] == "a":
            for branch in item[1:]:
                yield from _literals(branch)


def _breaks(sequence: Sequence) -> int:
    """The most line breaks a record of that template holds; a text behind a break is taken to hold some of its own."""
    count = 0
    for item in sequence:
        if isinstance(item, str):
            count += item.count("\n")
        elif item[0] == "a":
            count += max(_breaks(branch) for branch in item[1:])
        elif item[0] == "t" and item[3] == "m" and count:
            count += MORE_BREAKS
    return count
