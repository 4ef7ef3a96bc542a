"""Numbers of the start-up that need a word: disagreements, dtypes, formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.checks.model import Check
from kvdiag.checks.verdict import repeated
from kvdiag.quantity.ends import apart

At = Mapping[str, float]


def disagreement(facts: Facts, at: At) -> Iterator[Hit]:
    """A number of the log and its recomputed value cannot both be true."""
    for check in _roots(facts.checks):
        assert check.observed is not None
        assert check.recomputed is not None
        log, recomputed = apart(check.observed, check.recomputed)
        values = {
            "name": check.name,
            "has": "implies" if check.implied else "has",
            "log": log,
            "recomputed": recomputed,
            "formula": check.formula,
            "rank": f" of {check.rank}" if check.rank else "",
        }
        yield Hit(check.lines, values)


def _roots(checks: tuple[Check, ...]) -> list[Check]:
    """The disagreements, less those that only repeat another: each number once, and what the capacity implies not again."""
    found: dict[object, Check] = {}
    for check in checks:
        if check.verdict == "disagree":
            found.setdefault((check.name, check.role, check.observed), check)
    names = {check.name for check in found.values()}
    return [check for check in found.values() if not repeated(check.name, names)]


_SHARED_OUT = ("enable_hisparse", "enable_unified_memory", "enable_kv_cache_sharding")
"""Arguments by which a rank's pool is not the capacity that the scheduler states."""


def two_capacities(facts: Facts, at: At) -> Iterator[Hit]:
    """The pool of a rank and the capacity that the same rank states are of other sizes.

    A smaller pool may be that of window layers, unless the model is known to have none.
    """
    start, arguments = facts.start, facts.inputs.arguments
    shared = arguments.dcp_size > 1 or arguments.attn_cp_size > 1 or any(facts.arg(name) for name in _SHARED_OUT)
    if shared or start.address_space or start.find("swa_max_total_num_tokens") or start.find("full_max_total_num_tokens"):
        return
    geometry = facts.inputs.geometry
    is_one = geometry is not None and geometry.windows is None and geometry.compressed is None
    for capacity in start.find("max_total_num_tokens", role="target"):
        pools = start.find("pool_tokens", rank=capacity.rank, role="target")
        sizes = {pool.value for pool in pools if isinstance(pool.value, int)}
        if (
            len(sizes) == 1
            and isinstance(capacity.value, int)
            and (max(sizes) > capacity.value or (is_one and sizes != {capacity.value}))
        ):
            rank = f" of {capacity.rank}" if capacity.rank else ""
            yield Hit((pools[0].line, capacity.line), {"rank": rank, "pool": pools[0].value, "capacity": capacity.value})
            return


def two_releases(facts: Facts, at: At) -> Iterator[Hit]:
    """Lines that no single release prints: a patched tree, or logs of two servers in one."""
    release = facts.start.release
    if release is not None and release.contradiction:
        yield Hit((), {"contradiction": release.contradiction})


def scale_factors(facts: Facts, at: At) -> Iterator[Hit]:
    """An FP8 cache without scaling factors."""
    events = [e for e in facts.events("kv_dtype") if "no scaling factors" in e.record.message]
    if events:
        yield Hit(event_lines(events), {"count": len(events)})


def dtype_fell_back(facts: Facts, at: At) -> Iterator[Hit]:
    """The asked KV dtype was not available and the model's dtype is used."""
    events = [e for e in facts.events("kv_dtype") if "falls back to 'auto'" in e.record.message]
    if events:
        yield Hit(event_lines(events), {"asked": facts.arg("kv_cache_dtype")})


def mixed_cache(facts: Facts, at: At) -> Iterator[Hit]:
    """K and V take different bytes under one dtype, and the model's head sizes do not explain it."""
    for record in facts.start.pools:
        keys, values = record.interval("K size"), record.interval("V size")
        tokens = record.number("#tokens")
        if keys is None or values is None or values.low <= 0 or not isinstance(tokens, int):
            continue
        ratio = keys / values
        if ratio.low <= 1 <= ratio.high or ratio.high - ratio.low > at["sharp"]:
            continue
        geometry = facts.inputs.geometry
        if geometry is not None and geometry.v_head_dim and ratio.low <= geometry.head_dim / geometry.v_head_dim <= ratio.high:
            continue
        if geometry is not None and geometry.v_head_dim and geometry.head_dim != geometry.v_head_dim:
            continue
        if geometry is None and not _is_quantised(record.values["dtype"].text if "dtype" in record.values else ""):
            continue
        dtype = record.values["dtype"].text if "dtype" in record.values else None
        yield Hit(
            (record.line.number,), {"keys": keys, "values": values, "ratio": ratio, "dtype": dtype, "share": 1 / ratio.high}
        )
        return


def _is_quantised(dtype: str) -> bool:
    return "float4" in dtype or "float8" in dtype or "fp8" in dtype or "int" in dtype


def replicated_latent(facts: Facts, at: At) -> Iterator[Hit]:
    """A latent cache is kept whole on every tensor-parallel rank."""
    geometry, ranks = facts.inputs.geometry, facts.inputs.arguments.attention_tp_size
    if (
        geometry is None
        or geometry.attention not in ("mla", "dsa")
        or not facts.start.server_args
        or ranks < at["ranks"]
        or not facts.tokens
    ):
        return
    pool = facts.pool_bytes
    yield Hit(
        facts.lines(pool),
        {"ranks": ranks, "tokens": facts.tokens, "pool": pool.interval if pool else None, "dp": facts.tokens * ranks},
    )


def default_fraction(facts: Facts, at: At) -> Iterator[Hit]:
    """The fraction in force is not the one that was asked for."""
    events = [e for e in facts.events("fraction_changed") if e.record.number("mem_fraction_static") is not None]
    if events:
        before, after = (events[-1].record.number(name) for name in ("mem_fraction_static", "mem_fraction_static after"))
        yield Hit(event_lines(events), {"new": before if after is None else after, "old": before if after is not None else None})
