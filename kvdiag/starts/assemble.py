"""Grouping: the records of all inputs become server starts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kvdiag.frozen import mutable
from kvdiag.lines import Record
from kvdiag.lines.literal import parse_arguments
from kvdiag.lines.prefix import Rank
from kvdiag.starts.build import BATCHES, StartBuilder
from kvdiag.starts.loose import loose_kind
from kvdiag.starts.merge import Part, merge
from kvdiag.starts.model import Event, Span, Start
from kvdiag.starts.overlap import MIXED, Overlap, elsewhere, foreign, other_mode, replicated
from kvdiag.starts.progress import BEGINS, Progress

_DEAD = re.compile(
    r"Received sigquit from a child process|SIGQUIT received\. signum=|\bKilled +python|Triggering SIGQUIT for cleanup"
)


class _Stream:
    """One stream of one input: the starts in it, of which usually one is open."""

    def __init__(self, path: int, name: str) -> None:
        self.closed: list[StartBuilder] = []
        self.open: list[StartBuilder] = [StartBuilder()]
        self._path, self._name = path, name
        self._owners: dict[str, tuple[StartBuilder | None, int]] = dict.fromkeys(BATCHES, (self.newest, 0))
        self._turned = self.newest
        self._dumped: Record | None = None
        self._overlap = Overlap()

    def add(self, record: Record, path: int) -> None:
        if record.family is None:
            self._unknown(record, path)
        elif record.family == "server-args-dump":
            self._dump(record, path)
            self._turn(record.line.number)
        else:
            self._known(record, path)
        if self.newest is not self._turned or (len(self.open) > 1 and record.family not in BATCHES):
            self._turn(record.line.number)

    def _turn(self, line: int | None) -> None:
        """From `line` on batch lines may be another start's: ends the spans of those whose they no longer are."""
        self._turned = self.newest
        for family, (owner, begin) in self._owners.items():
            now = self._serving(family)
            if now is owner and line is not None:
                continue
            if owner is not None:
                owner.start.spans.append(Span(self._path, self._name, family, begin, line))
            self._owners[family] = now, line or 0

    @property
    def newest(self) -> StartBuilder:
        return self.open[-1]

    def _begin(self) -> StartBuilder:
        self.closed += [builder for builder in self.open if not builder.empty]
        self.open = [StartBuilder()]
        return self.newest

    def _unknown(self, record: Record, path: int) -> None:
        kind = loose_kind(record)
        if kind:
            self.newest.fragment(kind, record, path)
        if tells_death(record.message):
            self.newest.dead = True
            self.newest.start.events.append(Event("died", record, path))

    def _dump(self, record: Record, path: int) -> None:
        value = record.values.get("server_args")
        told = parse_arguments(value.text)[0] if value else {}
        newest = self.newest
        held = newest.start.server_args
        if held and held == told and not newest.start.numbers:
            return
        if held and not newest.dead and elsewhere(held, told):
            self.open.append(StartBuilder())
            if not newest.serving:
                self._mixed()
        elif not newest.empty and not newest.preparing:
            self._begin()
            self._overlap = Overlap(possible=bool(held) and not newest.dead and not newest.serving)
        self._dumped = record
        self.newest.add(record, path)

    def _known(self, record: Record, path: int) -> None:
        if self._overlap.possible and self._overlap.tells(self.newest, record):
            self._tangled(path)
            return
        builder = self._owner(record) if len(self.open) > 1 else self._sequel(record, path)
        if builder is None:
            return
        if len(self.open) > 1 and builder is not self.newest:
            self._mixed()
        if record.family == "crash" and _DEAD.search(record.message):
            builder.dead = True
        builder.add(record, path)

    def _owner(self, record: Record) -> StartBuilder | None:
        """The one of several servers that alone can have printed the line.

        Where several can, the newest while nothing tells that an older one still prints; after that none, as which one
        did would be a guess.
        """
        if record.family in BATCHES:
            return self._serving(record.family)
        own = [builder for builder in self.open if not foreign(builder, record)]
        if len(own) == 1:
            return own[0]
        return None if own and MIXED in self.newest.start.notes else self.newest

    def _serving(self, family: str) -> StartBuilder | None:
        """The server whose batch lines of that family these are; None where both of two can print them."""
        if self._overlap.told:
            return None
        own = [builder for builder in self.open if not other_mode(family, builder)]
        serving = [builder for builder in own if builder.serving]
        if len(serving) > 1:
            return None if MIXED in self.newest.start.notes else serving[-1]
        return next(iter(serving or own), self.newest)

    def _tangled(self, path: int) -> None:
        """Of a start whose lines turned out to be those of two servers, what it was told is all that is certain."""
        if MIXED in self.newest.start.notes:
            return
        self.open = [StartBuilder()]
        if self._dumped is not None:
            self.newest.add(self._dumped, path)
        for builder in (self.newest, *self.closed[-1:]):
            builder.start.notes.append(MIXED)

    def _mixed(self) -> None:
        for builder in self.open:
            if MIXED not in builder.start.notes:
                builder.start.notes.append(MIXED)

    def _sequel(self, record: Record, path: int) -> StartBuilder | None:
        """The start that the record belongs to, which it may open; None where a later line will tell."""
        builder = self.newest
        if record.family in BEGINS:
            return self._begun(builder, record, path)
        if record.family == "kv-alloc" and builder.progress(record).pools_again(record):
            return self._begin()
        progress = builder.ranks.get(str(record.rank))
        if progress is not None and progress.held:
            _release(builder, progress, path)
        return builder

    def _begun(self, builder: StartBuilder, record: Record, path: int) -> StartBuilder | None:
        """The start that a worker's first lines belong to; None where the weight line that follows will tell."""
        strange = _other_tags(builder, record)
        progress = builder.progress(record)
        if builder.dead and (progress.weights_begun or progress.loaded or strange):
            return self._begin()
        if record.family != "weight-load-begin":
            if progress.loaded:
                progress.held.append(record)
                return None
            return builder
        again = progress.loads_again(record) or (
            progress.weights_ended > 0 and not builder.draft_possible and not replicated(builder, record)
        )
        if again:
            builder = self._begin()
        _release(builder, progress, path)
        return builder

    def parts(self) -> list[StartBuilder]:
        for builder in self.open:
            for progress in builder.ranks.values():
                _release(builder, progress, progress.path)
        self._turn(None)
        self._begin()
        return self.closed


