"""Arguments that change sizes in a way no rule here follows: refused by name, so that no figure is wrong in silence."""

from __future__ import annotations

from collections.abc import Callable

from kvdiag.errors import CannotSizeError
from kvdiag.models import Geometry
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.history import since

_Rule = Callable[[Geometry, ServerArguments], bool]


def _keeps_delta_state(geometry: Geometry) -> bool:
    """Models that replay their state instead of keeping a copy a draft token (gated delta net and KDA)."""
    state, kind = geometry.state, geometry.model_type
    return state is not None and (state.family == "kda" or kind.startswith(("qwen3", "qwen4", "jet", "intern", "gigachat")))


UNRULED: tuple[tuple[str, str, _Rule], ...] = (
    ("enable_hisparse", "the pool on the device is a share of one in host memory", lambda _, a: a.enable_hisparse),
    ("enable_unified_memory", "one buffer serves several pools, and its free part moves", lambda _, a: a.enable_unified_memory),
    ("enable_kv_cache_sharding", "pages are spread over ranks and scratch for them is taken first",
     lambda _, a: a.enable_kv_cache_sharding),
    ("enable_dsa_cache_layer_split", "layers of the cache are spread over context-parallel ranks",
     lambda g, a: a.enable_dsa_cache_layer_split and g.index is not None),
)  # fmt: skip


def refuse_unruled(geometry: Geometry, arguments: ServerArguments, release: Release) -> None:
    """Raises CannotSizeError where an argument that no rule follows is in force for this model."""
    if arguments.enable_linear_replayssm_spec and _keeps_delta_state(geometry) and not since(release, "0.5.17"):
        raise CannotSizeError("cannot size a server with --enable-gdn-replayssm-spec: no rule follows the ring of 0.5.16")
    for name, why, holds in UNRULED:
        if holds(geometry, arguments):
            flag = name.replace("_", "-")
            raise CannotSizeError(f"cannot size a server with --{flag}: {why}, and no rule follows it")
