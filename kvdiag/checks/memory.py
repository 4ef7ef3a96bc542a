"""Who holds each rank's memory, from the free memory before loading to the last reading in the log."""

from __future__ import annotations

from kvdiag.checks.inputs import CheckInputs
from kvdiag.frozen import frozen
from kvdiag.quantity import Interval
from kvdiag.quantity.ends import ends
from kvdiag.quantity.figures import memory
from kvdiag.releases import parse_release
from kvdiag.sizing.resolve import context_untold
from kvdiag.starts import Number, Start

FREE = (
    "pre_model_load_memory",
    "available_gpu_memory",
    "memory_after_pool",
    "memory_before_graphs",
    "memory_after_graphs",
    "memory_after_start",
)
"""Names of numbers that are readings of free memory."""

UNSHARP = 2**27
"""Bytes by which a reading may go up although nothing was freed: the allocator gives back what it had reserved."""

INDEX_BYTES = 4
"""The request table holds int32 (``ReqToTokenPool``, ``srt/mem_cache/memory_pool.py``)."""

EXTRA_COLUMNS = 4
"""Columns of the request table beyond the context (``extra_max_context_len``); draft tokens come on top."""


@frozen
class Part:
    """A share of one rank's memory; `part` is a word of the contract, `lines` where it stands in the log.

    `reading` is which reading of free memory a ``headroom`` is: only the last of a start-up is what stays free.
    """

    part: str
    interval: Interval
    lines: tuple[int, ...] = ()
    reading: str = ""


@frozen
class Ledger:
    """The memory of one rank: `parts` add up to `total`, the memory free before loading.

    ``context`` is what process groups took before that reading and lies outside of `total`. Only the remainder,
    ``unexplained``, can be below zero: then two printed figures contradict each other or memory came back.
    """

    rank: str
    total: Interval
    parts: tuple[Part, ...]
    context: Part | None = None

    def get(self, part: str) -> Interval | None:
        """The interval of one part, None where the rank has none."""
        return next((p.interval for p in self.parts if p.part == part), None)


def ledgers_of(inputs: CheckInputs) -> tuple[Ledger, ...]:
    """A ledger for each rank whose free memory before loading is known."""
    return tuple(ledger for rank in inputs.start.ranks if (ledger := _ledger(inputs, rank)))


def why_no_ledger(inputs: CheckInputs) -> str:
    """Why no rank's memory can be shared out, in a clause; empty where one can be, or the log has no reading at all."""
    if not inputs.readings or ledgers_of(inputs):
        return ""
    grown = [n for reading in inputs.readings if (n := grew_while_loading(inputs.start, reading.rank)) is not None]
    if grown and grown[0].interval is not None:
        amount = memory(-grown[0].interval)
        told = f"free memory grew by {amount} while the weights were loaded (line {grown[0].line}): something else gave it back"
        return told + _grown_by_readings(inputs.start, grown[0])
    return "no line states free memory before loading (the 'Load weight begin' lines)"


def free_readings(start: Start, rank: str) -> list[Number]:
    """Every reading of free memory of a rank, in the order of the log."""
    found = [n for n in start.numbers if n.name in FREE and n.rank == rank and n.interval is not None]
    return sorted(found, key=lambda number: (number.path, number.line))


def _ledger(inputs: CheckInputs, rank: str) -> Ledger | None:
    start = inputs.start
    reading = next((r for r in inputs.readings if r.rank == rank), None)
    if reading is None or reading.total is None or grew_while_loading(start, rank) is not None:
        return None
    parts = [
        _sum(start, "weights", rank, ("weight_memory",), "target") or _weights_between(start, rank),
        _sum(start, "draft_weights", rank, ("weight_memory",), "draft"),
        _sum(start, "kv_pool", rank, ("kv_pool_bytes",), "target"),
        _sum(start, "draft_kv", rank, ("kv_pool_bytes",), "draft"),
        _sum(start, "state", rank, ("state_pool_bytes",), None),
        _table_part(inputs, rank),
        _sum(start, "graphs", rank, ("graph_memory",), None),
    ]
    last = free_readings(start, rank)[-1]
    known = [part for part in parts if part is not None]
    if last.interval is not None and last.name != "pre_model_load_memory":
        known = [part for part in known if not part.lines or min(part.lines) <= last.line]
        known.append(Part("headroom", last.interval, (last.line,), last.name))
    remainder = reading.total
    for part in known:
        remainder = remainder - part.interval
    known.append(Part("unexplained", remainder))
    init = start.first("distributed_init_memory", rank=rank)
    context = Part("context", init.interval, (init.line,)) if init and init.interval else None
    return Ledger(rank, reading.total, tuple(known), context)


def grew_while_loading(start: Start, rank: str) -> Number | None:
    """The number by which a rank's weights took less than nothing: memory came free while they were loaded."""
    weights = start.find("weight_memory", rank=rank)
    return next((n for n in weights if n.interval is not None and n.interval.high < -UNSHARP), None)


def _grown_by_readings(start: Start, grown: Number) -> str:
    """What the readings of free memory on both sides tell instead, where they do not agree with the line's own amount."""
    after = start.first("available_gpu_memory", rank=grown.rank)
    before = start.first("pre_model_load_memory", rank=grown.rank)
    if after is None or before is None or after.interval is None or before.interval is None or grown.interval is None:
        return ""
    taken = before.interval - after.interval
    if before.line > after.line or taken.meets(grown.interval):
        return ""
    told = f"grew by {memory(-taken)}" if taken.high < 0 else f"took {ends(taken)}"
    return f"; by the readings of lines {before.line} and {after.line} it {told}, which does not agree"


