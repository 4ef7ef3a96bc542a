"""The checks of the contract: each recomputes one number of the log and says agree, disagree or unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvdiag.checks.inputs import CheckInputs, Reading
from kvdiag.checks.model import Check
from kvdiag.errors import CannotSizeError
from kvdiag.quantity import GIB, Interval
from kvdiag.sizing import Memory, Sizing, size
from kvdiag.starts import Number

SHARED_MEMORY = (
    "the printed avail mem and the one sizing used are two readings of memory that other processes share; "
    "they differ by more than the printed digits"
)
_BUDGET = "available_gpu_memory - pre_model_load_memory x (1 - mem_fraction_static)"


def recompute(inputs: CheckInputs) -> list[Check]:
    """Every check whose observed number the log states."""
    found: list[Check] = []
    for make in (_bytes_per_token, _kv_pool_bytes, _rest_memory, _max_total_num_tokens, _max_running_requests, _fraction):
        found.extend(make(inputs))
    return found


def _verdict(inputs: CheckInputs, observed: Interval, candidates: list[Interval]) -> tuple[str, tuple[str, ...]]:
    """`candidates` are the results of the releases the log may be of."""
    meeting = [candidate for candidate in candidates if candidate.meets(observed)]
    if len(meeting) == len(candidates):
        return "agree", ()
    if meeting:
        return "unknown", (f"the release: {inputs.releases} fit more than one formula; give --release",)
    return "disagree", ()


def _budget_verdict(inputs: CheckInputs, observed: Interval, candidates: list[Interval]) -> tuple[str, tuple[str, ...]]:
    """As `_verdict`, for what depends on free memory: a lower figure than expected may come from an unseen rank."""
    verdict, missing = _verdict(inputs, observed, candidates)
    if verdict == "disagree":
        if inputs.on_shared_memory:
            return "unknown", (SHARED_MEMORY,)
        if inputs.ranks_missing and all(observed.high < candidate.low for candidate in candidates):
            return "unknown", (f"{inputs.ranks_missing} ranks are not in the log and the smallest free memory decides",)
    return verdict, missing


def _per_release(inputs: CheckInputs, compute: Callable[[Sizing], Interval | None], memory: Memory | None) -> list[Interval]:
    """`compute` of the sizing of each possible release, equal results once."""
    assert inputs.geometry is not None
    results: list[Interval] = []
    for release in inputs.candidates():
        result = compute(size(inputs.geometry, inputs.arguments, release, memory))
        if result is not None and result not in results:
            results.append(result)
    return results


def _hull(candidates: list[Interval]) -> Interval:
    result = candidates[0]
    for candidate in candidates[1:]:
        result = result.hull(candidate)
    return result


def _targets(inputs: CheckInputs, name: str) -> Iterator[Number]:
    for number in inputs.start.numbers:
        if number.name == name and number.role in (None, "target") and number.interval is not None:
            yield number


def _unsized(inputs: CheckInputs, name: str, number: Number, formula: str) -> Check:
    return Check(name, "unknown", number.rank, number.role, number.interval, None, formula, {}, (inputs.unsized,), (number.line,))


LARGEST_PAGE = 256


def _pool_tokens(inputs: CheckInputs, pool: Number) -> tuple[Interval, Number] | None:
    """Rows of the pool line of that rank: its tokens and one padding page; a page not known is 1 to 256 tokens."""
    tokens = inputs.start.find("pool_tokens", rank=pool.rank, role="target")
    if not tokens:
        tokens = inputs.start.find("max_total_num_tokens", rank=pool.rank)
    if len(tokens) != 1 or tokens[0].interval is None:
        return None
    page = inputs.arguments.page_size
    padding = Interval.of(page or 1, page or LARGEST_PAGE, "tokens")
    return tokens[0].interval + padding, tokens[0]


def _bytes_per_token(inputs: CheckInputs) -> Iterator[Check]:
    name = "bytes_per_token"
    for pool in _targets(inputs, "kv_pool_bytes"):
        rows = _pool_tokens(inputs, pool)
        if rows is None or rows[0].low <= 0 or pool.interval is None:
            continue
        observed = (pool.interval / rows[0]).with_unit("bytes")
        if inputs.geometry is None:
            yield replace(_unsized(inputs, name, pool, "kv_pool_bytes / tokens"), observed=observed)
            continue
        yield from _cell_check(inputs, name, pool, observed, (pool.line, rows[1].line))
    for printed in _targets(inputs, "bytes_per_token"):
        if inputs.geometry is not None and printed.interval is not None:
            yield from _cell_check(inputs, name, printed, printed.interval, (printed.line,))


def _cell_check(inputs: CheckInputs, name: str, at: Number, observed: Interval, lines: tuple[int, ...]) -> Iterator[Check]:
    assert inputs.geometry is not None
    try:
        sized = size(inputs.geometry, inputs.arguments, inputs.candidates()[-1])
        candidates = _per_release(inputs, lambda s: Interval.of(s.bytes_per_token, unit="bytes"), None)
    except CannotSizeError as error:
        yield replace(_unsized(inputs, name, at, ""), observed=observed, missing=(str(error),))
        return
    verdict, missing = _verdict(inputs, observed, candidates)
    yield Check(name, verdict, at.rank, at.role, observed, _hull(candidates), sized.formula, sized.terms, missing, _once(lines))


def _once(lines: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(sorted(lines)))


def _kv_pool_bytes(inputs: CheckInputs) -> Iterator[Check]:
    name, formula = "kv_pool_bytes", "(max_total_num_tokens + page_size) x bytes_per_token"
    for pool in _targets(inputs, "kv_pool_bytes"):
        rows = _pool_tokens(inputs, pool)
        if rows is None or pool.interval is None:
            continue
        if inputs.geometry is None:
            yield _unsized(inputs, name, pool, formula)
            continue
        try:
            cells = _per_release(inputs, lambda s: Interval.of(s.bytes_per_token, unit="bytes"), None)
        except CannotSizeError as error:
            yield replace(_unsized(inputs, name, pool, formula), missing=(str(error),))
            continue
        candidates = [(rows[0] * cell).with_unit("bytes") for cell in cells]
        verdict, missing = _verdict(inputs, pool.interval, candidates)
        terms = {"rows": rows[0].to_dict(), "bytes_per_token": _hull(cells).to_dict()}
        yield Check(
            name, verdict, pool.rank, pool.role, pool.interval, _hull(candidates), formula, terms, missing,
            _once((pool.line, rows[1].line)),
        )  # fmt: skip


def _worst(inputs: CheckInputs) -> Reading | None:
    """Free memory as the budget takes it: the minimum over ranks of each reading."""
    readings = [reading for reading in inputs.readings if reading.total is not None]
    if not readings:
        return None
    worst = readings[0]
    for reading in readings[1:]:
        assert worst.total is not None
        assert reading.total is not None
        worst = Reading(
            worst.rank,
            worst.available.minimum(reading.available),
            worst.total.minimum(reading.total),
            _once((*worst.lines, *reading.lines)),
        )
    return worst


def _budget(inputs: CheckInputs) -> tuple[Interval, Reading, dict[str, Any]] | None:
    worst, fraction = _worst(inputs), inputs.arguments.mem_fraction_static
    if worst is None or worst.total is None or fraction is None:
        return None
    reserve = worst.total * (1 - Fraction(str(fraction)))
    terms = {
        "available_gpu_memory": worst.available.to_dict(),
        "pre_model_load_memory": worst.total.to_dict(),
        "mem_fraction_static": fraction,
    }
    return worst.available - reserve, worst, terms


def _missing_for_budget(inputs: CheckInputs) -> tuple[str, ...]:
    missing = []
    if not inputs.readings:
        missing.append("avail mem after loading (the 'Load weight end' lines)")
    elif _worst(inputs) is None:
        missing.append("free memory before loading (the 'Load weight begin' lines)")
    if inputs.arguments.mem_fraction_static is None:
        missing.append("mem_fraction_static (the server_args line)")
    return tuple(missing)


def _capacities(inputs: CheckInputs) -> list[Number]:
    """max_total_num_tokens as the scheduler of each rank states it, else as the pool lines do."""
    stated = list(_targets(inputs, "max_total_num_tokens"))
    if stated:
        return stated
    pools = list(_targets(inputs, "pool_tokens"))
    return pools if len({n.rank for n in pools}) == len(pools) else []


def _max_total_num_tokens(inputs: CheckInputs) -> Iterator[Check]:
    name, formula = "max_total_num_tokens", f"({_BUDGET}) // bytes_per_token, capped and floored to a page"
    budget = _budget(inputs)
    for capacity in _capacities(inputs):
        assert capacity.interval is not None
        missing = _missing_for_budget(inputs) + ((inputs.unsized,) if inputs.geometry is None else ())
        if budget is None or inputs.geometry is None:
            yield Check(
                name, "unknown", capacity.rank, capacity.role, capacity.interval, None, formula, {}, missing, (capacity.line,)
            )
            continue
        rest, worst, terms = budget
        try:
            candidates = _corner(inputs, worst, lambda s: s.max_total_num_tokens, "tokens")
        except CannotSizeError as error:
            yield replace(_unsized(inputs, name, capacity, formula), missing=(str(error),))
            continue
        verdict, lacking = _budget_verdict(inputs, capacity.interval, candidates)
        terms = {**terms, "rest_memory": rest.to_dict()}
        yield Check(
            name, verdict, capacity.rank, capacity.role, capacity.interval, _hull(candidates), formula, terms, lacking,
            _once((*worst.lines, capacity.line)),
        )  # fmt: skip


def _corner(inputs: CheckInputs, worst: Reading, pick: Callable[[Sizing], int | None], unit: str) -> list[Interval]:
    """`pick` at the two extremes of free memory, per possible release: sizing is monotone in both readings."""
    assert worst.total is not None
    assert inputs.geometry is not None
    low = Memory(float(worst.available.low / GIB), float(worst.total.high / GIB))
    high = Memory(float(worst.available.high / GIB), float(worst.total.low / GIB))
    results: list[Interval] = []
    for release in inputs.candidates():
        ends = [pick(size(inputs.geometry, inputs.arguments, release, memory)) for memory in (low, high)]
        if ends[0] is None or ends[1] is None:
            continue
        result = Interval.of(min(ends[0], ends[1]), max(ends[0], ends[1]), unit)
        if result not in results:
            results.append(result)
    return results


def _rest_memory(inputs: CheckInputs) -> Iterator[Check]:
    """The log never prints rest_memory: it is implied by a capacity that no cap lowered."""
    budget = _budget(inputs)
    printed = next(_targets(inputs, "rest_memory"), None)
    if printed is not None or inputs.geometry is None:
        return
    for capacity in _capacities(inputs)[:1]:
        if budget is None:
            yield Check(
                "rest_memory", "unknown", "", None, None, None, _BUDGET, {}, _missing_for_budget(inputs), (capacity.line,)
            )
            return
        rest, worst, terms = budget
        try:
            cells = _per_release(inputs, lambda s: Interval.of(s.bytes_per_token, unit="bytes"), None)
        except CannotSizeError:
            return
        assert capacity.interval is not None
        page = inputs.arguments.page_size or 1
        implied = Interval(capacity.interval.low, capacity.interval.high + page, "tokens") * _hull(cells)
        cap = inputs.arguments.max_total_tokens
        observed = implied.with_unit("bytes")
        lines = _once((*worst.lines, capacity.line))
        if cap is not None and capacity.interval.high <= cap:
            why = (f"--max-total-tokens {cap} lowered the capacity, so it does not tell the budget",)
            yield Check("rest_memory", "unknown", "", None, None, rest, _BUDGET, terms, why, lines)
            return
        verdict, missing = _budget_verdict(inputs, observed, [rest])
        yield Check("rest_memory", verdict, "", None, observed, rest, _BUDGET, terms, missing, lines)


def _max_running_requests(inputs: CheckInputs) -> Iterator[Check]:
    name, formula = (
        "max_running_requests",
        "min(--max-running-requests or tokens // 2, clamp(tokens / context_len x 512, 2048, 4096))",
    )
    worst = _worst(inputs)
    for stated in _targets(inputs, name):
        assert stated.interval is not None
        if inputs.geometry is None or worst is None or inputs.arguments.mem_fraction_static is None:
            missing = _missing_for_budget(inputs) + ((inputs.unsized,) if inputs.geometry is None else ())
            yield Check(name, "unknown", stated.rank, stated.role, stated.interval, None, formula, {}, missing, (stated.line,))
            continue
        try:
            candidates = _corner(inputs, worst, lambda s: s.max_running_requests, "requests")
        except CannotSizeError:
            candidates = []
        if not candidates:
            yield Check(
                name, "unknown", stated.rank, None, stated.interval, None, formula, {}, ("the context length",), (stated.line,)
            )
            continue
        verdict, missing = _budget_verdict(inputs, stated.interval, candidates)
        terms = {"max_running_requests": inputs.arguments.max_running_requests, "context_length": inputs.arguments.context_length}
        yield Check(
            name, verdict, stated.rank, stated.role, stated.interval, _hull(candidates), formula, terms, missing, (stated.line,)
        )


def _fraction(inputs: CheckInputs) -> Iterator[Check]:
    """The fraction in force, as the capacity implies it, against the one in server_args."""
    stated, worst = inputs.arguments.mem_fraction_static, _worst(inputs)
    capacity = next(iter(_capacities(inputs)), None)
    if stated is None or worst is None or worst.total is None or capacity is None or inputs.geometry is None:
        return
    cap = inputs.arguments.max_total_tokens
    if cap is not None and capacity.interval is not None and capacity.interval.high <= cap:
        return
    try:
        cells = _per_release(inputs, lambda s: Interval.of(s.bytes_per_token, unit="bytes"), None)
    except CannotSizeError:
        return
    assert capacity.interval is not None
    page = inputs.arguments.page_size or 1
    budget = (Interval(capacity.interval.low, capacity.interval.high + page, "tokens") * _hull(cells)).with_unit("bytes")
    implied = Interval.of(1, unit="fraction") - ((worst.available - budget) / worst.total).with_unit("fraction")
    told = Interval.of(Fraction(str(stated)), unit="fraction")
    verdict, missing = _budget_verdict(inputs, told, [implied])
    formula = "1 - (available_gpu_memory - max_total_num_tokens x bytes_per_token) / pre_model_load_memory"
    yield Check(
        "mem_fraction_static", verdict, "", None, told, implied, formula, {}, missing, _once((*worst.lines, capacity.line))
    )
