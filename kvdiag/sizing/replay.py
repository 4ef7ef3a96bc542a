"""ReplaySSM: drafts' inputs kept in a ring and replayed, in place of a copy of the state for each draft token."""

from __future__ import annotations

from kvdiag.frozen import frozen
from kvdiag.models import StateShape
from kvdiag.releases import Release
from kvdiag.sizing.history import since

FLOAT = 4


@frozen
class Ring:
    """Bytes that the rings take: with every state slot, and once for all requests."""

    per_slot: int = 0
    fixed: int = 0


NO_RING = Ring()


def ring_of(
    shape: StateShape, ranks: int, length: int, requests: int, drafts: int, conv_size: int, release: Release, scale: float = 1.0
) -> Ring:
    """The rings of a server (``replayssm_ring_bytes_per_req``, ``_handle_max_mamba_cache``; 0.5.17 and newer).

    `length` is --linear-replayssm-cache-len; gated delta net takes its drafts' number up to 0.5.19, and from 0.5.20 keeps rings
    by request, not by slot. `scale` is the widest pipeline stage's share of the layers.
    """
    kda = shape.family == "kda"
    records = length if kda or since(release, "0.5.20") else drafts
    bytes_each = int(_layer(shape, ranks, conv_size, release) * records * len(shape.layers) * scale)
    if kda or not since(release, "0.5.20"):
        return Ring(bytes_each)
    return Ring(0, bytes_each * (requests + 1))


def _layer(shape: StateShape, ranks: int, conv_size: int, release: Release) -> int:
    """Bytes of one record in one layer: raw values and keys, their gates, and what the release keeps beside them."""
    heads, keys = shape.num_heads // ranks, -(-shape.n_groups // ranks)
    values = heads * shape.head_dim * conv_size + keys * shape.state_size * conv_size
    if shape.family == "kda":
        return 2 * values + heads * FLOAT + heads * shape.state_size * FLOAT
    if not since(release, "0.5.20"):
        return values + 2 * heads * FLOAT
    return values * (1 if conv_size == FLOAT else 2) + heads * FLOAT
