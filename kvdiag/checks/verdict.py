"""When two numbers agree: their intervals meet; when they disagree: they cannot, and nothing is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvdiag.frozen import frozen
from kvdiag.quantity import Interval
from kvdiag.releases import Release

_REPEATS = {
    "rest_memory": "max_total_num_tokens",
    "mem_fraction_static": "max_total_num_tokens",
    "kv_pool_bytes": "bytes_per_token",
}
"""Checks that are computed from another's number: where that one disagrees, theirs is the same contradiction once more."""


def repeated(name: str, disagreeing: Iterable[str]) -> str:
    """The check among those that disagree which the disagreement of `name` only repeats; empty where it stands for itself."""
    other = _REPEATS.get(name, "")
    return other if other in disagreeing else ""


@frozen
class Candidate:
    """What one formula gives, and the releases that have it among those the log may be of."""

    value: Interval
    releases: tuple[Release, ...]


@frozen
class Excuse:
    """Something the log does not tell that could move a number: `lowers`, or `raises` it, or both."""

    why: str
    lowers: bool = True
    raises: bool = True


def turned(excuses: Iterable[Excuse]) -> list[Excuse]:
    """The excuses where the recomputed number is held against what the log implies: what lowers the log leaves it too high."""
    return [Excuse(excuse.why, lowers=excuse.raises, raises=excuse.lowers) for excuse in excuses]


def candidates(groups: Iterable[tuple[Release, ...]], compute: Callable[[Release], Interval | None]) -> list[Candidate]:
    """`compute` for each group of releases that size alike, equal results once; those for which it gives None do not count."""
    found: dict[Interval, list[Release]] = {}
    for releases in groups:
        value = compute(releases[-1])
        if value is not None:
            found.setdefault(value, []).extend(releases)
    return [Candidate(value, tuple(of)) for value, of in found.items()]


def hull(found: Iterable[Candidate]) -> Interval:
    """The smallest interval that holds every candidate; ValueError where there is none."""
    values = [candidate.value for candidate in found]
    if not values:
        raise ValueError("no candidate")
    result = values[0]
    for value in values[1:]:
        result = result.hull(value)
    return result


def judge(observed: Interval, found: list[Candidate], excuses: Iterable[Excuse] = ()) -> tuple[str, tuple[str, ...]]:
    """The verdict and, where it is ``unknown``, what is missing."""
    meeting = [candidate for candidate in found if candidate.value.meets(observed)]
    if found and len(meeting) == len(found):
        return "agree", ()
    if meeting:
        fits, fails = (_named([c for c in found if (c in meeting) == wanted]) for wanted in (True, False))
        return "unknown", (f"the release is not known: the figure fits {fits}, not {fails}; give --release",)
    below = all(observed.high < candidate.value.low for candidate in found)
    above = all(observed.low > candidate.value.high for candidate in found)
    reasons = [e.why for e in excuses if (below and e.lowers) or (above and e.raises) or not (below or above)]
    return ("unknown", tuple(dict.fromkeys(reasons))) if reasons else ("disagree", ())


def _named(found: list[Candidate]) -> str:
    releases = sorted({release for candidate in found for release in candidate.releases})
    return str(releases[0]) if len(releases) == 1 else f"{releases[0]}..{releases[-1]}"
