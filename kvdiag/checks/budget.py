"""The budget of the KV pools as the log's readings give it, and the capacity the log states."""

from __future__ import annotations

from typing import Any

from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.readings import Reading
from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.quantity import GIB, Interval
from kvdiag.sizing import UNKNOWN_DEVICE
from kvdiag.sizing.resolve import resolve
from kvdiag.starts import Number

BUDGET = "available_gpu_memory - pre_model_load_memory x (1 - mem_fraction_static)"


def budget_of(inputs: CheckInputs, rank: str) -> tuple[Interval, Reading] | None:
    """``rest_memory`` by the readings of the ranks that size with `rank`, and these readings; None where one is missing."""
    worst = inputs.worst(rank)
    if worst is None or worst.total is None or inputs.mem_fraction_static is None:
        return None
    rest = worst.available - worst.total * (1 - inputs.mem_fraction_static)
    return rest + _reservation_shift(inputs), worst


def _reservation_shift(inputs: CheckInputs) -> Interval:
    """What the log reserves for images is less or more than the default that sizing takes off: the difference.

    Nothing where no line states it, or where the default prints so (``mm_runtime_reservation_gb``, 0.5.18 and newer).
    """
    none = Interval.of(0, unit="bytes")
    printed = next((v for e in inputs.start.events_of("pool_budget") if (v := e.record.interval("reserved")) is not None), None)
    if printed is None or inputs.geometry is None:
        return none
    try:
        settings = resolve(inputs.geometry, inputs.arguments, inputs.candidates()[-1], UNKNOWN_DEVICE, inputs.draft)
    except (CannotSizeError, ConfigError):
        return none
    default = Interval.of(settings.reserved_gib * GIB, unit="bytes")
    return none if default.meets(printed) else default - printed


def missing_for_budget(inputs: CheckInputs, rank: str) -> tuple[str, ...]:
    """The inputs of the budget that the log does not state."""
    missing = []
    if not inputs.readings:
        missing.append("avail mem after loading (the 'Load weight end' lines)")
    elif inputs.worst(rank) is None:
        missing.append("free memory before loading (the 'Load weight begin' lines)")
    if inputs.mem_fraction_static is None:
        missing.append("mem_fraction_static (the server_args line)")
    return tuple(missing)


def capacities(inputs: CheckInputs) -> list[Number]:
    """max_total_num_tokens as the scheduler of each rank states it last, else as the pool lines do, in order of the ranks."""
    start = inputs.start
    for name in ("max_total_num_tokens", "full_max_total_num_tokens", "pool_tokens"):
        stated = {number.rank: number for number in start.find(name, role="target") if number.interval is not None}
        if stated:
            return [stated[rank] for rank in sorted(stated, key=lambda rank: (len(rank), rank))]
    return []


def slots_of(inputs: CheckInputs, rank: str) -> int | None:
    """The state slots that the rank's line states, None where it has none."""
    number = inputs.start.first("max_mamba_cache_size", rank=rank, role="target") or inputs.start.first("max_mamba_cache_size")
    return number.value if number is not None and isinstance(number.value, int) else None


def budget_terms(inputs: CheckInputs, worst: Reading) -> dict[str, Any]:
    """The terms of the budget, as a check states them."""
    fraction = inputs.mem_fraction_static
    return {
        "available_gpu_memory": worst.available.to_dict(),
        "pre_model_load_memory": worst.total.to_dict() if worst.total is not None else None,
        "mem_fraction_static": None if fraction is None else float(fraction),
    }
