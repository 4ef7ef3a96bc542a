"""What a log lacks is not guessed: predictions and negative claims need the lines they rest on."""

from __future__ import annotations

import pytest

import kvdiag
from kvdiag.reports.text_report import render
from tests.conftest import FIXTURES

KIMI = FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log"
REAL = FIXTURES / "real"


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines(keepends=True)


def explained(tmp_path, lines, config=None):
    log = tmp_path / "server.log"
    log.write_text("".join(lines), encoding="utf-8")
    diagnosis = kvdiag.explain(str(log), config=str(config) if config else None)
    return diagnosis, diagnosis.starts[0]


def without_arguments(path):
    return [line for line in lines_of(path) if "server_args=" not in line]


@pytest.mark.parametrize("case", ["0.4.6-llama-gqa-flood-retract", "0.5.22-qwen3-tp2-bind", "0.5.9-deepseek-mla-bigpool"])
def test_without_server_args_no_budget_is_implied_and_no_capacity_predicted(tmp_path, case):
    """--max-total-tokens may have capped the pool, which then tells neither the budget nor the fraction."""
    _, start = explained(tmp_path, without_arguments(REAL / case / "server.log"), REAL / case)
    rest = [check for check in start.checks if check.name in ("rest_memory", "mem_fraction_static")]
    assert all(check.verdict == "unknown" and check.observed is None and check.recomputed is None for check in rest)
    assert any("--max-total-tokens" in why for check in rest for why in check.missing)
    assert not [finding for finding in start.findings if finding.gain]


def test_a_cpu_server_is_known_by_its_capacity_line_alone(tmp_path):
    """Its ranks share one memory: no rank has less, and nothing of a card stays unused."""
    case = REAL / "0.5.22-qwen3-tp2-bind"
    _, start = explained(tmp_path, without_arguments(case / "server.log"), case)
    assert not {finding.code for finding in start.findings} & {"KV601", "KV306", "KV309"}


def test_a_request_table_of_an_unknown_number_of_rows_has_no_size(tmp_path):
    lines = [line[:170] + "\n" if "server_args=" in line else line for line in lines_of(KIMI)]
    lines = [line.partition(", max_running_requests")[0] + "\n" if "max_total_num_tokens=" in line else line for line in lines]
    _, start = explained(tmp_path, lines)
    assert "request_table" not in {part.part for ledger in start.memory for part in ledger.parts}
    assert "KV308" not in {finding.code for finding in start.findings}


@pytest.mark.parametrize(
    ("until", "label"),
    [("max_total_num_tokens=", "free after the pools"), ("Memory pool end", "free after loading"), (None, "free at the end")],
)
def test_free_memory_is_named_by_the_moment_it_was_read(tmp_path, until, label):
    lines = lines_of(KIMI)
    if until:
        lines = lines[: next(number for number, line in enumerate(lines) if until in line)]
        lines = [line for line in lines if "graph" not in line]
    diagnosis, _ = explained(tmp_path, lines)
    assert label in render(diagnosis, width=100, colour=False)


def test_nothing_is_predicted_from_arithmetic_that_the_log_refutes(tmp_path):
    lines = [line.replace("mem_fraction_static=0.88", "mem_fraction_static=0.9") for line in lines_of(KIMI)]
    _, start = explained(tmp_path, lines)
    codes = {finding.code for finding in start.findings}
    assert "KV101" in codes
    assert not codes & {"KV201", "KV202", "KV318"}
    assert not [finding for finding in start.findings if finding.gain]


def test_stages_of_another_size_may_be_the_environments_doing(tmp_path):
    """SGLANG_PP_LAYER_PARTITION moves layers between stages, and no line of a log has it: unknown, not a false alarm."""
    log = FIXTURES / "scenarios" / "h100-llama-3-8b" / "server.log"
    lines = [line.replace("pp_size=1", "pp_size=2") for line in lines_of(log)]
    assert lines != lines_of(log)
    _, start = explained(tmp_path, lines)
    assert "disagree" not in {check.verdict for check in start.checks}
    assert any("SGLANG_PP_LAYER_PARTITION" in why for check in start.checks for why in check.missing)
