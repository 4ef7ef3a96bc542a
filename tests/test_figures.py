"""Quantities in sentences: digits that mean something, bounds on the right side, no zero that is none."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdiag.checks.phrase import show
from kvdiag.quantity import GIB, Interval
from kvdiag.quantity.figures import figure, memory, rounded_down, rounded_up

NUMBERS = st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=10**9)
_ZERO = re.compile(r"-?0(\.0+)?(?![\d.,])")


def value_of(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


@given(NUMBERS, st.integers(0, 4))
def test_only_zero_prints_as_zero_and_never_with_a_minus(number, decimals):
    text = figure(number, decimals)
    assert (value_of(text) == 0) == (number == 0)
    assert not text.startswith("-0") or value_of(text) < 0


@given(NUMBERS, st.integers(0, 4))
def test_a_bound_is_rounded_to_the_side_on_which_it_stays_true(number, decimals):
    assert value_of(rounded_up(number, decimals)) >= number >= value_of(rounded_down(number, decimals))


@given(st.fractions(min_value=-100, max_value=100), st.fractions(min_value=0, max_value=1))
def test_memory_never_says_minus_zero_or_a_zero_for_a_size_that_is_known(low, width):
    interval = Interval(low * GIB, (low + width) * GIB, "bytes")
    text = memory(interval)
    assert "-0.00" not in text
    if interval.is_exact and abs(low * GIB) >= 1:
        assert not _ZERO.match(text)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (Fraction(0), Fraction(5, 1000), "under 5.2 MiB"),
        (Fraction(0), Fraction(5, 100), "under 0.05 GiB"),
        (Fraction(-5, 1000), Fraction(0), "0.00 GiB"),
        (Fraction(85, 1000), Fraction(95, 1000), "0.09 GiB"),
        (Fraction(-3, 100), Fraction(3, 100), "-0.03 to 0.03 GiB"),
        (Fraction(2, 1024), Fraction(2, 1024), "2.0 MiB"),
        (Fraction(41705, 1000), Fraction(41715, 1000), "41.71 GiB"),
    ],
)
def test_memory_as_people_read_it(low, high, said):
    assert memory(Interval(low * GIB, high * GIB, "bytes")) == said


def test_advice_of_a_tiny_fraction_is_enough_to_follow():
    """What 'at least' names must itself be enough."""
    assert show(Fraction("0.00048"), "up3") == "0.00048"
    assert show(0.00504, "up3") == "0.006"
    assert show(0.00504, "up4") == "0.0051"
