"""State slots of recurrent and linear-attention layers: their share, and when they bind instead of KV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.checks.states import requests_of_states, slots_of_a_request
from kvdiag.quantity import Interval

At = Mapping[str, float]

_NO_STATES = r"max_mamba_cache_size=([0-9]{1,9}), mamba_ratio=([0-9]{1,9}), resulting max_num_reqs=([0-9]{1,9})"


def _state_bytes(facts: Facts) -> Interval | None:
    found = facts.number("state_pool_bytes")
    return found.interval if found else None


def _verify_bytes(facts: Facts) -> Interval | None:
    """States kept while drafts are verified, for every request that may run: part of the pool's bytes, but no slots."""
    return _together(facts, "intermediate_ssm_state_bytes", "intermediate_conv_window_bytes")


def _slot_bytes(facts: Facts) -> Interval | None:
    return _together(facts, "conv_state_bytes", "ssm_state_bytes")


def _together(facts: Facts, *names: str) -> Interval | None:
    found = [number.interval for name in names if (number := facts.number(name)) is not None and number.interval is not None]
    return sum(found[1:], found[0]) if len(found) == len(names) else None


def slots_bound(facts: Facts, at: At) -> Iterator[Hit]:
    """State slots allow fewer requests than the KV pool would hold."""
    allowed, tokens = requests_of_states(facts.inputs), facts.tokens
    if allowed is None or not tokens:
        return
    (slots, requests), (least, most) = allowed, slots_of_a_request(facts.inputs)
    cap = facts.limits.max_running_requests
    if requests.low >= at["default_cap"]:
        return
    if cap is not None:
        needs = [per for per in range(least, most + 1) if slots // per == cap]
        if not needs:
            return
        least, most = min(needs), max(needs)
    each = Interval.of(tokens, unit="tokens") / (cap or requests)
    states = _slot_bytes(facts)
    values: dict[str, Any] = {
        "slots": slots,
        "requests": requests if cap is None else cap,
        "per": Interval.of(least, most),
        "tokens": tokens,
        "each": each,
        "states": states,
        "slot": (states / (slots + 1)) if states else None,
        "context": facts.context,
    }
    yield Hit(
        facts.lines(facts.number("max_mamba_cache_size"), facts.number("max_total_num_tokens") or facts.number("pool_tokens")),
        values,
    )


def slots_below_one(facts: Facts, at: At) -> Iterator[Hit]:
    """State slots divided by what a request needs give no request."""
    for event in facts.events("no_memory_for_pool"):
        record = event.record
        slots, ratio = record.number("max_mamba_cache_size"), record.number("mamba_ratio")
        allowed = record.number("max_num_reqs")
        printed = re.search(_NO_STATES, record.message)
        if printed:
            slots, ratio, allowed = (int(number) for number in printed.groups())
        if slots is not None and ratio and allowed is not None:
            yield Hit(event_lines([event]), {"slots": slots, "ratio": ratio, "allowed": allowed, "tokens": facts.tokens})
            return
        rest, each = record.interval("total_rest_memory"), record.interval("mamba_cache_per_req")
        if rest is not None and each is not None:
            yield Hit(event_lines([event]), {"slots": record.number("max_mamba_cache_size"), "rest": rest, "each": each})
            return


def capped_by_slots(facts: Facts, at: At) -> Iterator[Hit]:
    """SGLang says itself that the request cap comes from the state slots."""
    for event in facts.events("no_memory_for_pool", "max_running_requests_reduced"):
        if "by the mamba state cache" not in event.record.message:
            continue
        slots, per, cap = (
            event.record.number(name) for name in ("max_mamba_cache_size", "slots per request", "max_running_requests")
        )
        yield Hit(event_lines([event]), {"slots": slots, "per": per, "cap": cap if cap is not None else facts.cap})
        return


def slots_exhausted(facts: Facts, at: At) -> Iterator[Hit]:
    """The state pool ran out while the server ran."""
    for event in facts.events("no_memory_for_pool"):
        if event.record.message.startswith(("Not enough space for mamba", "AssertionError: Not enough space for mamba")):
            yield Hit(event_lines([event]), {"size": event.record.number("self.mamba_pool.size")})
            return


def waits_for_slots(facts: Facts, at: At) -> Iterator[Hit]:
    """Requests wait with little KV in use because the state slots, or the cap derived from them, are taken."""
    waiting = [
        b
        for b in facts.activity.batches
        if b.queued
        and b.state_usage is not None
        and b.usage is not None
        and b.state_usage.low >= at["slots"]
        and b.usage.high < at["kv"]
    ]
    if not waiting:
        return
    last = waiting[-1]
    held = last.state_slots / last.running if last.state_slots and last.running else None
    values = {
        "usage": last.usage,
        "state_usage": last.state_usage,
        "running": last.running,
        "queued": last.queued,
        "cap": facts.cap,
        "held": held,
    }
    yield Hit(tuple(b.line for b in waiting[:4]), values)


def ratio_of_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """The states take more of the budget than the KV cache."""
    states, pool = _state_bytes(facts), facts.pool_bytes
    if states is None or pool is None or pool.interval is None or pool.interval.low <= 0:
        return
    share = states / (states + pool.interval)
    if share.low < at["share"]:
        return
    verify, own = _verify_bytes(facts), _slot_bytes(facts)
    drafts = verify is not None and own is not None and verify.low > own.high
    values: dict[str, Any] = {
        "states": own,
        "pool": pool.interval,
        "share": share,
        "slots": facts.whole("max_mamba_cache_size"),
        "verify": verify,
        "mostly": "" if drafts else None,
    }
    yield Hit(facts.lines(facts.number("state_pool_bytes"), pool), values)
