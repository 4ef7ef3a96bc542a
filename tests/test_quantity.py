"""Printed numbers and interval arithmetic: containment is the promise everything else rests on."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdiag.quantity import GIB, Interval, printed_interval
from kvdiag.quantity.dtype import canonical_dtype, spelled_dtype

VALUES = st.floats(-1e9, 1e9, allow_nan=False)
BOUNDS = st.fractions(-(10**6), 10**6, max_denominator=10**4)


@st.composite
def interval_and_member(draw, bounds=BOUNDS):
    low, high = sorted((draw(bounds), draw(bounds)))
    share = draw(st.fractions(0, 1, max_denominator=97))
    return Interval(low, high, "bytes"), low + (high - low) * share


@given(VALUES, st.integers(0, 6))
def test_a_value_lies_in_the_interval_read_from_its_printed_form(value, decimals):
    assert Fraction(value) in printed_interval(f"{value:.{decimals}f}" if decimals else f"{value:.1f}", "seconds")


@given(VALUES)
def test_a_repr_is_the_value_itself(value):
    read = printed_interval(repr(value), "fraction", rounded=False)
    assert float(read.low) == value == float(read.high)


def test_gib_digits_become_bytes():
    read = printed_interval("10.42", "GiB")
    assert read.unit == "bytes"
    assert (read.low, read.high) == (Fraction("10.415") * GIB, Fraction("10.425") * GIB)


@pytest.mark.parametrize(("text", "low", "high"), [("0.00", 0, "0.005"), ("-0.00", "-0.005", 0), ("-0.86", "-0.865", "-0.855")])
def test_the_side_of_zero_is_kept(text, low, high):
    read = printed_interval(text, "seconds")
    assert (read.low, read.high) == (Fraction(low), Fraction(high))


@pytest.mark.parametrize("text", ["", "nan", "inf", "1,024", "0x10", "٣", "1e99999", "825k"])
def test_what_is_no_plain_number_is_refused(text):
    with pytest.raises(ValueError, match="not a plain decimal number"):
        printed_interval(text, "seconds")


@given(interval_and_member(), interval_and_member())
def test_sums_differences_products_and_minima_hold_those_of_members(first, second):
    (a, x), (b, y) = first, second
    assert x + y in a + b
    assert x - y in a - b
    assert x * y in a * b
    assert min(x, y) in a.minimum(b)
    assert x in a.hull(b)
    assert y in a.hull(b)


@given(interval_and_member(), interval_and_member(st.fractions(Fraction(1, 100), 10**6, max_denominator=10**4)))
def test_quotients_and_floor_quotients_hold_those_of_members(first, second):
    (a, x), (b, y) = first, second
    assert x / y in a / b
    assert x // y in a // b


@given(interval_and_member(), st.integers(1, 512))
def test_rounding_to_a_page_holds_that_of_members(first, page):
    interval, member = first
    assert member // page * page in interval.floor_to(page)


@given(interval_and_member(), interval_and_member())
def test_intervals_meet_exactly_when_they_share_a_value(first, second):
    a, b = first[0], second[0]
    assert a.meets(b) == (max(a.low, b.low) <= min(a.high, b.high)) == b.meets(a)


def test_a_divisor_that_may_be_zero_is_refused():
    with pytest.raises(ZeroDivisionError):
        Interval.of(1, 2, "bytes") / Interval.of(-1, 1)


def test_units_do_not_mix():
    with pytest.raises(ValueError, match="bytes and tokens"):
        Interval.of(1, unit="bytes") + Interval.of(1, unit="tokens")


def test_a_type_of_amd_cards_is_stated_as_printed_and_sized_as_what_was_asked_for():
    assert spelled_dtype("torch.float8_e4m3fnuz") == "fp8_e4m3fnuz"
    assert spelled_dtype(" torch.float4_e2m1fn_x2") == "fp4_e2m1"
    assert canonical_dtype("torch.float8_e4m3fnuz") == canonical_dtype("torch.float8_e4m3fn") == "fp8_e4m3"
