"""Drafts: what they cost in memory and whether their tokens are accepted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import Hit

At = Mapping[str, float]


def low_acceptance(facts: Facts, at: At) -> Iterator[Hit]:
    """So few drafted tokens are accepted that verifying them costs more than it saves."""
    lines = [b for b in facts.activity.decode if b.accept_len is not None and b.running]
    if len(lines) < at["lines"]:
        return
    mean = sum(b.accept_len or 0 for b in lines) / len(lines)
    if mean >= at["accepted"]:
        return
    drafted = facts.arg("speculative_num_draft_tokens")
    yield Hit(
        tuple(b.line for b in lines[:3]),
        {"mean": mean, "lines": len(lines), "drafted": drafted, "steps": facts.arg("speculative_num_steps")},
    )


def draft_pool(facts: Facts, at: At) -> Iterator[Hit]:
    """The draft model's pool, and whose memory it is."""
    pool = next((n for n in facts.start.find("kv_pool_bytes") if n.role == "draft" and n.interval is not None), None)
    target = facts.pool_bytes
    if pool is None or pool.interval is None or target is None or target.interval is None:
        return
    tokens = next((n for n in facts.start.find("pool_tokens") if n.role == "draft" and n.rank == pool.rank), None)
    rows = tokens.value if tokens and isinstance(tokens.value, int) and tokens.value > 0 else None
    both = pool.interval + target.interval
    if both.low <= 0:
        return
    inside = facts.since("0.5.14")
    weights = next((n for n in facts.start.find("weight_memory") if n.role == "draft"), None)
    values = {
        "draft": pool.interval,
        "each": (pool.interval / rows).with_unit("bytes") if rows else None,
        "share": pool.interval / both,
        "inside": "" if inside else None,
        "outside": "" if inside is False else None,
        "unknown": "" if inside is None else None,
        "weights": weights.interval if weights else None,
    }
    yield Hit(facts.lines(target, pool), values, stake=pool.interval.low)
