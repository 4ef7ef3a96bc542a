"""One start over time: from its scheduler lines to phases and totals."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np

from kvdiag.checks import StartDiagnosis
from kvdiag.checks.binding import Bounds
from kvdiag.frozen import replace
from kvdiag.postmortem.gather import Rows
from kvdiag.postmortem.model import Concurrency, Phase, Review, Spread
from kvdiag.postmortem.phases import Span, Stretch, condition, spans, stretches, within
from kvdiag.postmortem.samples import BOUNDS, FULL, Samples, in_order, put_right, samples_of, set_back

CURVE_POINTS = 1500
"""Points of the curves a report draws: each the extreme of its stretch of time."""
PAYS = 0.05
"""Growth of throughput for half as many more requests below which more concurrency has stopped paying."""
FEWEST_LINES = 20
_FEW = 4000
"""Values that are sorted sooner than partitioned."""


def review(item: StartDiagnosis, rows: Rows, retractions: list[tuple[str, int]]) -> Review | None:
    """What one start did over time; None where it has no scheduler line.

    `retractions` holds (time as text, requests) of each retraction event, each event once.
    """
    if not len(rows):
        return None
    back = set_back(rows)
    if back is not None and not retractions:
        rows = put_right(rows, back)
    samples = samples_of(rows, item.facts.bounds if item.facts else Bounds())
    timed = in_order(samples)
    if not len(timed):
        return _untimed(samples, retractions)
    origin = _EPOCH + timedelta(milliseconds=int(timed.rows.stamps.min()))
    end = float(timed.seconds[-1])
    told = sorted((_within(second, end), count) for when, count in retractions if (second := _since(origin, when)) is not None)
    events = np.array(told, np.float64).reshape(-1, 2)
    found = stretches(timed, events[:, 0].tolist())
    phases = tuple(_phase(each, span, timed, events, origin) for each, span in zip(found, spans(found), strict=True))
    last = origin + timedelta(seconds=end)
    found_review = _review(samples, phases, retractions, (origin, last), _curve(timed, origin))
    return found_review if back is None else replace(found_review, note=_of_the_clock(rows, back, put=not retractions))


def _of_the_clock(rows: Rows, back: int, *, put: bool) -> str:
    """What to say of a clock that was set back at the row `back`."""
    when = _text(_EPOCH + timedelta(milliseconds=int(rows.stamps[back - 1])))
    then = "later times are told as if it had not been" if put else "what lies within an hour of it is out of order"
    return f"The clock was set back by an hour after {when} (the end of summer time?): {then}."


_EPOCH = datetime(1970, 1, 1)


def _within(second: float, end: float) -> float:
    """The nearest moment of which there are batch lines: an excerpt can begin with retractions, or end with them."""
    return min(max(second, 0.0), end)


def _since(origin: datetime, when: str) -> float | None:
    """Seconds to a time as text, None where it is no time."""
    try:
        return (datetime.fromisoformat(when) - origin).total_seconds()
    except ValueError:
        return None


def _untimed(samples: Samples, retractions: list[tuple[str, int]]) -> Review:
    """The one stretch of a log without times."""
    counts = np.bincount(samples.bound, minlength=len(BOUNDS))
    bound = next(int(place) for place in samples.bound if counts[place] == counts.max())
    queued = samples.value("queued")
    kind, _, binding = condition(bound, waits=queued is not None and bool((queued > 0).any())).partition(":")
    stretch = Stretch(0.0, 0.0, kind, binding)
    events = np.array([(0.0, count) for _, count in retractions], np.float64).reshape(-1, 2)
    (span,) = spans([stretch])
    return _review(samples, (_phase(stretch, span, samples, events, None),), retractions, (None, None), {})


def _review(
    samples: Samples,
    phases: tuple[Phase, ...],
    retractions: list[tuple[str, int]],
    ends: tuple[datetime | None, datetime | None],
    curve: dict[str, list[Any]],
) -> Review:
    concurrency = concurrency_of(samples)
    return Review(
        len(samples),
        _text(ends[0]),
        _text(ends[1]),
        phases,
        _spread(_tokens_per_request(samples)),
        _hit_rate(samples),
        len(retractions),
        sum(count for _, count in retractions),
        _could_hold_more(phases),
        _pays_up_to(concurrency),
        tuple(concurrency),
        curve,
    )


def _phase(stretch: Stretch, span: Span, samples: Samples, events: Any, origin: datetime | None) -> Phase:
    """What falls into `span`; `events` holds the second and the requests of each retraction."""
    inside: Any = slice(None) if origin is None else within(samples.seconds, span)
    requests = events[within(events[:, 0], span), 1]
    begin, end = (None if origin is None else origin + timedelta(seconds=second) for second in (stretch.begin, stretch.end))
    at = _of_its_kind(stretch, samples.bound[inside])
    usage, running, queued, throughput = (
        _spread(None if (column := samples.value(name)) is None else column[inside][at])
        for name in ("usage", "running", "queued", "throughput")
    )
    return Phase(
        _text(begin),
        _text(end),
        round(stretch.end - stretch.begin, 3),
        stretch.kind,
        stretch.binding,
        usage,
        running,
        queued,
        throughput,
        len(requests),
        int(requests.sum()),
    )


def _of_its_kind(stretch: Stretch, bound: Any) -> Any:
    """Which rows tell of the condition: where work waited, those of the replicas on which it did; else all."""
    if stretch.kind in ("saturated", "storm"):
        mine = bound == BOUNDS.index(stretch.binding)
        if mine.any():
            return mine
    return slice(None)


def _spread(values: Any) -> Spread:
    """Percentiles of the values that are there, by linear interpolation between the two nearest."""
    known: Any = np.zeros(0) if values is None else values[~np.isnan(values)]
    last = len(known) - 1
    if last < 0:
        return Spread(None, None, None)
    places = (0.5 * last, 0.95 * last, float(last))
    if last < _FEW:
        known.sort()
    else:
        known.partition(sorted({int(place) for place in places} | {math.ceil(place) for place in places}))
    return Spread(*(round(_at(known, place), 6) for place in places))


def _at(ordered: Any, place: float) -> float:
    low, high = float(ordered[int(place)]), float(ordered[math.ceil(place)])
    return low + (high - low) * (place - int(place))


def _text(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat(timespec="milliseconds").removesuffix(".000")


def _tokens_per_request(samples: Samples) -> Any:
    tokens, running = samples.value("tokens"), samples.value("running")
    if tokens is None or running is None:
        return None
    told = samples.rows.decode & (running > 0)
    return tokens[told].astype(np.float64) / running[told]


def _hit_rate(samples: Samples) -> float | None:
    """Cached tokens as a share of all prompt tokens of the prefill lines, probes left out."""
    prefill = ~samples.rows.decode & ~samples.probe
    columns = (samples.value("cached"), samples.value("new_tokens"))
    cached, new = (0.0 if column is None else float(np.nansum(column[prefill], dtype=np.float64)) for column in columns)
    return round(cached / (cached + new), 6) if cached + new > 0 else None


def _could_hold_more(phases: tuple[Phase, ...]) -> float | None:
    """The share of time in which work waited though the pool was not full."""
    total = math.fsum(phase.seconds for phase in phases)
    held = math.fsum(
        phase.seconds
        for phase in phases
        if phase.kind == "saturated" and phase.token_usage.p50 is not None and phase.token_usage.p50 < FULL
    )
    return round(held / total, 6) if total else None


def concurrency_of(samples: Samples) -> list[Concurrency]:
    """Median throughput by running requests (steps of an eighth), where enough lines tell it."""
    running, throughput = samples.value("running"), samples.value("throughput")
    if running is None or throughput is None:
        return []
    told = samples.rows.decode & (running > 0) & (throughput > 0)
    running, throughput = running[told], throughput[told]
    step = np.rint(np.log2(running.astype(np.float64)) * 8).astype(np.int16)
    order = np.argsort(step, kind="stable")
    step, running, throughput = step[order], running[order], throughput[order]
    edges = np.flatnonzero(np.diff(step, prepend=-1, append=-1))
    return [
        Concurrency(round(_median(running[begin:end])), round(_median(throughput[begin:end]), 3), end - begin)
        for begin, end in pairwise(edges.tolist())
        if end - begin >= FEWEST_LINES
    ]


def _median(values: Any) -> float:
    """The median; the values are put into another order."""
    middle = (len(values) - 1) / 2
    values.partition((int(middle), math.ceil(middle)))
    return _at(values, middle)


def _pays_up_to(curve: list[Concurrency]) -> int | None:
    """Running requests beyond which half as many more bring less than `PAYS` more throughput; None where none shows."""
    for point in curve:
        beyond = [other for other in curve if other.running >= 1.5 * point.running]
        if beyond and max(other.throughput for other in beyond) < point.throughput * (1 + PAYS):
            return point.running
    return None


def _curve(samples: Samples, origin: datetime) -> dict[str, list[Any]]:
    """The largest value of each stretch of time, for drawing."""
    width = max(1.0, math.ceil(float(samples.seconds[-1]) / CURVE_POINTS))
    bucket = (samples.seconds / width).astype(np.int64)
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    curve: dict[str, list[Any]] = {"second": (bucket[first] * width).tolist()}
    for name in ("usage", "swa_usage", "state_usage", "running", "queued", "throughput"):
        column = samples.value(name)
        if column is not None and not np.isnan(column).all():
            highest = np.fmax.reduceat(column, first).tolist()
            curve[name] = [None if value != value else round(value, 4) for value in highest]
    curve["origin"] = [_text(origin)]
    return curve
