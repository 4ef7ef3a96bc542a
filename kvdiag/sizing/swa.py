"""Models with a pool of their own for sliding-window layers: how tokens are split between the pools, per release."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.frozen import frozen
from kvdiag.releases import Release
from kvdiag.sizing.history import since

DEFAULT_RATIO = 0.8
EVICTION_INTERVAL = 128


@frozen
class Pools:
    """Bytes of one token in one layer of each kind, and the layers of this rank."""

    full_token: int
    window_token: int
    full_layers: int
    window_layers: int
    ratio: float


@frozen
class Split:
    """Tokens of the pools; `reported` is what the server calls max_total_num_tokens."""

    reported: int
    full: int
    window: int


def stage_layers(layers: tuple[int, ...], stage: range, release: Release, *, last: bool) -> int:
    """Layers of one kind on a pipeline stage.

    0.5.7 to 0.5.20 cut the lists with the end included, so every stage but the last counts the next one's first layer.
    """
    end = stage.stop if since(release, "0.5.21") or last else stage.stop + 1
    return sum(stage.start <= layer < end for layer in layers)


def split_by_layers(tokens: int, layers: int, pools: Pools, page: int, release: Release) -> Split:
    """0.4.9.post3 to 0.5.8 (``set_num_token_hybrid``, ``set_num_tokens_hybrid_swa``): tokens of all layers, shared out.

    Pages count from 0.5.7; all-window models have had their own branch since 0.5.7.
    """
    if pools.full_layers == 0:
        aligned = _floor(tokens, page)
        return Split(aligned, 0, aligned)
    full = int(tokens * layers / (pools.ratio * pools.window_layers + pools.full_layers))
    window = int(full * pools.ratio)
    if since(release, "0.5.7"):
        full, window = _floor(full, page), _floor(window, page)
    return Split(full, full, window)


def split_llama4(tokens: int, hybrid_ratio: float, chunk: int, context: int, page: int) -> Split:
    """Llama-4 with --hybrid-kvcache-ratio, 0.4.9 to 0.5.7: the window pool's share by chunk and context length."""
    share = (1 - hybrid_ratio) + hybrid_ratio * chunk / context
    window = 4 * tokens * share // (3 * share + 1)
    full = 4 * tokens - 12 * tokens * share // (3 * share + 1)
    full, window = int(full // page * page), int(window // page * page)
    return Split(full, full, window)


def split_by_memory(tokens: int, pools: Pools, page: int, release: Release) -> Split:
    """0.5.9 and 0.5.10 (``set_num_tokens_hybrid_swa``, ``_resolve_hybrid_swa_tokens``): the bytes the profile found, shared out.

    `tokens` are already capped and paged, so the result may exceed --max-total-tokens.
    """
    if pools.full_layers == 0:
        aligned = _floor(tokens, page)
        return Split(aligned, 0, aligned)
    memory = tokens * (pools.full_token * pools.full_layers + pools.window_token * pools.window_layers)
    full = int(memory / (pools.full_token * pools.full_layers + pools.ratio * pools.window_token * pools.window_layers))
    if since(release, "0.5.10rc0"):
        full = _floor(full, page)
        return Split(full, full, _floor(int(full * pools.ratio), page))
    return Split(_floor(full, page), _floor(full, page), _floor(int(full * pools.ratio), page))


@frozen
class HybridCell:
    """``HybridSWAPoolConfigurator._cell_size`` (0.5.11 and newer) and its parts in bytes."""

    full_bytes: int
    window_bytes: int
    fixed_bytes: int
    cell: float


def hybrid_cell(pools: Pools, drafts: int, window_drafts: int, draft_cell: int, release: Release) -> HybridCell:
    """Bytes per token of max_total_num_tokens: full layers, and window layers times the ratio.

    Draft layers are full ones from 0.5.15, window ones where the draft is from 0.5.19; without full layers the ratio does
    not count.
    """
    if not since(release, "0.5.15"):
        drafts = window_drafts = 0
    elif not since(release, "0.5.19"):
        window_drafts = 0
    window_drafts = min(max(window_drafts, 0), drafts)
    full = pools.full_token * (pools.full_layers + drafts - window_drafts)
    window = pools.window_token * (pools.window_layers + window_drafts)
    if pools.full_layers == 0:
        return HybridCell(full, window, draft_cell, window + full + draft_cell)
    return HybridCell(full, window, draft_cell, full + pools.ratio * window + draft_cell)


def split_configured(tokens: int, pools: Pools, page: int, window: int | None, release: Release) -> Split:
    """``_solve_pool_sizes`` (0.5.11 and newer). Raises CannotSizeError where the server refuses to start (0.5.16 and newer)."""
    if pools.full_layers == 0:
        aligned = _floor(tokens, page)
        return Split(aligned, 0, aligned)
    full = _floor(tokens, page)
    windowed = _floor(int(full * pools.ratio), page)
    if since(release, "0.5.16"):
        validate_window_pool(windowed, window, page)
    return Split(full, full, windowed)


def validate_window_pool(tokens: int, window: int | None, page: int) -> None:
    """``validate_swa_pool_size``: a window pool that cannot hold one request stops the server."""
    if window is not None and window + page >= tokens:
        raise CannotSizeError(
            f"the server would not start: its window pool of {tokens} tokens cannot hold the window of {window} and a page of "
            f"{page}; raise swa_full_tokens_ratio or the memory"
        )


def request_cap(
    window: int, page: int, requests: int, chunked_prefill: int, draft_tokens: int, decode_alloc: int, *,
    overlap: bool, decode_slots: int | None, eviction_interval: int = EVICTION_INTERVAL,
) -> int:  # fmt: skip
    """Window tokens that `requests` can hold live at once (``compute_swa_request_cap``, 0.5.14 and newer).

    `decode_alloc` is what one request may allocate in a step; `decode_slots` are a decode server's extra slots, None for
    other servers.
    """
    each = window + max(1, eviction_interval) * max(1, draft_tokens) + page + decode_alloc
    if decode_slots is not None:
        return each * requests + (window + page) * decode_slots
    return each * requests + (2 if overlap else 1) * chunked_prefill + page


def split_capped(budget: int, cap: int, cell: HybridCell, page: int) -> Split:
    """``SWAChunkCap-`` and ``SWARequestCapPoolConfigurator``: the window pool by the cap, the rest to the full layers."""
    window = -(-cap // page) * page
    full = int((budget - window * cell.window_bytes) // (cell.full_bytes + cell.fixed_bytes)) // page * page
    if full <= 0:
        raise CannotSizeError(too_wide(window))
    return Split(full, full, window)


def too_wide(window: int) -> str:
    """Why a server does not start whose window pool is sized by its requests and takes all memory."""
    return f"the server would not start: a window pool of {window} tokens leaves no memory for the full layers"


def _floor(tokens: int, page: int) -> int:
    return tokens // page * page
