"""Which releases could have written the lines of a start."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import combinations
from typing import Any

from kvdiag import rulebook
from kvdiag.frozen import frozen
from kvdiag.lines import Record
from kvdiag.releases import Release, ReleaseSet, every_release, known_releases, parse_ranges
from kvdiag.starts.model import ReleaseEvidence

_WORKERS = {"weight-load-begin", "weight-load-end", "memory-pool-end", "kv-alloc", "capacity", "prefill-batch", "decode-batch"}
"""Families that only workers print."""

_QUOTED = {
    "memory-unbalanced", "not-enough-memory", "mamba-too-small", "input-too-long", "pd-too-long", "retract-abort", "oom-tokens",
    "oom-detail", "oom-req-slots", "leak", "graph-failed", "crash", "watchdog", "health", "hicache-host-oom", "load-barrier",
}  # fmt: skip
"""Families of error texts, which are often quoted without their last sentence: they narrow, but contradict nothing."""

_CUT = {"time without date"}
"""Signs that somebody makes who shortens a log by hand: they narrow, but contradict nothing."""

_FEWEST_FIELDS = 20
"""A dump of fewer fields was shortened by hand: what it lacks says nothing."""


@lru_cache(maxsize=1)
def _argument_fields() -> dict[str, str]:
    documents: list[dict[str, Any]] = rulebook.load("arguments")
    return {name: ranges for document in documents for name, ranges in document["fields"].items()}


@lru_cache(maxsize=1)
def _signs() -> dict[str, ReleaseSet]:
    documents: list[dict[str, Any]] = rulebook.load("releases")
    return {name: parse_ranges(ranges) for document in documents for name, ranges in document.get("signs", {}).items()}


@frozen
class Observation:
    """Something seen in the log, the releases that could have written it, and its line (0 for none)."""

    what: str
    releases: ReleaseSet
    line: int
    weak: bool = False

    def __str__(self) -> str:
        return f"{f'line {self.line}: ' if self.line else ''}{self.what} ({self.releases})"


class Evidence:
    """Collects what narrows the release, one distinct observation once."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, ...], Observation] = {}
        self._fields: list[Observation] = []
        self._foreign = ""
        self.stated: Release | None = None

    def line(self, record: Record) -> None:
        """A matched line: the union of the ranges of the variants it fits, and what its prefix tells."""
        if record.variants:
            key = self.key(record)
            if key not in self._lines:
                releases = parse_ranges(", ".join(variant.releases for variant in record.variants))
                weak = record.family in _QUOTED
                self._lines[key] = Observation(f"the words of {record.family}", releases, record.line.number, weak)
        for sign in _signs_of(record):
            if (sign,) not in self._lines:
                self._lines[(sign,)] = Observation(sign, _signs()[sign], record.line.number, weak=sign in _CUT)

    def words(self, what: str, ranges: str, line: int) -> None:
        """The beginning of a text that only these releases have; as a quotation it narrows but contradicts nothing."""
        self._lines.setdefault((what,), Observation(what, parse_ranges(ranges), line, weak=True))

    def arguments(self, server_args: dict[str, Any], whole: bool, line: int = 0) -> None:
        """The fields of a server_args dump, and whether a worker that is alone carries a tag."""
        self._fields = list(self._field_observations(server_args, whole, line))
        tagged = self._lines.get(("tagged worker",))
        alone = "tp_size" in server_args and all(server_args.get(name, 1) == 1 for name in ("tp_size", "dp_size", "pp_size"))
        if tagged and alone:
            name = "TP tag of a single worker"
            self._lines[(name,)] = Observation(name, _signs()[name], tagged.line)

    def _field_observations(self, server_args: dict[str, Any], whole: bool, line: int) -> Iterator[Observation]:
        fields = _argument_fields()
        known = [name for name in server_args if name in fields]
        strange = [name for name in server_args if name not in fields]
        if not known:
            return
        possible = every_release()
        for ranges in {fields[name] for name in known}:
            possible = possible & parse_ranges(ranges)
        if strange:
            self._foreign = (
                f"server_args has fields that no release up to {known_releases()[-1]} has ({', '.join(strange[:5])}"
                f"{', ...' if len(strange) > 5 else ''}): a newer release, a fork or a development tree"
            )
        yield Observation(f"the {len(known)} fields that server_args has", possible, line)
        if whole and not strange and len(known) >= _FEWEST_FIELDS:
            exact = possible
            for ranges in {ranges for name, ranges in fields.items() if name not in server_args}:
                exact = exact - parse_ranges(ranges)
            if exact:
                yield Observation("the fields that server_args lacks", exact, line)

    def key(self, record: Record) -> tuple[str, ...]:
        """What lines that the same variants fit have in common."""
        return (record.family or "", *(variant.releases for variant in record.variants))

    def denied(self, keys: Collection[tuple[str, ...]]) -> dict[tuple[str, ...], ReleaseSet]:
        """Of the observations with these keys those that no release explains which explains all others, and these releases."""
        possible = every_release()
        for each in [*self._fields, *(each for key, each in self._lines.items() if key not in keys and not each.weak)]:
            if each.releases:
                possible = possible & each.releases
        found = {key: self._lines[key] for key in keys if key in self._lines}
        return {key: possible for key, each in found.items() if possible and each.releases and not each.releases & possible}

    def forget(self, key: tuple[str, ...]) -> None:
        """Takes an observation back."""
        self._lines.pop(key, None)

    def absorb(self, other: Evidence) -> None:
        """Adds what was observed in another part of the same start."""
        for key, observation in other._lines.items():
            self._lines.setdefault(key, observation)

    def conclude(self) -> ReleaseEvidence:
        """The smallest range that explains what was seen, and what contradicts it.

        Where no release explains everything, the releases that explain most of it are left, and the contradiction says
        which lines cannot come from them.
        """
        seen = [*self._fields, *(each for each in self._lines.values() if each.releases and not each.weak)]
        possible = every_release()
        for each in seen:
            possible = possible & each.releases
        contradiction = self._foreign
        if not possible:
            possible = _most_explaining(seen)
            contradiction = _contradiction(seen)
        for each in self._lines.values():
            if each.weak and each.releases & possible:
                possible = possible & each.releases
                seen.append(each)
        return ReleaseEvidence(possible, self.stated, tuple(_narrowing(seen, possible)), contradiction)


