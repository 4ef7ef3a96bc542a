"""What bounds the work a server can hold, by its start-up lines."""

from __future__ import annotations

from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.model import Limits

ADMISSION_MARGIN = 6
"""Tokens a request must leave of the pool: ``max_req_input_len`` is five below ``max_req_len``, itself one below."""


def limits_of(inputs: CheckInputs) -> Limits:
    """The start-up limits; `binding` is ``unknown`` where the log does not state a capacity."""
    start = inputs.start
    capacities = [n.value for n in start.find("max_total_num_tokens") if isinstance(n.value, int)]
    if not capacities:
        capacities = [n.value for n in start.find("pool_tokens", role="target") if isinstance(n.value, int)]
    requests = start.first("max_running_requests")
    context = start.first("context_len")
    tokens = min(capacities, default=None)
    slots = requests.value if requests and isinstance(requests.value, int) else None
    length = context.value if context and isinstance(context.value, int) else None
    if tokens is None:
        return Limits("unknown", "the log states no token capacity", None, slots)
    largest = min(tokens - ADMISSION_MARGIN, length) if length else tokens - ADMISSION_MARGIN
    full = tokens / length if length else None
    cap = inputs.arguments.max_total_tokens
    if cap is not None and tokens >= cap - (inputs.arguments.page_size or 1) + 1:
        return Limits("max_total_tokens", f"--max-total-tokens {cap} caps the pool", tokens, slots, max(0, largest), full)
    if length and tokens < length:
        why = f"the pool of {tokens:,} tokens is smaller than one context of {length:,}"
        return Limits("kv_pool", why, tokens, slots, max(0, largest), full)
    if slots and length and slots * length <= tokens:
        why = f"{slots:,} requests of full length {length:,} fit the pool"
        return Limits("max_running_requests", why, tokens, slots, max(0, largest), full)
    why = f"{slots:,} requests share {tokens:,} tokens: {tokens // slots:,} each" if slots else ""
    return Limits("kv_pool", why, tokens, slots, max(0, largest), full)
