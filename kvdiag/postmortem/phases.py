"""Cutting time into phases: buckets of equal length, one condition each, smoothed so that a flicker is no phase."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvdiag.frozen import frozen

if TYPE_CHECKING:
    import pandas

MOST_BUCKETS = 5000
WIDTHS = (1.0, 2.0, 5.0, 10.0)
"""Seconds of a bucket: the shortest that needs no more than `MOST_BUCKETS`, or the longest."""
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


@frozen
class Stretch:
    """Seconds from `begin` to `end` (from the first line) in one condition."""

    begin: float
    end: float
    kind: str
    binding: str


def stretches(rows: pandas.DataFrame, retractions: list[float]) -> list[Stretch]:
    """The phases of one start: `rows` are samples with a time, `retractions` the seconds of retraction events."""
    last = float(rows["second"].max())
    width = next((width for width in WIDTHS if last / width <= MOST_BUCKETS), WIDTHS[-1])
    labels = _labels(rows, retractions, width, int(last / width) + 1)
    runs = _merged(list(_runs(labels)), max(1, round(SHORTEST / width)))
    found = [Stretch(begin * width, min(end * width, last), *label.split(":", 1)) for begin, end, label in runs]
    return list(_edges(found, rows))


def _labels(rows: pandas.DataFrame, retractions: list[float], width: float, count: int) -> list[str]:
    """``kind:binding`` of every bucket."""
    import numpy as np

    bucket = (rows["second"] // width).astype("int64")
    active = ~rows["probe"]
    present = np.zeros(count, bool)
    present[bucket[active].to_numpy()] = True
    bindings = _commonest(bucket[active], rows["bound"][active])
    labels = ["idle:arrivals"] * count
    previous = "steady:arrivals"
    for index in range(count):
        if present[index]:
            binding = bindings[index]
            previous = "steady:arrivals" if binding == "arrivals" else f"saturated:{binding}"
            labels[index] = previous
        else:
            labels[index] = ""
    _fill_gaps(labels, rows, active, width)
    for index in _stormy(sorted(retractions), width, count):
        labels[index] = "storm:kv_pool"
    return labels


def _commonest(bucket: pandas.Series[int], bounds: pandas.Series[str]) -> dict[int, str]:
    """What bound most lines of each bucket; on a tie, what kept work waiting."""
    counts = bounds.groupby([bucket.to_numpy(), bounds.to_numpy()]).size()
    most: dict[int, tuple[int, bool, str]] = {}
    for index, bound, count in zip(*(counts.index.get_level_values(level) for level in (0, 1)), counts, strict=True):
        ranked = (-int(count), bound == "arrivals", str(bound))
        most[int(index)] = min(ranked, most.get(int(index), ranked))
    return {index: bound for index, (_, _, bound) in most.items()}


def _fill_gaps(labels: list[str], rows: pandas.DataFrame, active: pandas.Series[bool], width: float) -> None:
    """Buckets without a line: idle where the silence is long, else as the bucket before (or after)."""
    import numpy as np

    known_seconds = np.unique(rows["second"][active].to_numpy())
    usual = float(np.median(np.diff(known_seconds))) if len(known_seconds) > 1 else 0.0
    seconds = np.concatenate([[0.0], known_seconds, [len(labels) * width]])
    for gap in np.flatnonzero(np.diff(seconds) >= max(IDLE_GAP, SPARSE * usual)):
        begin, end = float(seconds[gap]), float(seconds[gap + 1])
        for index in range(int(begin / width) + 1, int(end / width)):
            if not labels[index]:
                labels[index] = "idle:arrivals"
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
    """Runs without those too short to be a phase: shortest first, each joins its longer neighbour.

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
        """Gives the run the label of its longer neighbour and joins what is then alike; the runs whose length may change."""
        run = self._run(index)
        into = max(
            self.neighbours(index), key=lambda at: (_is_end_of_storm(run, self._run(at)), self._run(at)[1] - self._run(at)[0])
        )
        label = self._run(into)[2]
        begin, end = run[0], run[1]
        for at in self.neighbours(index):
            if self._run(at)[2] == label:
                begin, end = min(begin, self._run(at)[0]), max(end, self._run(at)[1])
                self._unlink(at)
        self.runs[index] = (begin, end, label)
        return [index, *self.neighbours(index)]

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


def _edges(found: list[Stretch], rows: pandas.DataFrame) -> Iterator[Stretch]:
    """A steady stretch after silence may begin with a ramp, one before silence end with a drain."""
    seconds = rows["second"].to_numpy()
    for index, stretch in enumerate(found):
        quiet_before = index == 0 or found[index - 1].kind == "idle"
        quiet_after = index == len(found) - 1 or found[index + 1].kind == "idle"
        if stretch.kind != "steady" or not (quiet_before or quiet_after):
            yield stretch
            continue
        first, last = seconds.searchsorted(stretch.begin, "left"), seconds.searchsorted(stretch.end, "right")
        inside = rows.iloc[first:last]
        inside = inside[inside["decode"]]
        usual = float(inside["running"].median()) if len(inside) else 0.0
        high = inside["second"][inside["running"] >= 0.8 * usual] if usual > 1 else inside["second"][:0]
        begin, end = stretch.begin, stretch.end
        if quiet_before and len(high) and high.min() - begin >= EDGE:
            yield Stretch(begin, float(high.min()), "ramp", stretch.binding)
            begin = float(high.min())
        if quiet_after and len(high) and end - high.max() >= EDGE:
            yield Stretch(begin, float(high.max()), "steady", stretch.binding)
            yield Stretch(float(high.max()), end, "drain", stretch.binding)
        else:
            yield Stretch(begin, end, "steady", stretch.binding)
