"""What to call the cause of a change of capacity, and the sentence that says how it acts."""

from __future__ import annotations

from typing import SupportsFloat

from kvdiag.checks.capacity import LATER
from kvdiag.gate.budget import Budget
from kvdiag.gate.model import Snapshot
from kvdiag.gate.words import SPECULATION, amount, change_of, changed_arguments, gib, models_differ, releases_differ, span
from kvdiag.quantity import Interval
from kvdiag.sizing.dtypes import plain_element_bytes

_CELL_ARGUMENTS = (
    "tp_size", "pp_size", "dp_size", "enable_dp_attention", "attention_context_parallel_size", "speculative_algorithm",
    "speculative_draft_model_path", "swa_full_tokens_ratio", "disable_hybrid_swa_memory", "json_model_override_args", "dtype",
)  # fmt: skip
_STATE_ARGUMENTS = (
    "disable_radix_cache", "max_mamba_cache_size", "mamba_full_memory_ratio", "mamba_scheduler_strategy", "mamba_ssm_dtype",
    "max_running_requests",
)  # fmt: skip


def cell_cause(a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    """The cause of another number of bytes per token (beside the size of an element, which is a term of its own)."""
    if models_differ(before, after) or changed_arguments(before, after, _CELL_ARGUMENTS):
        return "bytes_per_token"
    if a.dtype != b.dtype and None in (plain_element_bytes(a.dtype), plain_element_bytes(b.dtype)):
        return "kv_cache_dtype"
    return "release" if releases_differ(before, after) else "bytes_per_token"


def cell_reason(a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    """Why a token costs another number of bytes: the dtype, and what else, as far as the logs tell."""
    reasons = []
    sizes = plain_element_bytes(a.dtype), plain_element_bytes(b.dtype)
    rest_differs = True
    if sizes[0] and sizes[1] and sizes[0] != sizes[1] and a.cell is not None and b.cell is not None:
        reasons.append(_dtype(a, b, before, after))
        rest_differs = not (a.cell / sizes[0]).meets(b.cell / sizes[1])
    if rest_differs:
        reasons.append(why(cell_cause(a, b, before, after), a, b, before, after))
    return "; ".join(reasons)


def residual_cause(a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    """The cause of what the formula of the simple pool does not give, beyond rounding."""
    if a.states_two != b.states_two:
        return "unexplained"
    capped = a.is_capped and b.is_capped
    same_kind = before.on_shared_memory and after.on_shared_memory and not capped and not releases_differ(before, after)
    if same_kind and a.total is not None and b.total is not None:
        return "total_memory"
    if models_differ(before, after):
        return "unexplained"
    has_state = any(snapshot.find("max_mamba_cache_size") for snapshot in (before, after))
    if has_state and changed_arguments(before, after, _STATE_ARGUMENTS):
        return "state"
    return "release" if releases_differ(before, after) else "unexplained"


def why(cause: str, a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    """How a cause acted between two starts, with both values."""
    return _WHY[cause](a, b, before, after)


def _fraction(a: Budget, b: Budget, _before: Snapshot, _after: Snapshot) -> str:
    said = f"mem_fraction_static {_number(a.fraction)} -> {_number(b.fraction)}"
    if a.total is None or b.total is None or a.fraction is None or b.fraction is None:
        return said
    old, new = a.total * (1 - a.fraction), b.total * (1 - b.fraction)
    return f"{said} (the part of memory that is kept free, total x (1 - f), goes from {span(old)} to {span(new)})"


def _number(value: SupportsFloat | None) -> str:
    return "not given" if value is None else f"{float(value):.10g}"


def _total(a: Budget, b: Budget, before: Snapshot, _after: Snapshot) -> str:
    if a.total is None or b.total is None:
        return "free memory before loading"
    said = f"free memory before loading {span(a.total)} -> {span(b.total)}"
    if before.on_shared_memory:
        return f"{said}: it is the machine's, and every reading of it differs by what other programs do"
    if b.total.high < a.total.low:
        return f"{said}: another process holds {gib(a.total - b.total)} of the GPU, or it is another card"
    if b.total.low > a.total.high:
        return f"{said}: another process that held {gib(b.total - a.total)} of the GPU is gone, or it is another card"
    return said


def _weights(a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    old, new = a.taken, b.taken
    if old is None or new is None:
        return "memory taken while the weights were loaded"
    verb = "grew" if new.low > old.high else "shrank" if new.high < old.low else "were measured otherwise"
    said = f"the weights (all that loading took) {verb}: {span(old)} -> {span(new)}"
    other = changed_arguments(before, after, ("quantization", "dtype", "load_format", "tp_size", "pp_size", "cpu_offload_gb"))
    if models_differ(before, after):
        return f"{said}; it is another model"
    return f"{said}; {', '.join(other)}" if other else f"{said}; the checkpoint, or what the loader left behind, is another"


def _cell(a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    cells = f"{_bytes(a.cell)} -> {_bytes(b.cell)} bytes per token"
    reasons = changed_arguments(before, after, _CELL_ARGUMENTS)
    if models_differ(before, after):
        reasons.insert(0, change_of("model", _named(before), _named(after)))
    if not reasons:
        return f"{cells}; neither log says why"
    return f"{cells}: {', '.join(reasons)}"


def _named(snapshot: Snapshot) -> str:
    return snapshot.model.get("name") or snapshot.model.get("architecture") or "?"


def _dtype(a: Budget, b: Budget, _before: Snapshot, _after: Snapshot) -> str:
    sizes = plain_element_bytes(a.dtype), plain_element_bytes(b.dtype)
    said = f"kv_cache_dtype {a.dtype} -> {b.dtype}"
    return f"{said}: {sizes[0]} -> {sizes[1]} bytes an element" if all(sizes) else f"{said}: {_bytes(a.cell)} -> {_bytes(b.cell)}"


def _bytes(value: Interval | None) -> str:
    return "?" if value is None else amount(value, unit=False)


def _release(a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    said = f"SGLang {_range(before)} -> {_range(after)} sizes otherwise"
    for name in ("bytes_per_token", "max_total_num_tokens", "swa_max_total_num_tokens", "max_mamba_cache_size"):
        old, new = before.check(name), after.check(name)
        if old and new and _common(old.formula) != _common(new.formula):
            return f"{said}: {name} was {old.formula}, is {new.formula}"
    if a.cell is not None and b.cell is not None and not a.cell.meets(b.cell):
        return f"{said}: {_bytes(a.cell)} -> {_bytes(b.cell)} bytes per token"
    if before.on_shared_memory and after.on_shared_memory:
        return f"{said}, or sizing read another amount of the machine's free memory than the lines print"
    return said


def _common(formula: str) -> str:
    """A formula without the steps that the arguments add, which are causes of their own."""
    return formula.partition(LATER)[0]


def _range(snapshot: Snapshot) -> str:
    if snapshot.release is None:
        return "of an unknown release"
    first, last = snapshot.release
    return first if first == last else f"{first}..{last}"


def _page(a: Budget, b: Budget, _before: Snapshot, _after: Snapshot) -> str:
    return f"page_size {a.page} -> {b.page}: the capacity is floored to a page"


def _cap(a: Budget, b: Budget, _before: Snapshot, _after: Snapshot) -> str:
    return f"{change_of('max_total_tokens', a.cap, b.cap)}: the cap, not memory, sets the capacity of a start that reaches it"


def _state(a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    reasons = changed_arguments(before, after, _STATE_ARGUMENTS)
    sizes = f"the pool of states {span(a.state)} -> {span(b.state)}" if a.state.high or b.state.high else "the pool of states"
    return f"{sizes} shares the budget with the tokens" + (f": {', '.join(reasons)}" if reasons else "")


def _unexplained(a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    if a.states_two != b.states_two:
        x, which = (a, "first") if a.states_two else (b, "later")
        return (
            f"in the {which} log pool_tokens (line {x.pool_line}) is {x.pool_tokens:,} and max_total_num_tokens (line {x.line}) "
            f"{x.tokens:,}; in the other log the two are one number"
        )
    same = before.arguments == after.arguments
    lacking = list(dict.fromkeys(a.missing() + b.missing()))
    share = f"{(b.tokens - a.tokens) / a.tokens:+.1%} of the capacity" if a.tokens else "the capacity"
    if lacking:
        told = "equal arguments" if same and before.arguments else "no arguments" if same else "other arguments"
        return (
            f"{share} with {told} in the logs, and the cause cannot be told from them: they lack {'; '.join(lacking)}. "
            "Free memory is sampled before sizing: what the loader, another process or another formula took shows there, "
            "and in 'Memory pool end'"
        )
    if models_differ(before, after):
        return f"the model is another ({_named(before)} -> {_named(after)}), and its pools are made otherwise"
    changed = changed_arguments(before, after, SPECULATION)
    if changed:
        return f"not given by the budget's formula; {', '.join(changed)} may change what is taken from it"
    if a.rest is not None and b.rest is not None and a.rest.meets(b.rest):
        return "free memory is printed to 0.01 GB, and what is smaller than that moves the capacity"
    said = "the terms the logs state do not give this part of the change"
    if before.on_shared_memory and after.on_shared_memory:
        return f"{said}: sizing may have read another amount of the machine's free memory than the lines print"
    return said


_WHY = {
    "mem_fraction_static": _fraction,
    "total_memory": _total,
    "weights": _weights,
    "kv_cache_dtype": _dtype,
    "bytes_per_token": _cell,
    "release": _release,
    "page": _page,
    "cap": _cap,
    "state": _state,
    "unexplained": _unexplained,
}
