"""Whether AMD's own attention serves a model: the backend named, or the one that the server chooses."""

from __future__ import annotations

from kvdiag.models import Geometry
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import Device
from kvdiag.sizing.history import DSA, OWN_BACKEND_ON_AMD, OWN_BACKEND_UNLESS_NAMED, listed

_AITER_HEADS = (16, 128)


def serves_with_aiter(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, *, is_mla: bool) -> bool:
    """Whether ``attention_backend`` ends up as aiter: named (once, or for both phases), or the default of AMD cards.

    Models that choose for themselves do not take the default, some of them only where no phase has a backend named; latents
    take it with 16 or 128 heads on a rank.
    """
    phases = (arguments.prefill_attention_backend, arguments.decode_attention_backend)
    if geometry.compressed:
        return False
    if phases[0] and phases[0] == phases[1]:
        return phases[0] == "aiter"
    if arguments.attention_backend:
        return arguments.attention_backend == "aiter"
    if not device.is_amd or _never_takes_it(geometry, release):
        return False
    if not any(phases) and _chooses_unless_named(geometry, release):
        return False
    heads = max(1, geometry.num_key_value_heads // max(1, arguments.tp_size))
    return not is_mla or heads in _AITER_HEADS


def _never_takes_it(geometry: Geometry, release: Release) -> bool:
    """Classes with a choice of their own; EXAONE's have it for their models with sliding windows only."""
    windowless = geometry.architecture.startswith("Exaone") and geometry.windows is None
    return listed(OWN_BACKEND_ON_AMD, geometry.architecture, release) and not windowless


def _chooses_unless_named(geometry: Geometry, release: Release) -> bool:
    sparse = geometry.index is not None and listed(DSA, geometry.architecture, release)
    return sparse or listed(OWN_BACKEND_UNLESS_NAMED, geometry.architecture, release)
