"""What decides a start's token capacity, read from its snapshot: the terms of one formula, as far as they are stated."""

from __future__ import annotations

from fractions import Fraction

from kvdiag.frozen import frozen
from kvdiag.gate.model import Snapshot, Stated
from kvdiag.quantity import Interval
from kvdiag.quantity.dtype import canonical_dtype

NOTHING = Interval.of(0, unit="bytes")


@frozen
class Budget:
    """The terms of ``(available - total x (1 - fraction) - state) // cell``, capped and floored to a page.

    Memories are bytes of the worst rank. `cell` is exact where sizing agrees with the log, else pool bytes over rows.
    `pool_tokens` are those of the pool's own line, which are the capacity in every log that does not contradict itself.
    """

    tokens: int
    ranks: tuple[str, ...]
    available: Interval | None
    total: Interval | None
    fraction: Fraction | None
    state: Interval
    cell: Interval | None
    pool: Interval | None
    dtype: str
    cap: int | None
    page: int
    line: int
    memory_lines: tuple[int, ...]
    pool_tokens: int | None = None
    pool_line: int = 0

    @property
    def rest(self) -> Interval | None:
        """``rest_memory``: what sizing could give to the pool."""
        if self.available is None or self.total is None or self.fraction is None:
            return None
        return self.available - self.total * (1 - self.fraction) - self.state

    @property
    def taken(self) -> Interval | None:
        """What loading took: the difference of the two readings of free memory."""
        return self.total - self.available if self.total is not None and self.available is not None else None

    @property
    def is_capped(self) -> bool:
        """Whether --max-total-tokens, not memory, sets the capacity."""
        return self.cap is not None and self.tokens >= self.cap // self.page * self.page

    @property
    def states_two(self) -> bool:
        """Whether the pool's own line and the capacity state other tokens."""
        return self.pool_tokens is not None and self.pool_tokens != self.tokens

    def missing(self) -> list[str]:
        """What the log does not state of the terms."""
        lacking = []
        if self.total is None:
            lacking.append("free memory before loading ('Load weight begin')")
        if self.available is None:
            lacking.append("free memory after loading ('Load weight end')")
        if self.fraction is None:
            lacking.append("mem_fraction_static (the server_args line)")
        if self.cell is None:
            lacking.append("the size of the pool ('KV Cache is allocated')")
        return lacking


def budget_of(snapshot: Snapshot) -> Budget | None:
    """The budget of a snapshot, None where it states no capacity."""
    capacity = capacity_of(snapshot)
    if capacity is None:
        return None
    pool = _pool(snapshot)
    own = _pool_tokens(snapshot, capacity.ranks)
    total, total_lines = _least(snapshot.find("pre_model_load_memory", "target"))
    available, lines = _least(_available(snapshot, pool))
    page = snapshot.arguments.get("page_size")
    page = page if isinstance(page, int) and page > 0 else 1
    fraction = snapshot.arguments.get("mem_fraction_static")
    cap = snapshot.arguments.get("max_total_tokens")
    return Budget(
        tokens=int(_interval(capacity).low),
        ranks=capacity.ranks,
        available=available,
        total=total,
        fraction=Fraction(str(fraction)) if isinstance(fraction, int | float) and not isinstance(fraction, bool) else None,
        state=_state(snapshot),
        cell=cell_of(snapshot, page),
        pool=_interval(pool) if pool else None,
        dtype=_dtype(snapshot),
        cap=cap if isinstance(cap, int) else None,
        page=page,
        line=capacity.line,
        memory_lines=tuple(sorted({*total_lines, *lines})),
        pool_tokens=int(_interval(own).low) if own else None,
        pool_line=own.line if own else 0,
    )


def capacity_of(snapshot: Snapshot) -> Stated | None:
    """The smallest capacity any rank states: max_total_num_tokens, else the tokens of the target's pool."""
    for name, role in (("max_total_num_tokens", None), ("pool_tokens", "target")):
        numbers = [n for n in snapshot.find(name, role) if n.name == name and isinstance(n.value, Interval)]
        if numbers:
            return min(numbers, key=lambda n: _interval(n).low)
    return None


def cell_of(snapshot: Snapshot, page: int) -> Interval | None:
    """Bytes per token: as recomputed where that agrees with the log, as printed, or as the pool's own bytes and tokens imply.

    The capacity that a later line states is not taken for the pool's tokens: where the two differ, no cell follows.
    """
    check = snapshot.check("bytes_per_token")
    if check is not None and check.verdict == "agree" and check.recomputed is not None:
        return check.recomputed
    printed = snapshot.find("bytes_per_token", "target")
    if printed and isinstance(printed[0].value, Interval):
        return printed[0].value
    pool = _pool(snapshot)
    tokens = _pool_tokens(snapshot, pool.ranks) if pool is not None else None
    if pool is None or tokens is None or _interval(tokens).low <= 0:
        return None
    return (_interval(pool) / (_interval(tokens) + Interval.of(page, unit="tokens"))).with_unit("bytes")


def _interval(number: Stated) -> Interval:
    assert isinstance(number.value, Interval)
    return number.value


def _pool(snapshot: Snapshot) -> Stated | None:
    pools = [n for n in snapshot.find("kv_pool_bytes", "target") if isinstance(n.value, Interval)]
    return pools[0] if pools else None


def _pool_tokens(snapshot: Snapshot, ranks: tuple[str, ...]) -> Stated | None:
    """The tokens of the target's pool on these ranks, else on any; of a full and a window pool the full one's."""
    stated = [n for n in snapshot.find("pool_tokens", "target") if isinstance(n.value, Interval)]
    own = [n for n in stated if set(ranks) & set(n.ranks)] or stated
    largest = {rank: max((n for n in own if rank in n.ranks), key=lambda n: _interval(n).low) for n in own for rank in n.ranks}
    return min(largest.values(), key=lambda n: _interval(n).low, default=None)


def _available(snapshot: Snapshot, pool: Stated | None) -> list[Stated]:
    """The readings sizing could see: after the last weights that were loaded before the pool was made."""
    readings = [n for n in snapshot.find("available_gpu_memory") if isinstance(n.value, Interval)]
    before = [n for n in readings if n.line < pool.line] if pool is not None else []
    draft = [n for n in before if n.role == "draft"]
    return draft or [n for n in readings if n.role != "draft"]


def _least(numbers: list[Stated]) -> tuple[Interval | None, list[int]]:
    least: Interval | None = None
    for number in numbers:
        if isinstance(number.value, Interval):
            least = number.value if least is None else least.minimum(number.value)
    return least, [number.line for number in numbers]


def _state(snapshot: Snapshot) -> Interval:
    pools = [n.value for n in snapshot.find("state_pool_bytes") if isinstance(n.value, Interval)]
    return max(pools, key=lambda value: value.high, default=NOTHING)


def _dtype(snapshot: Snapshot) -> str:
    stated = snapshot.find("kv_cache_dtype", "target")
    if stated and isinstance(stated[0].value, str):
        return canonical_dtype(stated[0].value)
    asked = snapshot.arguments.get("kv_cache_dtype")
    if isinstance(asked, str) and asked != "auto":
        return canonical_dtype(asked)
    return canonical_dtype(snapshot.model.get("dtype", "auto"))
