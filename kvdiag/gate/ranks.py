"""Which rank of one log is which of another, though releases tag them differently."""

from __future__ import annotations

import re

_TAG = re.compile(r"(?<![A-Z_])[A-Z_]++\d++")


def match_ranks(before: list[str], after: list[str]) -> dict[str, str]:
    """Rank of the first log to rank of the second; ranks without a partner are left out.

    Equal names are the same rank; a single rank on both sides is the same whatever its tags (``TP0`` or none); else the
    only rank whose tags hold all of the other's (``TP1`` is ``TP1 EP1``).
    """
    matched = {rank: rank for rank in before if rank in after}
    left = [rank for rank in before if rank not in matched]
    free = [rank for rank in after if rank not in matched]
    if len(before) == len(after) == 1:
        return {before[0]: after[0]}
    for rank in left:
        tags = set(_TAG.findall(rank))
        alike = [other for other in free if tags and (tags <= (o := set(_TAG.findall(other))) or (o and o <= tags))]
        if len(alike) == 1:
            matched[rank] = alike[0]
            free.remove(alike[0])
    return matched
