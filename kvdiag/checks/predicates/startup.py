"""Budgets that leave nothing, and what took the memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.quantity import Interval
from kvdiag.starts import Event

At = Mapping[str, float]
_FRACTION = r"mem[-_]fraction[-_]static=([0-9]\.[0-9e-]{1,12}|1e-[0-9]{1,2})"


def _failures(facts: Facts) -> list[Event]:
    """Start-up failures of the KV budget (a warning that the pool is below one context is none)."""
    return [e for e in facts.events("no_memory_for_pool") if _is_budget(e.record.message)]


def _is_budget(text: str) -> bool:
    return (
        "leave no GPU memory" in text
        or "enough memory. Please" in text
        or "enought memory" in text
        or "Not enough memory" in text
    )


def _fraction(facts: Facts, event: Event) -> float | None:
    found = re.search(_FRACTION, event.record.message)
    return float(found.group(1)) if found else facts.fraction


def _budget(facts: Facts, fraction: float | None) -> Interval | None:
    if facts.total is None or facts.available is None or fraction is None:
        return None
    return facts.available - facts.total * (1 - Fraction(str(fraction)))


def _values(facts: Facts, event: Event) -> dict[str, Any]:
    """What the failure says about weights, total and the fraction that would leave one context."""
    fraction = _fraction(facts, event)
    total, available = facts.total, facts.available
    values: dict[str, Any] = {"fraction": fraction, "total": total, "available": available}
    printed = event.record.interval("available/pre")
    least = printed.high if printed is not None else None
    values |= {"least": least, "stated": event.record.number("available/pre")}
    if total is None or available is None or total.low <= 0:
        return values
    values["weights"] = total - available
    shown = Interval(1 - available.high / total.low, 1 - available.low / total.high, "fraction")
    values["least"] = shown.high if least is None else max(least, shown.high)
    values["readings"] = shown.high if printed is not None and not printed.with_unit("fraction").meets(shown) else None
    values["budget"] = _budget(facts, fraction)
    values["step"] = total / 100
    cell, context = facts.cell or facts.recomputed_cell, facts.context
    if cell is not None and context:
        one = values["least"] + cell.high * context / total.low
        values["for_context"] = one if one < 1 else None
        values["context"] = context
    return values


def _held_beyond_weights(facts: Facts) -> Interval | None:
    """Memory gone between the first and the last reading of loading that the printed weights do not account for."""
    for reading in facts.inputs.readings:
        weights = [n for n in facts.start.find("weight_memory", rank=reading.rank) if n.interval is not None]
        if reading.total is None or not weights or facts.start.first("pre_model_load_memory", rank=reading.rank) is None:
            continue
        gone = reading.total - reading.available
        for number in weights:
            assert number.interval is not None
            gone = gone - number.interval
        return gone
    return None


def _has_states(facts: Facts) -> bool:
    names = ("max_mamba_cache_size", "mamba_full_memory_ratio_given")
    return bool(facts.start.find("max_mamba_cache_size") or any(facts.arg(name) for name in names) or _stateful(facts))


def _stateful(facts: Facts) -> bool:
    text = facts.inputs.config.text if facts.inputs.config else {}
    return any(key in text for key in ("linear_num_value_heads", "linear_attn_config", "mamba_d_state", "ssm_state_size"))


def no_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """The weights are larger than the static part: the fraction must rise, or the weights shrink."""
    for event in _failures(facts)[:1]:
        values = _values(facts, event)
        budget, held = values.get("budget"), _held_beyond_weights(facts)
        if budget is not None and budget.low > 0:
            return
        if held is not None and held.low > at["held_gib"] * 2**30:
            return
        loaded = "leave no GPU memory" in event.record.message
        if budget is None and values.get("least") is None and (loaded or facts.start.server_args):
            return
        values["raise_to"] = values.get("for_context")
        values["none"] = None if values["stated"] is not None else values["least"]
        yield Hit(event_lines([event]), values)


def no_memory_unexplained(facts: Facts, at: At) -> Iterator[Hit]:
    """The budget came to nothing and the excerpt does not hold the figures that tell which of five causes it was."""
    for event in _failures(facts)[:1]:
        values = _values(facts, event)
        loaded = "leave no GPU memory" in event.record.message
        if values.get("budget") is None and values.get("least") is None and (loaded or facts.start.server_args):
            yield Hit(event_lines([event]), values)


def held_at_failure(facts: Facts, at: At) -> Iterator[Hit]:
    """The budget came to nothing and memory is gone that no weights explain."""
    held = _held_beyond_weights(facts)
    for event in _failures(facts)[:1]:
        if held is not None and held.low > at["held_gib"] * 2**30:
            yield Hit(event_lines([event]), _values(facts, event) | {"held": held})


def states_take_budget(facts: Facts, at: At) -> Iterator[Hit]:
    """The weights leave a budget, yet it came to nothing: state slots, speculation's states or a floor took it."""
    for event in _failures(facts)[:1]:
        values = _values(facts, event)
        budget = values.get("budget")
        if budget is not None and budget.low > 0 and not _cap_below_a_page(facts):
            values["slots"] = facts.arg("max_mamba_cache_size")
            values["draft"] = facts.arg("speculative_num_draft_tokens")
            yield Hit(event_lines([event]), values)


