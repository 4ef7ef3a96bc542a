"""The form in which a postmortem leaves this room."""

from __future__ import annotations

from typing import Any

from kvdiag.checks import Diagnosis
from kvdiag.frozen import field, frozen, mutable


@frozen
class Spread:
    """Percentiles of a number over the scheduler lines of a phase; None where no line states it."""

    p50: float | None
    p95: float | None
    max: float | None

    def to_dict(self) -> dict[str, float | None]:
        """JSON form."""
        return {"p50": self.p50, "p95": self.p95, "max": self.max}


_CONTRACT = {"admission_reserve": "kv_pool", "transfer": "unknown", "prefill": "unknown"}
"""What bound, in the contract's words: the reserve keeps tokens of the pool back."""


@frozen
class Phase:
    """A stretch of time in which the server was in one condition.

    `kind` is ``idle``, ``ramp``, ``steady``, ``saturated`` (work waited), ``storm`` (requests were retracted again and
    again) or ``drain``; `binding` the limit that kept work waiting, ``arrivals`` where none waited, ``unknown`` where the
    lines do not tell (a silence that began with a queue). Times are ISO text as the log states them, without a zone where
    it has none. The spreads of a phase in which work waited are over the lines of the replicas on which it did, so that a
    full pool is not averaged with an empty one. `retractions` counts events, `retracted` requests.
    """

    begin: str | None
    end: str | None
    seconds: float
    kind: str
    binding: str
    token_usage: Spread
    running: Spread
    queued: Spread
    throughput: Spread
    retractions: int
    retracted: int

    def to_dict(self) -> dict[str, Any]:
        """JSON form, with the contract's keys."""
        return {
            "from": self.begin,
            "to": self.end,
            "seconds": self.seconds,
            "kind": self.kind,
            "binding": _CONTRACT.get(self.binding, self.binding),
            "bound_by": self.binding,
            "token_usage": self.token_usage.to_dict(),
            "running": self.running.to_dict(),
            "queued": self.queued.to_dict(),
            "throughput": self.throughput.to_dict(),
            "retractions": self.retractions,
            "retracted": self.retracted,
        }


@frozen
class Concurrency:
    """Median throughput of one replica at a number of running requests."""

    running: int
    throughput: float
    lines: int


@frozen
class Review:
    """One start over time: its rows, phases and totals."""

    rows: int
    begin: str | None
    end: str | None
    phases: tuple[Phase, ...]
    tokens_per_request: Spread
    hit_rate: float | None
    retractions: int
    retracted: int
    could_hold_more: float | None
    pays_up_to: int | None
    concurrency: tuple[Concurrency, ...] = ()
    curve: dict[str, list[Any]] = field(default_factory=dict)
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON form: ``timeline``, ``phases`` and the totals."""
        return {
            "timeline": {"rows": self.rows, "from": self.begin, "to": self.end, "note": self.note or None},
            "phases": [phase.to_dict() for phase in self.phases],
            "tokens_per_request": self.tokens_per_request.to_dict(),
            "hit_rate": self.hit_rate,
            "retractions": self.retractions,
            "retracted": self.retracted,
            "could_hold_more": self.could_hold_more,
            "concurrency_pays_up_to": self.pays_up_to,
            "concurrency": [{"running": c.running, "throughput": c.throughput, "lines": c.lines} for c in self.concurrency],
        }


@mutable
class Postmortem:
    """A diagnosis and, for each of its starts, what it did over time (None where the start has no scheduler line)."""

    diagnosis: Diagnosis
    reviews: list[Review | None]
