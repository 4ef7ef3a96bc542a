"""Sliding-window pools: their share of the memory, their ratio, and when they bind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.lines import Record
from kvdiag.quantity import Interval
from kvdiag.starts.progress import pool_bytes

At = Mapping[str, float]


def _sizes(facts: Facts) -> tuple[int, int] | None:
    """Tokens of the full and of the window pool."""
    full, window = facts.whole("full_max_total_num_tokens"), facts.whole("swa_max_total_num_tokens")
    if full is None or window is None:
        return None
    last = facts.start.find("full_max_total_num_tokens")[-1].value, facts.start.find("swa_max_total_num_tokens")[-1].value
    return (int(last[0]), int(last[1])) if isinstance(last[0], int) and isinstance(last[1], int) else (full, window)


def _two_pools(facts: Facts) -> tuple[Record, Record] | None:
    """The pool lines of the window and of the full pool on one rank, by their token counts or, where equal, by size."""
    sizes, pools = _sizes(facts), facts.start.pools
    if sizes is None:
        return None
    by_rank: dict[str, list[Record]] = {}
    for record in pools:
        by_rank.setdefault(str(record.rank), []).append(record)
    for found in by_rank.values():
        if len(found) < 2:
            continue
        first, second = found[0], found[1]
        counts = (first.number("#tokens"), second.number("#tokens"))
        if counts[0] == counts[1] or counts == (sizes[1], sizes[0]):
            return first, second
        if counts == sizes:
            return second, first
    return None


def window_takes_most(facts: Facts, at: At) -> Iterator[Hit]:
    """Most of the pool's bytes hold the KV of a short window."""
    sizes, pair = _sizes(facts), _two_pools(facts)
    if sizes is None or pair is None:
        return
    window_bytes, full_bytes = pool_bytes(pair[0]), pool_bytes(pair[1])
    if window_bytes is None or full_bytes is None or full_bytes.high <= 0 or window_bytes.low <= 0:
        return
    both = window_bytes + full_bytes
    share = window_bytes.low / both.high
    if share < at["share"]:
        return
    full, swa = sizes
    ratio = Fraction(swa, full) if full else Fraction(0)
    values: dict[str, Any] = {
        "window_bytes": window_bytes,
        "full_bytes": full_bytes,
        "share": window_bytes / both,
        "ratio": float(ratio),
        "full": full,
        "swa": swa,
        "window": _window(facts),
        "equal": "" if full == swa else None,
    }
    gain = None
    other = Fraction(str(at["ratio"]))
    if ratio > other and not facts.inputs.on_shared_memory:
        then = _with_ratio(window_bytes, full_bytes, full, swa, other)
        values |= {"other": float(other), "then": then, "factor": then / full}
        gain = {
            "change": {"swa_full_tokens_ratio": float(other)},
            "full_max_total_num_tokens": then.to_dict(),
            "full_max_total_num_tokens_now": full,
        }
    yield Hit((pair[0].line.number, pair[1].line.number), values, gain)


def _with_ratio(window_bytes: Interval, full_bytes: Interval, full: int, swa: int, ratio: Fraction) -> Interval:
    """Full tokens of the same bytes under another ratio: bytes / (full cell + ratio x window cell)."""
    cell = full_bytes / full + (window_bytes / swa) * ratio
    return (((window_bytes + full_bytes) / cell).with_unit("tokens")) // 1


def _window(facts: Facts) -> int | None:
    config = facts.inputs.config
    value = config.text.get("sliding_window") if config else None
    return value if isinstance(value, int) and value > 0 else None


def window_binds(facts: Facts, at: At) -> Iterator[Hit]:
    """The window pool is full while the full pool is not, and requests wait or are retracted."""
    tight = [
        b
        for b in facts.activity.batches
        if b.swa_usage is not None
        and b.usage is not None
        and b.swa_usage.low >= at["full"]
        and b.usage.high < at["idle"]
        and b.queued
    ]
    if tight:
        last = tight[-1]
        values = {"swa_usage": last.swa_usage, "usage": last.usage, "queued": last.queued, "count": len(tight)}
        yield Hit(tuple(b.line for b in tight[:4]), values)


def compressed_states_dominate(facts: Facts, at: At) -> Iterator[Hit]:
    """DeepSeek-V4: the window and its compression states are sized for most of the tokens."""
    calculation = next((e for e in facts.events("dsv4_pool") if e.record.number("bytes_per_full_token") is not None), None)
    full = calculation.record.number("full_token") if calculation else None
    swa, states = facts.whole("swa_max_total_num_tokens"), _states(facts)
    if calculation is None or not isinstance(full, int) or not full or swa is None:
        return
    ratio = swa / full
    if ratio < at["ratio"]:
        return
    values = {
        "cost": calculation.record.number("bytes_per_full_token"),
        "full": full,
        "swa": swa,
        "ratio": ratio,
        "states": states,
        "per_token": states / full if states else None,
    }
    yield Hit(event_lines([calculation]), values)


def _states(facts: Facts) -> int | None:
    """The slots of the widest compression state pool."""
    for event in facts.events("dsv4_pool"):
        for name in ("c128_state_pool_size", "c128_state"):
            found = event.record.number(name)
            if isinstance(found, int) and found > 0:
                return found
    return None
