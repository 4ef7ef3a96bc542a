"""What bounds the work a server can hold, by its start-up lines and by what the scheduler lines show."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvdiag.checks.activity import Activity
from kvdiag.checks.arithmetic import LARGEST_BUDGET, Arithmetic
from kvdiag.checks.binding import Bounds, bindings, full_batch, is_prefill_full
from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.memory import context_length
from kvdiag.checks.model import Limits
from kvdiag.checks.states import requests_of_states
from kvdiag.quantity import Interval
from kvdiag.releases import parse_release
from kvdiag.starts import Number
from kvdiag.starts.tables import ONCE_A_REPLICA

MARGIN = 6
"""``max_req_input_len`` is five below ``max_req_len``, itself one below both context and pool (``TpModelWorker``)."""

LARGEST_PAGE = 256

DEFAULT_CAP = 2048
"""Requests of which SGLang never allows less unasked, so that more state slots than that decide nothing."""


def limits_of(inputs: CheckInputs, activity: Activity) -> Limits:
    """The limits of a start; `binding` is ``unknown`` where neither a capacity nor a refusal is in the log."""
    tokens, refused = _capacity(inputs), _refused(inputs)
    slots, length = _slots(inputs), context_length(inputs)
    if tokens is None and refused is not None:
        tokens = Interval.of(refused + MARGIN, unit="tokens") if _is_pool_limit(refused, length) else None
    tokens = tokens or activity.capacity
    if tokens is None or tokens.high <= 0:
        largest = refused if refused is not None else None
        return Limits(
            "unknown", _without_pool(inputs, activity), None, slots, largest, None, _over_time(inputs, activity, None, length)
        )
    binding, why = _binding(inputs, tokens, slots, length)
    request_pool = _request_pool(inputs, tokens)
    largest_tokens = request_pool.minimum(Interval.of(length, unit="tokens")) if length else request_pool
    largest_tokens = largest_tokens - _margin(inputs)
    full = request_pool / length if length else None
    largest_plain = _plain(_at_least_zero(largest_tokens))
    return Limits(binding, why, _plain(tokens), slots, largest_plain, _plain(full), _over_time(inputs, activity, tokens, length))


_OF_STARTS = ("no_memory_for_pool", "graph_capture_failed", "memory_unbalanced", "no_host_memory")
"""What ends nothing but a start."""
_OF_ANY = ("out_of_memory", "crash")
"""What ends a start, where the log shows that it was one, or a server that ran."""


_BEGUN = ("loading_frame", "pools_frame", "capture_frame", "load_barrier")
_RUNNING = frozenset({"ready"} | ONCE_A_REPLICA)
"""Events of a server whose start-up is over."""


def _without_pool(inputs: CheckInputs, activity: Activity) -> str:
    """Why there is no capacity: the start ended early, or it only is in no line."""
    start = inputs.start
    kinds = {event.kind for event in start.events}
    begun = start.server_args or start.numbers or start.pools or not kinds.isdisjoint(_BEGUN)
    ends = (*_OF_STARTS, *_OF_ANY) if begun and "serving_frame" not in kinds else _OF_STARTS
    lines = [event.record.line.number for kind in ends for event in start.events_of(kind)]
    if lines and not activity.batches and kinds.isdisjoint(_RUNNING):
        return f"the start failed (line {min(lines)}) and no line states a token capacity"
    return "the log states no token capacity"


def _over_time(inputs: CheckInputs, activity: Activity, tokens: Interval | None, length: int | None) -> dict[str, Any] | None:
    lines, kind = activity.decode or activity.prefill, "decode" if activity.decode else "prefill"
    shares = bindings(activity, bounds_of(inputs, activity, tokens, length)) if lines else {}
    return {"lines": len(lines), "kind": kind, "shares": shares} if lines else None


def bounds_of(inputs: CheckInputs, activity: Activity, tokens: Interval | None, length: int | None) -> Bounds:
    """What can bind on one replica of this start, whose pool has `tokens` and whose requests at most `length`."""
    chunk = min(_whole(inputs.start.find("chunked_prefill_size")), default=None)
    chunk = full_batch(activity) if chunk is None else chunk if chunk > 0 else None
    pool = int(tokens.low) if tokens else None
    stated = None if inputs.start.find("swa_max_total_num_tokens") else _capacity(inputs)
    most_tokens = int(stated.high) if stated is not None and stated.high > 0 else None
    most_running = _slots(inputs) if inputs.arguments.pp_size == 1 else None
    return Bounds(request_cap(inputs), pool, length, chunk, is_prefill_full(activity, chunk), most_tokens, most_running)


def request_cap(inputs: CheckInputs) -> int | None:
    """The request cap of one data-parallel replica: printed, or the argument divided over the replicas."""
    printed, given = _slots(inputs), inputs.arguments.max_running_requests
    if printed is not None:
        return printed
    replicas = inputs.arguments.dp_size if inputs.arguments.enable_dp_attention else 1
    return given // replicas if given else None


def _at_least_zero(interval: Interval) -> Interval:
    return Interval(max(Fraction(0), interval.low), max(Fraction(0), interval.high), interval.unit)


def _plain(interval: Interval | None) -> Any:
    """One number where the interval is one, else its JSON form."""
    if interval is None:
        return None
    if interval.is_exact:
        return int(interval.low) if interval.low.denominator == 1 else float(interval.low)
    return interval.to_dict()


def _margin(inputs: CheckInputs) -> Interval:
    """What a request must leave of context and pool: one token up to 0.3.2, six from 0.3.6."""
    releases = inputs.candidates()
    low = 1 if releases and releases[0] < parse_release("0.3.6") else MARGIN
    high = 1 if releases and releases[-1] <= parse_release("0.3.2") else MARGIN
    return Interval.of(low, high, "tokens")


def _whole(numbers: list[Number]) -> list[int]:
    return [number.value for number in numbers if isinstance(number.value, int)]


def _capacity(inputs: CheckInputs) -> Interval | None:
    """Tokens of the target's pool: as the scheduler states it, else the smallest pool that a rank allocated last."""
    start = inputs.start
    for name in ("max_total_num_tokens", "full_max_total_num_tokens", "pool_tokens"):
        found = [n for n in start.find(name, role="target") if isinstance(n.value, int)]
        if found:
            last = {number.rank: number for number in found}
            return Interval.of(min(_whole(list(last.values()))), unit="tokens")
    return None


