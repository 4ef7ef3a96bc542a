"""Line families as their rule files document them: what a line tells, its fields with unit and meaning, its samples."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.frozen import frozen, replace
from kvdiag.lines.template import Sequence, TemplateError, field_names, heads, longest_literal, parse_template
from kvdiag.quantity import UNITS
from kvdiag.releases import ReleaseSet, parse_ranges
from kvdiag.rulecheck import Place


@frozen
class FieldMeaning:
    """Unit and meaning of a value; `releases` is set where the meaning holds for some releases only."""

    unit: str
    meaning: str
    releases: str = ""


@frozen
class Sample:
    """A line a rule file claims to read, with the printed values it must give."""

    text: str
    fields: dict[str, str]


@frozen
class VariantText:
    """What a rule file says of a variant: releases, template and samples, and the other families it is a subject of."""

    number: int
    releases: str
    template: str
    samples: tuple[Sample, ...]
    also: tuple[str, ...] = ()


@frozen
class Family:
    """A kind of line as its rule file documents it: what it tells, its fields, its variants."""

    name: str
    title: str
    group: str
    meaning: str
    notes: str
    fields: dict[str, list[FieldMeaning]]
    variants: tuple[VariantText, ...]

    def meanings(self, field: str, releases: ReleaseSet | None = None) -> list[FieldMeaning]:
        """What a field means for those releases, oldest first.

        More than one entry is left where the releases span a change of meaning, or none are given: then the value cannot
        be read with certainty. Empty where the family has no such field.
        """
        entries = self.fields.get(field, [])
        if releases is None:
            return entries
        return [entry for entry in entries if not entry.releases or parse_ranges(entry.releases) & releases]


@lru_cache(maxsize=1)
def families() -> dict[str, Family]:
    """The line families with their documentation and samples; a user's file of a shipped family adds to it."""
    found: dict[str, Family] = {}
    for document in rulebook.load("lines"):
        family = _family(document)
        older = found.get(family.name)
        found[family.name] = _added(older, family) if older else family
    return found


def _added(older: Family, newer: Family) -> Family:
    count = len(older.variants)
    variants = [replace(variant, number=count + variant.number) for variant in newer.variants]
    return replace(older, fields={**newer.fields, **older.fields}, variants=(*older.variants, *variants))


def _family(document: dict[str, Any]) -> Family:
    return Family(
        document["family"],
        document["title"],
        document.get("group", ""),
        document["meaning"],
        document.get("notes", ""),
        {name: _meanings(entry) for name, entry in document.get("fields", {}).items()},
        tuple(_variant(number, variant) for number, variant in enumerate(document["variant"], 1)),
    )


def _meanings(entry: Any) -> list[FieldMeaning]:
    entries = entry if isinstance(entry, list) else [entry]
    return [FieldMeaning(each["unit"], each["meaning"], each.get("releases", "")) for each in entries]


def _variant(number: int, variant: dict[str, Any]) -> VariantText:
    samples = tuple(Sample(sample["text"], sample.get("fields", {})) for sample in variant.get("samples", ()))
    return VariantText(number, variant["releases"], variant["template"], samples, tuple(variant.get("also", ())))


SHORTEST = 6
"""Characters of its own that a template needs, in one piece."""

_TEXT = (str, "a text")
_FAMILY = {"family": _TEXT, "title": _TEXT, "group": _TEXT, "meaning": _TEXT, "notes": _TEXT, "fields": (dict, "a table")}
_VARIANT = {
    "releases": _TEXT,
    "template": _TEXT,
    "excerpt": (bool, "true or false"),
    "also": (list, "a list of families"),
    "samples": (list, "a list"),
}
_FIELD = {"unit": _TEXT, "meaning": _TEXT, "releases": _TEXT}
_SAMPLE = {"text": _TEXT, "fields": (dict, "a table of texts")}


def check(document: dict[str, Any]) -> list[Sequence]:
    """The parsed templates of a rule document, one a variant.

    Raises RuleError with file, line and column where a key is unknown, missing or of another type, a range names no
    release number, a template is wrong or a value has no entry in ``[fields]``.
    """
    place = Place.of(document)
    known = {**_FAMILY, "variant": (list, "a list of tables")}
    place.keys(document, known, ("family", "title", "meaning", "variant"))
    names = document.get("fields", {})
    for name, entry in names.items():
        for each in entry if isinstance(entry, list) else [entry]:
            here = place.at(name)
            here.keys(here.table(each), _FIELD, ("unit", "meaning"))
            if each["unit"] not in UNITS:
                raise here.error(f"{each['unit']!r} is no unit; the units are {', '.join(UNITS)}")
            if "releases" in each:
                here.ranges(each["releases"])
    variants = enumerate(document["variant"])
    return [_check_variant(place.section("variant", number), variant, names) for number, variant in variants]


def _check_variant(place: Place, variant: Any, names: dict[str, Any]) -> Sequence:
    place.keys(place.table(variant), _VARIANT, ("releases", "template"))
    place.at("releases").ranges(variant["releases"])
    for sample in variant.get("samples", ()):
        here = place.at("samples")
        here.keys(here.table(sample), _SAMPLE, ("text",))
        here.texts(sample.get("fields", {}).values())
    place.at("also").texts(variant.get("also", ()))
    place = place.at("template")
    try:
        sequence = parse_template(variant["template"])
    except TemplateError as error:
        raise place.error(str(error), error.column) from None
    if len(longest_literal(sequence)) < SHORTEST and not all(len(head) >= SHORTEST for head in heads(sequence) or [""]):
        raise place.error(f"a template needs {SHORTEST} characters of its own, or it fits other lines too")
    for name, _ in field_names(sequence):
        if name not in names:
            column = variant["template"].find("{" + name) + 1
            raise place.error(f"the value {name!r} has no entry in [fields] (unit and meaning)", column)
    return sequence
