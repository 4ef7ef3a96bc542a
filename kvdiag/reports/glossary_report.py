"""Fields and lines of a log explained on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from kvdiag.lines import Record
from kvdiag.lines.families import families
from kvdiag.lines.glossary import Entry, entries_of, releases_of
from kvdiag.lines.words import Word
from kvdiag.releases import ReleaseSet
from kvdiag.reports.paint import Paint
from kvdiag.reports.safe import safe


def render_line(records: list[Record], *, stated: ReleaseSet | None = None, width: int = 100, colour: bool = False) -> str:
    """Every record of a pasted line: what kind it is, who prints it, and each value with unit and meaning.

    With `stated`, the meaning it has in these releases.
    """
    paint = Paint(colour, width)
    lines: list[str] = []
    for record in records:
        lines += [*_line(record, paint, stated), ""]
    return "\n".join(lines[:-1]) + "\n"


def _line(record: Record, paint: Paint, stated: ReleaseSet | None) -> Iterator[str]:
    family = families()[record.family or ""]
    if stated and not releases_of(record) & stated:
        yield from paint.wrap(f"SGLang {stated} prints no such line: a fork or another release did.", "")
    yield paint.bold(f"{family.title} ({family.name}), printed by SGLang {releases_of(record)}")
    yield from paint.wrap(family.meaning, "  ")
    if family.notes:
        yield from paint.wrap(f"Beware: {family.notes}", "  ")
    if record.rank:
        yield from paint.wrap(f"{record.rank}: the worker that printed it", "  ")
    if record.damaged:
        yield from paint.wrap("The line is damaged: only whole values are read.", "  ")
    for entry in entries_of(record, stated):
        value = record.values[entry.field]
        yield f"  {paint.bold(safe(entry.field))} = {safe(value.text, 120)}"
        if value.abbreviated and value.interval is not None:
            low, high = float(value.interval.low), float(value.interval.high)
            yield from paint.wrap(f"abbreviated: {low:,.0f} to {high:,.0f} may be written so", "    ")
        yield from _meanings(entry, paint, value.unit)


def render_word(word: Word, *, width: int = 100, colour: bool = False) -> str:
    """A word of the reports with its meaning."""
    paint = Paint(colour, width)
    return "\n".join([paint.bold(word.names[0]), *paint.wrap(word.meaning, "    ")]) + "\n"


def render_field(entries: list[Entry], *, width: int = 100, colour: bool = False) -> str:
    """A field in every family that has it: unit, meaning and the family's traps."""
    paint = Paint(colour, width)
    lines: list[str] = []
    for entry in entries:
        lines.append(f"{paint.bold(safe(entry.field))} in {entry.family.title} ({entry.family.name})")
        lines += _meanings(entry, paint, "")
        if entry.family.notes:
            lines += paint.wrap(f"Beware: {entry.family.notes}", "    ")
    return "\n".join(lines) + "\n"


def _meanings(entry: Entry, paint: Paint, unit: str) -> Iterator[str]:
    for meaning in entry.meanings:
        when = f" [{meaning.releases}]" if meaning.releases else ""
        named = meaning.unit or unit
        shown = f"{UNITS.get(named, named)}: " if named else ""
        yield from paint.wrap(f"{shown}{meaning.meaning}{when}", "    ")
    if len(entry.meanings) > 1:
        yield from paint.wrap(
            "The meaning changed between releases: the number is comparable only within one (--release X tells that of one).",
            "    ",
        )


UNITS = {"GiB": "GiB, printed as GB (2^30 bytes)", "GB10": "GB of 10^9 bytes", "percent": "per cent"}
"""Units as a person is told them, where the rules' own name is terse."""
