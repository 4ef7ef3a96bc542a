"""How much a report says, and plans in users wherever a capacity is told."""

from __future__ import annotations

import json
import re

import pytest

from tests.conftest import ROOT

KIMI = ROOT / "fixtures" / "scenarios" / "kimi-k2.5-f0.85" / "server.log"
WORKLOAD = "prompt=2000,output=500,concurrency=256,shared_prefix=800"


def test_quiet_says_what_is_found_and_what_limits(kvdiag):
    for command in ("explain", "postmortem"):
        usual, quiet = (kvdiag(command, str(KIMI), *more).stdout for more in ((), ("--quiet",)))
        titles = [re.findall(r"^KV.*$", text, re.M) for text in (usual, quiet)]
        assert titles[0] == titles[1] != []
        assert "kv_pool" in quiet
        assert len(quiet) < len(usual)


def test_verbose_has_the_chain_of_every_number(kvdiag):
    said = kvdiag("explain", str(KIMI), "--verbose").stdout
    start = json.loads(kvdiag("explain", str(KIMI), "--format", "json").stdout)["starts"][0]
    for number in start["numbers"]:
        assert re.search(rf"^  {re.escape(number['name'])} .*line {number['line']}\b", said, re.M), number
    for check in start["checks"]:
        assert f"{check['name']} [{check['rank']}]" in said
        for term in check["terms"]:
            assert f"\n          {term} = " in said
    for ledger in {part["rank"] for part in start["memory"]}:
        assert f"Memory of {ledger}" in said


def test_a_postmortem_begins_with_what_happened(kvdiag):
    said = kvdiag("postmortem", str(KIMI)).stdout
    assert said.index("What happened over time") < said.index("Findings")
    assert "How the numbers follow" not in said
    assert "How the numbers follow" in kvdiag("postmortem", str(KIMI), "--verbose").stdout


def test_drafting_is_told_from_arguments_and_decode_lines(kvdiag, tmp_path):
    assert "EAGLE3" in kvdiag("explain", str(KIMI)).stdout
    bare = tmp_path / "bare.log"
    bare.write_text(
        "[2026-01-05 10:10:29 TP0] Decode batch, #running-req: 4, #token: 26, token usage: 0.26, accept len: 2.50, "
        "cuda graph: True, gen throughput (token/s): 181.73, #queue-req: 0\n"
    )
    assert "Speculative decoding: on, by the decode lines" in kvdiag("explain", str(bare)).stdout


def test_the_codes_of_a_report_can_be_looked_up(kvdiag):
    for words in (("explain", str(KIMI)), ("diff", str(KIMI), str(KIMI).replace("f0.85", "f0.88"))):
        said = kvdiag(*words).stdout
        code = re.search(r"kvdiag rules show (K[VD]\d+)", said).group(1)
        assert kvdiag("rules", "show", code).stdout.startswith(f"# {code}")
    assert "A line" in said
    assert "baseline line" not in said


def test_size_and_whatif_plan_the_same_workload_as_explain(kvdiag):
    explained = json.loads(kvdiag("explain", str(KIMI), "--workload", WORKLOAD, "--format", "json").stdout)["starts"][0][
        "workload"
    ]
    arguments = ("whatif", str(KIMI), "--mem-fraction-static", "0.85", "--workload", WORKLOAD, "--format", "json")
    (same,) = json.loads(kvdiag(*arguments).stdout)
    assert same["workload"]["least"]["holds"] <= explained["plan"]["holds"] <= same["workload"]["most"]["holds"]
    for lever in explained["levers"]:
        if "mem_fraction_static" in lever["change"]:
            fraction = str(lever["change"]["mem_fraction_static"])
            (then,) = json.loads(kvdiag(*arguments[:3], fraction, *arguments[4:]).stdout)
            assert then["workload"]["least"]["holds"] <= lever["most"]["holds"]
            assert lever["least"]["holds"] <= then["workload"]["most"]["holds"]
    sized = kvdiag(
        *("size", "--model", "Llama-3.1-8B", "--release", "0.5.9", "--avail", "62", "--total", "78"),
        *("--mem-fraction-static", "0.85", "--workload", WORKLOAD, "--format", "json"),
    )
    planned = json.loads(sized.stdout)
    assert planned["workload"]["plan"]["holds"] == (planned["max_total_num_tokens"] - 800) // 1700
    assert planned["workload"]["plan"]["waits"] == 0


@pytest.mark.parametrize("command", ["explain", "whatif", "size"])
def test_a_workload_that_is_none_is_refused_by_each_command(kvdiag, command):
    more = {
        "explain": [str(KIMI)],
        "whatif": [str(KIMI), "--page-size", "1"],
        "size": ["--model", "Llama-3.1-8B", "--release", "0.5.9"],
    }
    done = kvdiag(command, *more[command], "--workload", "prompt=2")
    assert done.returncode == 2
    assert "--workload" in done.stderr


def test_several_rules_are_shown_at_once_as_the_report_s_last_line_says(kvdiag):
    line = " ".join(kvdiag("explain", str(KIMI)).stdout.splitlines()[-2:])
    codes = re.findall(r"KV\d+", line)
    assert len(codes) > 3
    shown = kvdiag("rules", "show", *codes).stdout
    assert all(re.search(rf"^# {code}\b", shown, re.M) for code in codes)


def test_why_the_longest_request_is_less_than_the_pool_is_said_beside_it(kvdiag):
    said = " ".join(kvdiag("explain", str(KIMI)).stdout.split())
    assert "No request longer than 116,165 tokens can run (the pool less the 6 that a request must leave)" in said


def test_nobody_is_told_to_use_fewer_gpus_on_a_cpu(kvdiag):
    log = ROOT / "fixtures" / "real" / "0.5.23-qwen3-memfrac005-nocap" / "server.log"
    said = " ".join(kvdiag("explain", str(log)).stdout.split())
    assert "send more." in said
    assert "GPUs" not in said.partition("Findings")[2]
