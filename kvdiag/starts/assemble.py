"""Grouping: a stream of records becomes server starts, each with its ranks, roles, numbers and events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvdiag.lines import Record
from kvdiag.lines.literal import parse_arguments
from kvdiag.quantity import Interval
from kvdiag.quantity.interval import plain
from kvdiag.starts.evidence import Evidence
from kvdiag.starts.model import Event, Number, Start

NUMBERS: dict[str, dict[str, str]] = {
    "dist-init-end": {"mem usage": "distributed_init_memory"},
    "weight-load-begin": {"avail mem": "pre_model_load_memory", "Avail mem": "pre_model_load_memory"},
    "weight-load-end": {
        "avail mem": "available_gpu_memory",
        "Avail mem": "available_gpu_memory",
        "mem usage": "weight_memory",
    },
    "memory-pool-end": {"avail mem": "memory_after_pool"},
    "graph-end": {"mem usage": "graph_memory", "avail mem": "memory_after_graphs"},
    "swa-split": {
        "full_layer_tokens": "full_max_total_num_tokens",
        "swa_layer_tokens": "swa_max_total_num_tokens",
    },
    "mamba-pool": {
        "max_mamba_cache_size": "max_mamba_cache_size",
        "conv_state size": "conv_state_bytes",
        "ssm_state size": "ssm_state_bytes",
    },
    "capacity": {
        "max_total_num_tokens": "max_total_num_tokens",
        "max_total_num_token": "max_total_num_tokens",
        "chunked_prefill_size": "chunked_prefill_size",
        "max_prefill_tokens": "max_prefill_tokens",
        "max_running_requests": "max_running_requests",
        "context_len": "context_len",
        "available_gpu_mem": "memory_after_start",
        "available_cpu_mem": "memory_after_start",
    },
    "mlx": {
        "sys_available": "mlx_sys_available",
        "mlx_limit": "mlx_limit",
        "mlx_used": "mlx_used",
        "kv_budget": "rest_memory",
        "bytes_per_slot": "bytes_per_token",
        "pool_size": "max_total_num_tokens",
    },
}
"""Line family and field to the name of the number it states."""

UNITS = {
    "max_running_requests": "requests",
    "max_mamba_cache_size": "slots",
    "max_total_num_tokens": "tokens",
    "full_max_total_num_tokens": "tokens",
    "swa_max_total_num_tokens": "tokens",
    "pool_tokens": "tokens",
    "context_len": "tokens",
    "chunked_prefill_size": "tokens",
    "max_prefill_tokens": "tokens",
    "bytes_per_token": "bytes",
}
"""Units of the numbers the log prints bare."""

EVENTS = {
    "server-ready": "ready",
    "retract": "retraction",
    "not-enough-memory": "no_memory_for_pool",
    "mamba-too-small": "no_memory_for_pool",
    "memory-unbalanced": "memory_unbalanced",
    "graph-failed": "graph_capture_failed",
    "crash": "crash",
    "oom-tokens": "token_allocation_failed",
    "oom-req-slots": "request_slots_exhausted",
    "leak": "pool_leak",
    "input-too-long": "input_too_long",
    "max-tokens-clamped": "max_total_tokens_clamped",
    "max-running-reduced": "max_running_requests_reduced",
    "hicache-host-oom": "no_host_memory",
    "watchdog": "watchdog",
}
"""Line family to the kind of event it reports."""

_BEGINS = {"dist-init-begin", "weight-load-begin"}
_BATCHES = {"prefill-batch", "decode-batch"}


@dataclass(slots=True)
class _RankState:
    """How far the start-up of one rank has come: which model's lines come next."""

    weights_ended: int = 0
    pools_ended: int = 0
    pools: list[Record] = field(default_factory=list)
    capacity_seen: bool = False

    def role(self, family: str) -> str:
        """Target lines come before draft lines of the same family, in every release and on every rank."""
        if family in ("weight-load-begin", "weight-load-end"):
            return "draft" if self.weights_ended else "target"
        return "draft" if self.pools_ended else "target"


