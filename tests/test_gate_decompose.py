"""A change of capacity is taken apart without remainder, fairly, and by what the logs state."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvdiag.frozen import replace
from kvdiag.gate import observe
from kvdiag.gate.budget import Budget
from kvdiag.gate.decompose import decompose, expected_change
from kvdiag.gate.difference import difference
from kvdiag.quantity import GIB, Interval
from tests.gate_logs import LOGS, baseline

SCENARIOS = LOGS["kimi"].parent.parent
PLAIN = replace(baseline("kimi"), arguments={}, shapes=(), checks=())


def printed(gib: float) -> Interval:
    cents = Fraction(round(gib * 100), 100)
    return Interval((cents - Fraction(1, 200)) * GIB, (cents + Fraction(1, 200)) * GIB, "bytes")


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    """A server as SGLang sizes it from exact memory, and what its log prints of it."""
    total = draw(st.floats(20, 180))
    taken = total * draw(st.floats(0.05, 0.7))
    fraction = Fraction(draw(st.integers(75, 95)), 100)
    dtype, size = draw(st.sampled_from([("bfloat16", 2), ("fp8_e4m3", 1)]))
    cell, page = draw(st.integers(10_000, 100_000)) * size, draw(st.sampled_from([1, 16, 64]))
    cap = draw(st.none() | st.integers(1_000, 500_000))
    rest = Fraction(total - taken) - Fraction(total) * (1 - fraction)
    tokens = max(0, int(rest * GIB // cell))
    tokens = min(tokens, cap) if cap else tokens
    exact = Interval.of(cell, unit="bytes")
    return Budget(
        tokens // page * page, ("TP0",), printed(total - taken), printed(total), fraction, Interval.of(0, unit="bytes"), exact,
        exact * tokens, dtype, cap, page, 1, (1,),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(budgets(), budgets())
def test_the_terms_add_up_and_the_reverse_has_the_other_sign(a: Budget, b: Budget):
    there, back = decompose(a, b, PLAIN, PLAIN), decompose(b, a, PLAIN, PLAIN)
    assert sum(term.tokens for term in there) == b.tokens - a.tokens
    ahead = {term.cause: term.tokens for term in there}
    behind = {term.cause: term.tokens for term in back}
    for cause in ahead.keys() | behind.keys():
        assert abs(ahead.get(cause, 0) + behind.get(cause, 0)) <= 1


@settings(max_examples=60, deadline=None)
@given(budgets(), budgets())
def test_what_the_printed_digits_allow_holds_the_real_change(a: Budget, b: Budget):
    expected = expected_change(a, b)
    assert expected is not None
    if a.tokens and b.tokens:
        assert b.tokens - a.tokens in expected


@settings(max_examples=60, deadline=None)
@given(budgets(), st.integers(70, 97))
def test_one_cause_takes_the_whole_change(a: Budget, percent: int):
    """Whatever the rounding of the digits hides, what changed is the only argument that changed."""
    if a.cap is not None or a.total is None or a.available is None or a.cell is None:
        return
    fraction = Fraction(percent, 100)
    middle = (a.total.low + a.total.high) / 2
    moved = int(middle * (fraction - (a.fraction or 0)) // a.cell.low)
    b = replace(a, fraction=fraction, tokens=max(0, (a.tokens + moved) // a.page * a.page))
    expected = expected_change(a, b)
    if expected is not None and b.tokens != a.tokens and b.tokens - a.tokens in expected and fraction != a.fraction:
        assert [term.cause for term in decompose(a, b, PLAIN, PLAIN)] == ["mem_fraction_static"]


def test_two_logs_of_one_deployment_differ_by_the_fraction_alone():
    found = difference(observe(str(LOGS["kimi"])), observe(str(SCENARIOS / "kimi-k2.5-f0.85" / "server.log")))
    assert found.total == -43_106
    assert [(term.cause, term.tokens) for term in found.terms] == [("mem_fraction_static", -43_106)]


def test_smaller_weights_and_a_smaller_dtype_share_the_gain():
    found = difference(observe(str(LOGS["l4"])), observe(str(SCENARIOS / "l4-fp8" / "server.log")))
    assert found.total == 142_369 - 24_094
    assert {term.cause for term in found.terms} == {"weights", "kv_cache_dtype"}
    assert all(term.tokens > 0 for term in found.terms)


def test_a_release_that_caps_otherwise_is_named_and_not_memory():
    """0.5.9 splits the window pools after the cap, 0.5.22 before it: the readings of memory have no part in it."""
    text = LOGS["swa"].read_text(encoding="utf-8")
    newer = observe(str(LOGS["swa"])).snapshot
    older = replace(newer, release=("0.5.9", "0.5.9"), numbers=tuple(_scaled(n) for n in newer.numbers))
    assert "max_total_tokens': 2048" in text
    from kvdiag.gate.budget import budget_of

    a, b = budget_of(older), budget_of(newer)
    assert a is not None
    assert b is not None
    assert [(t.cause, t.tokens) for t in decompose(a, b, older, newer)] == [("release", -227)]


def _scaled(number):
    if number.name in ("max_total_num_tokens", "full_max_total_num_tokens", "pool_tokens"):
        return replace(number, value=Interval.of(2275, unit="tokens"))
    return number


@pytest.mark.parametrize("lines", ["max_total_num_tokens", "server_args"])
def test_what_the_logs_lack_is_said(lines: str, tmp_path):
    """With the capacity alone, nothing is attributed to anything."""
    paths = []
    for name, log in (("a", LOGS["kimi"]), ("b", SCENARIOS / "kimi-k2.5-f0.85" / "server.log")):
        kept = [line for line in log.read_text(encoding="utf-8").splitlines() if "max_total_num_tokens=" in line or lines in line]
        path = tmp_path / f"{name}.log"
        path.write_text("\n".join(kept) + "\n", encoding="utf-8")
        paths.append(str(path))
    found = difference(observe(paths[0]), observe(paths[1]))
    assert [(term.cause, term.tokens) for term in found.terms] == [("unexplained", -43_106)]
    assert "Load weight begin" in found.terms[0].why
