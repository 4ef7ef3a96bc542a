"""Files and functions stay within the bars of bench/sizes.py; a finding's rule with its documentation on one screen."""

from __future__ import annotations

import pytest

from bench import sizes
from tests.conftest import CHECKOUT, ROOT

pytestmark = pytest.mark.skipif(not CHECKOUT, reason="tests the checkout itself")


@pytest.mark.parametrize(("what", "bars"), [("files", sizes.FILE_BARS), ("functions", sizes.FUNCTION_BARS)])
def test_median_ninth_decile_and_largest_are_within_their_bars(what, bars):
    assert all(value <= bar for value, bar in zip(sizes.measured()[what], bars, strict=True)), sizes.measured()[what]


def test_a_findings_rule_is_at_most_eighty_lines():
    lines = {path.name: path.read_text(encoding="utf-8").count("\n") for path in (ROOT / "rules" / "findings").glob("*.toml")}
    assert not {name: count for name, count in lines.items() if count > sizes.RULE_BAR}


def test_every_function_says_what_it_returns():
    assert "annotated result: 100%" in sizes.page()
