"""The log's own server with other arguments: what its memory, as the log states it, would give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from types import MappingProxyType
from typing import Any

from kvdiag.checks.admission import ADMISSION, admission_notes, own_numbers, planned, with_admission
from kvdiag.checks.arithmetic import BELOW_A_BYTE, LARGEST_BUDGET, Arithmetic
from kvdiag.checks.budget import budget_of, capacities, reservation, reservation_of, slots_of
from kvdiag.checks.excuses import cell_excuses, draft_excuses
from kvdiag.checks.inputs import CheckInputs, fits
from kvdiag.checks.leftover import not_taken, untold
from kvdiag.checks.remarks import moves_weights, note_on_cap, notes_on, why_no_capacity
from kvdiag.checks.verdict import Candidate, candidates, hull
from kvdiag.checks.workload import Plan, Workload
from kvdiag.frozen import frozen, replace
from kvdiag.quantity import Interval
from kvdiag.releases import Release
from kvdiag.sizing import ServerArguments, Sizing
from kvdiag.sizing.resolve import given_share
from kvdiag.starts import Number

NUMBERS: tuple[tuple[str, str], ...] = (
    ("max_total_num_tokens", "tokens"),
    ("full_max_total_num_tokens", "tokens"),
    ("swa_max_total_num_tokens", "tokens"),
    ("max_mamba_cache_size", "slots"),
    ("max_running_requests", "requests"),
)
_NOTHING = Interval.of(0, unit="bytes")


@frozen
class Prediction:
    """What a change of arguments would give, each number as the interval that the log's printed digits allow.

    `missing` is not empty where no capacity can be predicted; `notes` say what is assumed, and what else would change;
    `now` are the same numbers of the server in the log, as far as it tells them.
    """

    changes: dict[str, Any]
    releases: tuple[Release, ...]
    numbers: dict[str, Interval]
    formula: str = ""
    terms: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    workload: tuple[Workload, Plan, Plan] | None = None
    now: Mapping[str, Interval] = MappingProxyType({})

    @property
    def max_total_num_tokens(self) -> Interval | None:
        """The predicted capacity."""
        return self.numbers.get("max_total_num_tokens")


def predict(
    inputs: CheckInputs, changes: Mapping[str, Any], workload: Workload | None = None, contradicted: tuple[str, ...] = ()
) -> Prediction:
    """The numbers of the server of `inputs` with `changes` (SGLang's names of arguments to their values).

    With a `workload` also what the least and the most predicted capacity would do with it.

    The budget is the log's own: its readings, narrowed by the capacity it arrived at where no cap hides the budget.
    `contradicted` says which of the log's own figures the arithmetic does not give; then it predicts nothing.
    """
    changed = _changed(inputs, changes)
    if set(changes) <= ADMISSION:
        return _admitting(inputs, changes, changed, workload)
    before, after = Arithmetic(inputs), Arithmetic(inputs, changed)
    unknown = contradicted or not_taken(inputs, changes) or untold(inputs, changes)
    unknown = unknown or tuple(excuse.why for excuse in draft_excuses(inputs))
    if unknown:
        return _without_capacity(inputs, changes, after, unknown)
    anchor = min(capacities(inputs), key=lambda number: fits(number).low, default=None)
    rank = anchor.rank if anchor else next((reading.rank for reading in inputs.readings), "")
    fraction = _fraction(inputs, changes, changed)
    kept = _kept_besides(inputs, changed)
    own = budget_of(inputs, rank)
    rests, apart = _rests(inputs, before, anchor, rank, own[0] if own else None)
    if apart and (why := tuple(excuse.why for excuse in cell_excuses(inputs))):
        return _without_capacity(inputs, changes, after, why)
    found = {release: _budget(inputs, rest, rank, changes, fraction, kept) for release, rest in rests.items()}
    budgets = {release: budget for release, budget in found.items() if budget is not None}
    numbers = _numbers(after, budgets)
    missing: tuple[str, ...] = ()
    if "max_total_num_tokens" not in numbers:
        missing = why_no_capacity(inputs, before, after, rank, budgets)
    sized = next((s for release in reversed(inputs.candidates()) if (s := after.sized(release)) is not None), None)
    notes = admission_notes(changes, workload)
    notes += note_on_cap(numbers.get("max_total_num_tokens"), _uncapped(inputs, changed, budgets), changed.max_total_tokens)
    notes += notes_on(inputs, changes, [rests[release] for release in budgets] if own else [], after, numbers)
    formula, terms = (sized.formula, dict(sized.terms)) if sized else ("", {})
    plans = planned(inputs, changed, numbers, workload, sized.page_size if sized else 1) if workload else None
    return Prediction(
        dict(changes), tuple(inputs.candidates()), numbers, formula, terms, notes, missing, plans, _now(inputs, before, rests)
    )


def _rests(
    inputs: CheckInputs, before: Arithmetic, anchor: Number | None, rank: str, own: Interval | None
) -> tuple[dict[Release, Interval], bool]:
    """``rest_memory`` of the log by each release, and whether the readings and the capacity contradict each other in all."""
    rests: dict[Release, Interval] = {}
    apart = own is not None
    for releases in before.groups(max(0, int(own.high)) if own else 1 << 34):
        implied = _implied(before, releases[-1], anchor, slots_of(inputs, rank))
        apart = apart and own is not None and implied is not None and not own.meets(implied)
        rest = _narrow(own, implied)
        if rest is not None:
            rests |= dict.fromkeys(releases, rest)
    return rests, apart


def _changed(inputs: CheckInputs, changes: Mapping[str, Any]) -> ServerArguments:
    """The arguments in force after the changes, as a log would state them.

    A cache dtype that followed from the model's dtype follows again where that changes.
    """
    followed = inputs.start.server_args.get("kv_cache_dtype", "auto") in ("auto", None)
    given = {"kv_cache_dtype": "auto", **changes} if "dtype" in changes and followed else changes
    return with_admission(replace(inputs.arguments, **given), changes)


def _admitting(
    inputs: CheckInputs, changes: Mapping[str, Any], changed: ServerArguments, workload: Workload | None
) -> Prediction:
    """The log's own capacity under another admission: no memory moves, so that neither a config nor readings are needed."""
    numbers, notes = own_numbers(inputs), admission_notes(changes, workload)
    missing = () if "max_total_num_tokens" in numbers else ("the log states no token capacity",)
    plans = planned(inputs, changed, numbers, workload, changed.page_size or 1) if workload else None
    return Prediction(
        dict(changes), tuple(inputs.candidates()), numbers, notes=notes, missing=missing, workload=plans, now=numbers
    )


def _without_capacity(inputs: CheckInputs, changes: Mapping[str, Any], after: Arithmetic, missing: tuple[str, ...]) -> Prediction:
    numbers = {} if draft_excuses(inputs) else _numbers(after, {})
    return Prediction(dict(changes), tuple(inputs.candidates()), numbers, missing=missing)


def _fraction(inputs: CheckInputs, changes: Mapping[str, Any], changed: ServerArguments) -> Fraction | None:
    """The fraction in force after the change; the dump of a log prints the one in force, which AMD's attention makes less."""
    given = changes.get("mem_fraction_static")
    shares = [_share(inputs, inputs.arguments), _share(inputs, changed)]
    if given is not None:
        return Fraction(str(given)) * shares[1]
    return None if inputs.mem_fraction_static is None else inputs.mem_fraction_static / shares[0] * shares[1]


def _share(inputs: CheckInputs, arguments: ServerArguments) -> Fraction:
    if inputs.geometry is None or arguments.attention_backend != "aiter":
        return Fraction(1)
    return Fraction(str(given_share(inputs.geometry, arguments, inputs.candidates()[-1], inputs.device)))


def _budget(
    inputs: CheckInputs, rest: Interval, rank: str, changes: Mapping[str, Any], fraction: Fraction | None, kept: Interval
) -> Interval | None:
    """``rest_memory`` after the change, from what it is before.

    rest = total x fraction - weights - what is kept back for images, so that total and weights are all the readings tell;
    the weights follow from the budget that the log's capacity implies more sharply than from what is printed after loading.
    `kept`: what more is kept back for images after the change.
    """
    if fraction == inputs.mem_fraction_static and kept == _NOTHING and not moves_weights(inputs, changes):
        return rest
    rest = rest + BELOW_A_BYTE
    worst = inputs.worst(rank)
    if worst is None or worst.total is None or inputs.mem_fraction_static is None or fraction is None:
        return None
    if moves_weights(inputs, changes):
        weights = _weights(inputs, worst.total * inputs.mem_fraction_static - rest - reservation(inputs), changes)
        return worst.total * fraction - weights - reservation(inputs) - kept
    shifted = rest + worst.total * (fraction - inputs.mem_fraction_static) - kept
    return _narrow(worst.available - worst.total * (1 - fraction) - reservation(inputs) - kept, shifted)


def _kept_besides(inputs: CheckInputs, changed: ServerArguments) -> Interval:
    """What more is kept back for images with other arguments."""
    before, after = reservation_of(inputs, inputs.arguments), reservation_of(inputs, changed)
    return _NOTHING if before == after else after - before


def _implied(before: Arithmetic, release: Release, anchor: Number | None, slots: int | None) -> Interval | None:
    if anchor is None or not isinstance(anchor.value, int):
        return None
    found = before.budgets(release, anchor.value, slots)
    return None if found is None or found.high >= LARGEST_BUDGET else found


def _narrow(first: Interval | None, second: Interval | None) -> Interval | None:
    """What both allow; where they contradict each other, the second: what the pool was made of, not a reading near it."""
    if first is None or second is None or not first.meets(second):
        return second if second is not None else first
    return Interval(max(first.low, second.low), min(first.high, second.high), first.unit)


def _weights(inputs: CheckInputs, weights: Interval, changes: Mapping[str, Any]) -> Interval:
    """A rank's weights after the change: between all of them split anew and none of them."""
    old = inputs.arguments.tp_size * inputs.arguments.pp_size
    new = int(changes.get("tp_size", inputs.arguments.tp_size)) * int(changes.get("pp_size", inputs.arguments.pp_size))
    split = weights * Fraction(old, new)
    widest = weights.hull(split)
    if changes.get("enable_dp_attention", inputs.arguments.enable_dp_attention) != inputs.arguments.enable_dp_attention:
        widest = widest.hull(weights * max(old, new)).hull(weights * Fraction(1, max(old, new)))
    return widest


def _numbers(after: Arithmetic, budgets: dict[Release, Interval]) -> dict[str, Interval]:
    numbers: dict[str, Interval] = {}
    cells = candidates(after.cells(), _cell_of_stages(after))
    if cells:
        numbers["bytes_per_token"] = hull(cells)
    if not budgets:
        return numbers
    numbers["rest_memory_bytes"] = hull(Candidate(budget, (release,)) for release, budget in budgets.items())
    groups = [tuple(r for r in group if r in budgets) for group in after.groups(int(numbers["rest_memory_bytes"].high))]
    for name, unit in NUMBERS:
        found = candidates([group for group in groups if group], _compute(after, budgets, name, unit))
        if found:
            numbers[name] = hull(found)
    return numbers


def _now(inputs: CheckInputs, before: Arithmetic, rests: Mapping[Release, Interval]) -> dict[str, Interval]:
    """The numbers of the server as the log has it, beside which a prediction is read."""
    found = _numbers(before, {})
    if rests:
        found["rest_memory_bytes"] = reduce(Interval.hull, rests.values())
    for name, unit in NUMBERS:
        stated = inputs.start.first(name)
        if stated is not None and stated.interval is not None:
            found[name] = stated.interval.with_unit(unit)
    return found | own_numbers(inputs)


def _uncapped(inputs: CheckInputs, changed: ServerArguments, budgets: dict[Release, Interval]) -> Interval | None:
    """The capacity without --max-total-tokens; None where there is no such cap."""
    if changed.max_total_tokens is None or not budgets:
        return None
    return _numbers(Arithmetic(inputs, replace(changed, max_total_tokens=None)), budgets).get("max_total_num_tokens")


def _cell_of_stages(after: Arithmetic) -> Callable[[Release], Interval | None]:
    """Bytes of a token, from the smallest pipeline stage to the largest."""

    def cell(release: Release) -> Interval | None:
        sized = after.sized(release)
        if sized is None:
            return None
        every = [sized.bytes_per_token, *(stage["bytes_per_token"] for stage in sized.stages)]
        return Interval.of(min(every), max(every), "bytes")

    return cell


def _compute(after: Arithmetic, budgets: dict[Release, Interval], name: str, unit: str) -> Callable[[Release], Interval | None]:
    def pick(sized: Sizing) -> int | None:
        value = getattr(sized, name)
        return value if isinstance(value, int) else None

    return lambda release: after.capacity(release, budgets[release], pick, unit)
