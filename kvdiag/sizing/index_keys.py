"""The key index of sparse latent attention as one server keeps it: its platform and role decide rows and layers."""

from __future__ import annotations

from kvdiag.frozen import replace
from kvdiag.models.sparse import Index
from kvdiag.sizing.history import since
from kvdiag.sizing.resolve import Settings


def index_in_force(settings: Settings) -> tuple[Index, int]:
    """The index of a server's model, without shared layers where each keeps keys of its own, and the bytes of a plain element.

    The latter is 0 where keys are FP8 with scales; Ascend's are plain in any other cache (0.5.20 and newer).
    """
    index = settings.geometry.index
    assert index is not None
    if _keeps_every_layer(settings):
        index = replace(index, shared_layers=frozenset())
    plain = settings.device.is_npu and settings.dtype.name != "fp8_e4m3" and since(settings.release, "0.5.20")
    return index, settings.dtype.size if plain else 0


def _keeps_every_layer(settings: Settings) -> bool:
    """``_should_elide_dsa_index_k``: up to 0.5.21 a disaggregated server or one with a host cache, later on Ascend's only.

    Ascend's cards of 0.5.20 to 0.5.22 do in any case.
    """
    arguments, release, on_npu = settings.arguments, settings.release, settings.device.is_npu
    if on_npu and since(release, "0.5.20") and not since(release, "0.5.23"):
        return True
    moved = arguments.disaggregation_mode != "null" or arguments.enable_hierarchical_cache
    return moved and (on_npu or not since(release, "0.5.22"))