def _sum(start: Start, part: str, rank: str, names: tuple[str, ...], role: str | None) -> Part | None:
    """Numbers of these names and that role added up; a number without a role counts as the target's."""
    found = [
        n
        for n in start.numbers
        if n.name in names and n.rank == rank and n.interval is not None and (role is None or (n.role or "target") == role)
    ]
    if not found:
        return None
    total = Interval.of(0, unit="bytes")
    for number in found:
        assert number.interval is not None
        total = total + number.interval.with_unit("bytes")
    return Part(part, total, tuple(n.line for n in found))


def _weights_between(start: Start, rank: str) -> Part | None:
    """What loading took by the readings on both sides of it: releases before 0.4.3.post3 print no more.

    None where a draft's weights state what they took, as the target's readings may then be missing.
    """
    after = start.first("available_gpu_memory", rank=rank)
    before = start.first("pre_model_load_memory", rank=rank)
    if start.find("weight_memory", rank=rank) or before is None or after is None or before.line > after.line:
        return None
    if before.interval is None or after.interval is None or (taken := before.interval - after.interval).low < 0:
        return None
    return Part("weights", taken, (before.line, after.line))


def _table_part(inputs: CheckInputs, rank: str) -> Part | None:
    """The request table, once the pools of that rank exist."""
    if inputs.start.first("memory_after_pool", rank=rank) is None:
        return None
    table = request_table(inputs)
    return Part("request_table", table) if table is not None else None


def request_table(inputs: CheckInputs) -> Interval | None:
    """Bytes of the table from request slot and position to cache row; None where slots or context are not known.

    None also where slots are not stated and less than their default takes went beside the pools: then there are fewer.

    It is allocated outside the KV budget, rows x (context_len + 4 + draft tokens) x 4 bytes
    (``ReqToTokenPool``, called by ``init_memory_pool``); from 0.5.11 there is one row more.
    """
    stated, context = _rows(inputs), context_length(inputs)
    rows = stated or _default_rows(inputs)
    if rows is None or context is None:
        return None
    draft = inputs.arguments.speculative_num_draft_tokens or 0
    columns = Interval.of(context + EXTRA_COLUMNS, context + EXTRA_COLUMNS + draft)
    table = (rows * columns * INDEX_BYTES).with_unit("bytes")
    return table if stated is not None or _has_room(inputs, table) else None


def _has_room(inputs: CheckInputs, table: Interval) -> bool:
    """Whether as much as the table went beside the pools; the log must tell where somebody may have asked for another number."""
    gaps = [gap for rank in inputs.start.ranks if (gap := pool_gap(inputs, rank)) is not None]
    return all(gap.high >= table.low for gap in gaps) and bool(gaps or not inputs.unseen("max_running_requests"))


def pool_gap(inputs: CheckInputs, rank: str) -> Interval | None:
    """Memory of a rank that went between loading and the end of the target's pools and is in none of them."""
    start = inputs.start
    before = next((r.available for r in inputs.readings if r.rank == rank), None)
    after = start.first("memory_after_pool", rank=rank, role="target")
    pool = _sum(start, "kv_pool", rank, ("kv_pool_bytes",), "target")
    if before is None or after is None or after.interval is None or pool is None or inputs.on_shared_memory:
        return None
    gap = before - pool.interval - after.interval
    state = _sum(start, "state", rank, ("state_pool_bytes",), None)
    return gap - state.interval if state is not None else gap


def context_length(inputs: CheckInputs) -> int | None:
    """The context length in force: printed, given as an argument, or the model's own."""
    stated = inputs.start.first("context_len")
    if stated is not None and isinstance(stated.value, int) and stated.value > 0:
        return stated.value
    if inputs.arguments.context_length:
        return inputs.arguments.context_length
    geometry = inputs.geometry
    return None if geometry is None or context_untold(geometry, inputs.arguments) else geometry.context_len or None


def _rows(inputs: CheckInputs) -> Interval | None:
    """Rows of the request table: what the scheduler reports, unless half the tokens was the smaller of the two."""
    releases = inputs.candidates()
    extra_low, extra_high = 0, 0
    if releases:
        extra_low = int(releases[0] >= parse_release("0.5.11"))
        extra_high = int(releases[-1] >= parse_release("0.5.11"))
    stated, half = inputs.start.first("max_running_requests"), _half(inputs)
    if stated is not None and isinstance(stated.value, int):
        most = 4096 if stated.value == half else stated.value
        return Interval.of(stated.value + extra_low, max(stated.value, most) + extra_high)
    if inputs.arguments.max_running_requests:
        return Interval.of(inputs.arguments.max_running_requests + extra_low, inputs.arguments.max_running_requests + extra_high)
    return None


def _half(inputs: CheckInputs) -> int | None:
    tokens = inputs.start.first("max_total_num_tokens") or inputs.start.first("pool_tokens", role="target")
    return tokens.value // 2 if tokens and isinstance(tokens.value, int) else None


def _default_rows(inputs: CheckInputs) -> Interval | None:
    """Rows of the request table where nobody asked for a number of requests."""
    half, context, releases = _half(inputs), context_length(inputs), inputs.candidates()
    if half is None or context is None or not releases:
        return None
    slots = max(2048, min(half * 2 * 512 // context, 4096))
    plus_one = parse_release("0.3.2") <= releases[-1] < parse_release("0.4.7")
    extra_low, extra_high = int(releases[0] >= parse_release("0.5.11")), int(releases[-1] >= parse_release("0.5.11"))
    return Interval.of(slots + extra_low, slots + max(extra_high, int(plus_one)))
