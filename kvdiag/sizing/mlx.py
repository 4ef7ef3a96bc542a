"""The MLX back end's pool (0.5.11 and newer, ``MlxModelRunner._compute_pool_size``)."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.models import Geometry
from kvdiag.quantity import GIB
from kvdiag.releases import Release
from kvdiag.sizing.history import since

FIRST_RELEASE = "0.5.11"
LEAST_SLOTS = 256
DEFAULT_FRACTION = 0.8


def bytes_per_slot(geometry: Geometry, element: int, release: Release) -> int:
    """Bytes of one token slot: keys and values of the full-attention layers in the model's dtype.

    Raises CannotSizeError where the back end makes no shared pool: sliding layers, states, latents.
    """
    if not since(release, FIRST_RELEASE):
        raise CannotSizeError(f"the MLX back end of SGLang {release} has no shared pool; releases from {FIRST_RELEASE} have")
    if geometry.windows or geometry.state or geometry.kv_lora_rank or geometry.compressed:
        raise CannotSizeError("cannot size this architecture: the MLX back end needs one uniform KV shape in all layers")
    return 2 * geometry.num_hidden_layers * geometry.num_key_value_heads * geometry.head_dim * element


def pool_slots(limit: float, used: float, available: float, fraction: float, slot: int) -> int:
    """Slots of the pool, at least 256: the lesser of what the device's limit and the free system memory (all GiB) allow."""
    budget = min(max(int(limit * GIB * fraction) - int(used * GIB), 0), int(available * GIB * fraction))
    return max(budget // slot, LEAST_SLOTS)
