"""A change of capacity taken apart: tokens for each cause, adding up exactly to the difference.

The capacity is one formula of a few terms (`Budget`). Where several terms changed, what each of them brought depends on
the order in which one thinks of them as changed; the mean over all orders (the Shapley value) does not, and the reverse
comparison gives the same figures with the other sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations
from math import factorial

from kvdiag.frozen import frozen
from kvdiag.gate.budget import Budget
from kvdiag.gate.causes import cell_cause, residual_cause, why
from kvdiag.gate.model import Snapshot
from kvdiag.quantity import Interval
from kvdiag.sizing.dtypes import plain_element_bytes

Values = Mapping[str, Fraction | None]


@frozen
class Term:
    """Tokens that one cause brought or took, and the sentence that says how."""

    cause: str
    tokens: int
    why: str


def decompose(a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> list[Term]:
    """The terms of ``b.tokens - a.tokens``, the largest first; empty where nothing changed."""
    total = b.tokens - a.tokens
    first: Values
    second: Values
    if a.is_capped and b.is_capped:
        first, second = ({"cap": Fraction(x.cap or 0), "page": Fraction(x.page)} for x in (a, b))
    elif a.cell is None or b.cell is None:
        return _unexplained(total, a, b, before, after)
    else:
        first, second = _pair(a, b)
    shares = shapley(first, second)
    tokens = {_cause(factor, a, b, before, after): Fraction(0) for factor in shares}
    for factor, share in shares.items():
        tokens[_cause(factor, a, b, before, after)] += share
    residual = total - (_model(second) - _model(first))
    if residual:
        _settle(tokens, residual, a, b, before, after)
    whole = _whole(tokens, total)
    terms = [Term(cause, count, why(cause, a, b, before, after)) for cause, count in whole.items() if count]
    return sorted(terms, key=lambda term: (-abs(term.tokens), term.cause))


def _unexplained(total: int, a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> list[Term]:
    return [Term("unexplained", total, why("unexplained", a, b, before, after))] if total else []


def _settle(tokens: dict[str, Fraction], residual: int, a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> None:
    """What the formula's middle values leave over: rounding goes to the largest term, more than rounding to its own."""
    expected = expected_change(a, b)
    if tokens and expected is not None and b.tokens - a.tokens in expected:
        largest = max(tokens, key=lambda cause: abs(tokens[cause]))
        tokens[largest] += residual
        return
    cause = residual_cause(a, b, before, after)
    given = _left_by_digits(residual, a, b) if cause == "total_memory" else Fraction(residual)
    for name, share in ((cause, given), ("unexplained", residual - given)):
        if share:
            tokens[name] = tokens.get(name, Fraction(0)) + share


def _left_by_digits(residual: int, a: Budget, b: Budget) -> Fraction:
    """What of `residual` memory can have brought: all where it printed another value, else what its digits leave."""
    if a.total is None or b.total is None or not a.total.meets(b.total):
        return Fraction(residual)
    fractions = [x.fraction for x in (a, b) if x.fraction is not None]
    cells = [x.cell.low for x in (a, b) if x.cell is not None and x.cell.low > 0]
    if not fractions or not cells:
        return Fraction(0)
    moved = (b.total - a.total) * max(fractions)
    low, high = (Fraction(int(end / min(cells))) for end in (moved.low, moved.high))
    return min(max(Fraction(residual), low), high)


def _cause(factor: str, a: Budget, b: Budget, before: Snapshot, after: Snapshot) -> str:
    return cell_cause(a, b, before, after) if factor == "cell" else factor


def expected_change(a: Budget, b: Budget) -> Interval | None:
    """The changes of capacity that the printed digits allow, None where a term is not stated."""
    sides = [capacity_interval(x) for x in (a, b)]
    return sides[1] - sides[0] if sides[0] is not None and sides[1] is not None else None


