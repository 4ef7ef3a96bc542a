"""Findings that need SGLang's source: `kvdiag.checks.in_source` raises them where ``--source`` gives a tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import Hit


def with_a_tree(facts: Facts, at: Mapping[str, float]) -> Iterable[Hit]:
    """Never by a log alone."""
    del facts, at
    return ()
