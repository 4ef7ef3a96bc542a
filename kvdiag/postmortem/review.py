"""One start over time: from its scheduler lines to phases and totals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kvdiag.checks import StartDiagnosis
from kvdiag.postmortem.model import Concurrency, Phase, Review, Spread
from kvdiag.postmortem.phases import Stretch, stretches
from kvdiag.postmortem.samples import FULL, samples_of

if TYPE_CHECKING:
    import pandas

CURVE_POINTS = 1500
"""Points of the curves a report draws: each the extreme of its stretch of time."""
PAYS = 0.05
"""Growth of throughput for half as many more requests below which more concurrency has stopped paying."""
FEWEST_LINES = 20


def review(item: StartDiagnosis, frame: pandas.DataFrame, retractions: list[tuple[str, int]]) -> Review | None:
    """What one start did over time; None where `frame` (its rows of the timeline) is empty.

    `retractions` holds (time as text, requests) of each retraction event, each event once.
    """
    import pandas as pd

    if not len(frame):
        return None
    cap = item.limits.max_running_requests if item.limits else None
    rows = samples_of(frame, cap)
    timed = rows[rows["second"].notna()].sort_values("second", kind="stable")
    origin = timed["time"].min() if len(timed) else None
    events = [
        ((pd.Timestamp(when) - origin).total_seconds(), count) for when, count in retractions if when and origin is not None
    ]
    found = stretches(timed, [second for second, _ in events]) if len(timed) else [_whole(rows)]
    phases = tuple(_phase(stretch, timed if len(timed) else rows, events, origin) for stretch in found)
    curve = concurrency_of(rows)
    return Review(
        len(rows),
        _text(origin),
        _text(timed["time"].max() if len(timed) else None),
        phases,
        _spread(rows["tokens"][rows["decode"]] / rows["running"][rows["decode"]].where(rows["running"] > 0)),
        _hit_rate(rows),
        len(retractions),
        sum(count for _, count in retractions),
        _could_hold_more(phases),
        _pays_up_to(curve),
        tuple(curve),
        _curve(timed, origin) if len(timed) else {},
    )


def _whole(rows: pandas.DataFrame) -> Stretch:
    """The one stretch of a log without times."""
    bound = str(rows["bound"].value_counts().idxmax())
    return Stretch(0.0, 0.0, "steady" if bound == "arrivals" else "saturated", bound)


def _phase(stretch: Stretch, rows: pandas.DataFrame, events: list[tuple[float, int]], origin: Any) -> Phase:
    import pandas as pd

    inside = rows
    if origin is not None:
        seconds = rows["second"].to_numpy()
        first, last = seconds.searchsorted(stretch.begin, "left"), seconds.searchsorted(stretch.end, "right")
        inside = rows.iloc[first:last]
    within = [count for second, count in events if stretch.begin <= second <= stretch.end]
    begin, end = (None, None) if origin is None else (origin + pd.Timedelta(seconds=s) for s in (stretch.begin, stretch.end))
    return Phase(
        _text(begin),
        _text(end),
        round(stretch.end - stretch.begin, 3),
        stretch.kind,
        stretch.binding,
        _spread(inside["usage"]),
        _spread(inside["running"]),
        _spread(inside["queued"]),
        _spread(inside["throughput"]),
        len(within),
        sum(within),
    )


def _spread(values: pandas.Series[float]) -> Spread:
    known = values.dropna()
    if not len(known):
        return Spread(None, None, None)
    return Spread(*(round(float(value), 6) for value in (known.median(), known.quantile(0.95), known.max())))


def _text(when: Any) -> str | None:
    return None if when is None else str(when.isoformat(timespec="milliseconds")).removesuffix(".000")


def _hit_rate(rows: pandas.DataFrame) -> float | None:
    """Cached tokens as a share of all prompt tokens of the prefill lines, probes left out."""
    prefill = rows[~rows["decode"] & ~rows["probe"]]
    cached, new = float(prefill["cached"].sum()), float(prefill["new_tokens"].sum())
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


def concurrency_of(rows: pandas.DataFrame) -> list[Concurrency]:
    """Median throughput by running requests (steps of an eighth), where enough lines tell it."""
    import numpy as np

    decode = rows[rows["decode"] & (rows["running"] > 0) & (rows["throughput"] > 0)]
    if not len(decode):
        return []
    step = np.rint(np.log2(decode["running"].to_numpy()) * 8).astype("int64")
    groups = decode.groupby(step)
    found = groups.agg(running=("running", "median"), throughput=("throughput", "median"), lines=("running", "size"))
    return [
        Concurrency(round(running), round(float(throughput), 3), int(lines))
        for running, throughput, lines in zip(found["running"], found["throughput"], found["lines"], strict=True)
        if lines >= FEWEST_LINES
    ]


def _pays_up_to(curve: list[Concurrency]) -> int | None:
    """Running requests beyond which half as many more bring less than `PAYS` more throughput; None where none shows."""
    for point in curve:
        beyond = [other for other in curve if other.running >= 1.5 * point.running]
        if beyond and max(other.throughput for other in beyond) < point.throughput * (1 + PAYS):
            return point.running
    return None


def _curve(rows: pandas.DataFrame, origin: Any) -> dict[str, list[Any]]:
    """The largest value of each stretch of time, for drawing."""
    width = max(1.0, math.ceil(float(rows["second"].max()) / CURVE_POINTS))
    bucket = (rows["second"] // width).astype("int64")
    columns = ["usage", "swa_usage", "state_usage", "running", "queued", "throughput"]
    highest = rows.groupby(bucket)[columns].max()
    curve: dict[str, list[Any]] = {"second": [float(index) * width for index in highest.index]}
    for column in columns:
        if highest[column].notna().any():
            curve[column] = [None if value != value else round(float(value), 4) for value in highest[column]]
    curve["origin"] = [_text(origin)]
    return curve
