"""Records: what one process printed at one moment, with its values and where they stand."""

from __future__ import annotations

from functools import cached_property

from kvdiag.frozen import field, frozen, replace
from kvdiag.lines.damage import open_end, without_open_end
from kvdiag.lines.formats import Variant, formats
from kvdiag.lines.matcher import Match
from kvdiag.lines.prefix import UNTAGGED, Rank
from kvdiag.quantity import Interval, abbreviated_interval, printed_interval
from kvdiag.reading import Line

_TEXTS = ("w", "t", "m")
_CONSTANT_KINDS = ("b", "v")
_LONGEST = 32
"""Characters of a number; no count or size has as many, and a digit repeated by damage should not be one."""
_CONSTANTS = {"True": True, "False": False, "None": None}


@frozen
class Value:
    """A printed value: its digits as they stand, the kind its template gives it, and its unit."""

    text: str
    kind: str
    unit: str

    @cached_property
    def number(self) -> int | float | None:
        """The printed number itself (in the printed unit); None where it is text or too long for a number."""
        if self.kind in _TEXTS or "|" in self.kind:
            return None
        try:
            if self.kind == "d" or (self.kind != "f" and self.text.lstrip("+-").isdigit()):
                return int(self.text) if len(self.text) < _LONGEST else None
            number = float(self.text)
        except ValueError:
            return None
        return number if abs(number) < float("inf") else None

    @property
    def abbreviated(self) -> bool:
        """Whether it is a count that somebody shortened (``825k``): `interval` says what it may have been, `number` nothing."""
        return self.kind == "d" and (self.text[:1] == "~" or self.text[-1:] in ("k", "K", "m", "M"))

    @property
    def plain(self) -> int | float | bool | str | None:
        """The value as Python has it: a number, True, False or None where it is one, else its text."""
        if self.kind in _CONSTANT_KINDS and self.text in _CONSTANTS:
            return _CONSTANTS[self.text]
        return self.text if self.number is None else self.number

    @property
    def interval(self) -> Interval | None:
        """The values that print so, in bytes, tokens, seconds ...; None where the text is no finite number."""
        if self.kind in _TEXTS or len(self.text) >= _LONGEST:
            return None
        if self.abbreviated:
            return abbreviated_interval(self.text, self.unit)
        try:
            return printed_interval(self.text, self.unit, rounded=self.kind.startswith("."))
        except ValueError:
            return None


@frozen
class Record:
    """One record of a log.

    `family` is None where no rule knows the message. `line` is the first of the record; `message` holds its other lines
    too, parted by line breaks. `damaged` is set where text was lost: then `values` has only what is whole. `torn`
    is set where another record follows on the same line, so that the end may stand elsewhere.
    """

    line: Line
    message: str
    date: str = ""
    time: str = ""
    rank: Rank = UNTAGGED
    prefixed: bool = False
    family: str | None = None
    variants: tuple[Variant, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    damaged: bool = False
    torn: bool = False

    @property
    def families(self) -> tuple[str, ...]:
        """The family and the others whose subject the line is too; empty where no rule knows the message."""
        if self.family is None:
            return ()
        return (self.family, *(self.variants[-1].also if self.variants else ()))

    @property
    def open_end(self) -> bool:
        """Whether the record ends in a number that nothing behind it shows to be whole."""
        return self.message.rstrip()[-1:].isdigit() and not self.damaged and open_end(self._match(), self.message)

    def without_open_end(self) -> Record:
        """The record as one that was cut in its last number."""
        kept = without_open_end(self._match(), self.message)
        return replace(self, variants=kept.variants, values=values_of(kept), damaged=True)

    def _match(self) -> Match:
        return Match(self.family or "", self.variants, [(name, value.kind, value.text) for name, value in self.values.items()])

    def number(self, name: str) -> int | float | None:
        """The number of a field, None where the line does not have it."""
        value = self.values.get(name)
        return value.number if value else None

    def interval(self, name: str) -> Interval | None:
        """The interval of a field, None where the line does not have it."""
        value = self.values.get(name)
        return value.interval if value else None


def values_of(match: Match) -> dict[str, Value]:
    """The values of a match, each with the unit its family gives it."""
    unit = formats().unit
    return {name: Value(text, kind, unit(match.family, name)) for name, kind, text in match.values}
