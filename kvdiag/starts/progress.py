"""How far the start-up of one rank has come, which decides whose line the next one is."""

from __future__ import annotations

from kvdiag.frozen import field, mutable
from kvdiag.lines import Record
from kvdiag.lines.calendar import days_of
from kvdiag.quantity import Interval

BEGINS = {"dist-init-begin", "dist-init-end", "weight-load-begin"}
"""Families that open the start-up of a worker (of the target's and, in speculation, of the draft's)."""

_AVAILABLE = ("avail mem", "Avail mem")
_PAUSE = 30.0
"""Seconds: the pools of one model are made within one, and between two servers' pools lies the loading of weights."""


@mutable
class Progress:
    """The stages one rank has passed.

    `pools` are lines of the model whose pools are being made, `models` counts the models whose pools were complete
    before a `memory-pool-end` said so, `held` are lines that the next weight line gives to this start or to another.
    """

    before: Interval | None = None
    after: Interval | None = None
    weights_begun: int = 0
    weights_ended: int = 0
    pools_ended: int = 0
    pools: list[Record] = field(default_factory=list)
    path: int = 0
    models: int = 0
    first_pool: Record | None = None
    graphs_seen: bool = False
    capacity_seen: bool = False
    held: list[Record] = field(default_factory=list)

    @property
    def loaded(self) -> bool:
        """Whether a model's weights or pools have been seen."""
        return bool(self.weights_ended or self.pools_ended or self.first_pool)

    def loads_again(self, record: Record) -> bool:
        """Whether a `weight-load-begin` is another server's: its memory is as free as before the first weights.

        A draft model begins with what the target left. Of the two readings the nearer one tells.
        """
        if self.capacity_seen:
            return True
        free = available(record)
        if free is None or self.before is None or self.after is None or not self.weights_ended:
            return False
        return abs(_middle(free) - _middle(self.before)) < abs(_middle(free) - _middle(self.after))

    def pools_again(self, record: Record) -> bool:
        """Whether a `kv-alloc` is another server's: other tokens at the same bytes each, or long after the last pool."""
        first, tokens = self.first_pool, record.number("#tokens")
        if first is None or tokens is None or first.number("#tokens") in (None, tokens):
            return False
        if not (self.pools_ended or self.graphs_seen):
            gap = seconds_between(self.pools[-1], record) if self.pools else None
            return gap is not None and gap >= _PAUSE
        mine, other = _each(first), _each(record)
        return mine is not None and other is not None and mine.meets(other)


def available(record: Record) -> Interval | None:
    """The free memory a start-up line prints, in either spelling."""
    for name in _AVAILABLE:
        found = record.interval(name)
        if found is not None:
            return found
    return None


def pool_bytes(record: Record) -> Interval | None:
    """The bytes of one pool line: the latent buffer, or keys and values together."""
    whole = record.interval("KV size")
    if whole is not None:
        return whole
    keys, values = record.interval("K size"), record.interval("V size")
    return keys + values if keys is not None and values is not None else None


def seconds_between(earlier: Record, later: Record) -> float | None:
    """Seconds from one record to another; None where a time or a date is not printed."""
    before, after = days_of(earlier.date), days_of(later.date)
    if before is None or after is None:
        return None
    return (after - before) * 86400 + _seconds(later.time) - _seconds(earlier.time)


def _seconds(clock: str) -> float:
    hours, minutes, seconds = clock.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _middle(interval: Interval) -> float:
    return float(interval.low + interval.high) / 2


def _each(record: Record) -> Interval | None:
    size, tokens = pool_bytes(record), record.number("#tokens")
    return size / tokens if size is not None and tokens else None
