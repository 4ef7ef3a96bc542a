"""Cutting time into phases: buckets of equal length, one condition each, smoothed so that a flicker is no phase."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvdiag.frozen import frozen
from kvdiag.postmortem.samples import ARRIVALS, BOUNDS, Samples

MOST_BUCKETS = 5000
WIDTHS = (1.0, 2.0, 5.0, 10.0)
"""Seconds of a bucket: the shortest that needs no more than `MOST_BUCKETS`, or the longest."""
MOST_EVER = 1_000_000
"""Buckets at most, whatever a damaged date makes of the time that a log spans."""
IDLE_GAP = 60.0
"""Seconds without a scheduler line from which the server counts as idle: forty decode steps take far less."""
SPARSE = 5.0
"""Where lines are sparse (cut by hand, a long decode_log_interval), silence is this many times their usual distance."""
STORM_EVENTS = 3
STORM_GAP = 180.0
"""A storm is at least `STORM_EVENTS` retractions, each within this many seconds of the one before."""
SHORTEST = 30.0
"""Seconds below which a condition between two stretches of another one is a flicker."""
STORM_EDGE = 120.0
EDGE = 60.0
"""Seconds a rise or fall must last to be a phase of its own."""
LONG, LEAST = 300.0, 0.1
"""In a log of fewer than `LONG` seconds these three measures shrink with it, to `LEAST` of themselves at most."""


@frozen
class Stretch:
    """Seconds from `begin` to `end` (from the first line) in one condition."""

    begin: float
    end: float
    kind: str
    binding: str


def stretches(samples: Samples, retractions: list[float]) -> list[Stretch]:
    """The phases of one start: `samples` have times and stand in their order, `retractions` are the seconds of events."""
    last = float(samples.seconds[-1])
    width = next((width for width in WIDTHS if last / width <= MOST_BUCKETS), max(WIDTHS[-1], last / MOST_EVER))
    labels = _labels(samples, retractions, width, int(last / width) + 1)
    scale = min(1.0, max(LEAST, last / LONG))
    runs = _merged(list(_runs(labels)), max(1, round(SHORTEST * scale / width)))
    found = [Stretch(begin * width, min(end * width, last), *label.split(":")) for begin, end, label in runs]
    return list(_edges(found, samples, EDGE * scale))


def _labels(samples: Samples, retractions: list[float], width: float, count: int) -> list[str]:
    """``kind:binding`` of every bucket."""
    active = ~samples.probe
    seconds, bound = samples.seconds[active], samples.bound[active]
    lines = np.bincount((seconds / width).astype(np.int64) * len(BOUNDS) + bound, minlength=count * len(BOUNDS))
    by_bucket: Any = lines.reshape(count, len(BOUNDS))
    commonest = zip(by_bucket.argmax(axis=1).tolist(), by_bucket.any(axis=1).tolist(), strict=True)
    queued = samples.value("queued")
    waits = np.zeros(count, np.bool_)
    if queued is not None:
        waits[(seconds[queued[active] > 0] / width).astype(np.int64)] = True
    labels = [
        condition(bound, waits=any_waits) if any_line else ""
        for (bound, any_line), any_waits in zip(commonest, waits.tolist(), strict=True)
    ]
    _fill_gaps(labels, seconds, None if queued is None else queued[active], width)
    for index in _stormy(sorted(retractions), width, count):
        labels[index] = "storm:kv_pool"
    return labels


def condition(bound: int, *, waits: bool) -> str:
    """``kind:binding`` of lines by what bound at them (a place in `BOUNDS`), and by whether any tells that work waited."""
    saturated = bound != ARRIVALS and (waits or BOUNDS[bound] != "unknown")
    return f"{'saturated' if saturated else 'steady'}:{BOUNDS[bound]}"


def _fill_gaps(labels: list[str], seconds: Any, queued: Any, width: float) -> None:
    """Buckets without a line: idle where the silence is long, else as the bucket before (or after).

    A silence that begins with requests in the queue is not idle: the server hung or was stopped, or lines are missing.
    """
    lines = seconds
    known_seconds = seconds[np.diff(seconds, prepend=-1.0) > 0]
    usual = float(np.median(np.diff(known_seconds))) if len(known_seconds) > 1 else 0.0
    seconds = np.concatenate([[0.0], known_seconds, [len(labels) * width]])
    for gap in np.flatnonzero(np.diff(seconds) >= max(IDLE_GAP, SPARSE * usual)):
        begin, end = float(seconds[gap]), float(seconds[gap + 1])
        waiting = (
            queued is not None and (queued[lines.searchsorted(begin, "left") : lines.searchsorted(begin, "right")] > 0).any()
        )
        for index in range(int(begin / width) + 1, int(end / width)):
            if not labels[index]:
                labels[index] = "steady:unknown" if waiting else "idle:arrivals"
    known = next((label for label in labels if label), "idle:arrivals")
    for index, label in enumerate(labels):
        labels[index] = known = label or known


def _stormy(times: list[float], width: float, count: int) -> Iterator[int]:
    """The buckets of storms: from the first retraction of a cluster to its last."""
    cluster: list[float] = []
    for time in [*times, float("inf")]:
        if cluster and time - cluster[-1] > STORM_GAP:
            if len(cluster) >= STORM_EVENTS:
                yield from range(int(cluster[0] / width), min(count, int(cluster[-1] / width) + 1))
            cluster = []
        cluster.append(time)


_Run = tuple[int, int, str]


def _runs(labels: list[str]) -> Iterator[_Run]:
    begin = 0
    for index in range(1, len(labels) + 1):
        if index == len(labels) or labels[index] != labels[begin]:
            yield begin, index, labels[begin]
            begin = index


def _merged(runs: list[_Run], shortest: int) -> list[_Run]:
    """Runs without those too short to be a phase: shortest first, each joins a neighbour.

    Storms stay, and take in a full pool of less than `STORM_EDGE` seconds beside them: that is their beginning or end.
    """
    chain = _Chain(runs)
    waiting = [(chain.length(index), index) for index in range(len(runs))]
    heapq.heapify(waiting)
    while waiting:
        length, index = heapq.heappop(waiting)
        if chain.runs[index] is None:
            continue
        if length >= shortest or not chain.neighbours(index):
            break
        if length == chain.length(index):
            for changed in chain.join(index):
                heapq.heappush(waiting, (chain.length(changed), changed))
    return [run for run in chain.runs if run is not None]


class _Chain:
    """Runs in their order, of which a short one is joined to a neighbour without looking at the rest."""

    def __init__(self, runs: list[_Run]) -> None:
        self.runs: list[_Run | None] = list(runs)
        self._before = list(range(-1, len(runs) - 1))
        self._after = [*range(1, len(runs)), -1]

    def neighbours(self, index: int) -> list[int]:
        return [at for at in (self._before[index], self._after[index]) if at >= 0]

    def length(self, index: int) -> float:
        """How long a run counts as: a storm is never too short, a full pool beside one counts by the edge's measure."""
        run = self._run(index)
        if run[2].startswith("storm"):
            return float("inf")
        if any(_is_end_of_storm(run, self._run(at)) for at in self.neighbours(index)):
            return (run[1] - run[0]) * SHORTEST / STORM_EDGE
        return run[1] - run[0]

    def join(self, index: int) -> list[int]:
        """Gives the run the label of a neighbour and joins what is then alike; the runs whose length may change."""
        run = self._run(index)
        into = max(self.neighbours(index), key=lambda at: self._draws(run, self._run(at)))
        label = self._run(into)[2]
        begin, end = run[0], run[1]
        for at in self.neighbours(index):
            if self._run(at)[2] == label:
                begin, end = min(begin, self._run(at)[0]), max(end, self._run(at)[1])
                self._unlink(at)
        self.runs[index] = (begin, end, label)
        return [index, *self.neighbours(index)]

    def _draws(self, run: _Run, other: _Run) -> tuple[bool, bool, int]:
        """How much a short run is of a neighbour: the end of a storm is the storm's, work is no idleness, then the longer."""
        works = not run[2].startswith("idle") and not other[2].startswith("idle")
        return _is_end_of_storm(run, other), works, other[1] - other[0]

    def _run(self, index: int) -> _Run:
        run = self.runs[index]
        assert run is not None
        return run

    def _unlink(self, index: int) -> None:
        before, after = self._before[index], self._after[index]
        if before >= 0:
            self._after[before] = after
        if after >= 0:
            self._before[after] = before
        self.runs[index] = None


