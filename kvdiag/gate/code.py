"""Where in an SGLang tree each cause of a change of capacity acts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvdiag.gate.decompose import Term
from kvdiag.source import PathStep, SourceTree, code_path

_STEPS = {
    "total_memory": ("measured before loading",),
    "weights": ("measured", "weights in the budget"),
    "mem_fraction_static": ("reduced",),
    "state": ("reduced for state",),
    "bytes_per_token": ("cost of a token",),
    "kv_cache_dtype": ("cost of a token",),
    "cap": ("asked", "clamped"),
    "page": ("rounded",),
    "release": ("divided", "clamped", "rounded"),
}
"""Cause to the steps of the path of max_total_num_tokens (``rules/numbers``) in which it enters."""


def code_of(terms: Iterable[Term], tree: SourceTree) -> Mapping[str, tuple[PathStep, ...]]:
    """For each cause among `terms` the statements of `tree` in which it acts; causes without a step are left out."""
    steps = code_path(tree, "max_total_num_tokens").steps
    found = {term.cause: tuple(step for step in steps if step.step in _STEPS.get(term.cause, ())) for term in terms}
    return {cause: places for cause, places in found.items() if places}
