"""The budget of the KV pools as the log's readings give it, and the capacity the log states."""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from typing import Any

from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.readings import Reading
from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.quantity import GIB, Interval
from kvdiag.sizing import ServerArguments
from kvdiag.sizing.resolve import resolve
from kvdiag.starts import Number

NO_FRACTION = "no line states mem_fraction_static (the server_args line does)"
BUDGET = "available_gpu_memory - pre_model_load_memory x (1 - mem_fraction_static)"


def budget_of(inputs: CheckInputs, rank: str) -> tuple[Interval, Reading] | None:
    """``rest_memory`` by the readings of the ranks that size with `rank`, and these readings; None where one is missing.

    As SGLang's variable, after what is kept back for images and before states come out of it.
    """
    worst = inputs.worst(rank)
    if worst is None or worst.total is None or inputs.mem_fraction_static is None:
        return None
    return worst.available - worst.total * (1 - inputs.mem_fraction_static) - reservation(inputs), worst


def reservation(inputs: CheckInputs) -> Interval:
    """Bytes kept back for images (``mm_runtime_reservation_gb``, 0.5.18 and newer), as the log states them.

    The default of the releases the log may be of where no line does, or where it prints so: it is known to the byte.
    """
    printed = next((v for e in inputs.start.events_of("pool_budget") if (v := e.record.interval("reserved")) is not None), None)
    default = reservation_of(inputs, inputs.arguments)
    return default if printed is None or default.meets(printed) else printed


def reservation_of(inputs: CheckInputs, arguments: ServerArguments) -> Interval:
    """Bytes that the releases the log may be of keep back by themselves under `arguments`."""
    found = Interval.of(0, unit="bytes")
    if inputs.geometry is None:
        return found
    defaults = []
    for release in (inputs.candidates()[0], inputs.candidates()[-1]):
        with suppress(CannotSizeError, ConfigError):
            settings = resolve(inputs.geometry, arguments, release, inputs.device, inputs.draft)
            defaults.append(Interval.of(settings.reserved_gib * GIB, unit="bytes"))
    return reduce(Interval.hull, defaults) if defaults else found


def missing_for_budget(inputs: CheckInputs, rank: str) -> tuple[str, ...]:
    """The inputs of the budget that the log does not state."""
    missing = []
    if not inputs.readings:
        missing.append("no line states avail mem after loading (the 'Load weight end' lines)")
    elif inputs.worst(rank) is None:
        missing.append("no line states free memory before loading (the 'Load weight begin' lines)")
    if inputs.mem_fraction_static is None:
        missing.append(NO_FRACTION)
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
    } | ({"mm_runtime_reservation": kept.to_dict()} if (kept := reservation(inputs)).high else {})


def budget_formula(inputs: CheckInputs) -> str:
    """The formula of ``rest_memory``, with what is kept back for images where something is."""
    return f"{BUDGET} - mm_runtime_reservation" if reservation(inputs).high else BUDGET
