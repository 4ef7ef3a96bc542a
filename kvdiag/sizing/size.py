"""The whole arithmetic for one server: cell, budget, pools, request slots."""

from __future__ import annotations

from typing import Any

from kvdiag.frozen import field, frozen, names_of
from kvdiag.models import Geometry
from kvdiag.quantity import GIB
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import UNKNOWN_DEVICE, Device
from kvdiag.sizing.plan import Plan, make_plan
from kvdiag.sizing.pools import Pools, pools_of, requests_of
from kvdiag.sizing.resolve import LONG_CONTEXT, Settings, context_untold, resolve

KEPT_PLANS = 2048
NO_MEMORY = (
    "the free memory is not given: give --avail GIB (free after loading) and --total GIB (free before it), as the log prints "
    "them; only bytes a token follow without. Before a first start take for --total what the card has free, less a GiB, and "
    "for --avail that less a rank's share of the weights' files"
)
NO_BUDGET = (
    "--mem-fraction-static is not given and its default depends on the GPU's memory: give it, or --gpu NAME, or --gpu-mem MIB "
    "where that GPU has no fixed memory"
)
NO_ENCODER = (
    "--mem-fraction-static is not given and its default follows the image encoder, whose shape is not in the catalogue: give "
    "--config, or --mem-fraction-static"
)
RESIZED_DEFAULT = (
    "where the pool is sized anew after graphs are captured, the default of --mem-fraction-static depends on which prefills are "
    "captured: give it"
)
RESIZED_STATE = (
    "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING keeps more memory back for a model with state slots, by the card and its graphs; no "
    "rule follows it; only bytes a token follow"
)
RESIZED_NOTE = (
    "max_total_num_tokens is an upper bound: this server sizes the pool anew by what is free after graphs are captured, and says "
    "so in a line 'Post-capture KV sizing'"
)
BELOW_CONTEXT = "the pool holds less than one request of the full context of {:,} tokens: longer ones than the pool are refused"
OWN_CAP = (
    "max_running_requests starts from a cap of {}, which SGLang sets {} where --max-running-requests is not given, whatever the "
    "pool holds"
)


@frozen
class Memory:
    """Free memory of the worst rank in GiB: `available` after the weights, `total` before them."""

    available: float
    total: float


