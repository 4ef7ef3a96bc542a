"""What DeepSeek-V4's pools are asked for: the shape, the kernels' layout of rows, and what requests decide."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.sizing.caps import compressed_cap, requests_per_replica
from kvdiag.sizing.dsv4 import FLASH, MEGA, MEGA_FP4, STATE_BYTES, Dsv4Demand, Layout
from kvdiag.sizing.history import since
from kvdiag.sizing.resolve import Settings

WINDOW_SCALES = 16
REPLAYED = 128


def compressed_demand(settings: Settings, stage: range) -> Dsv4Demand:
    """The demand of one pipeline stage. Raises CannotSizeError where the drafts of DeepSeek-V4.1 are not known."""
    shape, arguments = settings.geometry.compressed, settings.arguments
    assert shape is not None
    replays = arguments.enable_encoder_swa_bounded_replay
    if arguments.environment.use_online_compress and (settings.spec is not None or arguments.device == "npu"):
        by = "drafts" if settings.spec is not None else "Ascend's compressor"
        raise CannotSizeError(f"the server would not start: SGLANG_OPT_USE_ONLINE_COMPRESS does not go with {by}")
    extra = arguments.disaggregation_decode_extra_slots or 0
    layout, low = _layouts(settings)
    return Dsv4Demand(
        shape,
        stage,
        settings.window_ratio,
        settings.page,
        _draft_tokens(settings),
        requests_per_replica(settings) if settings.requests is not None else None,
        settings.context,
        extra if arguments.disaggregation_mode == "decode" else 0,
        0 if replays else compressed_cap(settings),
        layout,
        low,
        _request_windows(settings, layout) if replays else 0,
        2 if arguments.environment.dsv4_compress_state_dtype == "bfloat16" else STATE_BYTES,
        arguments.environment.use_online_compress,
    )


def _draft_tokens(settings: Settings) -> int:
    spec, shape = settings.spec, settings.geometry.compressed
    if spec is None:
        return 0
    if shape is not None and shape.is_v41 and not spec.num_draft_tokens:
        raise CannotSizeError(
            "cannot size DeepSeek-V4.1 with drafts whose number is not known: give --speculative-num-draft-tokens (DSPARK: its "
            "block and one)"
        )
    return max(1, spec.num_draft_tokens)


def _layouts(settings: Settings) -> tuple[Layout, Layout]:
    """Rows of the window pool and of ratios 1 and 2 (``select_dsv4_kv_layout``, ``resolve_compressed_kv_layout``).

    TRT-LLM's kernel takes plain FP8 rows from 0.5.21, an NPU unpadded ones; FlashMLA's fused kernel (0.5.23, DeepSeek-V4.1 on
    SM100) its own, with FP4 for the low ratios.
    """
    arguments, shape = settings.arguments, settings.geometry.compressed
    assert shape is not None
    if arguments.dsv4_attn_backend == "trtllm" and since(settings.release, "0.5.21"):
        plain = Layout(shape.nope_dim + shape.rope_dim, None)
        return plain, plain
    if arguments.device == "npu":
        plain = Layout(FLASH.row, None)
        return plain, plain
    return (MEGA, MEGA_FP4) if _is_mega(settings) else (FLASH, FLASH)


def _is_mega(settings: Settings) -> bool:
    """``_default_dsv4_attention_backend`` (0.5.23): attention on one rank, or a disaggregated server."""
    arguments, shape = settings.arguments, settings.geometry.compressed
    asked = arguments.dsv4_attn_backend
    if asked not in (None, "auto"):
        return asked == "flashmla_mega"
    if shape is None or not shape.is_v41 or not since(settings.release, "0.5.23") or not settings.device.is_blackwell:
        return False
    alone = settings.attention_tp == 1 or arguments.disaggregation_mode != "null"
    return alone and settings.dtype.name == "fp8_e4m3"


def _request_windows(settings: Settings, layout: Layout) -> int:
    """``request_window_bytes`` (0.5.21 and newer): windows kept for requests to replay, their scratch and pending pairs."""
    shape = settings.geometry.compressed
    assert shape is not None
    if settings.spec is not None:
        raise CannotSizeError(
            "cannot size a server with --enable-encoder-swa-bounded-replay and drafts: the stages of its draft are not known"
        )
    slots, page = requests_per_replica(settings) + 1, settings.page
    capacity = -(-(shape.window or 0) // page) * page
    row = (layout.row if layout.stride is None else FLASH.row) + WINDOW_SCALES
    scratch = max(settings.chunked_prefill, slots * REPLAYED) + slots * REPLAYED + page
    head = shape.nope_dim + shape.rope_dim
    return (slots * capacity + page) * len(shape.ratios) * row + 4 * scratch * row + slots * 3 * 16 * head * 8
