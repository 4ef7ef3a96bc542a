"""The main job from end to end: scenarios from published figures, real logs, unusable inputs."""

from __future__ import annotations

import json
import re

import pytest

import kvdiag
from tests.conftest import FIXTURES, SHARED

SCENARIOS = FIXTURES / "scenarios"


def verdicts(diagnosis):
    return {check.name: check.verdict for item in diagnosis.starts for check in item.checks}


@pytest.mark.parametrize(
    ("model", "config_keys", "tp", "expected"),
    [
        ("Qwen3-0.6B", {}, 1, 114_688),
        ("Llama-3.1-8B", {}, 1, 131_072),
        ("Llama-3.1-70B", {}, 1, 327_680),
        ("Llama-3.1-70B", {}, 8, 40_960),
        ("DeepSeek-V3", {}, 8, 70_272),
    ],
)
def test_scenario_1_the_cost_of_a_token(model, config_keys, tp, expected):
    from kvdiag.models.catalogue import catalogue_entry

    entry = catalogue_entry(model)
    assert entry is not None
    sized = kvdiag.size(config=entry["config"] | config_keys, release="0.5.9", args={"tp_size": tp})
    assert sized.bytes_per_token == expected


def test_scenario_1_fp8_halves_the_cost():
    from kvdiag.models.catalogue import catalogue_entry

    entry = catalogue_entry("Llama-3.1-8B")
    assert entry is not None
    sized = kvdiag.size(config=entry["config"], release="0.5.9", args={"kv_cache_dtype": "fp8_e4m3"})
    assert sized.bytes_per_token == 65_536


@pytest.mark.parametrize(("fraction", "tokens"), [("0.88", 159_277), ("0.85", 116_171)])
def test_scenario_3_both_logs_agree_with_the_arithmetic(fraction, tokens):
    diagnosis = kvdiag.explain(str(SCENARIOS / f"kimi-k2.5-f{fraction}" / "server.log"))
    assert set(verdicts(diagnosis).values()) == {"agree"}
    capacity = next(check for check in diagnosis.starts[0].checks if check.name == "max_total_num_tokens")
    assert tokens in capacity.recomputed
    assert diagnosis.starts[0].limits.max_total_num_tokens == tokens


def test_scenario_5_fp8_weights_and_fp8_cache_give_5_9_times_the_tokens():
    first, second = (
        kvdiag.explain(str(SCENARIOS / name / "server.log"), model="Llama-3.1-8B").starts[0] for name in ("l4-bf16", "l4-fp8")
    )
    assert (first.limits.max_total_num_tokens, second.limits.max_total_num_tokens) == (24_094, 142_369)
    for item in (first, second):
        assert {check.verdict for check in item.checks} == {"agree"}
    assert first.limits.max_total_num_tokens // 640 == 37


@pytest.mark.parametrize("altered", [159_277 + 160, 159_277 - 160])
def test_a_capacity_altered_by_a_thousandth_disagrees_with_its_line_and_both_intervals(altered, tmp_path):
    text = (SCENARIOS / "kimi-k2.5-f0.88" / "server.log").read_text()
    log = tmp_path / "altered.log"
    log.write_text(text.replace("max_total_num_tokens=159277", f"max_total_num_tokens={altered}"))
    start = kvdiag.explain(str(log)).starts[0]
    check = next(check for check in start.checks if check.name == "max_total_num_tokens")
    assert check.verdict == "disagree"
    assert 51 in check.lines
    finding = next(finding for finding in start.findings if finding.code == "KV101")
    assert f"{altered:,}" in finding.message
    assert f"{int(check.recomputed.low):,}" in finding.message


FAILURES = {"KV001", "KV002"}
"""The finding that a failed start must begin with: an exception, or weights that leave nothing under the fraction."""

REAL = sorted((FIXTURES / "real").iterdir())


@pytest.mark.parametrize("case", REAL, ids=[case.name for case in REAL])
def test_a_real_log_gives_a_result_without_disagreement(case, kvdiag):
    done = kvdiag("explain", str(case / "server.log"), "--config", str(case), "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (start,) = result["starts"]
    release = re.match(r"[\d.]+", case.name).group().rstrip("-")
    assert start["release"]["first"] <= release <= start["release"]["last"]
    assert [check for check in start["checks"] if check["verdict"] == "disagree"] == []
    assert all(check["missing"] for check in start["checks"] if check["verdict"] == "unknown")
    if "fail" in case.name:
        assert start["findings"][0]["code"] in FAILURES
    else:
        assert start["limits"]["max_total_num_tokens"] > 0


@pytest.mark.shared
def test_every_shared_real_log_gives_a_result_without_disagreement():
    for log in sorted((SHARED / "real-logs").glob("*/*/server.log")):
        config = log.parent / "config.json"
        try:
            diagnosis = kvdiag.explain(str(log), config=str(config) if config.exists() else None)
        except kvdiag.KvdiagError as error:
            assert log.parent.name == "fail-missing-model-abs", error  # noqa: PT017 - the one log with no server line
            assert "SGLang failed before it printed a line of its own: OSError: Can't load" in str(error)  # noqa: PT017
            continue
        for item in diagnosis.starts:
            assert "disagree" not in {check.verdict for check in item.checks}, log
            if log.parent.name.startswith("fail"):
                assert item.findings[0].code in FAILURES, log
            else:
                assert item.start.first("max_total_num_tokens") is not None, log
                assert item.start.first("kv_pool_bytes") is not None, log


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (b"", 3, "empty"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 100, 2, "picture"),
        (b"INFO 05-14 vLLM API server version 0.8.5\nINFO # GPU blocks: 27000\n", 3, "vllm"),
        (b"hello\nworld\n", 3, "no SGLang"),
        (b"x" * 50_000_000, 3, "no SGLang"),
        (b"\xff\xfe\xfd" * 1000, 3, "no text"),
    ],
    ids=["empty", "png", "vllm", "other", "one-50MB-line", "no-utf8"],
)
def test_unusable_inputs_get_a_message_and_the_contracts_code(content, code, says, tmp_path, kvdiag):
    path = tmp_path / "server.log"
    path.write_bytes(content)
    done = kvdiag("explain", str(path))
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_and_a_missing_file_are_named(tmp_path, kvdiag):
    for path, says in ((tmp_path, "folder"), (tmp_path / "none.log", "no such file")):
        done = kvdiag("explain", str(path))
        assert (done.returncode, says in done.stderr) == (2, True)


def test_crlf_and_a_cut_last_line_change_nothing_else(tmp_path):
    source = (SCENARIOS / "kimi-k2.5-f0.88" / "server.log").read_bytes()
    path = tmp_path / "crlf.log"
    path.write_bytes(source.replace(b"\n", b"\r\n")[:-60])
    assert set(verdicts(kvdiag.explain(str(path))).values()) == {"agree"}


def test_compressed_and_piped_logs_give_the_same_numbers(tmp_path, kvdiag):
    import bz2
    import gzip
    import lzma

    import zstandard

    source = (SCENARIOS / "kimi-k2.5-f0.88" / "server.log").read_bytes()
    plain = json.loads(kvdiag("explain", "-", "--format", "json", stdin=source).stdout)["starts"]
    packers = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}
    for name, pack in packers.items():
        path = tmp_path / f"log.{name}"
        path.write_bytes(pack(source))
        assert json.loads(kvdiag("explain", str(path), "--format", "json").stdout)["starts"] == plain
