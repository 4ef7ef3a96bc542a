"""Line families and their variants, loaded from ``rules/lines`` and indexed by how a line begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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
    template: str
    sequence: Sequence
    samples: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of line: what it tells, its fields, its variants in order of their first release."""

    name: str
    title: str
    group: str
    meaning: str
    notes: str
    fields: dict[str, list[FieldMeaning]]
    variants: tuple[Variant, ...] = field(default=())

    def unit(self, name: str) -> str:
        """The unit of a field, empty where it has none."""
        found = self.fields.get(name)
        return found[0].unit if found else ""


@dataclass(frozen=True, slots=True)
class Formats:
    """All families, and the index from a line's beginning to the variants that can match it."""

    families: dict[str, Family]
    by_head: dict[str, list[Variant]]
    by_needle: list[tuple[str, Variant]]

    def candidates(self, text: str) -> Iterator[Variant]:
        """Variants whose literals allow them to match `text`, in order of families and variants."""
        yield from self.by_head.get(text[:HEAD], ())
        for needle, variant in self.by_needle:
            if needle in text:
                yield variant


@lru_cache(maxsize=1)
def formats() -> Formats:
    """The shipped line formats."""
    return _index(rulebook.load("lines", compile_documents))


def compile_documents(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Checks rule documents and parses their templates; the result is JSON data.

    Raises RuleError with the file's name and the variant at fault.
    """
    return [_compile(document) for document in documents]


def _compile(document: dict[str, Any]) -> dict[str, Any]:
    where = document.get("_file", "rule")
    for key in ("family", "title", "meaning", "variant"):
        if key not in document:
            raise RuleError(f"{where}: the key {key!r} is missing")
    variants = []
    for number, variant in enumerate(document["variant"], 1):
        place = f"{where}: variant {number}"
        if "template" not in variant or "releases" not in variant:
            raise RuleError(f"{place}: needs 'releases' and 'template'")
        sequence = parse_template(variant["template"], place)
        variants.append({**variant, "sequence": sequence})
        for name, _ in field_names(sequence):
            if name not in document.get("fields", {}):
                raise RuleError(f"{place}: the field {name!r} has no entry in [fields] (unit and meaning)")
    return {**document, "variant": variants}


def _index(documents: list[dict[str, Any]]) -> Formats:
    families: dict[str, Family] = {}
    by_head: dict[str, list[Variant]] = {}
    by_needle: list[tuple[str, Variant]] = []
    for document in documents:
        family = _family(document)
        families[family.name] = family
        for variant in family.variants:
            begins = heads(variant.sequence)
            if begins and all(len(begin) >= HEAD for begin in begins):
                for key in dict.fromkeys(begin[:HEAD] for begin in begins):
                    by_head.setdefault(key, []).append(variant)
            else:
                by_needle.append((longest_literal(variant.sequence), variant))
    return Formats(families, by_head, by_needle)


def _family(document: dict[str, Any]) -> Family:
    name = document["family"]
    meanings: dict[str, list[FieldMeaning]] = {}
    for field_name, entry in document.get("fields", {}).items():
        entries = entry if isinstance(entry, list) else [entry]
        meanings[field_name] = [FieldMeaning(e.get("unit", ""), e.get("meaning", ""), e.get("releases", "")) for e in entries]
    variants = tuple(
        Variant(name, number, v["releases"], v["template"], v["sequence"], tuple(v.get("samples", ())))
        for number, v in enumerate(document["variant"], 1)
    )
    return Family(
        name, document["title"], document.get("group", ""), document["meaning"], document.get("notes", ""), meanings, variants
    )
