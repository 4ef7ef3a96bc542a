"""What the scheduler lines of one start say: batches, retractions, and what follows from them by arithmetic."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from kvdiag.frozen import field, frozen, mutable
from kvdiag.lines import Record
from kvdiag.lines.calendar import Midnights
from kvdiag.quantity import Interval
from kvdiag.starts import Start
from kvdiag.starts.repeats import Repeats

_NAMES: dict[str, tuple[str, ...]] = {
    "running": ("#running-req", "#running_req"),
    "queued": ("#queue-req", "#remaining_req"),
    "tokens": ("#token", "#full token", "#gpu token"),
    "swa_tokens": ("#swa token",),
    "state_slots": ("mamba num",),
    "new_seq": ("#new-seq", "#seq"),
    "new_tokens": ("#new-token", "#new_token"),
    "cached": ("#cached-token", "#cached_token"),
    "pending": ("#pending-token",),
    "transferring": ("#transfer-req", "#inflight-req", "#transferring-req", "#bootstrap-req"),
}
_USAGES: dict[str, tuple[str, ...]] = {
    "usage": ("token usage", "full token usage", "gpu token usage"),
    "swa_usage": ("swa token usage",),
    "state_usage": ("mamba usage",),
}
_MEASURES: dict[str, tuple[str, ...]] = {
    "throughput": ("gen throughput (token/s)",),
    "accept_len": ("accept len",),
}
_GRAPHS = ("cuda graph", "npu graph", "cpu graph", "graph")


@frozen
class Batch:
    """One scheduler line. A field is None where the line does not have it or has it damaged.

    `kind` is ``prefill`` or ``decode``; `second` counts from an arbitrary origin common to the start. Usages are the
    printed fractions as intervals.
    """

    kind: str
    line: int
    rank: str
    second: float | None
    running: int | None = None
    queued: int | None = None
    tokens: int | None = None
    swa_tokens: int | None = None
    state_slots: int | None = None
    new_seq: int | None = None
    new_tokens: int | None = None
    cached: int | None = None
    pending: int | None = None
    transferring: int | None = None
    usage: Interval | None = None
    swa_usage: Interval | None = None
    state_usage: Interval | None = None
    throughput: float | None = None
    accept_len: float | None = None
    graph: bool | None = None


@frozen
class Retraction:
    """One event in which running requests went back to the queue; every rank may have printed it, it is held once."""

    line: int
    second: float | None
    requests: int
    gained: int | None
    ratio_before: float | None
    ratio_after: float | None
    rank: str = ""


@mutable
class Activity:
    """The scheduler lines of one start in the order of the log: every `every`-th of them where there are very many."""

    batches: list[Batch] = field(default_factory=list)
    retractions: list[Retraction] = field(default_factory=list)
    every: int = 1

    @cached_property
    def decode(self) -> list[Batch]:
        """The decode lines."""
        return [batch for batch in self.batches if batch.kind == "decode"]

    @cached_property
    def prefill(self) -> list[Batch]:
        """The prefill lines."""
        return [batch for batch in self.batches if batch.kind == "prefill"]

    @cached_property
    def ranks(self) -> list[str]:
        """The ranks that printed batches: one for each data-parallel replica."""
        return list(dict.fromkeys(batch.rank for batch in self.batches))

    @cached_property
    def capacity(self) -> Interval | None:
        """The pool's size in tokens from ``#token`` and the printed usage: what all lines of all ranks allow, if anything."""
        found: Interval | None = None
        for batch in self.decode:
            seen = _implied(batch.tokens, batch.usage)
            if seen is None:
                continue
            if found is None:
                found = seen
            elif found.meets(seen):
                found = Interval(max(found.low, seen.low), min(found.high, seen.high), "tokens")
            else:
                return None
        return found

    @cached_property
    def capacity_lines(self) -> tuple[int, ...]:
        """The lines that bound `capacity`."""
        return tuple(batch.line for batch in self.decode if _implied(batch.tokens, batch.usage))[:4]

    @cached_property
    def tokens_per_request(self) -> list[float]:
        """Tokens in use for each running request, a value for each decode line that tells both."""
        return [b.tokens / b.running for b in self.decode if b.tokens and b.running]

    @cached_property
    def accept_lengths(self) -> list[float]:
        """Tokens accepted a step by speculative decoding, a value for each decode line that tells it with something running."""
        return [b.accept_len for b in self.decode if b.accept_len is not None and b.running]

    @cached_property
    def hit_rate(self) -> float | None:
        """Cached tokens as a share of all prompt tokens in the prefill lines."""
        cached = sum(b.cached or 0 for b in self.prefill)
        new = sum(b.new_tokens or 0 for b in self.prefill)
        return cached / (cached + new) if cached + new else None


