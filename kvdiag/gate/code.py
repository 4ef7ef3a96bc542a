"""Where in an SGLang tree each cause of a change of capacity acts, and what another release changed there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvdiag.errors import InputError
from kvdiag.frozen import frozen
from kvdiag.gate.decompose import Term
from kvdiag.gate.model import Snapshot
from kvdiag.gate.words import releases_differ
from kvdiag.releases import parse_release
from kvdiag.source import Change, PathStep, SourceTree, code_path, open_against, path_changes
from kvdiag.source.release import stated_release

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


@frozen
class CodeChanges:
    """What changed in the path of max_total_num_tokens between the releases of two logs; `missing` says why it is not known."""

    older: str
    newer: str
    changes: tuple[Change, ...]
    missing: str = ""


def changes_between(before: Snapshot, after: Snapshot, tree: SourceTree) -> CodeChanges | None:
    """What the code of the two logs' releases has different; None where one release can have written both.

    The releases are revisions (tags) of the repository of `tree`, or the one that `tree` itself states.
    """
    if before.release is None or after.release is None or not releases_differ(before, after):
        return None
    sides = sorted((before.release, after.release), key=lambda span: parse_release(span[0]).key)
    # Of releases that could have written a log, those next to the other log's are compared: what lies between them is certain.
    older, newer = sides[0][1], sides[1][0]
    try:
        found = path_changes(_of_release(tree, older), _of_release(tree, newer), "max_total_num_tokens")
    except InputError as error:
        told = f"{error}; a checkout with a tag for {older} and one for {newer} tells what changed between them"
        return CodeChanges(older, newer, (), told)
    return CodeChanges(older, newer, tuple(found))


def _of_release(tree: SourceTree, release: str) -> SourceTree:
    stated = stated_release(tree)
    if stated and stated.release and stated.confidence == "stated" and stated.release.key == parse_release(release).key:
        return tree
    return open_against(tree.name, f"v{release}")
