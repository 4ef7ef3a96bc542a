"""Scheduler lines as samples: the columns a review needs, and what bound at each line."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvdiag.checks.binding import MOST_RESERVED, Bounds
from kvdiag.frozen import frozen
from kvdiag.postmortem.gather import Rows

FULL = 0.90
"""Usage from which a pool counts as full: SGLang's tuning guide calls more than this good use."""
BOUNDS = (
    "admission_reserve",
    "kv_pool",
    "max_running_requests",
    "prefill",
    "state_slots",
    "swa_pool",
    "transfer",
    "unknown",
    "arrivals",
)
"""What can bind; of several that are equally common the first is told, so ``arrivals`` (nothing waited) comes last."""
HOUR = 3_600_000
_LEAST_BACK, _MOST_BACK = -HOUR + 900_000, -HOUR - 1000
"""Milliseconds of a step back that an hour's change of the clock makes: less by as long as no line came meanwhile."""
ARRIVALS = BOUNDS.index("arrivals")


@frozen
class Samples:
    """One row a scheduler line, in the order of time (or of the log, where it has no times).

    `seconds` count from the first line (empty where no line has a time), `bound` is a place in `BOUNDS`, `probe` marks
    health probes (prefill of a single token). Values are NaN where the line has none; a column that no line has is None.
    """

    rows: Rows
    seconds: Any
    probe: Any
    bound: Any

    def __len__(self) -> int:
        return len(self.rows)

    def value(self, name: str) -> Any:
        """A column of `SOURCES`, None where no line has it."""
        return self.rows.values.get(name)

    def cut(self, inside: slice | Any) -> Samples:
        """Some of the rows."""
        rows = self.rows
        values = {name: column[inside] for name, column in rows.values.items()}
        cut = Rows(rows.decode[inside], rows.stamps[inside], rows.timed[inside], values)
        return Samples(cut, self.seconds[inside], self.probe[inside], self.bound[inside])


def samples_of(rows: Rows, bounds: Bounds) -> Samples:
    """The samples of one start; `bounds` are what can bind on one replica."""
    running = _or_zero(rows, "running")
    new_tokens = rows.values.get("new_tokens")
    probe = np.zeros(len(rows), np.bool_) if new_tokens is None else ~rows.decode & (new_tokens <= 1) & (running == 0)
    bound = _bound(rows, running, bounds)
    bound[_of_another_server(rows, running, bounds)] = BOUNDS.index("unknown")
    return Samples(rows, _seconds(rows), probe, bound)


def _of_another_server(rows: Rows, running: Any, bounds: Bounds) -> Any:
    """As `Bounds.holds_too_much` or `Bounds.runs_too_many`, for every line."""
    found = np.zeros(len(rows), np.bool_)
    tokens = rows.values.get("tokens")
    if bounds.most_tokens is not None and tokens is not None:
        found |= tokens.astype(np.float64) > bounds.most_tokens
    if bounds.most_running is not None:
        found |= running.astype(np.float64) > bounds.most_running
    return found & rows.decode


def _or_zero(rows: Rows, name: str) -> Any:
    column = rows.values.get(name)
    return np.zeros(len(rows), np.float32) if column is None else np.where(np.isnan(column), np.float32(0), column)


def _seconds(rows: Rows) -> Any:
    """Seconds from the first timed line, NaN where a line has no time; empty where none has."""
    if not rows.timed.any():
        return np.full(len(rows), np.nan)
    if rows.timed.all():
        return (rows.stamps - rows.stamps.min()) / 1000.0
    return np.where(rows.timed, (rows.stamps - rows.stamps[rows.timed].min()) / 1000.0, np.nan)


def _bound(rows: Rows, running: Any, bounds: Bounds) -> Any:
    """What bound at each line: the first of the conditions that holds, from the last to the first here."""
    count = len(rows)
    queued = rows.values.get("queued")
    untold = np.ones(count, np.bool_) if queued is None else np.isnan(queued)
    bound = np.where(untold, np.int8(BOUNDS.index("unknown")), np.int8(ARRIVALS))
    waits = np.zeros(count, np.bool_) if queued is None else queued > 0
    admitted = np.where(rows.decode, 0.0, _or_zero(rows, "new_seq"))
    busy = running + admitted
    transferring = rows.values.get("transferring")
    if transferring is not None:
        bound[~waits & (transferring > busy)] = BOUNDS.index("transfer")
    usage = rows.values.get("usage")
    at = np.flatnonzero(waits)
    if not len(at):
        return bound
    held = np.full(len(at), BOUNDS.index("prefill" if bounds.is_prefill_full else "admission_reserve"), np.int8)
    if usage is None:
        held[:] = BOUNDS.index("unknown")
    else:
        held[np.isnan(usage[at]) | ~_reserve_can_bind(rows, running, bounds)[at]] = BOUNDS.index("unknown")
    new_tokens = rows.values.get("new_tokens")
    if bounds.chunk is None and not bounds.is_prefill_full:
        held[~rows.decode[at]] = BOUNDS.index("unknown")
    if bounds.chunk and new_tokens is not None:
        held[new_tokens[at] >= bounds.chunk] = BOUNDS.index("prefill")
    if transferring is not None and usage is not None:
        held[~rows.decode[at] & ~np.isnan(transferring[at]) & ~np.isnan(usage[at])] = BOUNDS.index("prefill")
    for name, what in (("usage", "kv_pool"), ("swa_usage", "swa_pool"), ("state_usage", "state_slots")):
        column = rows.values.get(name)
        if column is not None:
            held[column[at] >= FULL] = BOUNDS.index(what)
    if bounds.cap is not None:
        held[busy[at] >= np.float64(bounds.cap)] = BOUNDS.index("max_running_requests")
    bound[at] = held
    return bound


def _reserve_can_bind(rows: Rows, running: Any, bounds: Bounds) -> Any:
    """As `Bounds.reserve_can_bind`, for every line."""
    used = rows.values.get("tokens")
    if bounds.pool is None or bounds.context is None or used is None:
        return np.ones(len(rows), np.bool_)
    most: Any = used.astype(np.float64) + running.astype(np.float64) * MOST_RESERVED + bounds.context
    return ~(most < bounds.pool)


def set_back(rows: Rows) -> int | None:
    """The row before which the clock goes back by an hour, as at the end of summer time; None where it does not."""
    steps = np.diff(rows.stamps)
    found = np.flatnonzero((steps <= _LEAST_BACK) & (steps >= _MOST_BACK) & rows.timed[1:] & rows.timed[:-1])
    return int(found[0]) + 1 if len(found) == 1 else None


def put_right(rows: Rows, back: int) -> Rows:
    """The rows as if the clock had not been set back."""
    stamps = rows.stamps.copy()
    stamps[back:] += HOUR
    return Rows(rows.decode, stamps, rows.timed, rows.values)


def in_order(samples: Samples) -> Samples:
    """The rows that have a time, in its order."""
    timed = samples if samples.rows.timed.all() else samples.cut(samples.rows.timed)
    steps = np.diff(timed.seconds)
    return timed if (steps >= 0).all() else timed.cut(np.argsort(timed.seconds, kind="stable"))
