"""Switches of SGLang's environment that change sizes: taken by size, whatif and explain, and no false alarm without them."""

import json
from pathlib import Path

import pytest

import kvdiag
from kvdiag.cli.main import main
from kvdiag.errors import CannotSizeError, InputError
from kvdiag.pipeline import what_if
from kvdiag.sizing.environment import SWITCHES, environment_of
from tests.test_boundaries_states import NEXT

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
MEMORY = {"available_gpu_memory": 40.0, "pre_model_load_memory": 78.0}
ARGS = {"mem_fraction_static": 0.88}


def sized(config, release, args=None, **more):
    return kvdiag.size(config=config, release=release, args=ARGS | (args or {}), **MEMORY, **more)


def test_layers_by_partition_are_counted_for_the_widest_stage():
    even = sized(LLAMA, "0.5.22", {"pp_size": 2})
    uneven = sized(LLAMA, "0.5.22", {"pp_size": 2}, env={"SGLANG_PP_LAYER_PARTITION": "20,12"})
    assert uneven.bytes_per_token * 16 == even.bytes_per_token * 20
    assert [stage["layers"] for stage in uneven.stages] == [20, 12]


@pytest.mark.parametrize("partition", ["20,13", "32", "10,10,12"])
def test_a_partition_that_does_not_fit_stops_the_server(partition):
    with pytest.raises(CannotSizeError, match="SGLANG_PP_LAYER_PARTITION has"):
        sized(LLAMA, "0.5.22", {"pp_size": 2}, env={"SGLANG_PP_LAYER_PARTITION": partition})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SGLANG_PP_LAYER_PARTITON", "1,2", "no rule here follows this switch; sizes follow SGLANG_PP_LAYER_PARTITION"),
        ("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK", "maybe", "true or false"),
        ("SGLANG_VLM_CACHE_SIZE_MB", "-1", "a whole number"),
        ("SGLANG_MAMBA_SSM_DTYPE", "fp8", "one of float32"),
        ("SGLANG_PP_LAYER_PARTITION", "1;2", "whole numbers with commas"),
        ("SGLANG_CI_SMALL_KV_SIZE", "4096", "SGLang 0.5.22 does not read it"),
    ],
)
def test_switches_are_checked_by_name_value_and_release(name, value, words):
    with pytest.raises(InputError, match=words):
        sized(LLAMA, "0.5.22", env={name: value})


def test_a_pool_sized_anew_after_capture_has_an_upper_bound_and_no_known_default():
    later = {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "1"}
    found = sized(LLAMA, "0.5.16", env=later)
    assert found.max_total_num_tokens == sized(LLAMA, "0.5.16").max_total_num_tokens
    assert "upper bound" in found.notes[0]
    default = kvdiag.size(config=LLAMA, release="0.5.16", gpu="H100", env=later, **MEMORY)
    assert default.max_total_num_tokens is None
    assert "after graphs are captured" in default.missing[0]
    with_state = sized(NEXT, "0.5.16", env=later)
    assert with_state.max_total_num_tokens is None
    assert "state slots" in with_state.missing[0]


def test_a_switch_that_says_no_changes_nothing():
    for name, switch in SWITCHES.items():
        if switch.kind == "flag":
            assert sized(NEXT, "0.5.22", env={name: "0"}) == sized(NEXT, "0.5.22")


def test_the_small_pool_of_ci_takes_the_place_of_the_profile():
    assert sized(LLAMA, "0.5.6", env={"SGLANG_CI_SMALL_KV_SIZE": "4096"}).max_total_num_tokens == 4096


def test_environment_on_the_command_line(tmp_path, capsys):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    command = ["size", "--config", str(config), "--release", "0.5.22", "--pp-size", "2", "--format", "json", "--env"]
    for text, code in (("SGLANG_PP_LAYER_PARTITION=24,8", 0), ("SGLANG_PP_LAYER_PARTITION", 2)):
        with pytest.raises(SystemExit) as ended:
            main([*command, text])
        assert ended.value.code == code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["terms"]["layers"] == 24
    assert "give NAME=VALUE" in printed.err


