"""Which release does what: comparisons with a release number, and the lists of class names a release treats specially."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache, lru_cache

from kvdiag import rulebook
from kvdiag.releases import Release, parse_release

MLA = "mla"
DSA = "dsa"
HYBRID_SWA = "hybrid_swa"
HIERARCHICAL_PLAIN = "hierarchical_without_windows"
MINIMAX_SPARSE = "minimax_sparse"
MULTIMODAL = "multimodal"
OWN_BACKEND_ON_AMD = "own_backend_on_amd"
OWN_BACKEND_UNLESS_NAMED = "own_backend_unless_named"
MAMBA_EXTRA_BUFFER = "mamba_extra_buffer"
PIECEWISE_OFF = "piecewise_graph_off"
MULTIMODAL_PIECEWISE = "multimodal_piecewise_graph"
MULTIMODAL_BREAKABLE = "multimodal_breakable_graph"


@cache
def since(release: Release, first: str) -> bool:
    """Whether `release` is `first` or newer."""
    return release.key >= parse_release(first).key


@lru_cache(maxsize=4096)
def listed(table: str, architecture: str, release: Release) -> bool:
    """Whether `release` has the class name `architecture` in that list (``rules/architectures``)."""
    ranges = _tables()[table].get(architecture)
    if ranges is None:
        return False
    return any(_within(part.strip(), release) for part in ranges.split(","))


def registered(architecture: str) -> str | None:
    """The releases that register a model class, None for a class that none does."""
    ranges = _tables()["registry"].get(architecture)
    return ranges if isinstance(ranges, str) else None


def _within(text: str, release: Release) -> bool:
    first, _, last = text.partition("..")
    return since(release, first) and (not last or release.key <= parse_release(last).key)


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Mapping[str, str]]:
    documents = rulebook.load("architectures")
    return {os.path.basename(document["_path"]).removesuffix(".toml"): document for document in documents}
