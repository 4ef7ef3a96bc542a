"""The words of SGLang's log: what a field means, and what a whole line says, word by word."""

from __future__ import annotations

from collections.abc import Iterator

from kvdiag.frozen import frozen
from kvdiag.lines.families import Family, FieldMeaning, families
from kvdiag.lines.labels import printing
from kvdiag.lines.read import read_records
from kvdiag.lines.record import Record
from kvdiag.reading.unwrap import Unwrapper
from kvdiag.releases import ReleaseSet, every_release, parse_ranges


@frozen
class Entry:
    """A field of a family with its meanings (several where releases mean different things by it)."""

    family: Family
    field: str
    meanings: tuple[FieldMeaning, ...]


def read_line(text: str) -> list[Record]:
    """The records of pasted lines that rules know, whatever they are wrapped in; empty where none is."""
    unwrapper = Unwrapper()
    lines = (line for number, one in enumerate(text.split("\n"), 1) for line in unwrapper.lines(number, one))
    return [record for record in read_records(lines) if record.family]


def entries_of(record: Record, stated: ReleaseSet | None = None) -> Iterator[Entry]:
    """The entry of each value of a record in the order of the line, with the meanings its releases allow.

    Of releases `stated` beside the line these alone count.
    """
    family = families()[record.family or ""]
    releases = stated or releases_of(record)
    for name in record.values:
        yield Entry(family, name, tuple(family.meanings(name, releases)))


def releases_of(record: Record) -> ReleaseSet:
    """The releases that print such a line; of a damaged one those that print what is left of it in that order."""
    possible = ReleaseSet(0)
    for ranges in [variant.releases for variant in record.variants] or printing(record.family or "", list(record.values)):
        possible = possible | parse_ranges(ranges)
    return possible or every_release()


def find_field(name: str, stated: ReleaseSet | None = None) -> list[Entry]:
    """Every field of that name (case, ``#`` and the blank or underscore between words do not matter).

    With `stated`, the meanings of these releases; a family in which it has none is left out.
    """
    wanted = _plain(name)
    found = (entry for entry in every_field() if _plain(entry.field) == wanted)
    meant = (Entry(entry.family, entry.field, tuple(entry.family.meanings(entry.field, stated))) for entry in found)
    return [entry for entry in meant if entry.meanings]


def every_field() -> Iterator[Entry]:
    """All fields of all families."""
    for family in families().values():
        for name, meanings in family.fields.items():
            yield Entry(family, name, tuple(meanings))


def near_fields(name: str) -> list[str]:
    """Names of fields that look like `name`: those that hold it, then those spelled alike."""
    from difflib import get_close_matches

    known = {_plain(entry.field): entry.field for entry in every_field()}
    wanted = _plain(name)
    holding = [field for plain, field in known.items() if wanted and wanted in plain]
    alike = [known[plain] for plain in get_close_matches(wanted, known, n=5)]
    return list(dict.fromkeys(holding[:8] + alike))


def _plain(name: str) -> str:
    return name.lower().lstrip("#").replace("_", " ").replace("-", " ").strip(" :=")
