"""What the scheduler lines show besides waiting: pools that stay full, prefix caches, probes, steps without a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.activity import Batch
from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import Hit
from kvdiag.checks.predicates.waiting import average, extremes

At = Mapping[str, float]


def held_by_running(facts: Facts, at: At) -> Iterator[Hit]:
    """High usage with requests running: load, not a leak."""
    found = [b for b in facts.activity.decode if b.usage is not None and b.usage.low >= at["usage"] and b.running and b.tokens]
    if not found or facts.activity.retractions or _idle_and_full(facts, at["usage"]):
        return
    if any(b.queued for b in found):
        return
    held = [b.tokens / b.running for b in found if b.tokens and b.running]
    values = {
        "usage": found[-1].usage,
        "running": extremes(found, "running"),
        "lines": len(found),
        "each": average(held),
        "tokens": facts.pool_tokens,
    }
    yield Hit(tuple(b.line for b in found[:4]), values)


def _idle_and_full(facts: Facts, usage: float) -> list[Batch]:
    """Lines with high usage, nothing running and nothing queued (a prefill line's own batch is small)."""
    found = []
    for batch in facts.activity.batches:
        if batch.usage is None or batch.usage.low < usage or batch.running or batch.queued or batch.queued is None:
            continue
        if batch.kind == "prefill" and (batch.cached or (batch.new_seq or 0) > 1):
            continue
        if batch.kind == "prefill" and not _own_is_small(batch, facts):
            continue
        found.append(batch)
    return found


def _own_is_small(batch: Batch, facts: Facts) -> bool:
    """Whether the batch's own tokens cannot be what fills the pool."""
    pool = facts.pool_tokens
    own = batch.new_tokens or 0
    if pool is not None:
        return own < pool.low / 2
    return own <= 1024


def another_pool(facts: Facts, at: At) -> Iterator[Hit]:
    """More tokens in use than the pool has, or more requests than may run: these lines are of another server."""
    pool = facts.pool_tokens
    if pool is None or not facts.tokens or facts.start.find("swa_max_total_num_tokens"):
        return
    found = [b for b in facts.activity.decode if facts.bounds.holds_too_much(b)]
    crowded = [b for b in facts.activity.decode if facts.bounds.runs_too_many(b)]
    if found or crowded:
        values = {
            "lines": len(found) or None,
            "crowded": len(crowded) or None,
            "all": len(facts.activity.decode),
            "held": max((b.tokens or 0 for b in found), default=None),
            "most": max((b.running or 0 for b in crowded), default=None),
            "tokens": pool,
            "cap": facts.bounds.most_running,
        }
        yield Hit(tuple(b.line for b in (found or crowded)[:4]), values)


def leak(facts: Facts, at: At) -> Iterator[Hit]:
    """The pool stays in use with nothing running and nothing queued."""
    found = _idle_and_full(facts, at["usage"])
    if found:
        last = found[-1]
        values = {
            "usage": last.usage,
            "new": last.new_tokens,
            "hierarchical": "" if facts.arg("enable_hierarchical_cache") else None,
        }
        yield Hit(tuple(b.line for b in found[:4]), values)


def dead_prefix_cache(facts: Facts, at: At) -> Iterator[Hit]:
    """Prompts that must repeat, or many long ones, and next to nothing found in the prefix cache."""
    if facts.arg("disable_radix_cache"):
        return
    prompts = [
        b
        for b in facts.activity.prefill
        if (b.new_seq or 0) > 0 and (b.new_tokens or 0) + (b.cached or 0) >= at["prompt"] * (b.new_seq or 1)
    ]
    if len(prompts) < at["lines"]:
        return
    new, cached = sum(b.new_tokens or 0 for b in prompts), sum(b.cached or 0 for b in prompts)
    if new < at["tokens"] or cached > at["rate"] * (cached + new):
        return
    values = {"rate": cached / (cached + new), "new": new, "cached": cached, "lines": len(prompts), "counts": facts.new_token}
    yield Hit(tuple(b.line for b in prompts[:4]), values)


def cache_off(facts: Facts, at: At) -> Iterator[Hit]:
    """The prefix cache is switched off while prompts are prefilled."""
    if facts.arg("disable_radix_cache") is not True:
        return
    new = sum(b.new_tokens or 0 for b in facts.activity.prefill)
    if len(facts.activity.prefill) >= at["lines"] and new >= at["tokens"]:
        values = {"new": new, "lines": len(facts.activity.prefill), "counts": facts.new_token}
        yield Hit(tuple(b.line for b in facts.activity.prefill[:2]), values)


def health_probes(facts: Facts, at: At) -> Iterator[Hit]:
    """One-token prefills at an even pace: probes, not users."""
    probes = [b for b in facts.activity.prefill if b.new_seq == 1 and b.new_tokens == 1 and not b.cached]
    if len(probes) < at["probes"] or len(probes) < at["share"] * len(facts.activity.prefill):
        return
    times = [b.second for b in probes if b.second is not None]
    every = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 and times[-1] > times[0] else None
    values = {"probes": len(probes), "all": len(facts.activity.prefill), "every": every}
    yield Hit(tuple(b.line for b in probes[:4]), values)


def without_graph(facts: Facts, at: At) -> Iterator[Hit]:
    """Decode steps that did not run as a captured graph although graphs are on."""
    if facts.inputs.on_shared_memory or facts.arg("disable_cuda_graph"):
        return
    decode = [b for b in facts.activity.decode if b.graph is not None]
    eager = [b for b in decode if b.graph is False and b.running]
    graphed = [b for b in decode if b.graph]
    if len(eager) < at["lines"] or len(eager) < at["share"] * len(decode) or not graphed:
        return
    least, most = min(b.running or 0 for b in eager), max(b.running or 0 for b in graphed)
    if least <= most:
        return
    yield Hit(tuple(b.line for b in eager[:4]), {"eager": len(eager), "all": len(decode), "least": least, "most": most})