class _Assembler:
    def __init__(self, path: int) -> None:
        self.path = path
        self.starts: list[Start] = []
        self._open()

    def _open(self) -> None:
        self.start = Start()
        self.evidence = Evidence()
        self.ranks: dict[str, _RankState] = {}
        self.traceback = False

    def close(self) -> None:
        start = self.start
        for rank, state in self.ranks.items():
            if state.pools:
                self._pools(rank, state)
        if start.server_args or start.numbers or start.events or start.batches:
            self.evidence.arguments(start.server_args, start.server_args_whole)
            start.release = self.evidence.conclude()
            self.starts.append(start)

    def add(self, record: Record) -> None:
        family = record.family
        if not family:
            return
        if self._begins_another(record, family):
            self.close()
            self._open()
        self.evidence.line(record)
        rank = str(record.rank)
        state = self.ranks.setdefault(rank, _RankState())
        if family == "server-args-dump":
            self._arguments(record)
        elif family in _BATCHES:
            self.start.batches.append(record)
        elif family == "kv-alloc":
            state.pools.append(record)
        else:
            self._numbers(record, family, rank, state)
        if family in EVENTS:
            self.start.events.append(Event(EVENTS[family], record, self.path))

    def _begins_another(self, record: Record, family: str) -> bool:
        if family == "server-args-dump":
            return bool(self.start.server_args or self.start.numbers)
        state = self.ranks.get(str(record.rank))
        return family in _BEGINS and state is not None and state.capacity_seen

    def _arguments(self, record: Record) -> None:
        value = record.values.get("server_args")
        if value:
            start = self.start
            start.server_args, start.server_args_whole = parse_arguments(value.text)
            start.server_args_line = record.line.number

    def _numbers(self, record: Record, family: str, rank: str, state: _RankState) -> None:
        if family == "memory-pool-end" and state.pools:
            self._pools(rank, state)
        role = state.role(family) if family in ("weight-load-begin", "weight-load-end", "memory-pool-end") else None
        for name, number in NUMBERS.get(family, {}).items():
            value = record.values.get(name)
            if value is not None and value.number is not None:
                self._state(number, value.number, value.interval, rank, role, record)
        if family == "weight-load-end":
            state.weights_ended += 1
            dtype = record.values.get("dtype")
            if dtype and role == "target":
                self._state("dtype", dtype.text, None, rank, role, record)
            kind = record.values.get("type")
            if kind:
                self._state("architecture", kind.text, None, rank, role, record)
        elif family == "memory-pool-end":
            state.pools_ended += 1
        elif family == "capacity":
            state.capacity_seen = True
        elif family == "kv-dtype":
            dtype = record.values.get("Using KV cache dtype")
            if dtype:
                self._state("kv_cache_dtype", dtype.text, None, rank, None, record)

    def _pools(self, rank: str, state: _RankState) -> None:
        """Sums the pool lines of one model on one rank; two pools of different token counts are a full and a window pool."""
        role = state.role("kv-alloc")
        total: Interval | None = None
        tokens: list[int] = []
        for record in state.pools:
            size = _pool_bytes(record)
            if size is not None:
                total = size if total is None else total + size
            count = record.number("#tokens")
            if isinstance(count, int):
                tokens.append(count)
                self._state("pool_tokens", count, record.interval("#tokens"), rank, role, record)
            dtype = record.values.get("dtype")
            if dtype:
                self._state("kv_cache_dtype", dtype.text, None, rank, role, record)
        last = state.pools[-1]
        if total is not None:
            self._state("kv_pool_bytes", 0, total, rank, role, last)
        state.pools = []

    def _state(
        self, name: str, value: int | float | str, interval: Interval | None, rank: str, role: str | None, record: Record
    ) -> None:
        if interval is not None:
            interval = interval.with_unit(UNITS.get(name, interval.unit))
            value = _representative(interval)
        unit = interval.unit if interval else "text"
        self.start.numbers.append(Number(name, value, interval, unit, rank, role, record.line.number, self.path))


def _representative(interval: Interval) -> int | float:
    return plain((interval.low + interval.high) / 2)


def _pool_bytes(record: Record) -> Interval | None:
    whole = record.interval("KV size")
    if whole is not None:
        return whole
    keys, values = record.interval("K size"), record.interval("V size")
    return keys + values if keys is not None and values is not None else None


def assemble(records: Iterable[Record], path: int = 0) -> list[Start]:
    """The server starts in a stream of records, in order of their first line; `path` is the input's index."""
    assembler = _Assembler(path)
    for record in records:
        assembler.add(record)
    assembler.close()
    return assembler.starts
