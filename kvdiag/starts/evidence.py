"""Which releases could have written the lines of a start."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.lines import Record
from kvdiag.releases import Release, ReleaseSet, every_release, parse_ranges
from kvdiag.starts.model import ReleaseEvidence


@lru_cache(maxsize=1)
def _argument_fields() -> dict[str, str]:
    documents: list[dict[str, Any]] = rulebook.load("arguments")
    return {name: ranges for document in documents for name, ranges in document["fields"].items()}


class Evidence:
    """Collects what narrows the release, one distinct observation once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, tuple[int, ...]], tuple[str, int]] = {}
        self._arguments: tuple[ReleaseSet, str] | None = None
        self.stated: Release | None = None

    def line(self, record: Record) -> None:
        """A matched line: the union of the ranges of the variants it fits."""
        if record.variants:
            key = (record.family or "", tuple(variant.number for variant in record.variants))
            if key not in self._seen:
                self._seen[key] = (", ".join(variant.releases for variant in record.variants), record.line.number)

    def arguments(self, server_args: dict[str, Any], whole: bool) -> None:
        """The field names of a server_args dump: the releases that have exactly them, or at least them if it is cut."""
        if not server_args:
            return
        fields = _argument_fields()
        known = [name for name in server_args if name in fields]
        if not known:
            return
        possible = every_release()
        for ranges in {fields[name] for name in known}:
            possible = possible & parse_ranges(ranges)
        if whole and len(known) == len(server_args):
            lacking = {ranges for name, ranges in fields.items() if name not in server_args}
            exact = possible
            for ranges in lacking:
                exact = exact - parse_ranges(ranges)
            possible = exact or possible
        if possible:
            self._arguments = (possible, f"the {len(known)} fields of server_args: {possible}")

    def absorb(self, other: Evidence) -> None:
        """Adds what was observed in another part of the same start."""
        for key, observation in other._seen.items():
            self._seen.setdefault(key, observation)
        self._arguments = self._arguments or other._arguments

    def conclude(self) -> ReleaseEvidence:
        """The smallest range that explains everything seen; what contradicts it is named."""
        possible = every_release()
        evidence: list[str] = []
        contradiction = ""
        if self._arguments:
            possible, text = self._arguments
            evidence.append(text)
        for (family, _), (ranges, line) in self._seen.items():
            these = parse_ranges(ranges)
            both = possible & these
            if not both:
                contradiction = contradiction or f"line {line} ({family}) is of {these}, other lines of {possible}"
            elif len(both) < len(possible):
                possible = both
                evidence.append(f"line {line} ({family}): {these}")
        return ReleaseEvidence(possible, self.stated, tuple(evidence), contradiction)
