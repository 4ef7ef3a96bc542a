"""The source's own arithmetic with values put in: what Python would give, or unknown with the reason."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvdiag.quantity import Interval
from kvdiag.source.evaluate import Evaluator, Unknown, exactly
from kvdiag.source.running import follow
from kvdiag.source.syntax import find, parse

HELD = {
    "a": exactly(7), "b": exactly(2), "zero": exactly(0), "wide": Interval(Fraction(-1), Fraction(3), ""),
    "yes": True, "no": False, "name": "fp8", "none": None, "self.page": exactly(16), "measured()": exactly(5),
}  # fmt: skip


def value_of(written, known=HELD):
    return Evaluator(known).value(parse(written.encode()).children[0].children[0])


@pytest.mark.parametrize(
    "written",
    [
        "a + b * 3 - 1", "a // b", "a / b", "a % b", "a ** b", "1 << 4", "1_000 + 0x10 + 0b11", "2.5 * b", "-a", "+a", "-(-a)",
        "min(a, b, 3)", "max(a, b)", "abs(-a)", "abs(b)", "int(a / b)", "float(a)",
        "a if yes else b", "a if no else b", "a if a > b else b", "a if b >= a else b", "a if b < 2 else b", "a if b <= 2 else b",
        "a if a == 7 else b", "a if a != 7 else b", "a if name == 'fp8' else b", "a if name != 'fp8' else b",
        "a if none is None else b", "a if none is not None else b", "a if yes is True else b",
        "a if not no else b", "a if no or yes else b", "a if yes and no else b", "none or a", "zero or a", "a and b", "no and a",
        "(b := a) + 1",
    ],
)  # fmt: skip
def test_an_expression_gives_what_python_gives(written):
    held = {"a": 7, "b": 2, "zero": 0, "yes": True, "no": False, "name": "fp8", "none": None}
    wanted = eval(written, {}, held)
    found = value_of(written)
    assert found == (exactly(Fraction(wanted)) if not isinstance(wanted, bool) else wanted)


@pytest.mark.parametrize(
    ("written", "low", "high"),
    [("abs(wide)", 0, 3), ("abs(wide - 4)", 1, 5), ("max(wide, b)", 2, 3), ("min(wide, b)", -1, 2), ("wide << 2", -4, 12)],
)
def test_a_value_known_within_bounds_stays_within_them(written, low, high):
    assert value_of(written) == Interval(Fraction(low), Fraction(high), "")


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("[a]", "is not arithmetic"), ("a @ b", "is not arithmetic"), ("0777 + a", "is not a plain number"),
        ("3j", "is not a plain number"),
        ("a + name", "is not of numbers"), ("min(a, name)", "is not of numbers"), ("min()", "is not of numbers"),
        ("a // zero", "//"), ("a % wide", "a remainder of what is not exact"), ("a % zero", "a remainder"),
        ("a ** wide", "a power of no small whole number"), ("b ** 200", "a power of no small"),
        ("a << wide", "a shift by no small"),
        ("a << -1", "a shift by no small"), ("other", "other is not known"), ("min(a, other)", "other is not known"),
        ("1 < a < 9", "is a chain"), ("a if wide > 0 else b", "whether wide > 0"), ("not other", "whether other"),
        ("wide == 0", "whether wide == 0"), ("a in b", "whether a in b"), ("a < other", "other is not known"),
        ("other < a", "other is not known"), ("other and a", "other is not known"), ("other(a)", "what other(a) gives"),
        ("a.f(b)", "what a.f(b) gives"), ("a if other else b", "whether other"), ("(yield)", "is not arithmetic"),
        ("self.other", "self.other is not known"),
    ],
)  # fmt: skip
def test_what_is_not_known_says_which_part_of_it(written, why):
    found = value_of(written)
    assert isinstance(found, Unknown)
    assert why in found.why


def test_a_side_that_decides_alone_needs_no_other():
    assert value_of("other and no") is False
    assert value_of("other or yes") is True
    assert value_of("no and other") is False


def test_a_value_is_known_by_its_whole_name_its_last_part_or_as_a_call():
    assert value_of("self.page") == exactly(16)
    assert value_of("runner.a") == exactly(7)
    assert value_of("self.measured()") == exactly(5)


@pytest.mark.parametrize(
    ("body", "returned"),
    [
        ("if a > 5:\n        return 1\n    elif a > 3:\n        return 2\n    else:\n        return 3", (1, 2, 3)),
        ("b = 0\n    if a > 5:\n        b = 1\n    elif a > 3:\n        b += 2\n    return b", (1, 2, 0)),
        ("with lock:\n        b = a\n    try:\n        return b * 2\n    except ValueError:\n        pass", (12, 8, 2)),
        ("b = a\n    b *= 3\n    b -= 1\n    return b", (17, 11, 2)),
        ("if (b := a) > 3:\n        pass\n    return b", (6, 4, 1)),
    ],
)  # fmt: skip
def test_statements_are_followed_as_python_runs_them(body, returned):
    function = find(parse(f"def f(a):\n    {body}\n".encode()), "f")
    for a, wanted in zip((6, 4, 1), returned, strict=True):
        assert follow(function, {"a": exactly(a)}).returned == exactly(wanted)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("b = 1\n    for i in a:\n        b = b + i\n    return b", "b is assigned in a loop"),
        ("b = 1\n    while odd():\n        b += 1\n    return b", "b is assigned in a loop"),
        ("b, c = pair(a)\n    return b", "b is one of several values given at once"),
        ("b = 1\n    b //= zero\n    return b", "b: "),
        ("b = 1\n    b += other\n    return b", "other is not known"),
        ("c += 1\n    return c", "c before it is not known"),
        ("b = 'x'\n    b += 1\n    return b", "b before it is not known"),
        ("if odd():\n        b = 1\n    else:\n        b = 2\n    return b", "b depends on whether odd()"),
        ("if odd():\n        b = 1\n    return b", "b depends on whether odd()"),
        ("if odd():\n        return 1\n    return 2", "conditions that are not known"),
        ("for i in a:\n        if i:\n            return i\n    return 2", "conditions that are not known"),
        ("b = 1\n    match a:\n        case 6:\n            b = 2\n    return b", "b is assigned in a loop or match"),
        ("pass", "no return was reached"),
        ("raise ValueError\n    return 1", "no return was reached"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_unknown_with_its_reason(body, why):
    function = find(parse(f"def f(a):\n    {body}\n".encode()), "f")
    returned = follow(function, {"a": exactly(6), "zero": exactly(0)}).returned
    assert isinstance(returned, Unknown)
    assert why in returned.why


def test_a_raise_under_an_unknown_condition_did_not_happen_in_a_server_that_ran():
    function = find(parse(b"def f(a):\n    if odd():\n        raise ValueError\n    return 2\n"), "f")
    assert follow(function, {}).returned == exactly(2)
