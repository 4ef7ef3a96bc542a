"""What follows from the capacity: request slots, window pool, state slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.budget import budget_of, capacities, missing_for_budget, slots_of
from kvdiag.checks.excuses import budget_excuses
from kvdiag.checks.inputs import CheckInputs, fits
from kvdiag.checks.model import Check
from kvdiag.checks.readings import own_first
from kvdiag.checks.verdict import Excuse, candidates, hull, judge
from kvdiag.quantity import Interval
from kvdiag.releases import Release
from kvdiag.sizing import Sizing
from kvdiag.sizing.history import since
from kvdiag.sizing.resolve import context_untold
from kvdiag.starts import Number

_ESTIMATE = "clamp(max_total_num_tokens / context_length x 512, 2048, 4096)"
_HALF = "max_total_num_tokens // 2"
_WINDOW = "full_max_total_num_tokens x swa_full_tokens_ratio, floored to page_size"
_STATE = "rest_memory x ratio / (1 + ratio) // bytes of a state slot, or --max-mamba-cache-size"


def slot_checks(inputs: CheckInputs, arithmetic: Arithmetic) -> Iterator[Check]:
    """``max_running_requests``, ``swa_max_total_num_tokens`` and ``max_mamba_cache_size`` where the log states them."""
    for number in inputs.start.find("max_running_requests"):
        formula = _requests(inputs, arithmetic)
        yield _check(inputs, arithmetic, number, lambda s: s.max_running_requests, formula, _request_excuses(inputs))
    for number in inputs.start.find("swa_max_total_num_tokens", role="target"):
        yield _check(inputs, arithmetic, number, lambda s: s.swa_max_total_num_tokens, _WINDOW, budget_excuses(inputs))
    for number in inputs.start.find("max_mamba_cache_size", role="target"):
        yield _state(inputs, arithmetic, number)


def _requests(inputs: CheckInputs, arithmetic: Arithmetic) -> str:
    """How ``max_running_requests`` follows in the newest release that the log may be of (``sizing.slots``)."""
    release = inputs.candidates()[-1]
    settings = arithmetic.settings(release)
    asked = settings.requests if settings is not None else inputs.arguments.max_running_requests
    states = ["max_mamba_cache_size // slots of a request"] if settings is not None and settings.state is not None else []
    if asked is None:
        parts = [_HALF, _ESTIMATE]
    else:
        share = " // dp_size" if inputs.arguments.attention_dp_size > 1 else ""
        given = "max_running_requests as asked" if inputs.arguments.max_running_requests is not None else f"{asked} by default"
        bound = [_HALF] if since(release, "0.5.14") else [_ESTIMATE] if since(release, "0.5.10rc0") else []
        parts = [given + share, *bound]
    if asked is None and inputs.arguments.max_total_tokens is not None and not since(release, "0.5.10rc0"):
        parts = [_HALF, _ESTIMATE.replace("max_total_num_tokens", "tokens before the cap")]
    parts += states
    return f"min({', '.join(parts)})" if len(parts) > 1 else parts[0]


def _request_excuses(inputs: CheckInputs) -> list[Excuse]:
    found = budget_excuses(inputs)
    unseen = inputs.unseen("max_running_requests")
    if unseen:
        found.append(Excuse("--max-running-requests is not known (the log has no whole server_args line)", raises=False))
    if inputs.arguments.context_length is None and inputs.config is not None and inputs.config.note:
        found.append(Excuse(f"the context length is open: {inputs.config.note}"))
    elif inputs.geometry is not None and context_untold(inputs.geometry, inputs.arguments):
        found.append(Excuse("the catalogue does not hold the context length of this model"))
    return found


def _check(
    inputs: CheckInputs,
    arithmetic: Arithmetic,
    number: Number,
    pick: Callable[[Sizing], int | None],
    formula: str,
    excuses: list[Excuse],
) -> Check:
    """A number that the capacity decides: computed from the budgets that the stated capacity allows."""
    unit = fits(number).unit
    capacity = next((c for c in capacities(inputs) if c.rank == number.rank), next(iter(capacities(inputs)), None))
    budget = budget_of(inputs, number.rank)

    def compute(release: Release) -> Interval | None:
        allowed = _allowed(inputs, arithmetic, release, capacity, budget[0] if budget else None)
        return arithmetic.capacity(release, allowed, pick, unit) if allowed is not None else None

    lines = own_first(number.line, (*((capacity.line,) if capacity else ()), *(budget[1].lines if budget else ())))
    found = (
        candidates(arithmetic.groups(_near(arithmetic, capacity, budget[0] if budget else None)), compute)
        if inputs.geometry is not None
        else []
    )
    terms = {"max_total_num_tokens": capacity.value if capacity else None} | _terms(inputs, arithmetic, number)
    if not found:
        missing = missing_for_budget(inputs, number.rank) if capacity is None else ()
        missing += arithmetic.why_not() or ("by these arguments no budget gives the capacity that the log states",)
        return Check(number.name, "unknown", number.rank, number.role, fits(number), None, formula, {}, missing, lines)
    verdict, lacking = judge(fits(number), found, excuses)
    return Check(number.name, verdict, number.rank, number.role, fits(number), hull(found), formula, terms, lacking, lines)


def _terms(inputs: CheckInputs, arithmetic: Arithmetic, number: Number) -> dict[str, Any]:
    """The values beside the capacity that the formulas of this file name, by the newest release."""
    settings = arithmetic.settings(inputs.candidates()[-1])
    if number.name != "swa_max_total_num_tokens":
        context = inputs.arguments.context_length or (settings.context if settings is not None else None)
        return {"max_running_requests": inputs.arguments.max_running_requests, "context_length": context}
    full = inputs.start.first("full_max_total_num_tokens", rank=number.rank) or inputs.start.first("full_max_total_num_tokens")
    return {
        "full_max_total_num_tokens": full.value if full is not None else None,
        "swa_full_tokens_ratio": settings.window_ratio if settings is not None else None,
        "page_size": settings.page if settings is not None else None,
    }


def _near(arithmetic: Arithmetic, capacity: Number | None, rest: Interval | None) -> int:
    """A budget of about the size in question."""
    if rest is not None:
        return max(0, int(rest.high))
    sized = next((s for group in arithmetic.cells() if (s := arithmetic.sized(group[-1])) is not None), None)
    return int(capacity.value * sized.bytes_per_token) if capacity and sized and isinstance(capacity.value, int) else 0


def _allowed(
    inputs: CheckInputs, arithmetic: Arithmetic, release: Release, capacity: Number | None, rest: Interval | None
) -> Interval | None:
    """The budgets that the stated capacity and, where it is not contradicted, the readings allow."""
    if capacity is None or not isinstance(capacity.value, int):
        return rest
    implied = arithmetic.budgets(release, capacity.value, slots_of(inputs, capacity.rank))
    if implied is None or rest is None or not implied.meets(rest):
        return implied if implied is not None else rest
    return Interval(max(implied.low, rest.low), min(implied.high, rest.high), "bytes")


def _state(inputs: CheckInputs, arithmetic: Arithmetic, number: Number) -> Check:
    """State slots come before the tokens, out of the budget itself."""
    budget = budget_of(inputs, number.rank)
    found = []
    lines = own_first(number.line, ())
    if budget is not None:
        lines = own_first(number.line, budget[1].lines)
        rest = budget[0]
        found = candidates(
            arithmetic.groups(max(0, int(rest.high))),
            lambda release: arithmetic.capacity(release, rest, lambda s: s.max_mamba_cache_size, "slots"),
        )
    if not found:
        missing = missing_for_budget(inputs, number.rank)
        missing += arithmetic.why_not()
        return Check(number.name, "unknown", number.rank, number.role, fits(number), None, _STATE, {}, missing, lines)
    verdict, lacking = judge(fits(number), found, budget_excuses(inputs))
    terms = {"rest_memory": budget[0].to_dict()} if budget else {}
    return Check(number.name, verdict, number.rank, number.role, fits(number), hull(found), _STATE, terms, lacking, lines)
