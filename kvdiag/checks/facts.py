"""Everything the conditions of findings may look at, in one place and computed once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from kvdiag.checks.activity import Activity
from kvdiag.checks.binding import Bounds
from kvdiag.checks.inputs import CheckInputs, possible
from kvdiag.checks.limits import bounds_of, request_cap
from kvdiag.checks.memory import Ledger, context_length, free_readings, request_table
from kvdiag.checks.model import Check, Limits
from kvdiag.frozen import frozen
from kvdiag.outside.model import Outside
from kvdiag.quantity import Interval
from kvdiag.releases import parse_release
from kvdiag.starts import Event, Number, Start

_OOM = ("out of memory", "OutOfMemoryError", "Tried to allocate")


@frozen
class Facts:
    """One start with what was concluded before findings: its checks, limits, memory and activity.

    `siblings` are all starts of the same inputs, this one among them; `outside` is what other sources say of the server.
    """

    inputs: CheckInputs
    checks: tuple[Check, ...]
    limits: Limits
    ledgers: tuple[Ledger, ...]
    activity: Activity
    last_exception: str = ""
    siblings: tuple[Start, ...] = ()
    outside: tuple[Outside, ...] = ()

    @property
    def start(self) -> Start:
        """The start itself."""
        return self.inputs.start

    def arg(self, name: str) -> Any:
        """A server argument as the log states it, None where it does not or no server could run with it."""
        value = self.start.server_args.get(name)
        return value if possible(name, value) else None

    def events(self, *kinds: str) -> list[Event]:
        """The events of these kinds in the order of the log."""
        return [event for event in self.start.events if event.kind in kinds]

    @cached_property
    def ran_out(self) -> list[Event]:
        """Device allocators out of memory, wherever the text stands: alone, behind an exception's name, in a capture failure."""
        found = self.events("out_of_memory")
        found += [e for e in self.events("graph_capture_failed", "crash") if any(mark in e.record.message for mark in _OOM)]
        return sorted(found, key=lambda event: event.record.line.number)

    @cached_property
    def captures(self) -> list[Event]:
        """Progress lines of graph capture that stand where capture can be: behind the pools, or in a bare excerpt.

        A progress bar is glued to whatever line follows it, so that its place alone proves little.
        """
        begun = [n.line for name in ("memory_before_graphs", "memory_after_pool") for n in self.start.find(name)]
        if not begun and self.start.find("available_gpu_memory"):
            return []
        return [event for event in self.events("capturing") if event.record.line.number > min(begun, default=0)]

    def number(self, name: str, role: str | None = None) -> Number | None:
        """The first number of that name that is a quantity."""
        return next((n for n in self.start.find(name, role=role) if n.interval is not None), None)

    def whole(self, name: str, role: str | None = None) -> int | None:
        """The smallest whole number of that name over the ranks."""
        found = [n.value for n in self.start.find(name, role=role) if isinstance(n.value, int)]
        return min(found, default=None)

    def since(self, release: str) -> bool | None:
        """Whether the log is of that release or later; None where it may be either."""
        releases, mark = self.inputs.candidates(), parse_release(release)
        if not releases or releases[0] < mark <= releases[-1]:
            return None
        return releases[0] >= mark

    def meaning(self, family: str, field: str) -> str | None:
        """What a field says in the releases the log may be of: with the releases where that changed among them.

        None where it says there what it says in the newest release.
        """
        from kvdiag.lines.families import families
        from kvdiag.releases import ReleaseSet, only

        entries = families()[family].meanings(field)
        possible = ReleaseSet(0)
        for release in self.inputs.candidates():
            possible = possible | only(release)
        told = families()[family].meanings(field, possible)
        if not told or all(entry.meaning == entries[-1].meaning for entry in told):
            return None
        return " or ".join(f"{entry.meaning} ({entry.releases})" if len(told) > 1 else entry.meaning for entry in told)

    @cached_property
    def new_token(self) -> str | None:
        """What ``#new-token`` counts, where that is not just the tokens to compute; with pages of one token it always is."""
        return None if self.arg("page_size") == 1 else self.meaning("prefill-batch", "#new-token")

    @cached_property
    def tokens(self) -> int | None:
        """Token capacity where the log states it as one number."""
        found = self.limits.max_total_num_tokens
        return found if isinstance(found, int) else None

    @cached_property
    def pool_tokens(self) -> Interval | None:
        """Token capacity, stated or implied by usage."""
        found = self.limits.max_total_num_tokens
        if isinstance(found, dict):
            return Interval.of(found["low"], found["high"], "tokens")
        return Interval.of(found, unit="tokens") if found is not None else None

    @cached_property
    def context(self) -> int | None:
        """Context length in force."""
        return context_length(self.inputs)

    @cached_property
    def cap(self) -> int | None:
        """The request cap of one data-parallel replica."""
        return request_cap(self.inputs)

    @cached_property
    def bounds(self) -> Bounds:
        """What can bind on one replica."""
        return bounds_of(self.inputs, self.activity, self.pool_tokens, self.context)

    @cached_property
    def rank(self) -> str | None:
        """The rank with the least free memory after loading: the one that sizes the pool; None without readings."""
        readings = self.inputs.readings
        return min(readings, key=lambda r: r.available.low).rank if readings else None

    @cached_property
    def fraction(self) -> float | None:
        """mem_fraction_static in force, None where the log does not state it."""
        found = self.inputs.mem_fraction_static
        return None if found is None else float(found)

    @cached_property
    def total(self) -> Interval | None:
        """Free memory before loading, the smallest over ranks: what the fraction is a fraction of."""
        totals = [reading.total for reading in self.inputs.readings if reading.total is not None]
        if not totals:
            return None
        smallest = totals[0]
        for total in totals[1:]:
            smallest = smallest.minimum(total)
        return smallest

    @cached_property
    def available(self) -> Interval | None:
        """Free memory after the last weights, the smallest over ranks."""
        readings = self.inputs.readings
        if not readings:
            return None
        smallest = readings[0].available
        for reading in readings[1:]:
            smallest = smallest.minimum(reading.available)
        return smallest

    @cached_property
    def free_at_end(self) -> Number | None:
        """The last reading of free memory once pools exist: of the ranks that have one, the smallest."""
        last = []
        for rank in self.start.ranks:
            readings = free_readings(self.start, rank)
            if readings and readings[-1].name.startswith(("memory_after", "memory_before")):
                last.append(readings[-1])
        return min(last, key=lambda n: n.interval.low if n.interval else 0, default=None)

    @cached_property
    def pool_bytes(self) -> Number | None:
        """Bytes of the target's pools on the first rank that prints them."""
        return self.number("kv_pool_bytes", role="target")

    @cached_property
    def cell(self) -> Interval | None:
        """Bytes of one token: recomputed where it agrees with the log, else the pool's bytes over its rows."""
        for check in self.checks:
            if check.name == "bytes_per_token" and check.role in (None, "target"):
                if check.verdict == "agree" and check.recomputed is not None:
                    return check.recomputed
                if check.observed is not None:
                    return check.observed
        return None

    @cached_property
    def recomputed_cell(self) -> Interval | None:
        """Bytes of one token by the latest release the log may be of; None where the model cannot be sized."""
        from kvdiag.errors import CannotSizeError
        from kvdiag.sizing import size

        releases = self.inputs.candidates()
        if self.inputs.geometry is None or not releases:
            return None
        try:
            return Interval.of(size(self.inputs.geometry, self.inputs.arguments, releases[-1]).bytes_per_token, unit="bytes")
        except CannotSizeError:
            return None

    @property
    def geometry_is_unknown(self) -> bool:
        """Whether the model's shape could not be read."""
        return self.inputs.geometry is None

    @cached_property
    def request_table(self) -> Interval | None:
        """Bytes of the request table, None where its shape is not known."""
        return request_table(self.inputs)

    def lines(self, *numbers: Number | None) -> tuple[int, ...]:
        """The lines of these numbers, each once, in order."""
        return tuple(dict.fromkeys(sorted(n.line for n in numbers if n is not None)))


def event_lines(events: Iterable[Event], most: int = 6) -> tuple[int, ...]:
    """The lines of the first `most` events, each once."""
    return tuple(dict.fromkeys(event.record.line.number for event in list(events)[:most]))
