"""The whole arithmetic for one server: cell, budget, pools, request slots."""

from __future__ import annotations

from typing import Any

from kvdiag.errors import CannotSizeError
from kvdiag.frozen import field, frozen, mutable, names_of, replace
from kvdiag.models import Geometry
from kvdiag.quantity import GIB
from kvdiag.releases import Release
from kvdiag.sizing import dsv4, swa
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.caps import window_cap
from kvdiag.sizing.device import UNKNOWN_DEVICE, Device
from kvdiag.sizing.history import since
from kvdiag.sizing.plan import Plan, StagePlan, make_plan
from kvdiag.sizing.resolve import LONG_CONTEXT, Settings, context_untold, resolve
from kvdiag.sizing.slots import pool_slots, reported_slots
from kvdiag.sizing.speculative import grown_tokens
from kvdiag.sizing.state import split_state

KEPT_PLANS = 2048
NO_MEMORY = (
    "the free memory is not given: give --avail GIB (free after loading) and --total GIB (free before it), as the log prints "
    "them; only bytes a token follow without. Before a first start take for --total what the card has free, and for --avail that "
    "less a rank's share of the weights' files"
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


@mutable
class _Pools:
    """Tokens of a start, from the profile to the end."""

    profiled: int
    reported: int
    full: int | None = None
    window: int | None = None
    state: int | None = None
    dsv4: dsv4.Dsv4Pools | None = None


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
) -> Sizing:
    """Sizes the pools of one rank by the arithmetic of `release`.

    `memory` is taken as exact; without it only the cell is computed. `device` decides defaults that are not in
    `arguments`; `fraction` stands for its ``mem_fraction_static``, so that a sweep over fractions plans once, and `reserved_gib`
    for what the release keeps back for images.
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
    rest = memory.available - slack - (settings.reserved_gib if reserved_gib is None else reserved_gib)
    return _sizing(plan, rest, _pools(plan, rest), fraction, ())


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


def _sizing(plan: Plan, rest: float | None, found: _Pools | None, fraction: float | None, missing: tuple[str, ...]) -> Sizing:
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
        notes=() if found is None else _notes(settings),
        stages=plan.stage_terms,
    )


def _notes(settings: Settings) -> tuple[str, ...]:
    notes: tuple[str, ...] = (RESIZED_NOTE,) if settings.resized_later else ()
    if settings.arguments.max_running_requests is None and settings.requests is not None:
        why = "for DeepSeek-V4" if settings.geometry.compressed else "with speculative decoding"
        notes += (OWN_CAP.format(settings.requests, why),)
    return notes


def _reported_requests(plan: Plan, found: _Pools) -> int | None:
    """`_requests`, None where a context length that is not known decides them."""
    if context_untold(plan.settings.geometry, plan.settings.arguments):
        possible = {_requests(plan, found, context) for context in (1, LONG_CONTEXT)}
        return possible.pop() if len(possible) == 1 else None
    return _requests(plan, found)


def _requests(plan: Plan, found: _Pools, context: int | None = None) -> int:
    speculative_dp = plan.settings.spec is not None and plan.settings.arguments.enable_dp_attention
    demand = plan.slot_demand(found.state)
    if context is not None:
        demand = replace(demand, context=context)
    return reported_slots(found.profiled, found.reported, demand, plan.settings.release, speculative_dp=speculative_dp)


def _pools(plan: Plan, rest: float) -> _Pools:
    settings = plan.settings
    state = None
    if plan.state is not None:
        split = split_state(rest, plan.state, settings.release)
        state, rest = split.size, split.rest
    if since(settings.release, "0.5.14") and rest <= 0:
        raise CannotSizeError(f"the server would not start: the weights leave no memory for the KV cache; {_RAISE}")
    found = _configured(plan, rest, state) if since(settings.release, "0.5.11") else _profiled(plan, rest, state)
    found.state = state
    if found.reported <= 0:
        raise CannotSizeError(_why_none(settings, plan.stages[0], rest))
    return found


_RAISE = "raise mem_fraction_static above 1 - (free after loading / free before it), if that is less than 1"


def _why_none(settings: Settings, stage: StagePlan, rest: float) -> str:
    """Why not a single token is left: a cap or a page, or too little memory."""
    cap, page = settings.arguments.max_total_tokens, settings.page
    if cap is not None and cap < page:
        return f"the server would not start: max_total_tokens {cap} is less than one page of {page} tokens"
    if stage.cell and rest * GIB >= stage.cell:
        return f"the server would not start: its memory holds less than one page of {page} tokens; lower page_size"
    return f"the server would not start: not enough memory for one token; {_RAISE}"


def _quotient(rest: float, cell: float, release: Release) -> int:
    """Tokens of the profile: the float product divided up to 0.5.6, its integer part from 0.5.7."""
    if not cell:
        raise CannotSizeError("cannot size this architecture: no layer of a pipeline stage takes bytes of KV cache")
    if not since(release, "0.5.7"):
        return int(rest * GIB // cell)
    return int(int(rest * GIB) // cell)


def _profiled(plan: Plan, rest: float, state: int | None) -> _Pools:
    """0.3.0 to 0.5.10 (``init_memory_pool``): profile, drafts, user's cap, page, minimum over stages, window split.

    Up to 0.5.2rc2 each stage keeps its own tokens: these are the first one's.
    """
    settings = plan.settings
    release = settings.release
    small = settings.arguments.environment.ci_small_kv_size if not since(release, "0.5.7") else None
    per_stage = [small or _quotient(rest, stage.cell, release) for stage in plan.stages]
    ends = []
    for profiled in per_stage:
        tokens = grown_tokens(profiled, pool_slots(profiled, plan.slot_demand(state), release), settings.spec, release)
        ends.append(_paged(_capped(tokens, settings), settings.page))
    found = _Pools(per_stage[0], min(ends) if since(release, "0.5.2") else ends[0])
    split = _early_split(settings, plan.stages[0], found.reported)
    if split is not None:
        found.reported, found.full, found.window = split.reported, split.full, split.window
    return found


def _early_split(settings: Settings, stage: StagePlan, tokens: int) -> swa.Split | None:
    release, arguments, windows = settings.release, settings.arguments, settings.geometry.windows
    if settings.pools == "llama4" and windows is not None and windows.window is not None:
        ratio = arguments.hybrid_kvcache_ratio or 0.0
        return swa.split_llama4(tokens, ratio, windows.window, settings.context, settings.page)
    if stage.pools is None:
        return None
    if since(release, "0.5.9"):
        return swa.split_by_memory(tokens, stage.pools, settings.page, release)
    return swa.split_by_layers(tokens, settings.geometry.num_hidden_layers, stage.pools, settings.page, release)


def _configured(plan: Plan, rest: float, state: int | None) -> _Pools:
    """0.5.11 and newer: each stage's configurator, the user's cap, the minimum over stages, the configurator again."""
    settings = plan.settings
    budget = int(rest * GIB)
    splits = [_first_split(settings, stage, budget) for stage in plan.stages]
    own = splits[0]
    tokens = min(_capped(split.reported, settings) for split in splits)
    if tokens != own.reported:
        own = _again(settings, plan.stages[0], tokens)
    found = _Pools(own.reported, own.reported)
    if settings.pools == "dsv4" or plan.stages[0].pools is not None:
        found.full, found.window = own.full, own.window
    demand = plan.stages[0].dsv4
    if demand is not None:
        requests = _requests(plan, _Pools(own.reported, own.reported, state=state))
        found.dsv4 = dsv4.pools(own.reported, requests, demand, settings.release)
    return found


def _first_split(settings: Settings, stage: StagePlan, budget: int) -> swa.Split:
    release, page = settings.release, settings.page
    if stage.dsv4 is not None:
        return _dsv4_split(settings, stage, dsv4.profiled_tokens(budget, stage.cell, stage.dsv4, release))
    if stage.pools is None:
        without_cache = settings.arguments.max_total_tokens or settings.context
        tokens = _paged(int(max(budget, 0) // stage.cell) if stage.cell else without_cache, page)
        return swa.Split(tokens, tokens, 0)
    cap = window_cap(settings)
    if cap is not None and stage.hybrid is not None and stage.pools.full_layers:
        return swa.split_capped(budget, cap, stage.hybrid, page)
    return _again(settings, stage, int(budget // stage.cell))


def _again(settings: Settings, stage: StagePlan, tokens: int) -> swa.Split:
    """``calculate_pool_sizes_from_max_tokens``."""
    page = settings.page
    if stage.dsv4 is not None:
        return _dsv4_split(settings, stage, tokens)
    if stage.pools is None:
        return swa.Split(_paged(tokens, page), _paged(tokens, page), 0)
    cap = window_cap(settings)
    if cap is not None and stage.pools.full_layers:
        full = _paged(tokens, page)
        return swa.Split(full, full, min(-(-cap // page) * page, tokens))
    window = settings.windows.window if settings.windows is not None else None
    return swa.split_configured(tokens, stage.pools, page, window, settings.release)


def _dsv4_split(settings: Settings, stage: StagePlan, tokens: int) -> swa.Split:
    assert stage.dsv4 is not None
    found = dsv4.pools(tokens, None, stage.dsv4, settings.release)
    return swa.Split(found.full, found.full, found.window)


def _capped(tokens: int, settings: Settings) -> int:
    cap = settings.arguments.max_total_tokens
    return tokens if cap is None else min(tokens, cap)


def _paged(tokens: int, page: int) -> int:
    return tokens // page * page