def _implied(tokens: int | None, usage: Interval | None) -> Interval | None:
    """Capacity from one line: used / usage, and never less than what is used."""
    if not tokens or tokens <= 0 or usage is None or usage.low <= 0:
        return None
    used = Interval.of(tokens, unit="tokens")
    bounds = (used / usage).with_unit("tokens")
    return Interval(max(bounds.low, used.low), max(bounds.high, used.low), "tokens")


def activity_of(start: Start) -> Activity:
    """The activity of a start; records that are no batch lines are passed over."""
    clock = _Clock()
    seconds = {id(record): clock.second(record) for record in _in_order(start)}
    batches = [_batch(record, seconds[id(record)]) for record in start.batches]
    return Activity(batches, _retractions(start, seconds), start.batches.every)


def _in_order(start: Start) -> list[Record]:
    """The scheduler lines and the retractions between them in the order of the log, which tells days apart without dates."""
    events = start.events_of("retraction")
    records = [*start.batches, *(event.record for event in events)]
    if len({event.path for event in events}) > 1 or not events:
        return records
    return sorted(records, key=lambda record: record.line.number)


def _batch(record: Record, second: float | None) -> Batch:
    kind = "prefill" if record.family == "prefill-batch" else "decode"
    fields: dict[str, Any] = {name: _whole(record, names) for name, names in _NAMES.items()}
    fields |= {name: _interval(record, names) for name, names in _USAGES.items()}
    fields |= {name: _real(record, names) for name, names in _MEASURES.items()}
    fields["graph"] = _truth(record)
    allocating = _whole(record, ("#prealloc-req",))
    if allocating is not None:  # a decode server queues what still lacks tokens apart from its queue
        fields["queued"] = (fields["queued"] or 0) + allocating
    return Batch(kind, record.line.number, str(record.rank), second, **fields)


def _whole(record: Record, names: Iterable[str]) -> int | None:
    for name in names:
        number = record.number(name)
        if isinstance(number, int):
            return number
    return None


def _real(record: Record, names: Iterable[str]) -> float | None:
    for name in names:
        number = record.number(name)
        if number is not None:
            return float(number)
    return None


def _interval(record: Record, names: Iterable[str]) -> Interval | None:
    for name in names:
        interval = record.interval(name)
        if interval is not None:
            return interval.with_unit("fraction")
    return None


def _truth(record: Record) -> bool | None:
    for name in _GRAPHS:
        value = record.values.get(name)
        if value is not None and value.text in ("True", "False"):
            return value.text == "True"
    return None


class _Clock:
    """Seconds of records: of their dates where the log has them, else with the midnights counted."""

    def __init__(self) -> None:
        self._midnights = Midnights()

    def second(self, record: Record) -> float | None:
        parts = record.time.replace(",", ".").split(":")
        if len(parts) != 3:
            return None
        try:
            seconds = int(parts[0]) * 3600 + int(parts[1]) * 60 + float(parts[2])
            if record.date:
                return datetime.date.fromisoformat(record.date).toordinal() * 86400 + seconds
        except ValueError:
            return None
        return self._midnights.day(int(seconds * 1000)) * 86400 + seconds


def _retractions(start: Start, seconds: dict[int, float | None]) -> list[Retraction]:
    """The retractions, each once: of several files of one server each may have them."""
    found: list[Retraction] = []
    repeats = Repeats()
    for event in start.events_of("retraction"):
        record = event.record
        if record.message.startswith("Testing retraction") or not repeats.first(record):
            continue
        count = record.number("#retracted_reqs")
        gained = record.number("#new_tokens_gained")
        found.append(
            Retraction(
                record.line.number,
                seconds[id(record)],
                count if isinstance(count, int) else 0,
                gained if isinstance(gained, int) else None,
                _real(record, ("#new_token_ratio",)),
                _real(record, ("#new_token_ratio after",)),
                str(record.rank),
            )
        )
    return sorted(found, key=lambda retraction: retraction.line)
