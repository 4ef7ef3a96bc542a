"""Pipeline stages: which layers each holds."""

from __future__ import annotations

from functools import lru_cache

from kvdiag.errors import CannotSizeError
from kvdiag.releases import Release
from kvdiag.sizing.history import since


@lru_cache(maxsize=1024)
def stages(layers: int, count: int, release: Release, partition: tuple[int, ...] | None = None) -> tuple[range, ...]:
    """``get_pp_indices``: the last stages hold one layer more where it does not divide; before 0.5.6 the last took them all.

    `partition` is SGLANG_PP_LAYER_PARTITION. Raises CannotSizeError where it does not fit: the server would not start.
    """
    if count <= 1:
        return (range(layers),)
    if partition is not None:
        if len(partition) != count or sum(partition) != layers:
            raise CannotSizeError(
                f"the server would not start: SGLANG_PP_LAYER_PARTITION has {len(partition)} stages and {sum(partition)} layers, "
                f"the server {count} and {layers}"
            )
        ends = [sum(partition[: rank + 1]) for rank in range(count)]
        return tuple(range(end - own, end) for end, own in zip(ends, partition, strict=True))
    base, rest = divmod(layers, count)
    if not since(release, "0.5.6"):
        cuts = [rank * base for rank in range(count)] + [layers]
    else:
        cuts = [rank * base + max(0, rank - (count - rest)) for rank in range(count)] + [layers]
    return tuple(range(cuts[rank], cuts[rank + 1]) for rank in range(count))
