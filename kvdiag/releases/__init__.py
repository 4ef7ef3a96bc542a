"""The order of SGLang's releases, and ranges and sets of them."""

from kvdiag.releases.order import (
    Release,
    ReleaseSet,
    every_release,
    known_releases,
    only,
    parse_ranges,
    parse_release,
    published_release,
)

__all__ = [
    "Release",
    "ReleaseSet",
    "every_release",
    "known_releases",
    "only",
    "parse_ranges",
    "parse_release",
    "published_release",
]