def _signs_of(record: Record) -> Iterator[str]:
    """The names of what a line's prefix and the spelling of a dump tell."""
    if record.family == "server-args-dump":
        value = record.values.get("server_args")
        if value and value.text.startswith(("ServerArgs(", "{")):
            yield "server_args as a dict" if value.text.startswith("{") else "server_args as a dataclass"
    if not record.prefixed or not record.time:
        return
    yield "date and time" if record.date else "time without date"
    if "." in record.time:
        yield "milliseconds"
    tags = list(record.rank.tags)
    for tag in ("DP", "EP", "PP", "ATTN_CP", "MOE_DP"):
        if tag in tags:
            yield f"{tag} tag"
    if "TP" in tags and "PP" in tags:
        yield "TP tag before PP tag" if tags.index("TP") < tags.index("PP") else "PP tag before TP tag"
    if record.family in _WORKERS and not record.line.stream:
        yield "tagged worker" if tags else "worker line without a tag"


def _most_explaining(seen: list[Observation]) -> ReleaseSet:
    """The releases that the most observations allow."""
    counts = [sum(each.releases.bits >> index & 1 for each in seen) for index in range(len(known_releases()))]
    return ReleaseSet(sum(1 << index for index, count in enumerate(counts) if count == max(counts)))


def _contradiction(seen: list[Observation]) -> str:
    """Two observations that no release makes together, or the narrowest ones where only several together exclude all."""
    pair = next(((a, b) for a, b in combinations(seen, 2) if not a.releases & b.releases), None)
    told = pair or sorted(seen, key=lambda each: len(each.releases))[:3]
    return (
        f"these lines contradict each other: {', against '.join(map(str, told))}; "
        "a fork, a development tree, or several servers in one file"
    )


def _narrowing(seen: list[Observation], possible: ReleaseSet) -> Iterator[str]:
    """In words, the observations that took releases away, those that took most first."""
    left = every_release()
    for each in sorted((each for each in seen if each.releases & possible), key=lambda each: len(each.releases)):
        both = left & each.releases
        if both != left:
            yield str(each)
            left = both
