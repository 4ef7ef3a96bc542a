"""SGLang's published releases in order, and sets of them as evidence narrows them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import lru_cache, total_ordering

from kvdiag import rulebook
from kvdiag.errors import ReleaseError
from kvdiag.frozen import frozen

_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.?rc(\d{1,4}))?(?:\.?post(\d{1,4}))?(?:[.+-].*)?")
_FINAL = 1_000_000


@total_ordering
@frozen
class Release:
    """A release number; ordered as ``0.5.10rc0 < 0.5.10 < 0.5.10.post1``."""

    key: tuple[int, int, int, int, int]
    text: str

    def __lt__(self, other: Release) -> bool:
        return self.key < other.key

    def __str__(self) -> str:
        return self.text


def _key(text: str) -> tuple[int, int, int, int, int] | None:
    found = _RELEASE.fullmatch(text.strip())
    if not found:
        return None
    major, minor, patch, candidate, post = found.groups()
    return (int(major), int(minor), int(patch or 0), int(candidate) if candidate else _FINAL, int(post or 0))


@lru_cache(maxsize=1024)
def parse_release(text: str) -> Release:
    """The release named by `text` (``0.5.9``, ``v0.5.10rc0``, ``0.4.6.post1``); it need not be a published one.

    Raises ReleaseError where the text is no release number.
    """
    key = _key(text)
    if key is None:
        raise ReleaseError(f"{text!r} is not an SGLang release: write it like 0.5.9, 0.4.6.post1 or 0.5.10rc0")
    return Release(key, text.strip().lstrip("v"))


@lru_cache(maxsize=1)
def known_releases() -> tuple[Release, ...]:
    """Every published release, oldest first (``rules/releases/order.toml``)."""
    documents = rulebook.load("releases")
    return tuple(sorted(parse_release(text) for document in documents for text in document.get("releases", ())))


@lru_cache(maxsize=1024)
def published_release(text: str) -> Release:
    """As `parse_release`, of a release that is known here; raises ReleaseError for one that is not."""
    release, known = parse_release(text), known_releases()
    if not any(release.key == one.key for one in known):
        older = [one for one in known if one < release]
        near = f"; the nearest older one is {older[-1]}" if older else ""
        raise ReleaseError(f"SGLang {release} is not among the releases known here ({known[0]} to {known[-1]}){near}")
    return release


@frozen
class ReleaseSet:
    """A set of published releases, one bit each in the order of `known_releases`; evidence intersects them."""

    bits: int

    def __and__(self, other: ReleaseSet) -> ReleaseSet:
        return ReleaseSet(self.bits & other.bits)

    def __or__(self, other: ReleaseSet) -> ReleaseSet:
        return ReleaseSet(self.bits | other.bits)

    def __sub__(self, other: ReleaseSet) -> ReleaseSet:
        return ReleaseSet(self.bits & ~other.bits)

    def __bool__(self) -> bool:
        return bool(self.bits)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __contains__(self, release: Release) -> bool:
        return any(release.key == member.key for member in self.ordered())

    @property
    def first(self) -> Release | None:
        """The oldest member."""
        return known_releases()[(self.bits & -self.bits).bit_length() - 1] if self.bits else None

    @property
    def last(self) -> Release | None:
        """The newest member."""
        return known_releases()[self.bits.bit_length() - 1] if self.bits else None

    def ordered(self) -> list[Release]:
        """Members, oldest first."""
        return [release for index, release in enumerate(known_releases()) if self.bits >> index & 1]

    def __str__(self) -> str:
        if not self.bits:
            return "no release"
        return str(self.first) if len(self) == 1 else f"{self.first}..{self.last}"


def every_release() -> ReleaseSet:
    """The set of every published release."""
    return ReleaseSet((1 << len(known_releases())) - 1)


def only(release: Release) -> ReleaseSet:
    """The set of that release alone; empty where it was never published."""
    return parse_ranges(f"{release}")


@lru_cache(maxsize=4096)
def parse_ranges(text: str) -> ReleaseSet:
    """Published releases within ``"0.4.7..0.5.3rc0, 0.5.4.post2.."``; ends are included, an open end has no bound."""
    bits = 0
    keys = _keys()
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not dots:
            last = first
        low = bisect_left(keys, parse_release(first).key) if first else 0
        high = bisect_right(keys, parse_release(last).key) if last else len(keys)
        if high > low:
            bits |= (1 << high) - (1 << low)
    return ReleaseSet(bits)


@lru_cache(maxsize=1)
def _keys() -> list[tuple[int, int, int, int, int]]:
    return [release.key for release in known_releases()]
