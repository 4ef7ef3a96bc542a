"""Worked scenarios with published figures; 1, 3 and 5 are in test_explain, what a change gives in test_whatif."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

import kvdiag
from kvdiag.checks.workload import parse_workload, plan, reserve_ratios
from kvdiag.pipeline import what_if
from kvdiag.releases import parse_release
from tests.conftest import FIXTURES

SCENARIOS = FIXTURES / "scenarios"


def start_of(name):
    (start,) = kvdiag.explain(str(SCENARIOS / name / "server.log")).starts
    return start


def checks_of(start, name):
    return [check for check in start.checks if check.name == name]


def test_scenario_2_the_mlx_backend_s_three_lines_agree_and_the_system_s_memory_binds():
    start = start_of("mlx-qwen3-0.6b")
    assert {check.verdict for check in start.checks} == {"agree"}
    (budget,) = checks_of(start, "rest_memory")
    assert budget.terms["binding"] == "mlx_sys_available"
    assert 48.49 * 0.4 * 2**30 in budget.recomputed
    (capacity,) = checks_of(start, "max_total_num_tokens")
    assert 181_574 in capacity.recomputed
    assert start.limits.full_length_requests == pytest.approx(181_574 / 40_960)


def test_scenario_4_one_h100_has_a_pool_of_50_to_55_gb_in_either_unit():
    start = start_of("h100-llama-3-8b")
    assert {check.verdict for check in start.checks} == {"agree"}
    pool = start.start.first("kv_pool_bytes").interval
    for unit in (2**30, 10**9):
        assert 50 <= pool.low / unit <= pool.high / unit <= 55
    tokens = start.limits.max_total_num_tokens
    assert tokens == int(pool.high // 131_072) or tokens * 131_072 in pool
    assert start.limits.full_length_requests == pytest.approx(tokens / 8192)


@pytest.mark.parametrize("page", [16, 64])
def test_scenario_4_a_page_wastes_less_than_itself(page):
    (prediction,) = what_if(str(SCENARIOS / "h100-llama-3-8b" / "server.log"), [{"page_size": page}])
    tokens = start_of("h100-llama-3-8b").limits.max_total_num_tokens
    assert prediction.max_total_num_tokens.low % page == 0
    assert tokens - page < prediction.max_total_num_tokens.low <= tokens


def test_scenario_6_an_fp8_cache_doubles_686_000_tokens_and_each_log_predicts_the_other():
    plain, halved = start_of("kimi-k2.6-bf16"), start_of("kimi-k2.6-fp8")
    tokens = plain.limits.max_total_num_tokens
    assert tokens == pytest.approx(686_000, rel=0.001)
    assert halved.limits.max_total_num_tokens == pytest.approx(1_370_000, rel=0.005)
    assert halved.limits.max_total_num_tokens in (2 * tokens, 2 * tokens + 1)
    for item in (plain, halved):
        assert {check.verdict for check in item.checks} == {"agree"}
    for of, dtype, expected in (("bf16", "fp8_e4m3", halved), ("fp8", "bfloat16", plain)):
        (prediction,) = what_if(str(SCENARIOS / f"kimi-k2.6-{of}" / "server.log"), [{"kv_cache_dtype": dtype}])
        assert expected.limits.max_total_num_tokens in prediction.max_total_num_tokens


def altered(tmp_path: Path, name: str, old: str, new: str) -> Path:
    text = (SCENARIOS / name / "server.log").read_text()
    assert old in text
    log = tmp_path / "server.log"
    log.write_text(text.replace(old, new))
    return log


@pytest.mark.parametrize(("name", "tokens"), [("h100-llama-3-8b", None), ("kimi-k2.6-bf16", None), ("mlx-qwen3-0.6b", 181_574)])
def test_a_capacity_altered_by_a_thousandth_disagrees(name, tokens, tmp_path):
    tokens = tokens or start_of(name).limits.max_total_num_tokens
    more = tokens + tokens // 1000 + 1
    log = altered(tmp_path, name, f"max_total_num_tokens={tokens}", f"max_total_num_tokens={more}")
    log.write_text(log.read_text().replace(f"pool_size={tokens}", f"pool_size={more}"))
    (start,) = kvdiag.explain(str(log)).starts
    assert "disagree" in {check.verdict for check in checks_of(start, "max_total_num_tokens")}


ODD = ["0", "-1", "1e400", "nan", "None", "'x'", "True", "999999999999999999999", "3.5", ""]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize(
    "name", ["mem_fraction_static", "page_size", "tp_size", "max_running_requests", "max_total_tokens", "dp_size"]
)
def test_an_argument_no_server_runs_with_is_passed_over(name, value, tmp_path):
    text = (SCENARIOS / "kimi-k2.6-bf16" / "server.log").read_text()
    log = tmp_path / "server.log"
    log.write_text(re.sub(rf"\b{name}=[^,)]+", f"{name}={value}", text))
    (start,) = kvdiag.explain(str(log)).starts
    assert start.checks
    what_if(str(log), [{"mem_fraction_static": 0.5, "tp_size": 4}])


@pytest.mark.parametrize("value", ["0.00", "-1.00", "99999999.00"])
def test_readings_no_gpu_has_give_no_fault(value, tmp_path):
    text = (SCENARIOS / "kimi-k2.6-bf16" / "server.log").read_text()
    log = tmp_path / "server.log"
    log.write_text(re.sub(r"avail mem=[\d.]+", f"avail mem={value}", text))
    (start,) = kvdiag.explain(str(log)).starts
    assert start.checks
    what_if(str(log), [{"mem_fraction_static": 0.5, "tp_size": 4}])


def test_a_log_without_server_args_says_which_tp_size_its_pool_line_fits(tmp_path):
    text = (SCENARIOS / "h100-llama-3-8b" / "server.log").read_text()
    log = tmp_path / "server.log"
    kept = [line for line in text.splitlines(True) if "server_args" not in line]
    log.write_text("".join(kept).replace("K size: 25.15 GB, V size: 25.15 GB", "K size: 6.29 GB, V size: 6.29 GB"))
    (start,) = kvdiag.explain(str(log), model="Meta-Llama-3-8B").starts
    (check,) = checks_of(start, "bytes_per_token")
    assert check.verdict == "unknown"
    assert any("fits tp_size 4" in text for text in check.missing)


def test_scenario_7_a_newcomer_is_charged_its_answer_and_the_running_a_decaying_part_of_theirs():
    ratios = reserve_ratios([parse_release("0.5.9")], 1.0)
    assert ratios == (Fraction(7, 10), Fraction(98, 1000))
    workload = parse_workload("prompt=1000,output=1000,concurrency=400")
    found = plan(workload, 116_171, page=1, cap=None, ratios=ratios)
    assert found.holds == 116_171 // 2000 == 58
    assert found.admitted_at_opening < found.admitted_at_lowest
    assert found.retracts_after is not None
