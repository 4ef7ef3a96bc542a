"""What other sources say about the same server: server_info, metrics, the GPU tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import Hit

At = Mapping[str, float]


def disagrees(facts: Facts, at: At) -> Iterator[Hit]:
    """Another source states another value for a number of the log."""
    for source, name, value in facts.other:
        if name == "differs":
            yield Hit(value["lines"], value | {"source": source})


def other_process(facts: Facts, at: At) -> Iterator[Hit]:
    """The GPU tool shows memory that the log's process does not hold."""
    for _, name, value in facts.other:
        if name == "other_process":
            yield Hit(value["lines"], value)
