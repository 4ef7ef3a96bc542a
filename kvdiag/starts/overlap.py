"""Two servers that print into one stream under the same tags: what tells their lines apart."""

from __future__ import annotations

from collections import Counter

from kvdiag.lines import Record
from kvdiag.starts.build import StartBuilder

MIXED = (
    "two servers print into this stream under the same tags; lines after the second server_args that either of them can have "
    "printed are left out, so that what they state is unknown here"
)
_START_UP = (
    *("dist-init-begin", "dist-init-end", "weight-load-begin", "weight-load-end", "kv-alloc", "memory-pool-end", "swa-split"),
    *("swa-pool-usage", "mamba-pool", "unified-pool", "dsv4-pool", "kv-post-capture", "graph-begin", "graph-end", "capacity"),
)
"""Families that a server prints before it serves."""
_ONCE = ("weight-load-begin", "weight-load-end", "memory-pool-end", "capacity")
"""Families that a rank prints once for each model, the last for each server."""


class Overlap:
    """Whether a start holds the lines of two servers.

    That is `possible` where another server had not come up when the start's arguments were printed: it may have been
    stopped, or still be printing.
    """

    def __init__(self, *, possible: bool = False) -> None:
        self.possible = possible
        self.told = False
        self._seen: Counter[tuple[str, str]] = Counter()

    def tells(self, builder: StartBuilder, record: Record) -> bool:
        """Takes a line of the start; whether it, or one before it, can only be the other server's."""
        family = str(record.family)
        if family in _ONCE and not replicated(builder, record):
            seen = self._seen
            seen[family, str(record.rank)] += 1
            models = 1 if family == "capacity" or not _speculates(builder) else 2
            self.told |= seen[family, str(record.rank)] > models
        return self.told


def _speculates(builder: StartBuilder) -> bool:
    return builder.start.server_args.get("speculative_algorithm") is not None


def elsewhere(held: dict[str, object], told: dict[str, object]) -> bool:
    """Whether two dumps are of two servers that run side by side: one host has each port once."""
    return held.get("port") is not None and told.get("port") is not None and held["port"] != told["port"]


def foreign(builder: StartBuilder, record: Record) -> bool:
    """Whether a start that shares its stream with another cannot have printed the record."""
    family = str(record.family)
    if builder.serving and (family in _START_UP or (family == "server-ready" and builder.start.events_of("ready"))):
        return True
    progress = builder.ranks.get(str(record.rank))
    if progress is None:
        return False
    one = not _speculates(builder)
    passed = {
        "dist-init-begin": progress.weights_begun > 0,
        "dist-init-end": progress.weights_begun > 0,
        "weight-load-begin": progress.weights_begun > 0 and one,
        "weight-load-end": progress.weights_ended >= progress.weights_begun > 0,
        "memory-pool-end": progress.pools_ended > 0 and one,
        "kv-alloc": progress.pools_ended > 0 and one,
    }
    return passed.get(family, False)


def other_mode(family: str, builder: StartBuilder) -> bool:
    """Whether a start of a disaggregated pair prints batches of the other family."""
    mode = builder.start.server_args.get("disaggregation_mode")
    return mode in ("prefill", "decode") and not family.startswith(str(mode))


def replicated(builder: StartBuilder, record: Record) -> bool:
    """Whether replicas of one server print under the same tags, as plain data parallelism did without a DP tag."""
    size = builder.start.server_args.get("dp_size")
    return isinstance(size, int) and size > 1 and record.rank.get("DP") is None
