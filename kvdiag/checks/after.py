"""What is free once a pool is made: the reading before it, less what the log says was taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.excuses import SHARED_MEMORY
from kvdiag.checks.inputs import CheckInputs, fits
from kvdiag.checks.model import Check
from kvdiag.checks.readings import own_first
from kvdiag.models.catalogue import CONTEXT
from kvdiag.quantity import Interval
from kvdiag.quantity.figures import memory
from kvdiag.sizing.slots import MOST
from kvdiag.starts import Number

_ENTRY_BYTES = 4
"""A row of ``req_to_token`` holds int32 slots."""
_MARGIN = 1024
"""More columns than context_len that a row may have: draft tokens and alignment (``ReqToTokenPool``)."""
_ALLOCATION = 2 << 20
"""CUDA's allocator hands out memory in multiples of this, for each buffer of each layer."""


def after_checks(inputs: CheckInputs, arithmetic: Arithmetic) -> Iterator[Check]:
    """``memory_after_pool`` of every rank and role that states it with a reading before."""
    for after in inputs.start.find("memory_after_pool"):
        pool = _last(inputs, after, ("kv_pool_bytes",))
        before = _last(inputs, pool, ("available_gpu_memory", "memory_after_pool")) if pool is not None else None
        if pool is not None and before is not None and (pool.role or "target") == (after.role or "target"):
            yield _check(inputs, arithmetic, after, pool, before)


def _last(inputs: CheckInputs, until: Number, names: tuple[str, ...]) -> Number | None:
    """The last number of these names on the same rank before the line of `until`."""
    found = [
        number
        for number in inputs.start.numbers
        if number.name in names
        and (number.rank, number.path) == (until.rank, until.path)
        and number.line < until.line
        and number.interval is not None
    ]
    return max(found, key=lambda number: number.line, default=None)


def _check(inputs: CheckInputs, arithmetic: Arithmetic, after: Number, pool: Number, before: Number) -> Check:
    most = fits(before) - fits(pool)
    terms: dict[str, Any] = {"free_before": fits(before).to_dict(), "kv_pool_bytes": fits(pool).to_dict()}
    others = [before.line, pool.line]
    state = inputs.start.first("state_pool_bytes", rank=after.rank)
    if state is not None and before.line < state.line < after.line:
        most = most - fits(state)
        terms["state_pool_bytes"] = fits(state).to_dict()
        others.append(state.line)
    role, lines = after.role or pool.role, own_first(after.line, others)
    table = _request_table(inputs, arithmetic) if role != "draft" else Interval.of(0, unit="bytes")
    if table is not None and table.high:
        terms["request_table_bytes"] = table.to_dict()
        most = most - table
    rounding = Interval.of(0, _rounding(inputs), "bytes")
    if rounding.high:
        terms["allocation_rounding"] = rounding.to_dict()
    recomputed = most - rounding
    verdict, missing = _verdict(inputs, fits(after), recomputed, table)
    formula = " - ".join(terms) + ("" if table is not None else " - request table")
    return Check("memory_after_pool", verdict, after.rank, role, fits(after), recomputed, formula, terms, missing, lines)


def _verdict(
    inputs: CheckInputs, observed: Interval, recomputed: Interval, table: Interval | None
) -> tuple[str, tuple[str, ...]]:
    """Never ``disagree``: what a process allocates or gives back between two lines is not in the log."""
    if observed.meets(recomputed):
        return "agree", ()
    if inputs.on_shared_memory:
        return "unknown", (SHARED_MEMORY,)
    if observed.low > recomputed.high:
        return "unknown", (
            f"{memory(observed.low - recomputed.high)} came back between the two lines, and no line says from where",
        )
    gap = memory(recomputed.low - observed.high)
    if table is None or not table.low:
        return "unknown", (
            f"{gap} more went: to the request table (its requests and context_len are not in the log) or to another buffer",
        )
    return "unknown", (f"{gap} more went between the two lines, and no line of the log says to what",)


def _request_table(inputs: CheckInputs, arithmetic: Arithmetic) -> Interval | None:
    """Bytes of ``ReqToTokenPool``: a row of int32 for each request, as long as the context and a margin.

    It has as many rows as the server reports requests, or more (the user's number, or one to spare).
    """
    requests, context = inputs.start.first("max_running_requests"), inputs.start.first("context_len")
    asked = inputs.arguments.max_running_requests or 0
    replicas = inputs.arguments.dp_size if inputs.arguments.enable_dp_attention else 1
    if requests is not None and context is not None and isinstance(requests.value, int) and isinstance(context.value, int):
        if min(requests.value, context.value) < 0:
            return None
        most = max(requests.value, asked // replicas) + 1
        return _rows(requests.value, most, context.value, context.value)
    contexts = {s.context for release in inputs.candidates() if (s := arithmetic.settings(release)) is not None}
    if not contexts or inputs.config is None or inputs.config.note or CONTEXT in inputs.config.untold:
        return None
    return _rows(0, max(MOST, asked) + 1, min(contexts), max(contexts))


def _rows(least: int, most: int, shortest: int, longest: int) -> Interval:
    return Interval.of(least * shortest * _ENTRY_BYTES, most * (longest + _MARGIN) * _ENTRY_BYTES, "bytes")


def _rounding(inputs: CheckInputs) -> int:
    return 2 * inputs.geometry.num_hidden_layers * _ALLOCATION if inputs.geometry is not None else 0
