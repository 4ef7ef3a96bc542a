"""State pools: bytes of one request's state, slots a request takes, and how the budget is split with the KV pool."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.frozen import frozen
from kvdiag.models import StateShape
from kvdiag.quantity import GIB
from kvdiag.releases import Release
from kvdiag.sizing.history import since
from kvdiag.sizing.replay import NO_RING, Ring

ELEMENT_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
SLOTS_WITHOUT_REQUESTS = 512
BASE_SLOTS = 3
DEFAULT_STATE_RATIO = 0.9


def state_bytes(
    shape: StateShape, attention_tp_size: int, ssm_dtype: str | None, release: Release, conv_dtype: str | None = None
) -> int:
    """``mamba_cache_per_req``: convolution inputs and matrices of all layers of one request, on one rank.

    ZAYA splits its channels over all ranks of the server: `attention_tp_size` is then its tp_size. Groups that tp does not
    divide are replicated (``extra_groups_for_head_shards``). The matrices' dtype is --mamba-ssm-dtype; from 0.5.9 the
    config's where that is not given. `conv_dtype` is SGLANG_MAMBA_CONV_DTYPE (0.5.9 and newer).
    """
    tp = attention_tp_size
    config_dtype = shape.ssm_dtype if since(release, "0.5.9") else None
    size = ELEMENT_SIZES.get(ssm_dtype or config_dtype or "float32", 4)
    taps = max(0, shape.conv_kernel - 1)
    if shape.family == "sconv":
        conv = taps * sum(2 * max(1, heads // tp) * dim for heads, dim in shape.kv_widths)
    elif shape.family == "cca":
        conv = taps * _divided(shape.intermediate_size, tp, "channels of compressed attention")
    elif shape.family == "kda":
        conv = taps * 3 * _divided(shape.intermediate_size, tp, "linear attention channels")
    elif shape.family == "mamba1":
        conv = taps * _divided(shape.intermediate_size, tp, "state channels")
    else:
        groups = shape.n_groups if shape.n_groups % tp == 0 else shape.n_groups + tp - shape.n_groups
        conv = taps * _divided(shape.intermediate_size + 2 * groups * shape.state_size, tp, "convolution channels")
    conv += shape.replicated
    heads = 1 if shape.family in ("conv", "cca", "sconv") else _divided(shape.num_heads, tp, "state heads")
    return (conv * ELEMENT_SIZES[conv_dtype or "bfloat16"] + heads * shape.head_dim * shape.state_size * size) * len(shape.layers)


def _divided(value: int, tp: int, what: str) -> int:
    if value % tp:
        raise CannotSizeError(f"the server would not start: {value} {what} do not divide by {tp} ranks")
    return value // tp


def slots_per_request(
    release: Release,
    *,
    radix: bool,
    extra_buffer: bool,
    lazy: bool,
    overlap: bool,
    speculative: bool,
    skips_lock: bool = False,
) -> int:
    """State slots one running request takes (``_calculate_mamba_ratio``; a constant before 0.5.10).

    None before 0.5.3.post2 (one); 0.5.3.post2 to 0.5.6: 3; 0.5.7 adds two even without the extra buffer, one with it under
    speculation; later one or two with it. Without the radix cache always one. `skips_lock` is SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK
    (0.5.17 and newer).
    """
    if not radix or not since(release, "0.5.3.post2"):
        return 1
    if not since(release, "0.5.7"):
        return BASE_SLOTS
    if not since(release, "0.5.8"):
        return BASE_SLOTS + (1 if extra_buffer and speculative else 2)
    if not extra_buffer:
        return BASE_SLOTS
    if not since(release, "0.5.10rc0"):
        return BASE_SLOTS + (1 if speculative else 2)
    held = BASE_SLOTS - 1 if skips_lock and since(release, "0.5.17") else BASE_SLOTS
    return held + (2 if overlap and not lazy else 1)


@frozen
class StateDemand:
    """What decides the state pool.

    `whole` is one request's state in all layers; `per_request` is what is charged, the widest pipeline stage's share from 0.5.17.

    `draft_tokens` is zero without speculation and where no state is copied for drafts; `ring` is what stands for those copies.
    `requests` is the server's max_running_requests, `dp` its attention replicas,
    over which 0.5.3.post1 to 0.5.6 divide the slots of some models only (`splits_by_dp`).
    """

    whole: int
    per_request: int
    slots: int
    ratio: float
    explicit: int | None
    requests: int | None
    dp: int
    draft_tokens: int
    radix: bool
    splits_by_dp: bool
    ring: Ring = NO_RING


@frozen
class StateSplit:
    """``max_mamba_cache_size`` and the GiB left for the KV pool."""

    size: int
    rest: float


def split_state(rest: float, demand: StateDemand, release: Release) -> StateSplit:
    """Takes the state pool out of `rest` GiB as ``handle_max_mamba_cache`` of `release` does, with its float arithmetic."""
    if demand.per_request <= 0:
        raise CannotSizeError("cannot size this architecture: the state of a request takes no bytes by this config")
    if not since(release, "0.5.3.post2"):
        return _fixed(rest, demand, release)
    if not since(release, "0.5.7"):
        return _ratio_with_drafts(rest, demand)
    if not since(release, "0.5.13"):
        return _drafts_first(rest, demand, release)
    return _joint(rest, demand, padding=1 if since(release, "0.5.17") else 0, floor_requests=since(release, "0.5.23"))


def _fixed(rest: float, demand: StateDemand, release: Release) -> StateSplit:
    """0.5.2 to 0.5.3.post1: as many slots as requests, or 512 (``ModelRunner.initialize``)."""
    size = demand.explicit if demand.explicit is not None else demand.requests or SLOTS_WITHOUT_REQUESTS
    if demand.splits_by_dp or not since(release, "0.5.3.post1"):
        size //= demand.dp
    return StateSplit(size, rest - size * demand.per_request / GIB)


def _ratio_with_drafts(rest: float, demand: StateDemand) -> StateSplit:
    """0.5.3.post2 to 0.5.6: the ratio's share in slots with their drafts; the radix cache's absence means slots by requests."""
    copies = 1 + demand.draft_tokens
    if not demand.radix or demand.per_request == 0:
        size = demand.explicit if demand.explicit is not None else demand.requests or SLOTS_WITHOUT_REQUESTS
    else:
        share = rest * demand.ratio / (1 + demand.ratio)
        size = int(share * GIB // demand.per_request // copies)
    if demand.splits_by_dp:
        size //= demand.dp
    return StateSplit(size, rest - size * demand.per_request * copies / GIB)


def _drafts_first(rest: float, demand: StateDemand, release: Release) -> StateSplit:
    """0.5.7 to 0.5.12: drafts of every request are taken first (0.5.7: only where the ratio decides), then slots."""
    by_requests = not demand.radix
    always = since(release, "0.5.8")
    if since(release, "0.5.9"):
        by_requests = demand.explicit is None and not demand.radix and demand.requests is not None
        sized = demand.explicit is not None or by_requests
    else:
        sized = by_requests or demand.explicit is not None
    if demand.draft_tokens and (always or not sized):
        requests = (demand.requests or 0) // demand.dp if always else (demand.requests or 0)
        rest -= demand.per_request * requests * demand.draft_tokens / GIB
    if sized:
        size = demand.explicit if demand.explicit is not None else demand.requests or SLOTS_WITHOUT_REQUESTS
        size //= demand.dp
    else:
        share = rest * demand.ratio / (1 + demand.ratio)
        size = int(share * GIB // demand.per_request)
    return StateSplit(size, rest - size * demand.per_request / GIB)


def _joint(rest: float, demand: StateDemand, *, padding: int, floor_requests: bool) -> StateSplit:
    """0.5.13 and newer: slots and the drafts of the requests they serve are solved together, from 0.5.17 with a padding slot."""
    each, drafts, ring = demand.per_request, demand.draft_tokens, demand.ring
    slot = each + ring.per_slot
    wanted = (demand.requests or 0) // demand.dp
    wanted = max(1, wanted) if floor_requests else wanted
    if demand.explicit is not None:
        size = demand.explicit // demand.dp
        held = min(wanted, size // demand.slots) + padding
        rest -= each * held * drafts / GIB if drafts else 0
    elif not demand.radix and demand.requests is not None:
        size = wanted
        rest -= each * (size + padding) * drafts / GIB if drafts else 0
    else:
        budget = rest * demand.ratio / (1 + demand.ratio) * GIB
        if drafts:
            size = int((budget - padding * each * (1 + drafts)) // (each * (1 + drafts / demand.slots)))
            rest -= each * (min(wanted, size // demand.slots) + padding) * drafts / GIB
        else:
            size = int((budget - ring.fixed - padding * slot) // slot)
    if size <= 0:
        raise CannotSizeError("the server would not start: no memory for the state of a single request")
    return StateSplit(size, rest - ((size + padding) * slot + ring.fixed) / GIB)