@frozen
class Sizing:
    """What SGLang computes at start-up; bytes and tokens, None where an input is missing or the pool does not exist.

    `rest_memory_bytes` is before states are taken out of it. `formula` and `terms` are those of `bytes_per_token`, `symbol`
    the function of this release that computes it; `missing` says why tokens are None.
    """

    release: str
    kv_heads_per_rank: int | None
    kv_cache_dtype: str
    bytes_per_token: int | float
    rest_memory_bytes: float | None = None
    max_total_num_tokens: int | None = None
    full_max_total_num_tokens: int | None = None
    swa_max_total_num_tokens: int | None = None
    max_mamba_cache_size: int | None = None
    max_running_requests: int | None = None
    formula: str = ""
    terms: dict[str, Any] = field(default_factory=dict)
    page_size: int = 1
    context_len: int | None = None
    mem_fraction_static: float | None = None
    c4_max_total_num_tokens: int | None = None
    c128_max_total_num_tokens: int | None = None
    c4_state_pool_size: int | None = None
    c128_state_pool_size: int | None = None
    mamba_cache_per_req: int | None = None
    symbol: str = ""
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stages: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``kvdiag size``."""
        return {"schema": "kvdiag.size/1", **{name: getattr(self, name) for name in names_of(self)}}


_PLANS: dict[Any, tuple[tuple[Any, ...], Plan]] = {}


def size(
    geometry: Geometry,
    arguments: ServerArguments,
    release: Release,
    memory: Memory | None = None,
    device: Device = UNKNOWN_DEVICE,
    draft: Geometry | None = None,
    fraction: float | None = None,
    reserved_gib: float | None = None,
    share: float = 1.0,
) -> Sizing:
    """Sizes the pools of one rank by the arithmetic of `release`.

    `memory` is taken as exact; without it only the cell is computed. `device` decides defaults that are not in
    `arguments`; `fraction` stands for its ``mem_fraction_static``, so that a sweep over fractions plans once, and `reserved_gib`
    for what the release keeps back for images; `share` is what SGLang leaves of a fraction that it is given (for advice only).
    Raises CannotSizeError where no formula holds or the server would not start.
    """
    plan = _plan(geometry, arguments, release, device, draft)
    settings = plan.settings
    if fraction is None:
        if settings.resized_later and arguments.mem_fraction_static is None:
            return _sizing(plan, None, None, None, (NO_MEMORY if memory is None else RESIZED_DEFAULT,))
        fraction = settings.fraction
    if settings.resized_later and plan.state is not None:
        return _sizing(plan, None, None, fraction, (RESIZED_STATE,))
    if memory is None or fraction is None:
        why = NO_MEMORY if memory is None else NO_ENCODER if settings.encoder_untold else NO_BUDGET
        return _sizing(plan, None, None, fraction, (why,))
    slack = memory.total * (1 - fraction)
    left = memory.available - (settings.reserved_gib if reserved_gib is None else reserved_gib)
    rest = left - slack
    least = 1 - left / memory.total if memory.total > 0 else None
    return _sizing(plan, rest, pools_of(plan, rest, least, share), fraction, ())


def _plan(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, draft: Geometry | None) -> Plan:
    """The plan, kept by the identity of what it is made of: all are immutable and held as long as their plan is."""
    parts = (geometry, arguments, release, device, draft)
    key = tuple(map(id, parts))
    kept = _PLANS.get(key)
    if kept is not None:
        return kept[1]
    plan = make_plan(resolve(geometry, arguments, release, device, draft))
    if len(_PLANS) >= KEPT_PLANS:
        _PLANS.clear()
    _PLANS[key] = (parts, plan)
    return plan


def _sizing(plan: Plan, rest: float | None, found: Pools | None, fraction: float | None, missing: tuple[str, ...]) -> Sizing:
    settings = plan.settings
    compressed = found.dsv4 if found is not None else None
    return Sizing(
        release=str(settings.release),
        kv_heads_per_rank=plan.heads,
        kv_cache_dtype=settings.dtype.name,
        bytes_per_token=plan.stages[0].cell,
        rest_memory_bytes=None if rest is None else rest * GIB,
        max_total_num_tokens=None if found is None else found.reported,
        full_max_total_num_tokens=None if found is None else found.full,
        swa_max_total_num_tokens=None if found is None else found.window,
        max_mamba_cache_size=None if found is None else found.state,
        max_running_requests=None if found is None else _reported_requests(plan, found),
        formula=plan.formula,
        terms=plan.terms,
        page_size=settings.page,
        context_len=None if context_untold(settings.geometry, settings.arguments) else settings.context,
        mem_fraction_static=fraction,
        c4_max_total_num_tokens=compressed.c4 if compressed else None,
        c128_max_total_num_tokens=compressed.c128 if compressed else None,
        c4_state_pool_size=compressed.c4_state if compressed else None,
        c128_state_pool_size=compressed.c128_state if compressed else None,
        mamba_cache_per_req=plan.state.whole if plan.state else None,
        symbol=plan.symbol,
        missing=missing,
        notes=() if found is None else _notes(settings, found),
        stages=plan.stage_terms,
    )


def _notes(settings: Settings, found: Pools) -> tuple[str, ...]:
    notes: tuple[str, ...] = (RESIZED_NOTE,) if settings.resized_later else ()
    if settings.arguments.max_running_requests is None and settings.requests is not None:
        why = "for DeepSeek-V4" if settings.geometry.compressed else "with speculative decoding"
        notes += (OWN_CAP.format(settings.requests, why),)
    if found.reported < settings.context and not context_untold(settings.geometry, settings.arguments):
        notes += (BELOW_CONTEXT.format(settings.context),)
    return notes


def _reported_requests(plan: Plan, found: Pools) -> int | None:
    """`requests_of`, None where a context length that is not known decides them."""
    if context_untold(plan.settings.geometry, plan.settings.arguments):
        possible = {requests_of(plan, found, context) for context in (1, LONG_CONTEXT)}
        return possible.pop() if len(possible) == 1 else None
    return requests_of(plan, found)
