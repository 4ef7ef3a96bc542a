"""Window pools that requests decide, not a ratio: what as many requests as may run can hold live at once."""

from __future__ import annotations

from kvdiag.sizing import swa
from kvdiag.sizing.history import since
from kvdiag.sizing.resolve import Settings


def window_cap(settings: Settings) -> int | None:
    """The window pool's fixed size where requests are bounded and nothing is cached (0.5.14 and newer), else None."""
    windows = settings.windows
    if not since(settings.release, "0.5.14") or settings.radix or windows is None or windows.window is None:
        return None
    return _live_tokens(settings, windows.window)


def compressed_cap(settings: Settings) -> int | None:
    """DeepSeek-V4.1's window pool (``_resolve_swa_cap_tokens``, 0.5.21 and newer), None where a ratio sizes it.

    Beside the requests' windows it keeps those of prefixes in the radix cache: --swa-prefix-tails, or four for a request.
    """
    shape, arguments = settings.geometry.compressed, settings.arguments
    if shape is None or not shape.is_v41 or shape.window is None or arguments.swa_full_tokens_ratio is not None:
        return None
    live = _live_tokens(settings, shape.window)
    if live is None:
        return None
    tails = arguments.swa_prefix_tails
    if tails is None:
        tails = 0 if arguments.disable_radix_cache else 4 * requests_per_replica(settings)
    page = settings.page
    return -(-(live + tails * (shape.window + page)) // page) * page


def requests_per_replica(settings: Settings) -> int:
    """max_running_requests of one attention replica, from 0.5.23 at least one."""
    each = (settings.requests or 0) // settings.attention_dp
    return max(1, each) if since(settings.release, "0.5.23") else each


def _live_tokens(settings: Settings, window: int) -> int | None:
    """``compute_swa_request_cap``; None where neither the requests nor the prefill chunk bound it."""
    arguments = settings.arguments
    decode, interval = arguments.disaggregation_mode == "decode", arguments.environment.swa_eviction_interval
    if settings.requests is None:
        return None
    unchunked = settings.chunked_prefill <= 0 and not decode
    if unchunked and (since(settings.release, "0.5.22") or settings.geometry.compressed is not None):
        return None
    return swa.request_cap(
        window,
        settings.page,
        requests_per_replica(settings),
        settings.chunked_prefill,
        settings.spec.num_draft_tokens if settings.spec else 1,
        _decode_allocation(settings),
        overlap=settings.overlap,
        decode_slots=(arguments.disaggregation_decode_extra_slots or 0) if decode else None,
        eviction_interval=swa.EVICTION_INTERVAL if interval is None else interval,
    )


def _decode_allocation(settings: Settings) -> int:
    """KV slots a request may take in one step: a page, or what its drafts take, twice under the overlap schedule."""
    spec, page = settings.spec, settings.page
    if spec is None:
        return page
    steps, topk, tokens = spec.num_steps or 1, spec.eagle_topk or 1, spec.num_draft_tokens or 1
    if settings.overlap:
        if page == 1 or topk == 1 or spec.algorithm == "NGRAM":
            return 2 * max(steps * topk, tokens)
        return 2 * max(((page - 1) + steps + page - 1) // page * page * topk, tokens)
    if page > 1:
        steps = -(-(steps + (page if topk > 1 else 0)) // page) * page
        tokens = -(-tokens // page) * page
    return max(steps * topk, tokens)
