"""Who waited for what: the pool, the cap, the reserve, prefill, transfer, or nobody for anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from kvdiag.checks.activity import Batch
from kvdiag.checks.binding import bound_by, busy, nothing_waited
from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import Hit

At = Mapping[str, float]


def _bound(facts: Facts, name: str) -> list[Batch]:
    lines = facts.activity.decode or facts.activity.prefill
    return [batch for batch in lines if bound_by(batch, facts.bounds) == name]


def _share(facts: Facts, found: list[Batch]) -> float:
    lines = facts.activity.decode or facts.activity.prefill
    return len(found) / len(lines) if lines else 0.0


def _sample(facts: Facts, found: list[Batch]) -> dict[str, Any]:
    """How many of how many lines a statement rests on."""
    lines = facts.activity.decode or facts.activity.prefill
    kind = "decode" if facts.activity.decode else "prefill"
    return {"lines": len(found), "all": len(lines), "share": _share(facts, found), "kind": kind}


def extremes(found: list[Batch], name: str) -> tuple[int, int]:
    """The least and the most of a number over these lines."""
    values = [getattr(b, name) or 0 for b in found]
    return min(values), max(values)


def _usages(found: list[Batch]) -> tuple[Fraction, Fraction] | None:
    """The lowest and the highest usage that these lines print."""
    printed = [(b.usage.low + b.usage.high) / 2 if b.usage.low else b.usage.low for b in found if b.usage is not None]
    return (min(printed), max(printed)) if printed else None


def average(values: list[float]) -> float | None:
    """The mean, None of nothing."""
    return sum(values) / len(values) if values else None


def pool_bound(facts: Facts, at: At) -> Iterator[Hit]:
    """Requests waited while the pool was nearly full."""
    found = _bound(facts, "kv_pool")
    if not found or _share(facts, found) < at["share"] or len(found) < at["lines"]:
        return
    held = [b.tokens / b.running for b in found if b.tokens and b.running]
    pool, each = facts.pool_tokens, average(held)
    moving = max((b.transferring or 0 for b in found if b.kind == "prefill"), default=0)
    values: dict[str, Any] = {
        **_sample(facts, found),
        "running": extremes(found, "running"),
        "queued": max(b.queued or 0 for b in found),
        "usage": _usages(found),
        "each": each,
        "tokens": pool,
        "holds": int(float(pool.low) / each) if pool and each else None,
        "moving": moving or None,
    }
    yield Hit(tuple(b.line for b in found[:6]), values)


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
        "running": extremes(found, "running"),
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
    chunk = facts.whole("chunked_prefill_size")
    values: dict[str, Any] = {
        "queued": max(b.queued or 0 for b in waits),
        "running": max((b.running for b in waits if b.running is not None), default=None),
        "new": max(new),
        "counts": facts.new_token,
        "pending": max(pending) if pending else None,
        "batches": max(pending) // max(new) if pending else None,
        "chunk": chunk,
        "small": "" if max(new) < (chunk / 2 if chunk else at["small"]) else None,
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
    most = -(-facts.context // chunk) if chunk and chunk > 0 and facts.context else None
    if chunk and len(best) >= at["chunks"] and (most is None or len(best) <= most):
        values = {"chunks": len(best), "chunk": chunk, "tokens": len(best) * chunk, "queued": max(b.queued or 0 for b in best)}
        yield Hit(tuple(b.line for b in best[:4]), values)


def arrivals_bound(facts: Facts, at: At) -> Iterator[Hit]:
    """Nothing ever waited: the server could have held more."""
    decode = facts.activity.decode
    if len(decode) < at["lines"] or not nothing_waited(facts.activity, facts.cap):
        return
    usages = [b.usage.high for b in decode if b.usage is not None]
    if not usages or max(usages) >= at["usage"]:
        return
    values = {
        "lines": len(decode),
        "running": max(b.running or 0 for b in decode),
        "usage": float(max(usages)),
        "cap": facts.cap,
        "fewer": "" if facts.inputs.on_shared_memory else ", or use fewer or smaller GPUs",
    }
    yield Hit((decode[0].line, decode[-1].line), values)


def transfer_bound(facts: Facts, at: At) -> Iterator[Hit]:
    """Disaggregation: requests wait for KV in transfer, not for memory or compute."""
    found = [
        b
        for b in facts.activity.batches
        if (b.transferring or 0) > busy(b) and not b.queued and b.usage is not None and b.usage.high < at["usage"]
    ]
    if len(found) >= at["lines"] and len(found) >= at["share"] * len(facts.activity.batches):
        yield Hit(tuple(b.line for b in found[:4]), {"waiting": max(b.transferring or 0 for b in found), "lines": len(found)})
