"""The pool lines of one rank, grouped by the model they belong to."""

from __future__ import annotations

from kvdiag.frozen import frozen
from kvdiag.lines import Record
from kvdiag.quantity import Interval
from kvdiag.starts.progress import pool_bytes


@frozen
class ModelPools:
    """The pools of one model on one rank.

    `full` and `swa` are the lines of the full-attention and of the sliding-window pool where there are two; `size` is
    None where a line is missing, so that a part is never taken for the whole.
    """

    records: tuple[Record, ...]
    size: Interval | None
    full: Record | None = None
    swa: Record | None = None
    usage: Record | None = None

    @property
    def last(self) -> Record:
        """The line the model's pool was complete with."""
        return self.usage or self.records[-1]

    @property
    def tokens(self) -> Record:
        """The line whose ``#tokens`` is the capacity: the full pool's."""
        return self.full or self.records[0]


def group_pools(pools: list[Record], usage: Record | None, *, windowed: bool) -> list[ModelPools]:
    """The models whose pools these lines are, in order; `usage` is a ``SWAKVPool`` line that closed them.

    Pools with a label belong together. Without one, two pools of the same token count are a target's and a draft's, two
    of different counts a full and a window pool; `windowed` says that other lines of the start tell of window pools.
    """
    if usage is not None:
        return (
            [_windowed(pools, usage)]
            if len(pools) <= 2
            else [_windowed(pools[:2], usage), *group_pools(pools[2:], None, windowed=True)]
        )
    if not pools:
        return []
    if any(record.values.get("allocation_label") for record in pools):
        return [_labelled(pools)]
    if len(pools) == 1:
        return [ModelPools((pools[0],), None if windowed else pool_bytes(pools[0]))]
    first, second = pools[0], pools[1]
    if windowed or first.number("#tokens") != second.number("#tokens"):
        return [_windowed([first, second], None), *group_pools(pools[2:], None, windowed=windowed)]
    return [ModelPools((first,), pool_bytes(first)), *group_pools(pools[1:], None, windowed=False)]


def _sum(pools: list[Record]) -> Interval | None:
    total: Interval | None = None
    for record in pools:
        size = pool_bytes(record)
        if size is None:
            return None
        total = size if total is None else total + size
    return total


def _labelled(pools: list[Record]) -> ModelPools:
    """Pools named in their lines, ``Full KV Cache`` and ``SWA KV Cache`` among them."""
    full = next((record for record in pools if _label(record).startswith("full")), None)
    swa = next((record for record in pools if _label(record).startswith("swa")), None)
    whole = (full is None) == (swa is None)
    return ModelPools(tuple(pools), _sum(pools) if whole else None, full, swa)


def _label(record: Record) -> str:
    value = record.values.get("allocation_label")
    return value.text.lower() if value else ""


def _windowed(pools: list[Record], usage: Record | None) -> ModelPools:
    """A full and a window pool; the usage line's total has one rounding where the sum of the parts has four."""
    printed = usage.interval("mem usage") if usage else None
    parts = _sum(pools) if len(pools) == 2 else None
    size = printed if printed is not None else parts
    full = swa = None
    if len(pools) == 2:
        labelled = _labelled(pools)
        full, swa = labelled.full, labelled.swa
        if full is None:
            counts = [record.number("#tokens") or 0 for record in pools]
            full, swa = (pools[0], pools[1]) if counts[0] > counts[1] else (pools[1], pools[0])
    return ModelPools(tuple(pools) or ((usage,) if usage else ()), size, full, swa, usage)
