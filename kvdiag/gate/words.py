"""How values, changes and ranges are written in the sentences of this room."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.gate.model import Snapshot
from kvdiag.quantity import GIB, Interval
from kvdiag.quantity.figures import memory
from kvdiag.quantity.interval import plain
from kvdiag.releases import ReleaseSet, every_release, parse_ranges, parse_release

SPECULATION = ("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
"""Arguments that decide whether there is a draft model and how much it needs."""

_LONG, _AHEAD = 80, 20
"""Characters of a value that a sentence has room for, and those shown ahead of where two long values part at most."""


def amount(value: Interval | str | None, *, unit: bool = True) -> str:
    """A value with its unit: exact as it is, memory with the digits a log prints, anything else from its least to its most."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return value
    if value.is_exact:
        number = plain(value.low)
        text = f"{number:,}" if isinstance(number, int) else f"{number:,.10g}"
        return f"{text} {value.unit}" if unit and value.unit != "fraction" else text
    if value.unit == "bytes" and max(abs(value.low), abs(value.high)) >= GIB / 256:
        return span(value)
    return f"{float(value.low):,.6g}..{float(value.high):,.6g}" + (f" {value.unit}" if unit and value.unit != "fraction" else "")


def span(value: Interval) -> str:
    """Bytes as a log prints them, in GiB to two decimals; what may be nothing by what it is under, a wide range by its ends."""
    return memory(value)


def gib(value: Interval) -> str:
    """A positive difference of bytes, from the least to the most it can be."""
    return memory(Interval(max(Fraction(0), value.low), value.high, value.unit), wide=0.0)


def shown(value: Any) -> str:
    """The value of an argument, cut to what fits a sentence."""
    text = "not given" if value is None else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."


def change_of(name: str, before: Any, after: Any) -> str:
    """``name: a -> b``; two long values that begin alike are shown from shortly before they part."""
    old, new = shown(before), shown(after)
    if old == new and before != after:
        old, new = _parted(str(before), str(after))
    return f"{name} {old} -> {new}"


def _parted(old: str, new: str) -> tuple[str, str]:
    """Both texts from the last space ahead of where they part, cut to what fits a sentence."""
    alike = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    begin = max(old.rfind(" ", 0, alike) + 1, alike - _AHEAD)
    cut = [text[begin:] for text in (old, new)]
    first, second = ("... " + (text if len(text) <= _LONG else text[: _LONG - 3] + "...") for text in cut)
    return first, second


def changed_arguments(before: Snapshot, after: Snapshot, names: Iterable[str]) -> list[str]:
    """The changes of those of `names` that differ, as text; one that only one of the releases has did not change."""
    a, b = before.arguments, after.arguments
    if not a or not b:
        return []
    return [
        change_of(name, a.get(name), b.get(name))
        for name in names
        if a.get(name) != b.get(name) and not only_in_one_release(name, before, after)
    ]


def only_in_one_release(name: str, before: Snapshot, after: Snapshot) -> bool:
    """Whether an argument is given in one log only because the other log's release does not have it."""
    lacking = before if name not in before.arguments else after if name not in after.arguments else None
    if lacking is None or not releases_differ(before, after):
        return False
    ranges = _known_fields().get(name)
    return ranges is not None and not parse_ranges(ranges) & _possible(lacking)


@lru_cache(maxsize=1)
def _known_fields() -> dict[str, str]:
    return {name: ranges for document in rulebook.load("arguments") for name, ranges in document["fields"].items()}


def _possible(snapshot: Snapshot) -> ReleaseSet:
    return parse_ranges("..".join(snapshot.release)) if snapshot.release else every_release()


def models_differ(before: Snapshot, after: Snapshot) -> bool:
    """Whether something both logs say of the model (name, architecture, dtype) is another."""
    return any(before.model[key] != after.model[key] for key in before.model.keys() & after.model.keys())


def known_differences(before: Snapshot, after: Snapshot) -> str:
    """The great differences that may lie behind any other: the model and the release; empty where both are the same."""
    found = []
    if models_differ(before, after):
        found.append("the model is another")
    if releases_differ(before, after):
        found.append("the release is another")
    return ", ".join(found)


def releases_differ(before: Snapshot, after: Snapshot) -> bool:
    """Whether no release could have written both logs."""
    if before.release is None or after.release is None:
        return False
    (a_first, a_last), (b_first, b_last) = before.release, after.release
    return parse_release(a_last) < parse_release(b_first) or parse_release(b_last) < parse_release(a_first)


def places(ranks: tuple[str, ...]) -> str:
    """The ranks of a drift in brackets: all of a few, the first and the count of many; empty without ranks."""
    named = [rank for rank in ranks if rank]
    if not named:
        return ""
    return f" [{', '.join(named)}]" if len(named) <= 3 else f" [{named[0]} and {len(named) - 1} more]"
