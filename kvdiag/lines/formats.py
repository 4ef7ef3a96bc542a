"""Line families and their variants, loaded from ``rules/lines`` and indexed by how a line begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.errors import RuleError
from kvdiag.lines.template import Sequence, field_names, heads, longest_literal, parse_template

HEAD = 6
"""Characters of a line's beginning that the index is keyed by."""


@dataclass(frozen=True, slots=True)
class FieldMeaning:
    """Unit and meaning of a value; `releases` is set where the meaning holds for some releases only."""

    unit: str
    meaning: str
    releases: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """One printed shape of a family: its number within the family, its releases, its parsed template."""

    family: str
    number: int
    releases: str
    sequence: Sequence


@dataclass(frozen=True, slots=True)
class Sample:
    """A line a rule file claims to read, with the printed values it must give."""

    text: str
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class VariantText:
    """What a rule file says of a variant: releases, template and samples."""

    number: int
    releases: str
    template: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of line as its rule file documents it: what it tells, its fields, its variants."""

    name: str
    title: str
    group: str
    meaning: str
    notes: str
    fields: dict[str, list[FieldMeaning]]
    variants: tuple[VariantText, ...]


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
        for number in self._by_head.get(text[:HEAD], ()):
            yield self._variant(number)
        for needle, number in self._by_needle:
            if needle in text:
                yield self._variant(number)

    def unit(self, family: str, field: str) -> str:
        """The unit of a field of a family, empty where it has none."""
        return self._units[family].get(field, "")

    def _variant(self, number: int) -> Variant:
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = Variant(*self._rows[number])
        return made


@lru_cache(maxsize=1)
def formats() -> Formats:
    """The index of the shipped line formats."""
    return Formats(rulebook.load("lines", compile_index))


@lru_cache(maxsize=1)
def families() -> dict[str, Family]:
    """The shipped line families with their documentation and samples."""
    return {document["family"]: _family(document) for document in rulebook.load("lines")}


def compile_index(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Checks rule documents, parses their templates and indexes them by how a line begins; the result is JSON data.

    Raises RuleError with the file's name and the variant at fault.
    """
    rows: list[list[Any]] = []
    by_head: dict[str, list[int]] = {}
    by_needle: list[list[Any]] = []
    units: dict[str, dict[str, str]] = {}
    for document in documents:
        units[_checked(document)] = {name: _first(entry).get("unit", "") for name, entry in document.get("fields", {}).items()}
        for number, variant in enumerate(document["variant"], 1):
            sequence = _sequence(document, number, variant)
            begins = heads(sequence)
            if begins and all(len(begin) >= HEAD for begin in begins):
                for key in dict.fromkeys(begin[:HEAD] for begin in begins):
                    by_head.setdefault(key, []).append(len(rows))
            else:
                by_needle.append([longest_literal(sequence), len(rows)])
            rows.append([document["family"], number, variant["releases"], sequence])
    return {"variants": rows, "by_head": by_head, "by_needle": by_needle, "units": units}


def _checked(document: dict[str, Any]) -> str:
    for key in ("family", "title", "meaning", "variant"):
        if key not in document:
            raise RuleError(f"{document.get('_file', 'rule')}: the key {key!r} is missing")
    return str(document["family"])


def _sequence(document: dict[str, Any], number: int, variant: dict[str, Any]) -> Sequence:
    place = f"{document.get('_file', 'rule')}: variant {number}"
    if "template" not in variant or "releases" not in variant:
        raise RuleError(f"{place}: needs 'releases' and 'template'")
    sequence = parse_template(variant["template"], place)
    for name, _ in field_names(sequence):
        if name not in document.get("fields", {}):
            raise RuleError(f"{place}: the field {name!r} has no entry in [fields] (unit and meaning)")
    return sequence


def _first(entry: Any) -> dict[str, Any]:
    first: dict[str, Any] = entry[0] if isinstance(entry, list) else entry
    return first


def _family(document: dict[str, Any]) -> Family:
    meanings: dict[str, list[FieldMeaning]] = {}
    for name, entry in document.get("fields", {}).items():
        entries = entry if isinstance(entry, list) else [entry]
        meanings[name] = [FieldMeaning(e.get("unit", ""), e.get("meaning", ""), e.get("releases", "")) for e in entries]
    variants = tuple(
        VariantText(n, v["releases"], v["template"], tuple(Sample(s["text"], s.get("fields", {})) for s in v.get("samples", ())))
        for n, v in enumerate(document["variant"], 1)
    )
    return Family(
        document["family"],
        document["title"],
        document.get("group", ""),
        document["meaning"],
        document.get("notes", ""),
        meanings,
        variants,
    )