def _cap_below_a_page(facts: Facts) -> bool:
    """Whether --max-total-tokens, rounded down to whole pages, is nothing."""
    cap, page = facts.arg("max_total_tokens"), facts.inputs.arguments.page_size
    return isinstance(cap, int) and isinstance(page, int) and page > 0 and cap // page == 0


def cap_below_a_page(facts: Facts, at: At) -> Iterator[Hit]:
    """The budget came to nothing because the cap is smaller than one page."""
    for event in _failures(facts)[:1]:
        if _cap_below_a_page(facts):
            values = {"cap": facts.arg("max_total_tokens"), "page": facts.inputs.arguments.page_size}
            yield Hit(event_lines([event]), values)


def below_zero(facts: Facts, at: At) -> Iterator[Hit]:
    """A profiled capacity below zero: the budget is negative and the fraction in force is implied by it."""
    for event in facts.events("max_total_tokens_clamped"):
        profiled = event.record.number("profiled value")
        if not isinstance(profiled, int) or profiled >= 0:
            continue
        cell = facts.cell or facts.recomputed_cell
        values: dict[str, Any] = {"profiled": profiled, "cell": cell, "asked": event.record.number("max_total_tokens")}
        values |= {"total": facts.total, "available": facts.available, "stated": facts.fraction}
        weights = facts.number("weight_memory", role="target")
        values["weights"] = weights.interval if weights else None
        if cell is not None:
            budget = (cell * profiled).with_unit("bytes")
            values["budget"] = budget
            values |= _implied(facts, budget)
        yield Hit(tuple(dict.fromkeys((*facts.lines(weights), *event_lines([event])))), values)
        return


def _implied(facts: Facts, budget: Interval) -> dict[str, Any]:
    total, available = facts.total, facts.available
    if total is None or available is None:
        return {}
    implied = 1 - (available - budget).low / total.high
    at_most = 1 + budget.high / total.high
    return {"implied": float(implied), "at_most": float(at_most), "least": float(1 - available.low / total.high)}


def window_cap_takes_all(facts: Facts, at: At) -> Iterator[Hit]:
    """The window pool sized for the request cap leaves nothing for the full pool."""
    for event in facts.events("no_memory_for_pool"):
        if "SWA pool cap" in event.record.message:
            record = event.record
            values = {
                "tokens": record.number("swa_tokens"),
                "held": record.interval("swa pool"),
                "budget": record.interval("available"),
            }
            yield Hit(event_lines([event]), values)
            return


def pool_below_context_line(facts: Facts) -> Event | None:
    """0.5.23's own warning that the pool is smaller than one context."""
    return next((e for e in facts.events("no_memory_for_pool") if e.record.message.startswith("KV pool holds")), None)