def log_of(found, args):
    listed = ", ".join(f"{name}={value!r}" for name, value in args.items())
    lines = [
        f"server_args=ServerArgs(model_path='/m/next', {listed}, dtype='auto', kv_cache_dtype='auto', tp_size=1, device='cuda', "
        "max_total_tokens=None, max_running_requests=None, disable_radix_cache=False, page_size=1)",
        "Load weight begin. avail mem=78.00 GB",
        "Load weight end. elapsed=1.00 s, type=X, avail mem=40.00 GB, mem usage=38.00 GB.",
        f"Mamba Cache is allocated. max_mamba_cache_size: {found.max_mamba_cache_size}, conv_state size: 1.00GB, ssm_state size: "
        "1.00GB ",
        f"max_total_num_tokens={found.max_total_num_tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests={found.max_running_requests}, context_len=262144, available_gpu_mem=5.00 GB",
    ]
    return "".join(f"[2026-01-01 10:00:00] {line}\n" for line in lines)


def verdicts(log: Path, config: Path, **more):
    (start,) = kvdiag.explain(str(log), config=str(config), release="0.5.22", **more).starts
    names = ("max_mamba_cache_size", "max_running_requests", "max_total_num_tokens")
    return {check.name: (check.verdict, " ".join(check.missing)) for check in start.checks if check.name in names}


@pytest.mark.parametrize(
    ("switch", "value", "name"),
    [
        ("SGLANG_MAMBA_SSM_DTYPE", "bfloat16", "max_mamba_cache_size"),
        ("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK", "true", "max_running_requests"),
    ],
)
def test_a_server_with_a_switch_raises_no_alarm_and_agrees_once_told(tmp_path, switch, value, name):
    args = ARGS | {"mamba_scheduler_strategy": "extra_buffer"}
    config, log = tmp_path / "config.json", tmp_path / "server.log"
    config.write_text(json.dumps(NEXT))
    log.write_text(log_of(sized(NEXT, "0.5.22", args, env={switch: value}), args))
    untold, told = verdicts(log, config), verdicts(log, config, env={switch: value})
    assert untold[name][0] == "unknown"
    assert f"{switch}={value}, which stands in no line" in untold[name][1]
    assert {verdict for verdict, _ in told.values()} == {"agree"}


def test_whatif_predicts_under_the_switches_of_the_server(tmp_path):
    args = ARGS | {"mamba_scheduler_strategy": "extra_buffer"}
    config, log = tmp_path / "config.json", tmp_path / "server.log"
    config.write_text(json.dumps(NEXT))
    switch = {"SGLANG_MAMBA_SSM_DTYPE": "bfloat16"}
    log.write_text(log_of(sized(NEXT, "0.5.22", args, env=switch), args))
    (found,) = what_if(str(log), [{"mem_fraction_static": 0.8}], config=str(config), release="0.5.22", environment=switch)
    want = sized(NEXT, "0.5.22", args | {"mem_fraction_static": 0.8}, env=switch)
    assert found.numbers["max_mamba_cache_size"].low <= want.max_mamba_cache_size <= found.numbers["max_mamba_cache_size"].high
    assert found.max_total_num_tokens.low <= want.max_total_num_tokens <= found.max_total_num_tokens.high


def test_a_figure_that_no_switch_explains_is_still_a_disagreement(tmp_path):
    args = ARGS | {"mamba_scheduler_strategy": "extra_buffer"}
    config, log = tmp_path / "config.json", tmp_path / "server.log"
    config.write_text(json.dumps(NEXT))
    right = sized(NEXT, "0.5.22", args)
    log.write_text(log_of(right, args).replace(f"max_mamba_cache_size: {right.max_mamba_cache_size}", "max_mamba_cache_size: 77"))
    assert verdicts(log, config)["max_mamba_cache_size"][0] == "disagree"


def test_every_switch_has_a_field_of_the_environment():
    values = {"layers": "1,1", "count": "1", "dtype": "float16", "state dtype": "bf16", "flag": "true"}
    for name, switch in SWITCHES.items():
        assert getattr(environment_of({name: values[switch.kind]}), switch.field) is not None


@pytest.mark.parametrize("args", [{"speculative_algorithm": "EAGLE"}, {"device": "npu"}])
def test_online_compression_goes_neither_with_drafts_nor_with_ascend(args):
    with pytest.raises(CannotSizeError, match="SGLANG_OPT_USE_ONLINE_COMPRESS does not go with"):
        kvdiag.size(
            model="deepseek-ai/DeepSeek-V4-Flash", release="0.5.22", args=args, env={"SGLANG_OPT_USE_ONLINE_COMPRESS": "1"}
        )