def capacity_interval(x: Budget, rest: Interval | None = None) -> Interval | None:
    """The capacities that the printed digits of one start allow; `rest` replaces its own budget."""
    rest = rest or x.rest
    if x.is_capped:
        return Interval.of(x.tokens, unit="tokens")
    if rest is None or x.cell is None or x.cell.low <= 0:
        return None
    raw = (rest // x.cell).with_unit("tokens")
    if x.cap is not None:
        raw = raw.minimum(Interval.of(x.cap, unit="tokens"))
    return raw.floor_to(x.page)


def _pair(a: Budget, b: Budget) -> tuple[dict[str, Fraction | None], dict[str, Fraction | None]]:
    """The terms of both sides as single values; terms whose intervals meet did not change, and share one value."""
    first: dict[str, Fraction | None] = {}
    second: dict[str, Fraction | None] = {}

    def put(name: str, x: Interval | Fraction | int | None, y: Interval | Fraction | int | None) -> None:
        first[name], second[name] = _alike(x, y)

    if a.rest is not None and b.rest is not None:
        put("mem_fraction_static", a.fraction, b.fraction)
        put("total_memory", a.total, b.total)
        put("weights", a.taken, b.taken)
        put("state", a.state, b.state)
    else:
        put("unexplained", _implied(a), _implied(b))
    sizes = plain_element_bytes(a.dtype), plain_element_bytes(b.dtype)
    assert a.cell is not None
    assert b.cell is not None
    if sizes[0] and sizes[1] and sizes[0] != sizes[1]:
        put("kv_cache_dtype", sizes[0], sizes[1])
        put("cell", a.cell / sizes[0], b.cell / sizes[1])
    else:
        put("cell", a.cell, b.cell)
    put("cap", a.cap, b.cap)
    put("page", a.page, b.page)
    return first, second


def _implied(x: Budget) -> Interval:
    assert x.cell is not None
    return x.cell * Interval.of(x.tokens, x.tokens + x.page, "tokens")


def _alike(x: Interval | Fraction | int | None, y: Interval | Fraction | int | None) -> tuple[Fraction | None, Fraction | None]:
    if isinstance(x, Interval) and isinstance(y, Interval):
        if x.with_unit("").meets(y.with_unit("")):
            middle = (max(x.low, y.low) + min(x.high, y.high)) / 2
            return middle, middle
        return (x.low + x.high) / 2, (y.low + y.high) / 2
    assert not isinstance(x, Interval)
    assert not isinstance(y, Interval)
    return (None if x is None else Fraction(x)), (None if y is None else Fraction(y))


def _model(values: Values) -> int:
    """The capacity by the formula, from single values."""
    cap, page = values.get("cap"), int(values.get("page") or 1)
    if "cell" not in values:
        return int(cap or 0) // page * page
    if "unexplained" in values:
        budget = values["unexplained"]
    else:
        fraction, total = values["mem_fraction_static"], values["total_memory"]
        taken, state = values["weights"], values["state"]
        assert fraction is not None
        assert total is not None
        assert taken is not None
        assert state is not None
        budget = total * fraction - taken - state
    assert budget is not None
    cell = (values["cell"] or 1) * (values.get("kv_cache_dtype") or 1)
    tokens = budget // cell
    if cap is not None:
        tokens = min(tokens, int(cap))
    return int(tokens) // page * page


def shapley(a: Values, b: Values) -> dict[str, Fraction]:
    """For each term that differs: the mean, over all orders of changing the terms, of what its change brings."""
    changed = [name for name in a if a[name] != b[name]]
    worth: dict[frozenset[str], int] = {}
    for size in range(len(changed) + 1):
        for chosen in combinations(changed, size):
            worth[frozenset(chosen)] = _model({name: (b if name in chosen else a)[name] for name in a})
    shares: dict[str, Fraction] = {}
    count = len(changed)
    for name in changed:
        share = Fraction(0)
        for before, value in worth.items():
            if name not in before:
                weight = Fraction(factorial(len(before)) * factorial(count - len(before) - 1), factorial(count))
                share += weight * (worth[before | {name}] - value)
        shares[name] = share
    return shares


def _whole(tokens: Mapping[str, Fraction], total: int) -> dict[str, int]:
    """Whole tokens that add up to `total`: rounded down, then one more where the most was cut off.

    The first cause that is not nothing is counted upwards, so that the reverse comparison rounds the same way.
    """
    if next((share for _, share in sorted(tokens.items()) if share), 0) < 0:
        return {cause: -count for cause, count in _whole({cause: -share for cause, share in tokens.items()}, -total).items()}
    whole = {cause: int(share // 1) for cause, share in tokens.items()}
    left = total - sum(whole.values())
    for cause in sorted(tokens, key=lambda c: (whole[c] - tokens[c], c))[:left]:
        whole[cause] += 1
    return whole
