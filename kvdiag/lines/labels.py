"""Values of damaged lines of ``label: value`` families, taken only where label and end are both whole.

The strict rules come first; this is for lines from which somebody left out fields, whose middle was overwritten, or that a
release newer than the rules prints with other fields.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kvdiag.frozen import frozen
from kvdiag.lines.formats import formats
from kvdiag.lines.template import DECIMALS, Sequence, heads
from kvdiag.quantity import ABBREVIATED

FAMILIES = (
    *("prefill-batch", "decode-batch", "capacity", "kv-alloc", "mamba-pool", "retract", "weight-load-begin", "weight-load-end"),
    *("memory-pool-end", "swa-split", "swa-pool-usage", "dsv4-pool", "graph-begin", "graph-end"),
)
_EVERY_FIELD = ("prefill-batch", "decode-batch", "retract")
"""Families nobody shortens by hand. Others are, in lines without SGLang's prefix or with a mark where something is left out;
else a field that is missing was lost, and may have taken a part of its neighbour along."""
_ELISIONS = ("...", "…", "[...]", "(...)")
_SEPARATOR = r"(?:^|[,.;:] |\) |\[\d+\], )"
_NEXT = r"(?:^|[,.] |\[\d+\], )"
_WHOLE = r"(?:0|[1-9]\d*)"
"""Digits as printed; with a nought before others they are the ends of two numbers."""
_END = r"(?=,? *$|, |\.(?: |$)| {2,}| <)"
_GROUPED = r"[+-]?\d{1,3}(?:[,_\u202f]\d{3})+(?!\d)"
_LAST = ""
"""What "follows" a value with which a line can end."""
_SHARED = 4
"""Letters that the rest of a damaged line must have in common with the label that follows in the template."""
_LEAST_SHARED = 9
"""Characters of its beginning that a message must share with a line of the family."""
_UNITS = {"GiB": " ?GB", "GB10": " ?GB", "MiB": " ?MB", "percent": "%"}


@frozen
class _Label:
    name: str
    kind: str
    pattern: re.Pattern[str]
    after: tuple[str, ...]


def read_labels(family: str, message: str, *, cut: bool) -> list[tuple[str, str, str]]:
    """(name, kind, text) of the values that are certain; with `cut` the end of the message is no value's end."""
    found: list[tuple[int, str, str, str]] = []
    seen: set[str] = set()
    for label in _labels(family):
        places = list(label.pattern.finditer(message))
        if len(places) != 1 or label.name in seen:
            continue
        place = places[0]
        if not _certain(family, label, message, place.end(), cut=cut):
            continue
        seen.add(label.name)
        text = place["grouped"]
        found.append((place.start(), label.name, label.kind, re.sub(r"[,_\u202f]", "", text) if text else place["value"]))
    return [(name, kind, text) for _, name, kind, text in sorted(found)]


def _certain(family: str, label: _Label, message: str, end: int, *, cut: bool) -> bool:
    """Whether nothing of the value can have been lost: a hole in the line shows in what follows it."""
    rest = message[end:].rstrip()
    if rest in ("", ",", "."):
        if family in _EVERY_FIELD and _LAST not in label.after and not cut:
            return False
        return not cut or DECIMALS.fullmatch(label.kind) is not None
    shortened = not cut or rest.startswith(("  ", " <")) or rest.lstrip(", ").startswith(_ELISIONS)
    if shortened and family not in _EVERY_FIELD:
        return True
    rest = rest.lstrip(",. ")
    names = [name for name in label.after if name != _LAST]
    return any(rest.startswith(name[:_SHARED] if len(rest) >= _SHARED else name[: len(rest)]) for name in names)


@lru_cache(maxsize=32)
def _labels(family: str) -> tuple[_Label, ...]:
    following: dict[tuple[str, str], set[str]] = {}
    for variant in formats().variants_of(family):
        _follow(variant.sequence, frozenset({_LAST}), following)
    return tuple(
        _Label(name, kind, _pattern(family, name, kind), tuple(sorted(after)))
        for (name, kind), after in following.items()
        if kind not in ("t", "m")
    )


def printing(family: str, names: Sequence) -> list[str]:
    """The release ranges of the family's variants that print values of these names in this order."""
    variants = (variant for variant in formats().variants_of(family) if not variant.excerpt)
    return [variant.releases for variant in variants if _in_order(variant.sequence, names, 0) == len(names)]


def _in_order(sequence: Sequence, names: Sequence, at: int) -> int:
    """How many of `names`, of which `at` came before, have been met in their order at the end of `sequence`."""
    for item in sequence:
        if isinstance(item, str):
            continue
        if item[0] == "a":
            at = max(_in_order(branch, names, at) for branch in item[1:])
        elif at < len(names) and item[1] == names[at]:
            at += 1
    return at


def _pattern(family: str, name: str, kind: str) -> re.Pattern[str]:
    decimals = DECIMALS.fullmatch(kind)
    unit = formats().unit(family, name)
    if decimals:
        value = rf"[+-]?{'[01]' if unit == 'fraction' else _WHOLE}\.\d{{{decimals[1]}}}"
    elif kind == "d":
        value = rf"[+-]?{_WHOLE}"
    elif kind == "f":
        value = rf"[+-]?{_WHOLE}(?:\.\d+)?(?:[eE][+-]?\d+)?"
    else:
        value = r"True|False|torch\.\w+" if kind in ("b", "v", "w") else "|".join(map(re.escape, kind.split("|")))
    grouped = _GROUPED if kind == "d" else r"(?!)"
    if kind == "d":
        value = rf"{ABBREVIATED}|{value}"
    before = _NEXT if family in _EVERY_FIELD else _SEPARATOR
    unit = _UNITS.get(unit, "")
    return re.compile(rf"{before}{re.escape(name)}(?:: |=| = )(?:(?P<grouped>{grouped})|(?P<value>{value})){unit}{_END}")


def _follow(sequence: Sequence, after: frozenset[str], found: dict[tuple[str, str], set[str]]) -> frozenset[str]:
    """Notes which labels can follow each value that is printed behind its own name; gives those this sequence can begin with."""
    for place in range(len(sequence) - 1, -1, -1):
        item = sequence[place]
        if isinstance(item, str):
            continue
        if item[0] == "a":
            after = frozenset().union(*(_follow(branch, after, found) for branch in item[1:]))
        else:
            kind = item[3] if item[0] == "t" else item[2]
            before = sequence[place - 1] if place else ""
            named = isinstance(before, str) and before.endswith((f"{item[1]}: ", f"{item[1]}=", f"{item[1]} = "))
            if named:
                found.setdefault((item[1], kind), set()).update(after)
            after = frozenset((item[1],)) if named else frozenset()
    return after


def family_of_head(message: str) -> str:
    """The family whose lines begin most like the message; empty where it begins like none, or like two."""
    best, shared = "", _LEAST_SHARED - 1
    for variant in formats().starting(message):
        for head in heads(variant.sequence):
            common = _common(head, message)
            if common > shared:
                best, shared = variant.family, common
            elif common == shared and best != variant.family and common < min(len(head), len(message)):
                best = ""
    return best


def _common(first: str, second: str) -> int:
    """Characters that two texts have in common at their beginning."""
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))