def tells_death(message: str) -> bool:
    """Whether a message that no rule knows says that a worker died: the only such message that bears on the grouping."""
    return ("SIGQUIT" in message or "sigquit" in message or "Killed" in message) and bool(_DEAD.search(message[:2000]))


def _release(builder: StartBuilder, progress: Progress, path: int) -> None:
    """Gives the held lines of a rank to the start they turned out to belong to."""
    held, progress.held = progress.held, []
    for record in held:
        builder.add(record, path)


def _other_tags(builder: StartBuilder, record: Record) -> bool:
    """Whether the record's tags are of other kinds than those of the start's workers (``DP TP`` and not ``TP``)."""
    kinds = {frozenset(Rank(rank).tags) for rank in builder.ranks if rank}
    return bool(kinds) and bool(record.rank) and frozenset(record.rank.tags) not in kinds


@mutable
class Assembly:
    """Takes the records of all inputs, path by path, and gives the starts in them."""

    streams: dict[tuple[int, str], _Stream]

    def __init__(self) -> None:
        self.streams = {}

    def add(self, record: Record, path: int = 0) -> None:
        """Takes the next record of the input with the index `path`."""
        key = (path, record.line.stream)
        stream = self.streams.get(key)
        if stream is None:
            stream = self.streams[key] = _Stream(*key)
        stream.add(record, path)

    def thin(self, every: int, path: int) -> None:
        """Lets go of scheduler lines of an input that turned out longer than was thought; see `Batches.thin`."""
        for (of, _), stream in self.streams.items():
            if of == path:
                for builder in [*stream.closed, *stream.open]:
                    builder.start.batches.thin(every)

    def begun(self) -> int:
        """How many starts have begun so far, in all streams, after the first of each."""
        return sum(len(stream.closed) for stream in self.streams.values())

    def newest_arguments(self, record: Record, path: int = 0) -> dict[str, Any]:
        """The server_args of the start that began last in the stream of a record that was added."""
        return self.streams[path, record.line.stream].newest.start.server_args

    def starts(self) -> list[Start]:
        """The starts in order of their first line; parts of one start in several files or streams are put together."""
        parts = [Part(builder, path, stream) for (path, stream), state in self.streams.items() for builder in state.parts()]
        merged = merge(parts)
        several = len({part.stream for part in merged}) > 1
        starts = []
        for part in merged:
            start = part.builder.finish()
            start.stream = part.stream if several else ""
            starts.append(start)
        return starts


def assemble(records: Iterable[Record], path: int = 0) -> list[Start]:
    """The server starts in the records of one input, in order of their first line; `path` is the input's index."""
    assembly = Assembly()
    for record in records:
        assembly.add(record, path)
    return assembly.starts()
