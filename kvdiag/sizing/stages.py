"""Pipeline stages: which layers each holds."""

from __future__ import annotations

from functools import lru_cache

from kvdiag.releases import Release
from kvdiag.sizing.history import since


@lru_cache(maxsize=1024)
def stages(layers: int, count: int, release: Release) -> tuple[range, ...]:
    """``get_pp_indices``: the last stages hold one layer more where it does not divide; before 0.5.6 the last took them all."""
    if count <= 1:
        return (range(layers),)
    base, rest = divmod(layers, count)
    if not since(release, "0.5.6"):
        cuts = [rank * base for rank in range(count)] + [layers]
    else:
        cuts = [rank * base + max(0, rank - (count - rest)) for rank in range(count)] + [layers]
    return tuple(range(cuts[rank], cuts[rank + 1]) for rank in range(count))
