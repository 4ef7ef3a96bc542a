"""Which servers keep a pool of their own for sliding-window layers, and in what ratio to the full one."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.models import Geometry, Windows
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import Device
from kvdiag.sizing.history import HIERARCHICAL_PLAIN, HYBRID_SWA, listed, since
from kvdiag.sizing.swa import DEFAULT_RATIO

NARROW_RATIO = 0.1


def windows_kept(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device) -> Windows | None:
    """The model's windows where this release keeps a pool for them: of listed classes, from 0.5.13 also of configs that ask."""
    windows, name = geometry.windows, geometry.architecture
    if windows is None or geometry.compressed or (geometry.state is not None and geometry.state.family != "sconv"):
        return None
    known = listed(HYBRID_SWA, name, release) or (windows.opted_in and since(release, "0.5.13"))
    if not known or not windows.window_layers or _gives_them_up(geometry, arguments, release, device):
        return None
    return windows


def _gives_them_up(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device) -> bool:
    """``disable_hybrid_swa_memory``, by the user or by the server; 0.5.7 does not heed it.

    gpt-oss gives its pool up under trtllm_mha to 0.5.9 and under speculation to 0.5.8.post1.
    """
    if since(release, "0.5.7") and not since(release, "0.5.8"):
        return False
    if arguments.disable_hybrid_swa_memory or _by_hierarchy(geometry, arguments, release):
        return True
    if geometry.architecture != "GptOssForCausalLM" or since(release, "0.5.10rc0"):
        return False
    named = {arguments.attention_backend, arguments.prefill_attention_backend, arguments.decode_attention_backend}
    trtllm = "trtllm_mha" in named or (named == {None} and device.is_blackwell)
    return trtllm or (arguments.speculative_algorithm is not None and not since(release, "0.5.9"))


def _by_hierarchy(geometry: Geometry, arguments: ServerArguments, release: Release) -> bool:
    return arguments.enable_hierarchical_cache and listed(HIERARCHICAL_PLAIN, geometry.architecture, release)


def window_ratio(geometry: Geometry, arguments: ServerArguments, release: Release) -> float:
    """``swa_full_tokens_ratio``: the user's, else the model's default; up to 0.5.19 some take the general one as not given."""
    if _by_hierarchy(geometry, arguments, release):
        return 1.0
    narrow = geometry.compressed is not None or geometry.architecture.startswith("Inkling")
    asked = arguments.swa_full_tokens_ratio
    if asked is None or (narrow and asked == DEFAULT_RATIO and not since(release, "0.5.20")):
        return NARROW_RATIO if narrow else DEFAULT_RATIO
    return asked


def shares_llama4(geometry: Geometry, arguments: ServerArguments, release: Release, context: int) -> bool:
    """Llama-4 with --hybrid-kvcache-ratio, 0.4.9 to 0.5.7 (``is_hybrid_model``), and more context than one chunk of attention.

    Up to 0.5.6 the context is compared as the user gives it, and a server without fails to start.
    """
    if geometry.architecture != "Llama4ForConditionalGeneration" or (arguments.hybrid_kvcache_ratio or 0) <= 0:
        return False
    if not since(release, "0.4.9") or since(release, "0.5.8") or geometry.windows is None or geometry.windows.window is None:
        return False
    if arguments.context_length is None and not since(release, "0.5.7"):
        raise CannotSizeError("the server would not start: --hybrid-kvcache-ratio needs --context-length in this release")
    return context > geometry.windows.window