def _request_pool(inputs: CheckInputs, tokens: Interval) -> Interval:
    """The pool a single request is held against: the smaller of the two under sliding windows from 0.5.7 to 0.5.10."""
    window = _whole(inputs.start.find("swa_max_total_num_tokens"))
    releases = inputs.candidates()
    if not window or not releases or releases[0] >= parse_release("0.5.11") or releases[-1] < parse_release("0.5.7"):
        return tokens
    smaller = tokens.minimum(Interval.of(min(window), unit="tokens"))
    return smaller if releases[-1] < parse_release("0.5.11") and releases[0] >= parse_release("0.5.7") else smaller.hull(tokens)


def _slots(inputs: CheckInputs) -> int | None:
    found = _whole(inputs.start.find("max_running_requests"))
    return min(found) if found else None


def _refused(inputs: CheckInputs) -> int | None:
    """The longest input the server accepts, as a refusal states it."""
    for event in inputs.start.events_of("input_too_long"):
        number = event.record.number("max_req_input_len")
        if isinstance(number, int):
            return number
    return None


def _is_pool_limit(refused: int, length: int | None) -> bool:
    """Whether the limit in a refusal is the pool's and not the context's.

    Contexts are given in whole multiples of 1,000 or 1,024 or by an argument; a limit six below such a figure may be
    either, so it counts as the pool's only where the context is known to be longer.
    """
    context = refused + MARGIN
    return context < length if length is not None else bool(context % 1000 and context % 1024)


