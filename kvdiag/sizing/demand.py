"""What the state pool is asked for: bytes of a slot, slots of a request, and what stands beside them under speculation."""

from __future__ import annotations

from kvdiag.models import StateShape
from kvdiag.sizing.history import since
from kvdiag.sizing.replay import NO_RING, Ring, ring_of
from kvdiag.sizing.resolve import Settings
from kvdiag.sizing.state import DEFAULT_STATE_RATIO, ELEMENT_SIZES, StateDemand, slots_per_request, state_bytes
from kvdiag.sizing.windows import NARROW_RATIO

_DELTA_NETS = ("qwen3", "jet", "intern")


def state_demand(settings: Settings) -> StateDemand | None:
    """The demand on one rank, None for a model without state."""
    shape, release, arguments, environment = settings.state, settings.release, settings.arguments, settings.arguments.environment
    if shape is None:
        return None
    ratio, spec = arguments.mamba_full_memory_ratio, settings.spec
    ranks = arguments.tp_size if _over_all_ranks(settings, shape) else settings.attention_tp
    replays = replays_state(settings)
    asked = arguments.mamba_ssm_dtype or ("float32" if replays else environment.mamba_ssm_dtype)
    whole = state_bytes(shape, ranks, asked, release, environment.mamba_conv_dtype)
    scale = _widest(settings, shape)
    slots = slots_per_request(
        release, radix=settings.radix, extra_buffer=settings.extra_buffer, lazy=settings.lazy, overlap=settings.overlap,
        speculative=spec is not None, skips_lock=environment.mamba_skip_decode_lock,
    )  # fmt: skip
    skips = since(release, "0.5.22") and arguments.disaggregation_mode == "prefill" and arguments.device != "npu"
    return StateDemand(
        whole,
        whole if scale == 1.0 else int(whole * scale),
        slots,
        NARROW_RATIO if shape.family == "sconv" and ratio == DEFAULT_STATE_RATIO else ratio,
        arguments.max_mamba_cache_size,
        settings.requests,
        settings.attention_dp,
        spec.num_draft_tokens if spec is not None and not skips and not replays else 0,
        settings.radix,
        shape.family == "mamba2" and settings.geometry.model_type.startswith(_DELTA_NETS),
        _ring(settings, shape, ranks, scale) if replays else NO_RING,
    )


def _over_all_ranks(settings: Settings, shape: StateShape) -> bool:
    """ZAYA's state is split over the ranks of the server, not those of attention; so was Falcon-H1's up to 0.5.4.post2."""
    falcon = settings.geometry.model_type == "falcon_h1" and not since(settings.release, "0.5.4.post3")
    return shape.family == "cca" or falcon


def replays_state(settings: Settings) -> bool:
    """Whether drafts' inputs are replayed (--enable-linear-replayssm-spec with gated delta net or KDA, 0.5.17 and newer)."""
    shape, kind = settings.state, settings.geometry.model_type
    if shape is None or not settings.arguments.enable_linear_replayssm_spec or not since(settings.release, "0.5.17"):
        return False
    if shape.family == "kda":
        return not kind.startswith("glm") or since(settings.release, "0.5.21")
    return shape.family == "mamba2" and kind.startswith(_DELTA_NETS)


def _widest(settings: Settings, shape: StateShape) -> float:
    """The share of the stateful layers on the pipeline stage that has most (0.5.17 and newer)."""
    split = settings.stages
    if not since(settings.release, "0.5.17") or len(split) == 1 or not shape.layers:
        return 1.0
    return max(sum(layer in stage for layer in shape.layers) for stage in split) / len(shape.layers)


def _ring(settings: Settings, shape: StateShape, ranks: int, scale: float) -> Ring:
    arguments, spec = settings.arguments, settings.spec
    requests = (settings.requests or 0) // settings.attention_dp
    requests = max(1, requests) if since(settings.release, "0.5.23") else requests
    drafts = spec.num_draft_tokens if spec is not None else arguments.linear_replayssm_cache_len
    size = ELEMENT_SIZES[arguments.environment.mamba_conv_dtype or "bfloat16"]
    return ring_of(shape, ranks, arguments.linear_replayssm_cache_len, requests, drafts, size, settings.release, scale)
