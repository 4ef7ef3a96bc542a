"""Records: what one process printed at one moment, with its values and where they stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from kvdiag.frozen import field, frozen, replace
from kvdiag.lines.continuation import joined
from kvdiag.lines.damage import open_end, recover, tidied, without_open_end
from kvdiag.lines.formats import Variant, formats
from kvdiag.lines.matcher import FOREWORD, Match, match_message
from kvdiag.lines.mend import mended
from kvdiag.lines.packaging import Packaging
from kvdiag.lines.prefix import BARE_TAGS, CUT_PREFIX, PREFIX, UNTAGGED, Rank, rank_of
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
        return replace(self, variants=kept.variants, values=_values(kept), damaged=True)

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


def read_records(lines: Iterable[Line | Record], packaging: Packaging | None = None) -> Iterator[Record]:
    """The records of a stream of lines, in order; blank lines are passed over, and what is a record already stays one.

    `packaging` is what lines of the same log before these have taught.
    """
    return joined(mended(_physical(lines, packaging or Packaging()), _remade, _recovered), _join)


def _physical(lines: Iterable[Line | Record], packaging: Packaging) -> Iterator[Record]:
    for line in lines:
        if isinstance(line, Record):
            yield line
            continue
        text = line.text
        if not text or text.isspace():
            continue
        if text[0] != "[" or not PREFIX.match(text):
            bare = packaging.without(text)
            if not bare or bare.isspace():
                continue
            if bare != text:
                line, text = replace(line, text=bare), bare
        yield from _split(line, text)


def _join(first: Record, rest: list[Record]) -> Record | None:
    message = "\n".join([first.message, *(record.message for record in rest)])
    match = match_message(message, whole=True)
    if match is None or match.family != first.family:
        return None
    return replace(first, message=message, variants=match.variants, values=_values(match))


def _remade(record: Record, message: str) -> Record | None:
    """The record with the message that its pieces give together."""
    match = match_message(message)
    if match is None:
        return None
    return replace(record, message=message, family=match.family, variants=match.variants, values=_values(match), damaged=False)


def _recovered(record: Record) -> Record:
    """The record with what is certain of its message, where the strict rules know it not."""
    if record.family is not None:
        return record
    match = tidied(record.message)
    if match is not None:
        return replace(record, family=match.family, variants=match.variants, values=_values(match))
    match = recover(record.message, cut=record.line.cut or record.prefixed or record.torn)
    if match is None:
        return record
    return replace(record, family=match.family, variants=match.variants, values=_values(match), damaged=True)


def _split(line: Line, text: str) -> Iterator[Record]:
    """A physical line can hold several records: a progress bar with a record behind it, or two records."""
    prefixes = list(PREFIX.finditer(text))
    if not prefixes:
        yield _without_prefix(line, text)
        return
    if prefixes[0].start() and not text[: prefixes[0].start()].isspace():
        yield _record(line, text[: prefixes[0].start()], torn=True)
    for prefix, after in zip(prefixes, [*prefixes[1:], None], strict=True):
        message = text[prefix.end() : after.start() if after else len(text)]
        date, clock, milliseconds, tags = prefix.groups()
        time = f"{clock}.{milliseconds}" if milliseconds else clock
        yield _record(line, message, date=date or "", time=time, rank=rank_of(tags), prefixed=True, torn=after is not None)


def _without_prefix(line: Line, text: str) -> Record:
    """A line with no time in it; its tags can still be there, or the end of a prefix.

    A traceback in a block of code is indented as a whole, its last line too.
    """
    if text[0] in " \t" and FOREWORD.match(text.lstrip()):
        text = text.lstrip()
    tags = BARE_TAGS.match(text)
    if tags:
        return _record(line, text[tags.end() :], rank=rank_of(tags[1]), prefixed=True)
    rest = CUT_PREFIX.match(text)
    if rest and (":" in rest[1] or rest[2]):
        rank = rank_of(rest[2]) if rest[1] else UNTAGGED
        return _record(line, text[rest.end() :], rank=rank, prefixed=True)
    return _record(line, text)


def _record(
    line: Line,
    message: str,
    *,
    date: str = "",
    time: str = "",
    rank: Rank = UNTAGGED,
    prefixed: bool = False,
    torn: bool = False,
) -> Record:
    match = match_message(message)
    if match is None:
        return Record(line, message, date, time, rank, prefixed, torn=torn)
    if torn or line.cut or (prefixed and match.variants[-1].excerpt):
        kept = without_open_end(match, message)
        damaged = kept.values != match.values
        return Record(line, message, date, time, rank, prefixed, kept.family, kept.variants, _values(kept), damaged, torn)
    return Record(line, message, date, time, rank, prefixed, match.family, match.variants, _values(match))


def _values(match: Match) -> dict[str, Value]:
    unit = formats().unit
    return {name: Value(text, kind, unit(match.family, name)) for name, kind, text in match.values}
