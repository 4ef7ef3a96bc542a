"""Workloads in users, other sources beside the log, Markdown and masking."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvdiag
from kvdiag.checks.workload import Workload, parse_workload, plan, reserve_ratios
from kvdiag.errors import InputError
from kvdiag.outside.gpu import read_gpu
from kvdiag.outside.metrics import read_metrics
from kvdiag.outside.server_info import server_info
from kvdiag.releases import parse_release
from kvdiag.reports.markdown_report import escaped, render
from kvdiag.reports.mask import Mask
from tests.conftest import FIXTURES, SHARED

KIMI = FIXTURES / "scenarios" / "kimi-k2.5-f0.85" / "server.log"
NOW = reserve_ratios([parse_release("0.5.9")], 1.0)


def test_scenario_5_24094_tokens_hold_37_requests_of_640_tokens_and_27_of_64_wait():
    planned = plan(Workload(500, 140, 64), 24_094)
    assert planned.holds == 37
    assert 64 - planned.holds == 27


def test_the_reserve_falls_from_0_7_to_a_seventh_of_it_and_conservativeness_scales_it():
    assert (Fraction(7, 10), Fraction(98, 1000)) == NOW
    assert reserve_ratios([parse_release("0.5.9")], 2.0)[0] == 1
    assert reserve_ratios([parse_release("0.2.5"), parse_release("0.5.9")], 1.0) is None


@given(st.integers(1, 5000), st.integers(1, 9000), st.integers(100, 10**6), st.sampled_from([1, 16, 64]))
def test_a_plan_admits_no_more_than_the_rule_and_never_fewer_at_the_lower_reserve(prompt, output, tokens, page):
    planned = plan(Workload(prompt, output), tokens, page=page, ratios=NOW)
    assert planned.admitted_at_opening <= planned.admitted_at_lowest
    answer = min(output, 4096)
    for admitted, ratio in zip((planned.admitted_at_opening, planned.admitted_at_lowest), NOW, strict=True):
        own = -(-prompt // page) * page

        def fits(running, ratio=ratio, own=own):
            return prompt + answer < tokens - running * (own + answer * ratio)

        assert admitted == 0 or fits(admitted - 1)
        assert not fits(admitted)


@pytest.mark.parametrize(
    "text", ["", "prompt=2000", "prompt=x,output=5", "prompt=5,output=5,shared_prefix=5", "prompt=5,output=5,foo=1"]
)
def test_a_workload_that_is_none_is_refused_with_an_example(text):
    with pytest.raises(InputError):
        parse_workload(text)


def test_explain_plans_the_workload_it_is_given(kvdiag):
    done = kvdiag(
        "explain", str(KIMI), "--workload", "prompt=2000,output=500,concurrency=256,shared_prefix=800", "--format", "json"
    )
    planned = json.loads(done.stdout)["starts"][0]["workload"]
    assert planned["plan"]["holds"] == (116_171 - 800) // 1_700
    assert planned["plan"]["waits"] == 256 - planned["plan"]["admitted_at_lowest"]


def test_server_info_that_differs_from_the_log_is_a_finding():
    stated = server_info(json.dumps({"max_total_num_tokens": 159_277, "tp_size": 8, "mem_fraction_static": 0.88}), "info")
    from kvdiag.pipeline import explain

    found = [f for f in explain([str(KIMI)], outside=stated).starts[0].findings if f.code == "KV901"]
    assert {"max_total_num_tokens", "mem_fraction_static"} == {finding.title.split("another ")[1].split()[0] for finding in found}


@pytest.mark.shared
def test_the_info_and_metrics_of_the_real_servers_agree_with_their_logs():
    from kvdiag.outside.server_info import read_server_info
    from kvdiag.pipeline import explain

    for info in sorted((SHARED / "real-logs").glob("*/*/server_info.json")):
        stated = read_server_info(str(info))
        metrics = info.parent / "metrics.txt"
        if metrics.exists():
            stated += read_metrics(str(metrics))
        for start in explain([str(info.parent / "server.log")], outside=stated).starts:
            assert "KV901" not in [finding.code for finding in start.findings], info


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 5000, "nothing"])
def test_what_is_no_server_info_is_refused(text):
    with pytest.raises(InputError):
        server_info(text, "file")


def test_nvidia_smi_gives_the_card_and_other_processes(tmp_path):
    file = tmp_path / "smi.txt"
    file.write_text(
        "| 30%   35C    P8    20W / 450W |  17510MiB / 24564MiB |      0%      Default |\n"
        "|    0   N/A  N/A      1234      C   /opt/other/trainer                  16384MiB |\n"
        "|    0   N/A  N/A      4321      C   sglang::scheduler                    1024MiB |\n"
    )
    found = {stated.name: stated.value for stated in read_gpu(str(file))}
    assert found["gpu_total"].low == 24_564 * 2**20
    assert found["gpu_others"].low == 16_384 * 2**20


def test_masking_replaces_the_same_by_the_same_and_leaves_numbers_alone():
    text = "/home/anna/models/x at 10.1.2.3 and 10.1.2.3, http://box-7.corp:30000/v1, hf_abcdefghijkl, 0.5.9, 1,234.5 at 0.0.0.0"
    masked = Mask()(text)
    for secret in ("anna", "10.1.2.3", "box-7", "hf_abc"):
        assert secret not in masked
    assert masked.count("<address1>") == 2
    assert "0.5.9, 1,234.5 at 0.0.0.0" in masked


@given(st.text(max_size=60))
def test_text_of_a_log_has_no_meaning_in_markdown(text):
    shown = escaped(text)
    assert "\n" not in shown
    assert "<" not in shown


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_total_num_tokens is min(a, b) of tiny-qwen3!", None),
        ("0.88 of 21.71 GiB", None),
        ("--mem-fraction-static 0.9", None),
        ("#tokens: 5 of #12", "#tokens: 5 of \\#12"),
        ("*a* _b_ [c](d) `e` ~f~ |g|", "\\*a\\* \\_b\\_ \\[c\\](d) \\`e\\` \\~f\\~ \\|g\\|"),
        ("- a list", "\\- a list"),
        ("1. a list", "1\\. a list"),
        ("# a head", "\\# a head"),
        ("---", "\\---"),
        ("<b> @anna", "&#60;b&#62; &#64;anna"),
    ],
)
def test_only_what_markdown_reads_as_more_than_text_is_escaped(text, told):
    assert escaped(text) == (text if told is None else told)


def test_the_table_of_numbers_has_ranks_lines_roles_and_reasons():
    eagle = Path(KIMI).parents[2] / "real" / "0.5.9-llama-gqa-eagle-start"
    rows = [
        line for line in render(kvdiag.explain(str(eagle / "server.log"), config=str(eagle))).splitlines() if line[:2] == "| "
    ]
    assert "| bytes_per_token |  | implied: 505..518 bytes | 512 bytes | agree | 45 |" in rows
    (draft,) = (row for row in rows if row.startswith("| kv_pool_bytes of the draft |"))
    assert "unknown, because the draft model's config is not known" in draft
    assert draft.endswith("| 54 |")
    ranks = render(kvdiag.explain(str(KIMI)))
    assert "| kv_pool_bytes | TP0 and 7 more |" in ranks


def test_markdown_holds_the_findings_and_folds_the_rest():
    text = render(kvdiag.explain(str(KIMI)))
    assert "KV510" in text
    assert text.count("<details>") == text.count("</details>") == 2


def test_a_diagnosis_gives_its_json_and_shows_itself_in_a_notebook():
    diagnosis = kvdiag.explain(str(KIMI))
    assert diagnosis.to_dict()["schema"] == "kvdiag.explain/1"
    assert diagnosis._repr_markdown_() == render(diagnosis)


@pytest.mark.parametrize(
    ("text", "code", "first"),
    [
        ("ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.925", "KV003", "0.5.14"),
        ("max_mamba_cache_size=4, mamba_ratio=5, resulting max_num_reqs=0", "KV412", None),
        ("Exception: Capture cuda graph failed: ", "KV011", None),
    ],
)
def test_the_beginning_of_an_error_is_enough_where_the_rest_was_cut_off(text, code, first, tmp_path):
    (tmp_path / "log").write_text(text + "\n")
    start = kvdiag.explain(str(tmp_path / "log")).starts[0]
    assert start.findings[0].code == code
    assert first is None or str(start.start.release.possible.first) == first


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("INFO 08-07 21:32:22 [serve.py:119] Defaulting api_server_count to data_parallel_size (8).", "vllm"),
        ("[2025-09-09 15:10:37] TPU Memory profiling: available_device_memory=70.4GB, max_tokens=315424", "sglang-jax"),
    ],
)
def test_a_neighbour_s_log_is_named_whatever_prefix_it_prints(line, name, tmp_path):
    (tmp_path / "log").write_text(line + "\n")
    with pytest.raises(kvdiag.KvdiagError, match=name):
        kvdiag.explain(str(tmp_path / "log"))
