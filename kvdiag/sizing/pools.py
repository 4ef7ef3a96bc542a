"""The tokens of a server's pools, from the budget to what it reports, as each release derives them."""

from __future__ import annotations

import math

from kvdiag.errors import CannotSizeError
from kvdiag.frozen import mutable, replace
from kvdiag.quantity import GIB
from kvdiag.releases import Release
from kvdiag.sizing import dsv4, swa
from kvdiag.sizing.caps import window_cap
from kvdiag.sizing.history import since
from kvdiag.sizing.plan import Plan, StagePlan
from kvdiag.sizing.resolve import Settings
from kvdiag.sizing.slots import pool_slots, reported_slots
from kvdiag.sizing.speculative import grown_tokens
from kvdiag.sizing.state import split_state


@mutable
class Pools:
    """Tokens of a start, from the profile to the end."""

    profiled: int
    reported: int
    full: int | None = None
    window: int | None = None
    state: int | None = None
    dsv4: dsv4.Dsv4Pools | None = None


def requests_of(plan: Plan, found: Pools, context: int | None = None) -> int:
    """``max_running_requests`` of one replica, with `context` for the context length where that is open."""
    speculative_dp = plan.settings.spec is not None and plan.settings.arguments.enable_dp_attention
    demand = plan.slot_demand(found.state)
    if context is not None:
        demand = replace(demand, context=context)
    return reported_slots(found.profiled, found.reported, demand, plan.settings.release, speculative_dp=speculative_dp)


def pools_of(plan: Plan, rest: float, least: float | None, share: float = 1.0) -> Pools:
    """The pools made of a budget of `rest` GiB, before states are taken out of it; `least` is the fraction that leaves nothing.

    `share` is what SGLang leaves of a fraction that it is given.

    Raises CannotSizeError where the server would not start.
    """
    settings = plan.settings
    state = None
    if plan.state is not None:
        split = split_state(rest, plan.state, settings.release)
        state, rest = split.size, split.rest
    if since(settings.release, "0.5.14") and rest <= 0:
        raise CannotSizeError(
            f"the server would not start: the weights leave no memory for the KV cache; {_raised(least, share)}"
        )
    found = _configured(plan, rest, state) if since(settings.release, "0.5.11") else _profiled(plan, rest, state)
    found.state = state
    if found.reported <= 0:
        raise CannotSizeError(_why_none(settings, plan.stages[0], rest, _raised(least, share)))
    return found


def _raised(least: float | None, share: float) -> str:
    """Which fractions would leave some budget: `least` in force, None where the memory behind it is not known.

    Of a fraction that is given SGLang leaves `share` (0: none, it sets its own).
    """
    formula, why = "1 - free after loading / free before it", ""
    if share != 1 and least is not None:
        formula = f"({formula}) / {share:g}"
        why = f", as SGLang leaves {share:g} of it here" if share else ", as SGLang sets its own here"
        least = least / share if share else 1.0
    if least is None:
        return "raise mem_fraction_static above 1 - (free after loading / free before it), if that is less than 1"
    for decimals in range(3, 7):
        above = math.ceil(least * 10**decimals) / 10**decimals
        if above < 1:
            return f"raise mem_fraction_static above {above:.{decimals}f} ({formula}{why})"
    return f"no mem_fraction_static would{why}: more GPUs, or smaller weights"


def _why_none(settings: Settings, stage: StagePlan, rest: float, advice: str) -> str:
    """Why not a single token is left: a cap or a page, or too little memory, with what would leave some."""
    cap, page = settings.arguments.max_total_tokens, settings.page
    if cap is not None and cap < page:
        return f"the server would not start: max_total_tokens {cap} is less than one page of {page} tokens"
    if stage.cell and rest * GIB >= stage.cell:
        return f"the server would not start: its memory holds less than one page of {page} tokens; lower page_size"
    return f"the server would not start: not enough memory for one token; {advice}"


def _quotient(rest: float, cell: float, release: Release) -> int:
    """Tokens of the profile: the float product divided up to 0.5.6, its integer part from 0.5.7."""
    if not cell:
        raise CannotSizeError("cannot size this architecture: no layer of a pipeline stage takes bytes of KV cache")
    if not since(release, "0.5.7"):
        return int(rest * GIB // cell)
    return int(int(rest * GIB) // cell)


def _profiled(plan: Plan, rest: float, state: int | None) -> Pools:
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
    found = Pools(per_stage[0], min(ends) if since(release, "0.5.2") else ends[0])
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


def _configured(plan: Plan, rest: float, state: int | None) -> Pools:
    """0.5.11 and newer: each stage's configurator, the user's cap, the minimum over stages, the configurator again."""
    settings = plan.settings
    budget = int(rest * GIB)
    splits = [_first_split(settings, stage, budget) for stage in plan.stages]
    own = splits[0]
    tokens = min(_capped(split.reported, settings) for split in splits)
    if tokens != own.reported:
        own = _again(settings, plan.stages[0], tokens)
    found = Pools(own.reported, own.reported)
    if settings.pools == "dsv4" or plan.stages[0].pools is not None:
        found.full, found.window = own.full, own.window
    demand = plan.stages[0].dsv4
    if demand is not None:
        requests = requests_of(plan, Pools(own.reported, own.reported, state=state))
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
