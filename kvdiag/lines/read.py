"""From lines to records: prefixes taken off, several records on a line parted, pieces joined, damage mended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvdiag.frozen import replace
from kvdiag.lines.continuation import joined
from kvdiag.lines.damage import recover, tidied, without_open_end
from kvdiag.lines.matcher import FOREWORD, match_message
from kvdiag.lines.mend import mended
from kvdiag.lines.packaging import Packaging
from kvdiag.lines.prefix import BARE_TAGS, CUT_PREFIX, PREFIX, UNTAGGED, Rank, rank_of
from kvdiag.lines.record import Record, values_of
from kvdiag.reading import Line


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
    return replace(first, message=message, variants=match.variants, values=values_of(match))


def _remade(record: Record, message: str) -> Record | None:
    """The record with the message that its pieces give together."""
    match = match_message(message)
    if match is None:
        return None
    return replace(record, message=message, family=match.family, variants=match.variants, values=values_of(match), damaged=False)


def _recovered(record: Record) -> Record:
    """The record with what is certain of its message, where the strict rules know it not."""
    if record.family is not None:
        return record
    match = tidied(record.message)
    if match is not None:
        return replace(record, family=match.family, variants=match.variants, values=values_of(match))
    match = recover(record.message, cut=record.line.cut or record.prefixed or record.torn)
    if match is None:
        return record
    return replace(record, family=match.family, variants=match.variants, values=values_of(match), damaged=True)


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
        return Record(line, message, date, time, rank, prefixed, kept.family, kept.variants, values_of(kept), damaged, torn)
    return Record(line, message, date, time, rank, prefixed, match.family, match.variants, values_of(match))
