"""Grouping: the records of all inputs become server starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kvdiag.frozen import mutable
from kvdiag.lines import Record
from kvdiag.lines.literal import parse_arguments
from kvdiag.lines.prefix import Rank
from kvdiag.starts.build import BATCHES, StartBuilder
from kvdiag.starts.loose import loose_kind
from kvdiag.starts.merge import Part, merge
from kvdiag.starts.model import Span, Start
from kvdiag.starts.progress import BEGINS, Progress

MIXED = (
    "two servers print into this stream under the same tags; a line after the second server_args is counted to the server "
    "whose start-up still lacked it, which need not be right"
)
_DEAD = re.compile(r"Received sigquit from a child process|\bKilled +python|Triggering SIGQUIT for cleanup")


class _Stream:
    """One stream of one input: the starts in it, of which usually one is open."""

    def __init__(self, path: int, name: str) -> None:
        self.closed: list[StartBuilder] = []
        self.open: list[StartBuilder] = [StartBuilder()]
        self._path, self._name = path, name
        self._owners = dict.fromkeys(BATCHES, (self.newest, 0))
        self._turned = self.newest

    def add(self, record: Record, path: int) -> None:
        if record.family is None:
            self._unknown(record, path)
        elif record.family == "server-args-dump":
            self._dump(record, path)
            self._turn(record.line.number)
        else:
            self._known(record, path)
        if self.newest is not self._turned:
            self._turn(record.line.number)

    def _turn(self, line: int | None) -> None:
        """From `line` on batch lines may be another start's: ends the spans of those whose they no longer are."""
        self._turned = self.newest
        for family, (owner, begin) in self._owners.items():
            now = self._owner_of(partial(_other_mode, family))
            if now is not owner or line is None:
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

    def _dump(self, record: Record, path: int) -> None:
        value = record.values.get("server_args")
        told = parse_arguments(value.text)[0] if value else {}
        newest = self.newest
        held = newest.start.server_args
        if held and held == told and not newest.start.numbers:
            return
        if held and not newest.dead and _elsewhere(held, told):
            self.open.append(StartBuilder())
            for builder in self.open:
                if MIXED not in builder.start.notes:
                    builder.start.notes.append(MIXED)
        elif not newest.empty and not newest.preparing:
            self._begin()
        self.newest.add(record, path)

    def _known(self, record: Record, path: int) -> None:
        several = len(self.open) > 1
        builder = self._owner_of(lambda builder: _foreign(builder, record)) if several else self._sequel(record, path)
        if builder is None:
            return
        if record.family == "crash" and _DEAD.search(record.message):
            builder.dead = True
        builder.add(record, path)

    def _owner_of(self, foreign: Callable[[StartBuilder], bool]) -> StartBuilder:
        """The first of several servers to which a line is not foreign; the newest where it is foreign to all."""
        return next((builder for builder in self.open if not foreign(builder)), self.newest)

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
            progress.weights_ended > 0 and not builder.draft_possible and not _replicated(builder, record)
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


def _elsewhere(held: dict[str, object], told: dict[str, object]) -> bool:
    """Whether two dumps are of two servers that run side by side: one host has each port once."""
    return held.get("port") is not None and told.get("port") is not None and held["port"] != told["port"]


def _other_tags(builder: StartBuilder, record: Record) -> bool:
    """Whether the record's tags are of other kinds than those of the start's workers (``DP TP`` and not ``TP``)."""
    kinds = {frozenset(Rank(rank).tags) for rank in builder.ranks if rank}
    return bool(kinds) and bool(record.rank) and frozenset(record.rank.tags) not in kinds


def _replicated(builder: StartBuilder, record: Record) -> bool:
    """Whether replicas of one server print under the same tags, as plain data parallelism did without a DP tag."""
    size = builder.start.server_args.get("dp_size")
    return isinstance(size, int) and size > 1 and record.rank.get("DP") is None


def _foreign(builder: StartBuilder, record: Record) -> bool:
    """Whether a start that shares its stream with another cannot have printed the record."""
    family = record.family
    if family in BATCHES:
        return _other_mode(family, builder)
    progress = builder.ranks.get(str(record.rank))
    if progress is None:
        return False
    passed = {
        "dist-init-begin": progress.weights_begun > 0,
        "dist-init-end": progress.weights_begun > 0,
        "weight-load-begin": progress.weights_begun > 0 and not builder.draft_possible,
        "weight-load-end": progress.weights_ended >= progress.weights_begun > 0,
        "memory-pool-end": progress.pools_ended > 0 and not builder.draft_possible,
        "kv-alloc": progress.pools_ended > 0 and not builder.draft_possible,
        "capacity": progress.capacity_seen,
        "server-ready": bool(builder.start.events_of("ready")),
    }
    return passed.get(str(family), False)


def _other_mode(family: str, builder: StartBuilder) -> bool:
    """Whether a start of a disaggregated pair prints batches of the other family."""
    mode = builder.start.server_args.get("disaggregation_mode")
    return mode in ("prefill", "decode") and not family.startswith(str(mode))


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