def _binding(inputs: CheckInputs, tokens: Interval, slots: int | None, length: int | None) -> tuple[str, str]:
    size = f"{int(tokens.low):,}" if tokens.is_exact else f"{float(tokens.low):,.0f} to {float(tokens.high):,.0f}"
    cap = _user_cap(inputs, tokens)
    if cap is not None:
        return "max_total_tokens", f"--max-total-tokens {cap:,} caps the pool at {size} tokens"
    if length and tokens.high < length:
        return "kv_pool", f"the pool of {size} tokens is smaller than one context of {length:,}"
    states = _state_slots(inputs, slots)
    if states is not None:
        return states
    if slots and length and slots * length <= tokens.low:
        return "max_running_requests", f"{slots:,} requests of full length {length:,} fit the pool of {size} tokens"
    if slots:
        each = int(tokens.low) // slots
        return (
            "kv_pool",
            f"the pool of {size} tokens fills before the cap of {slots:,} requests if they hold more than {each:,} each",
        )
    allowed = requests_of_states(inputs) if inputs.arguments.max_running_requests is None else None
    if allowed is None or allowed[1].low >= DEFAULT_CAP:
        return "kv_pool", f"the pool of {size} tokens is shared by all requests"
    return _pool_or_states(tokens, size, length, *allowed)


def _pool_or_states(tokens: Interval, size: str, length: int | None, states: int, requests: Interval) -> tuple[str, str]:
    """Which runs out first where no line caps the requests and a model keeps states: the pool or the slots of states."""
    least, most = int(requests.low), int(requests.high)
    number = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    if length and most * length <= tokens.low:
        return (
            "state_slots",
            f"{states:,} state slots allow {number} requests, which the pool of {size} tokens holds at full length {length:,}",
        )
    few, many = int(tokens.low) // most, int(tokens.high) // least
    each = f"{few:,}" if few == many else f"{few:,} to {many:,}"
    return (
        "kv_pool",
        f"the pool of {size} tokens fills before the {states:,} state slots, which allow {number} requests, if those hold more "
        f"than {each} tokens each",
    )


def _user_cap(inputs: CheckInputs, tokens: Interval) -> int | None:
    """--max-total-tokens where it lowered the pool: by argument, or by a second, smaller sizing in the same start."""
    cap = inputs.arguments.max_total_tokens
    page = inputs.arguments.page_size or LARGEST_PAGE
    if cap is not None:
        is_cap = tokens.high <= cap and tokens.low > cap - page
        return cap if is_cap or _hides_the_budget(inputs, tokens) else None
    profiled = [n.value for n in inputs.start.numbers if n.name == "full_max_total_num_tokens" and isinstance(n.value, int)]
    if len(set(profiled)) > 1 and profiled[-1] == int(tokens.low) and max(profiled) > profiled[-1]:
        return profiled[-1]
    return None


def _hides_the_budget(inputs: CheckInputs, tokens: Interval) -> bool:
    """Whether a pool split from what the cap left has these tokens whatever memory holds (to 0.5.10: more than the cap)."""
    if inputs.geometry is None or inputs.geometry.windows is None or not tokens.is_exact:
        return False
    arithmetic = Arithmetic(inputs)
    budgets = [arithmetic.budgets(release, int(tokens.low), None) for release in inputs.candidates()]
    found = [budget for budget in budgets if budget is not None]
    return bool(found) and all(budget.high >= LARGEST_BUDGET for budget in found)


def _state_slots(inputs: CheckInputs, slots: int | None) -> tuple[str, str] | None:
    """State slots bind where the request cap is what the slots allow: cap x slots per request is all of them."""
    states = _whole(inputs.start.find("max_mamba_cache_size"))
    if not states or not slots or inputs.arguments.max_running_requests == slots:
        return None
    for per_request in (1, 2, 3, 4, 5, 6):
        if slots == min(states) // per_request:
            return "state_slots", f"{min(states):,} state slots at {per_request} a request allow {slots:,} requests"
    return None
