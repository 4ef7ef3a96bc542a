"""What a report shows of a check gives its verdict: values filled in, units that suit, digits that tell two sides apart."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdiag.pipeline import explain
from kvdiag.quantity import GIB, Interval
from kvdiag.quantity.ends import apart, ends
from kvdiag.reports.text_report import render
from tests.conftest import FIXTURES

KIMI = FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log"
EAGLE = FIXTURES / "real" / "0.5.9-llama-gqa-eagle-start"
H100 = FIXTURES / "scenarios" / "h100-llama-3-8b" / "server.log"
POINTS = st.integers(0, 10**12)


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        (Interval.of(5_368_709, Fraction(15 * GIB, 1000), "bytes"), "0.005..0.015 GiB"),
        (Interval.of(0, 5_368_709, "bytes"), "0.0..5.1 MiB"),
        (Interval.of(2_097_664, unit="bytes"), "2,097,664 bytes"),
        (Interval.of(70_211, 70_278, "bytes"), "70,211..70,278 bytes"),
        (Interval.of(Fraction(88, 100), unit="fraction"), "0.8800"),
        (Interval.of(4096, unit="tokens"), "4,096 tokens"),
    ],
)
def test_both_ends_are_told_in_one_unit_that_suits_them(interval, told):
    assert ends(interval) == told


@given(POINTS, POINTS, POINTS, st.integers(1, 10**6), st.sampled_from(["bytes", "tokens", "fraction"]))
def test_two_sides_that_cannot_both_be_true_never_look_alike(low, width, other, gap, unit):
    scale = 10**12 if unit == "fraction" else 1
    first = Interval.of(Fraction(low, scale), Fraction(low + width, scale), unit)
    second = Interval.of(first.high + Fraction(gap, scale), first.high + Fraction(gap + other, scale), unit)
    one, two = apart(first, second)
    assert one != two
    assert one.split("..")[-1].split()[0] != two.split("..")[0].split()[0] or one.split()[-1] != two.split()[-1]


def report(log, config=None, draft_config=None):
    return " ".join(render(explain([str(log)], config=config and str(config), draft_config=draft_config)).split())


def test_a_disagreement_is_seen_in_the_digits(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(KIMI.read_text().replace("159277", "159200"))
    assert "NO mem_fraction_static [TP0]: log 0.88000, recomputed 0.87987..0.87999" in report(log)


def test_what_no_line_prints_is_said_to_be_implied():
    told = report(KIMI)
    assert "rest_memory [TP0]: log implies 10.424 GiB" in told
    assert "bytes_per_token [TP0]: log implies" in told
    assert "kv_pool_bytes [TP0]: log 10.415" in told


def test_a_cap_stands_in_the_formula_of_the_capacity(tmp_path):
    log = tmp_path / "server.log"
    text = H100.read_text().replace("max_total_tokens=None", "max_total_tokens=100000").replace("page_size=1,", "page_size=16,")
    log.write_text(text.replace("411994", "100000").replace("25.15 GB", "6.10 GB"))
    told = report(log)
    assert "// bytes_per_token 131,072; then at most max_total_tokens 100,000, floored to page_size 16" in told
    assert "; then" not in report(H100)


def test_the_request_cap_is_told_with_its_values_and_by_the_release_s_own_rule():
    assert "min(max_total_num_tokens 411,994 // 2, clamp(max_total_num_tokens / context_length 8,192 x 512" in report(H100)
    assert "= max_running_requests 150 as asked" in report(KIMI)
    newer = FIXTURES / "real" / "0.5.22-gpt-oss-swa-triton"
    told = report(newer / "server.log", newer)
    assert "= min(max_running_requests 8 as asked, max_total_num_tokens 2,048 // 2)" in told
    assert "= full_max_total_num_tokens 2,048 x swa_full_tokens_ratio 0.8, floored to page_size 1" in told


def test_what_is_free_after_the_pool_is_told_with_all_that_is_taken_off():
    (start,) = explain([str(KIMI)]).starts
    check = next(check for check in start.checks if check.name == "memory_after_pool")
    low, high = (Fraction(0), Fraction(0))
    for index, value in enumerate(check.terms.values()):
        low, high = (low + value["low"], high + value["high"]) if not index else (low - value["high"], high - value["low"])
    assert (float(low), float(high)) == pytest.approx((float(check.recomputed.low), float(check.recomputed.high)))


def test_the_draft_s_checks_are_told_from_the_target_s():
    told = report(EAGLE / "server.log", EAGLE)
    assert "bytes_per_token of the draft: log implies 118..131 bytes" in told
    assert "memory_after_pool of the draft:" in told


def test_memory_that_cannot_be_shared_out_says_why(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(
        H100.read_text().replace("mem usage=15.01 GB", "mem usage=-0.16 GB").replace("avail mem=63.67", "avail mem=78.84")
    )
    assert "Memory: unknown, because free memory grew by 0.16 GiB while the weights were loaded (line 3)" in report(log)
    log.write_text("".join(line for line in H100.read_text().splitlines(True) if "Load weight" not in line))
    assert "Memory: unknown" not in report(log)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("0.5.22-qwen3-tp2-bind", "Below zero, or more than was free: free memory rose between two readings"),
        ("0.5.9-qwen3-memfrac005-nocap", "unexplained -0.026..0.014 GiB . free at the end"),
        ("0.5.9-qwen3-memfrac005-nocap", "too little for the digits of the log to tell from nothing"),
    ],
)
def test_amounts_below_zero_have_both_ends_and_a_reason(name, told):
    assert told in report(FIXTURES / "real" / name / "server.log")
    assert "elow zero" not in report(KIMI)