def _is_end_of_storm(run: _Run, other: _Run) -> bool:
    return run[2] == "saturated:kv_pool" and other[2].startswith("storm")


def _edges(found: list[Stretch], samples: Samples, shortest: float) -> Iterator[Stretch]:
    """A steady stretch after silence may begin with a ramp, one before silence end with a drain, of `shortest` seconds."""
    for index, (stretch, span) in enumerate(zip(found, spans(found), strict=True)):
        quiet_before = index == 0 or found[index - 1].kind == "idle"
        quiet_after = index == len(found) - 1 or found[index + 1].kind == "idle"
        if stretch.kind != "steady" or not (quiet_before or quiet_after):
            yield stretch
            continue
        busy = _busy_seconds(samples.cut(within(samples.seconds, span)))
        begin, end = stretch.begin, stretch.end
        if quiet_before and busy is not None and busy[0] - begin >= shortest:
            begin = end if end - busy[0] < 1 else busy[0]
            yield Stretch(stretch.begin, begin, "ramp", stretch.binding)
            if begin == end:
                continue
        if quiet_after and busy is not None and end - busy[1] >= shortest:
            yield Stretch(begin, busy[1], "steady", stretch.binding)
            yield Stretch(busy[1], end, "drain", stretch.binding)
        else:
            yield Stretch(begin, end, "steady", stretch.binding)


def _busy_seconds(inside: Samples) -> tuple[float, float] | None:
    """The first and the last second at which nearly as many requests ran as usual; None where hardly any did."""
    running = inside.value("running")
    if running is None:
        return None
    decode = inside.rows.decode & ~np.isnan(running)
    usual = float(np.median(running[decode])) if decode.any() else 0.0
    if usual <= 1:
        return None
    high = inside.seconds[decode & (running >= np.float64(0.8 * usual))]
    return float(high[0]), float(high[-1])


Span = tuple[float, float]


def spans(found: list[Stretch]) -> list[Span]:
    """From which second each stretch counts, and before which: together they hold everything, each thing once."""
    begins = [-math.inf, *(stretch.begin for stretch in found[1:])]
    return list(zip(begins, [*begins[1:], math.inf], strict=True))


def within(seconds: Any, span: Span) -> slice:
    """The rows of a span; `seconds` are in order."""
    return slice(*(int(place) for place in seconds.searchsorted(span, "left")))
