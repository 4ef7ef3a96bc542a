"""What the scheduler lines show: who waited for what, retractions, caches that help and caches that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from kvdiag.checks.activity import Batch, Retraction
from kvdiag.checks.binding import bound_by, nothing_waited
from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit

At = Mapping[str, float]
ROOM = Fraction(9, 10)
"""The share of the pool to plan with: requests that run still grow."""


def _bound(facts: Facts, name: str) -> list[Batch]:
    lines = facts.activity.decode or facts.activity.prefill
    return [batch for batch in lines if bound_by(batch, facts.cap) == name]


def _share(facts: Facts, found: list[Batch]) -> float:
    lines = facts.activity.decode or facts.activity.prefill
    return len(found) / len(lines) if lines else 0.0


def _sample(facts: Facts, found: list[Batch]) -> dict[str, Any]:
    """How many of how many lines a statement rests on."""
    lines = facts.activity.decode or facts.activity.prefill
    return {"lines": len(found), "all": len(lines), "share": _share(facts, found)}


def _range(found: list[Batch], name: str) -> tuple[int, int]:
    """The least and the most of a number over these lines."""
    values = [getattr(b, name) or 0 for b in found]
    return min(values), max(values)


def _usages(found: list[Batch]) -> tuple[Fraction, Fraction] | None:
    """The lowest and the highest usage that these lines print."""
    printed = [(b.usage.low + b.usage.high) / 2 if b.usage.low else b.usage.low for b in found if b.usage is not None]
    return (min(printed), max(printed)) if printed else None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def retractions(facts: Facts, at: At) -> Iterator[Hit]:
    """Running requests were sent back to the queue because the pool was full."""
    found = facts.activity.retractions
    if not found:
        return
    gained = [r.gained for r in found if r.gained is not None]
    seconds, moment = _span(found), _just_before(facts, found[0])
    values: dict[str, Any] = {
        "events": len(found),
        "requests": sum(r.requests for r in found),
        "seconds": seconds if seconds else None,
        "gained": (min(gained), max(gained)) if gained else None,
        "tokens": facts.pool_tokens,
        "before": found[0].ratio_before,
        "after": found[0].ratio_after,
        "s": "s" if len(found) > 1 else "",
        "several": "" if len(found) > 1 else None,
        "one": "" if len(found) == 1 else None,
    }
    if moment is not None:
        values |= moment
    yield Hit(tuple(r.line for r in found[:8]), values)


def _just_before(facts: Facts, retraction: Retraction) -> dict[str, Any] | None:
    """The last decode line before a retraction (the first one after, where there is none): all its figures are of one moment.

    And, from the line whose requests were the largest on average, how many of those would fit with room to spare.
    """
    told = [b for b in facts.activity.decode if b.tokens and b.running]
    if not told:
        return None
    moment = next((b for b in reversed(told) if b.line < retraction.line), told[0])
    assert moment.tokens is not None
    assert moment.running is not None
    largest = max(told, key=lambda b: (b.tokens or 0) / (b.running or 1))
    most = (largest.tokens or 0) / (largest.running or 1)
    pool = facts.pool_tokens
    fits = int(pool.low / Fraction(most) * ROOM) if pool is not None else 0
    return {
        "line": moment.line,
        "earlier": "" if moment.line < retraction.line else None,
        "later": "" if moment.line > retraction.line else None,
        "running": moment.running,
        "held": moment.tokens,
        "each": moment.tokens / moment.running,
        "largest": most,
        "largest_line": largest.line,
        "fits": fits if 0 < fits < moment.running else None,
    }


def _span(found: list[Retraction]) -> float | None:
    times = [r.second for r in found if r.second is not None]
    return max(times) - min(times) if len(times) > 1 else None


def saw_tooth(facts: Facts, at: At) -> Iterator[Hit]:
    """new_token_ratio jumps at every retraction and decays until the next one."""
    ratios = [
        (r.ratio_before, r.ratio_after)
        for r in facts.activity.retractions
        if r.ratio_before is not None and r.ratio_after is not None
    ]
    jumps = [after - before for before, after in ratios if after > before]
    fell = [earlier[1] - later[0] for earlier, later in pairwise(ratios) if earlier[1] > later[0]]
    if len(jumps) < at["jumps"] or len(fell) < at["jumps"] - 1:
        return
    lows, highs = [before for before, _ in ratios], [after for _, after in ratios]
    values = {"jumps": len(jumps), "events": len(ratios), "low": min(lows), "high": max(highs)}
    yield Hit(tuple(r.line for r in facts.activity.retractions[:8]), values)


def retraction_failed(facts: Facts, at: At) -> Iterator[Hit]:
    """One request alone did not fit."""
    events = facts.events("retraction_failed")
    if events:
        yield Hit(event_lines(events), {"count": len(events), "tokens": facts.pool_tokens})


def pool_bound(facts: Facts, at: At) -> Iterator[Hit]:
    """Requests waited while the pool was nearly full."""
    found = _bound(facts, "kv_pool")
    if not found or _share(facts, found) < at["share"] or len(found) < at["lines"]:
        return
    held = [b.tokens / b.running for b in found if b.tokens and b.running]
    pool, each = facts.pool_tokens, _mean(held)
    values: dict[str, Any] = {
        **_sample(facts, found),
        "running": _range(found, "running"),
        "queued": max(b.queued or 0 for b in found),
        "usage": _usages(found),
        "each": each,
        "tokens": pool,
        "holds": int(float(pool.low) / each) if pool and each else None,
    }
    yield Hit(tuple(b.line for b in found[:6]), values)


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
        "running": _range(found, "running"),
        "lines": len(found),
        "each": _mean(held),
        "tokens": facts.pool_tokens,
    }
    yield Hit(tuple(b.line for b in found[:4]), values)


def cap_bound(facts: Facts, at: At) -> Iterator[Hit]:
    """Requests waited at the request cap with room in the pool."""
    found = [b for b in _bound(facts, "max_running_requests") if b.usage is not None and b.usage.high < at["usage"]]
    if not found or _share(facts, found) < at["share"]:
        return
    usage = max(found, key=lambda b: b.usage.high if b.usage else 0).usage
    held = [b.tokens / b.running for b in found if b.tokens and b.running]
    pool = facts.pool_tokens
    values: dict[str, Any] = {
        "cap": facts.cap,
        "usage": usage,
        "queued": max(b.queued or 0 for b in found),
        **_sample(facts, found),
        "each": max(held) if held else None,
        "holds": int(pool.low / Fraction(max(held))) if pool and held else None,
        "states": facts.whole("max_mamba_cache_size"),
    }
    yield Hit(tuple(b.line for b in found[:6]), values)


def many_at_low_usage(facts: Facts, at: At) -> Iterator[Hit]:
    """Many requests run at low usage, and the log tells neither the queue nor the cap: KV is not what limits."""
    if facts.cap is not None or any(b.queued is not None for b in facts.activity.batches):
        return
    found = [
        b
        for b in facts.activity.batches
        if b.running and b.running >= at["running"] and b.usage is not None and b.usage.high < at["usage"]
    ]
    if found:
        most = max(found, key=lambda b: b.running or 0)
        yield Hit((most.line,), {"running": most.running, "usage": most.usage})


def conservative(facts: Facts, at: At) -> Iterator[Hit]:
    """Requests waited with room in the pool and below the cap: the admission reserve held them back."""
    found = [
        b
        for b in _bound(facts, "admission_reserve")
        if b.usage is not None and b.usage.high < at["usage"] and (b.running or 0) > 0
    ]
    if len(found) < at["lines"] or _share(facts, found) < at["share"] or facts.activity.retractions:
        return
    if _is_prefill_busy(facts) or facts.cap is None or _no_room_for_another(facts, found) is not None:
        return
    told = facts.arg("schedule_conservativeness")
    low = isinstance(told, (int, float)) and told < 1
    values = {
        **_sample(facts, found),
        "queued": max(b.queued or 0 for b in found),
        "cap": facts.cap,
        "running": max(b.running or 0 for b in found),
        "usage": _usages(found),
        "now": told if told is not None and not low else None,
        "low": told if low else None,
    }
    yield Hit(tuple(b.line for b in found[:6]), values)


def reserve_was_used(facts: Facts, at: At) -> Iterator[Hit]:
    """Requests waited with room in the pool that the running ones went on to fill: the reserve was needed."""
    found = [b for b in _bound(facts, "admission_reserve") if b.usage is not None and (b.running or 0) > 0]
    if len(found) < at["lines"] or _share(facts, found) < at["share"] or facts.activity.retractions:
        return
    fullest = _no_room_for_another(facts, found)
    if fullest is None or _is_prefill_busy(facts):
        return
    values = {
        **_sample(facts, found),
        "queued": max(b.queued or 0 for b in found),
        "running": fullest.running,
        "held": fullest.tokens,
        "each": (fullest.tokens or 0) / (fullest.running or 1),
        "line": fullest.line,
        "tokens": facts.pool_tokens,
        "usage": _usages(found),
    }
    yield Hit((fullest.line, *(b.line for b in found[:5])), values)


def _no_room_for_another(facts: Facts, found: list[Batch]) -> Batch | None:
    """The fullest of these lines, where one more request as large as its requests on average would not fit the pool."""
    told = [b for b in found if b.tokens and b.running]
    pool = facts.pool_tokens
    if not told or pool is None:
        return None
    fullest = max(told, key=lambda b: b.tokens or 0)
    assert fullest.tokens is not None
    assert fullest.running is not None
    return fullest if pool.high - fullest.tokens < Fraction(fullest.tokens, fullest.running) else None


def _is_prefill_busy(facts: Facts) -> bool:
    """Whether prefill lines outnumber decode lines while work waits: then prompts, not the reserve, are the limit."""
    waiting = [b for b in facts.activity.prefill if b.queued]
    return len(waiting) > len([b for b in facts.activity.decode if b.queued])


def prefill_bound(facts: Facts, at: At) -> Iterator[Hit]:
    """A long queue of prompts is worked off in small prefill batches between decodes."""
    found = [b for b in facts.activity.prefill if (b.queued or 0) >= at["queued"] and b.new_tokens]
    if len(found) < at["lines"] or facts.activity.retractions:
        return
    waits = [b for b in found if b.usage is None or b.usage.high < at["usage"]]
    if len(waits) < at["lines"]:
        return
    new, pending = [b.new_tokens or 0 for b in waits], [b.pending for b in waits if b.pending]
    if pending and max(pending) < max(new) * at["behind"]:
        return
    values: dict[str, Any] = {
        "queued": max(b.queued or 0 for b in waits),
        "running": max((b.running or 0 for b in waits), default=None),
        "new": max(new),
        "pending": max(pending) if pending else None,
        "batches": max(pending) // max(new) if pending else None,
        "chunk": facts.whole("chunked_prefill_size"),
    }
    if not pending and facts.cap is not None and (values["running"] or 0) >= facts.cap:
        return
    yield Hit(tuple(b.line for b in waits[:6]), values)


def one_long_prompt(facts: Facts, at: At) -> Iterator[Hit]:
    """A single prompt occupied prefill for many chunks in a row while others waited."""
    chunk = facts.whole("chunked_prefill_size")
    if facts.activity.every > 1:
        return
    run: list[Batch] = []
    best: list[Batch] = []
    for batch in facts.activity.prefill:
        full = batch.new_seq == 1 and batch.queued and batch.new_tokens and chunk and chunk > 0 and batch.new_tokens >= chunk
        run = [*run, batch] if full else []
        best = run if len(run) > len(best) else best
    if chunk and len(best) >= at["chunks"]:
        values = {"chunks": len(best), "chunk": chunk, "tokens": len(best) * chunk, "queued": max(b.queued or 0 for b in best)}
        yield Hit(tuple(b.line for b in best[:4]), values)


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
    yield Hit(
        tuple(b.line for b in prompts[:4]), {"rate": cached / (cached + new), "new": new, "cached": cached, "lines": len(prompts)}
    )


def cache_off(facts: Facts, at: At) -> Iterator[Hit]:
    """The prefix cache is switched off while prompts are prefilled."""
    if facts.arg("disable_radix_cache") is not True:
        return
    new = sum(b.new_tokens or 0 for b in facts.activity.prefill)
    if len(facts.activity.prefill) >= at["lines"] and new >= at["tokens"]:
        yield Hit(tuple(b.line for b in facts.activity.prefill[:2]), {"new": new, "lines": len(facts.activity.prefill)})


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


def arrivals_bound(facts: Facts, at: At) -> Iterator[Hit]:
    """Nothing ever waited: the server could have held more."""
    decode = facts.activity.decode
    if len(decode) < at["lines"] or not nothing_waited(facts.activity):
        return
    usages = [b.usage.high for b in decode if b.usage is not None]
    if not usages or max(usages) >= at["usage"]:
        return
    values = {"lines": len(decode), "running": max(b.running or 0 for b in decode), "usage": float(max(usages)), "cap": facts.cap}
    yield Hit((decode[0].line, decode[-1].line), values)


def slots_ran_out(facts: Facts, at: At) -> Iterator[Hit]:
    """The table of running requests had no row left."""
    events = facts.events("request_slots_exhausted")
    if events:
        record = events[0].record
        yield Hit(event_lines(events), {"free": record.number("available_size"), "asked": record.number("num_reqs")})


def allocation_failed(facts: Facts, at: At) -> Iterator[Hit]:
    """The allocator had no tokens although the scheduler had counted on them."""
    events = facts.events("token_allocation_failed")
    if events:
        record = events[0].record
        asked = record.number("Try to allocate")
        free = record.number("Available tokens") or record.number("Avaliable tokens")
        yield Hit(event_lines(events, 3), {"asked": asked, "free": free})


def transfer_bound(facts: Facts, at: At) -> Iterator[Hit]:
    """Disaggregation: requests wait for KV in transfer, not for memory or compute."""
    found = [
        b
        for b in facts.activity.batches
        if (b.transferring or 0) > (b.running or 0) and not b.queued and b.usage is not None and b.usage.high < at["usage"]
    ]
    if len(found) >= at["lines"] and len(found) >= at["share"] * len(facts.activity.batches):
        yield Hit(tuple(b.line for b in found[:4]), {"waiting": max(b.transferring or 0 for b in found), "lines": len(found)})
