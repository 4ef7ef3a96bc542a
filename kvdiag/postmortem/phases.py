"""Cutting time into phases: buckets of equal length, one condition each, smoothed so that a flicker is no phase."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pandas

MOST_BUCKETS = 8640
LONGEST_BUCKET = 10.0
IDLE_GAP = 60.0
"""Seconds without a scheduler line from which the server counts as idle: forty decode steps take far less."""
STORM_EVENTS = 3
STORM_WINDOW = 30.0
"""A storm is at least `STORM_EVENTS` retractions within this many seconds on either side."""
SHORTEST = 30.0
"""Seconds below which a condition between two stretches of another one is a flicker."""
EDGE = 60.0
"""Seconds a rise or fall must last to be a phase of its own."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Seconds from `begin` to `end` (from the first line) in one condition."""

    begin: float
    end: float
    kind: str
    binding: str


def stretches(rows: pandas.DataFrame, retractions: list[float]) -> list[Stretch]:
    """The phases of one start: `rows` are samples with a time, `retractions` the seconds of retraction events."""
    last = float(rows["second"].max())
    width = min(LONGEST_BUCKET, max(1.0, last / MOST_BUCKETS))
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
    bindings = rows["bound"][active].groupby(bucket[active]).agg(_commonest)
    labels = ["idle:arrivals"] * count
    previous = "steady:arrivals"
    for index in range(count):
        if present[index]:
            binding = str(bindings.loc[index])
            previous = "steady:arrivals" if binding == "arrivals" else f"saturated:{binding}"
            labels[index] = previous
        else:
            labels[index] = ""
    _fill_gaps(labels, rows, active, width)
    for index in _stormy(np.array(sorted(retractions)), width, count):
        labels[index] = "storm:kv_pool"
    return labels


def _commonest(bounds: pandas.Series[str]) -> str:
    """What bound most lines of a bucket; on a tie, what kept work waiting."""
    counts = bounds.value_counts()
    top = counts[counts == counts.max()].index
    waiting = [name for name in top if name != "arrivals"]
    return str(sorted(waiting or top)[0])


def _fill_gaps(labels: list[str], rows: pandas.DataFrame, active: pandas.Series[bool], width: float) -> None:
    """Buckets without a line: idle where the silence is long, else as the bucket before (or after)."""
    seconds = sorted(rows["second"][active])
    begins = [0.0, *seconds]
    ends = [*seconds, len(labels) * width]
    idle = [(a, b) for a, b in zip(begins, ends, strict=True) if b - a >= IDLE_GAP]
    for begin, end in idle:
        for index in range(int(begin / width) + 1, int(end / width)):
            if not labels[index]:
                labels[index] = "idle:arrivals"
    known = next((label for label in labels if label), "idle:arrivals")
    for index, label in enumerate(labels):
        labels[index] = known = label or known


def _stormy(times: np.ndarray, width: float, count: int) -> Iterator[int]:
    import numpy as np

    if len(times) < STORM_EVENTS:
        return
    near = np.searchsorted(times, times + STORM_WINDOW, "right") - np.searchsorted(times, times - STORM_WINDOW, "left")
    crowded = times[near >= STORM_EVENTS]
    for first, second in zip(crowded, [*crowded[1:], crowded[-1:].sum()], strict=True):
        end = second if second - first <= STORM_WINDOW else first
        yield from range(int(first / width), min(count, int(end / width) + 1))


_Run = tuple[int, int, str]


def _runs(labels: list[str]) -> Iterator[_Run]:
    begin = 0
    for index in range(1, len(labels) + 1):
        if index == len(labels) or labels[index] != labels[begin]:
            yield begin, index, labels[begin]
            begin = index


def _merged(runs: list[_Run], shortest: int) -> list[_Run]:
    """Runs without those too short to be a phase: shortest first, each joins its longer neighbour. Storms stay."""
    runs = list(runs)
    while len(runs) > 1:
        lengths = [(end - begin, index) for index, (begin, end, label) in enumerate(runs) if not label.startswith("storm")]
        length, index = min(lengths, default=(shortest, 0))
        if length >= shortest:
            break
        neighbours = [at for at in (index - 1, index + 1) if 0 <= at < len(runs)]
        into = max(neighbours, key=lambda at: runs[at][1] - runs[at][0])
        label = runs[into][2]
        runs[index] = (runs[index][0], runs[index][1], label)
        runs = list(_joined(runs))
    return runs


def _joined(runs: list[_Run]) -> Iterator[_Run]:
    held = runs[0]
    for run in runs[1:]:
        if run[2] == held[2]:
            held = (held[0], run[1], held[2])
        else:
            yield held
            held = run
    yield held


def _edges(found: list[Stretch], rows: pandas.DataFrame) -> Iterator[Stretch]:
    """A steady stretch after silence may begin with a ramp, one before silence end with a drain."""
    for index, stretch in enumerate(found):
        quiet_before = index == 0 or found[index - 1].kind == "idle"
        quiet_after = index == len(found) - 1 or found[index + 1].kind == "idle"
        if stretch.kind != "steady" or not (quiet_before or quiet_after):
            yield stretch
            continue
        inside = rows[(rows["second"] >= stretch.begin) & (rows["second"] <= stretch.end) & rows["decode"]]
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
