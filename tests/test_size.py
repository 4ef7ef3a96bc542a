"""``kvdiag size`` and ``kvdiag.size``: boundaries between releases, refusals, and errors that name the argument."""

import json
import re
import sys
from pathlib import Path

import pytest

import kvdiag
from kvdiag.cli.main import main
from kvdiag.errors import CannotSizeError, KvdiagError
from kvdiag.models.catalogue import catalogue_entry
from kvdiag.reports.json_report import render

LATENT = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "max_position_embeddings": 163840, "torch_dtype": "bfloat16",
}  # fmt: skip
DENSE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
SPARSE = LATENT | {"architectures": ["DeepseekV32ForCausalLM"], "index_head_dim": 128, "index_topk": 2048, "index_n_heads": 64}
WINDOWS = DENSE | {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "sliding_window": 128, "head_dim": 64,
    "layer_types": ["sliding_attention", "full_attention"] * 16,
}  # fmt: skip


def sized(config, release, memory=(40.0, 78.0), gpu="H100", **args):
    return kvdiag.size(
        config=config,
        release=release,
        args={"mem_fraction_static": 0.88, **args},
        available_gpu_memory=memory[0],
        pre_model_load_memory=memory[1],
        gpu=gpu,
    )


def test_kv_heads_are_never_fewer_than_one():
    assert sized(DENSE, "0.5.9", tp_size=32).kv_heads_per_rank == 1


def test_request_slots_have_one_more_from_0_3_2_to_0_4_6():
    slots = {release: sized(DENSE, release).max_running_requests for release in ("0.3.1", "0.3.2", "0.4.6", "0.4.7")}
    assert slots["0.3.2"] == slots["0.3.1"] + 1
    assert slots["0.4.6"] == slots["0.4.7"] + 1


def test_the_sparse_index_is_counted_with_fp8_scales_from_0_5_17():
    before = sized(SPARSE, "0.5.16", kv_cache_dtype="fp8_e4m3").bytes_per_token
    after = sized(SPARSE, "0.5.17", kv_cache_dtype="fp8_e4m3").bytes_per_token
    assert before == (576 + 132) * 61
    assert after == (656 + 132) * 61


def test_drafts_are_added_up_to_0_5_6_and_charged_later():
    args = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 4}  # fmt: skip
    plain, drafted = sized(DENSE, "0.5.6"), sized(DENSE, "0.5.6", **args)
    assert drafted.max_total_num_tokens == plain.max_total_num_tokens + 48 * 3 + 48 * 4 + 100
    assert sized(DENSE, "0.5.7", **args).max_total_num_tokens == sized(DENSE, "0.5.7").max_total_num_tokens


def test_gpt_oss_has_a_pool_for_window_layers_from_0_5_8():
    assert sized(WINDOWS, "0.5.7").swa_max_total_num_tokens is None
    assert sized(WINDOWS, "0.5.8").swa_max_total_num_tokens > 0
    assert sized(WINDOWS, "0.5.9", disable_hybrid_swa_memory=True).swa_max_total_num_tokens is None


def test_decode_context_parallelism_counts_heads_from_0_5_18():
    assert sized(DENSE, "0.5.17", tp_size=8, dcp_size=4).kv_heads_per_rank == 1
    assert sized(DENSE, "0.5.18", tp_size=8, dcp_size=4).kv_heads_per_rank == 4


PAGES = [
    ("0.5.16", "trtllm_mha", 128, 64), ("0.5.17", "trtllm_mha", 128, 128), ("0.5.22", "trtllm_mha", 1, 64),
    ("0.5.14", "fa4", 16, 16), ("0.5.15", "fa4", 16, 128), ("0.5.22", "flashmla", 16, 64), ("0.5.22", "cutlass_mla", 16, 128),
]  # fmt: skip


@pytest.mark.parametrize(("release", "backend", "asked", "page"), PAGES)
def test_an_attention_backend_insists_on_its_page(release, backend, asked, page):
    assert sized(DENSE, release, gpu="B200", attention_backend=backend, page_size=asked).page_size == page


def test_an_image_encoder_counts_where_only_its_class_names_it():
    nested = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "text_config": LATENT}
    whole, none = (
        kvdiag.size(config=config, release="0.5.22", args={"tp_size": 8}, gpu="H100").mem_fraction_static
        for config in (nested | {"vision_config": {"hidden_size": 1152, "num_hidden_layers": 27}}, nested)
    )
    assert whole == none


IQUEST = DENSE | {
    "architectures": ["IQuestQ1ForCausalLM"], "model_type": "iquest_q1", "sliding_window": 512, "num_hybrid_layers_block": 7,
    "layer_types": ["full_attention"] * 32,
}  # fmt: skip


def test_iquest_s_layer_kinds_follow_from_its_blocks_and_from_nothing_else():
    found = sized(IQUEST, "0.5.23")
    assert (found.terms["full_layers"], found.terms["swa_layers"]) == (1 + 7 + 3, 21)
    with pytest.raises(KvdiagError, match="make 88 layers"):
        sized({key: value for key, value in IQUEST.items() if key != "num_hybrid_layers_block"}, "0.5.23")


def test_the_formula_of_an_all_window_model_has_no_ratio():
    config = DENSE | {"architectures": ["UnlimitedOCRForCausalLM"], "sliding_window": 1024}
    found = sized(config, "0.5.23")
    assert found.formula == "swa_bytes x swa_layers"
    assert found.bytes_per_token == found.terms["swa_bytes_per_layer"] * found.terms["swa_layers"]


@pytest.mark.parametrize("release", ["0.5.24", "0.5.9.post7", "9.9"])
def test_a_release_that_is_not_known_is_named_and_not_sized(release):
    with pytest.raises(KvdiagError, match=f"SGLang {release} is not among the releases known here"):
        sized(DENSE, release)


def test_a_class_the_release_does_not_have_is_sized_with_a_note():
    qwen = DENSE | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    (note,) = sized(qwen, "0.3.6").notes
    assert "0.4.5.post2" in note
    assert not sized(qwen, "0.5.9").notes


def test_pages_of_a_sparse_index_on_amd_are_told_to_depend_on_what_is_installed():
    sparse = catalogue_entry("deepseek-ai/DeepSeek-V3.2")["config"]
    on = {"gpu": "MI300X", "available_gpu_memory": 100.0, "pre_model_load_memory": 190.0}
    args = {"tp_size": 8, "kv_cache_dtype": "bfloat16", "mem_fraction_static": 0.8}
    assert "page is 64" in kvdiag.size(config=sparse, release="0.5.12", args=args, **on).notes[0]
    assert not kvdiag.size(config=sparse, release="0.5.11", args=args, **on).notes


def test_the_mlx_pool_follows_its_three_readings():
    args = {"backend": "mlx", "mlx_used_gib": 0.31, "mem_fraction_static": 0.4}
    model = DENSE | {"num_hidden_layers": 28, "head_dim": 128}
    found = kvdiag.size(config=model, release="0.5.22", args=args, available_gpu_memory=48.49, pre_model_load_memory=51.8)
    assert found.max_total_num_tokens == int(48.49 * 2**30 * 0.4) // 114_688
    del args["mlx_used_gib"]
    assert "--mlx-used" in kvdiag.size(config=model, release="0.5.22", args=args).missing[0]


def test_heads_that_do_not_divide_are_sized_as_sglang_sizes_them_with_a_note():
    odd = DENSE | {"num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584}
    found = sized(odd, "0.5.23", tp_size=8)
    assert found.kv_heads_per_rank == 1
    assert "28 attention heads do not divide by 8 ranks" in found.notes[0]
    assert not sized(odd, "0.5.23", tp_size=4).notes


def test_a_context_beyond_the_model_s_is_sized_with_a_note():
    (note,) = sized(DENSE, "0.5.9", context_length=8193).notes
    assert "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN" in note


@pytest.mark.parametrize(
    ("memory", "args", "told"),
    [
        ((50.0, 70.0), {"max_total_tokens": 10, "page_size": 64}, "less than one page of 64"),
        ((50.0, 70.0), {"page_size": 10**8}, "lower page_size"),
        ((90.0, 70.0), {}, "loading does not free memory"),
        ((0.0, 70.0), {}, "nothing is left"),
        ((5.0, 70.0), {}, "raise mem_fraction_static above"),
    ],
)
def test_what_keeps_a_server_from_starting_is_told_with_what_helps(memory, args, told):
    with pytest.raises(KvdiagError, match=told):
        sized(DENSE, "0.5.23", memory, **args)


def test_llama_2_captures_fewer_prefill_sizes_by_its_name():
    args = {"model_path": "meta-llama/Llama-2-7b-hf"}
    fractions = [
        kvdiag.size(config=DENSE, release="0.5.10", args=given, gpu_mem_mib=143771).mem_fraction_static for given in ({}, args)
    ]
    assert fractions == [0.903, 0.904]


AMD = [
    ("0.5.4.post1", {"mem_fraction_static": 0.9}, 32768, 0.9), ("0.5.4.post2", {"mem_fraction_static": 0.9}, 32768, 0.9 * 0.85),
    ("0.5.9", {"mem_fraction_static": 0.9}, 8192, 0.9), ("0.5.9", {}, 32768, 0.867 * 0.85),
    ("0.5.9", {"mem_fraction_static": 0.9, "attention_backend": "triton"}, 32768, 0.9),
]  # fmt: skip


@pytest.mark.parametrize(("release", "args", "context", "fraction"), AMD)
def test_amd_s_attention_leaves_85_percent_of_the_fraction_for_long_contexts(release, args, context, fraction):
    config = DENSE | {"max_position_embeddings": context}
    found = kvdiag.size(config=config, release=release, args=args, gpu="MI300X").mem_fraction_static
    assert found == pytest.approx(fraction, rel=1e-12)


DEVICE_PAGES = [
    ("0.5.5", {"device": "npu", "page_size": 64}, 128), ("0.5.9", {"device": "npu"}, 128),
    ("0.5.9", {"device": "npu", "page_size": 64}, 64), ("0.5.9", {"attention_backend": "intel_xpu"}, 128),
    ("0.5.9", {"attention_backend": "intel_xpu", "page_size": 32}, 32),
    ("0.5.11", {"attention_backend": "intel_xpu", "page_size": 32}, 128), ("0.5.4", {"prefill_attention_backend": "fa4"}, 128),
]  # fmt: skip


@pytest.mark.parametrize(("release", "args", "page"), DEVICE_PAGES)
def test_devices_other_than_nvidia_s_page_their_own_way(release, args, page):
    assert kvdiag.size(config=DENSE, release=release, args=args).page_size == page


def test_tokenspeed_means_an_fp8_cache_from_0_5_23():
    args = {"attention_backend": "tokenspeed_mla"}
    cells = [kvdiag.size(config=LATENT, release=release, args=args).bytes_per_token for release in ("0.5.22", "0.5.23")]
    assert cells == [576 * 61 * 2, 576 * 61]


def test_a_loop_coder_s_layers_count_by_both_of_its_loops():
    loops = DENSE | {"architectures": ["IQuestLoopCoderForCausalLM"], "loop_num": 2}
    assert sized(loops, "0.5.23").bytes_per_token == 4 * sized(DENSE, "0.5.23").bytes_per_token


def test_gpt_oss_runs_in_bfloat16():
    assert sized({key: value for key, value in WINDOWS.items() if key != "torch_dtype"}, "0.5.9").kv_cache_dtype == "bfloat16"


def test_releases_that_were_not_read_are_sized_with_a_note():
    assert "were not read" in kvdiag.size(config=DENSE, release="0.2.15").notes[0]


def test_a_sweep_over_fractions_and_memory_plans_once(monkeypatch):
    module = sys.modules["kvdiag.sizing.size"]
    made = []
    make = module.make_plan
    monkeypatch.setattr(module, "make_plan", lambda settings: made.append(settings) or make(settings))
    config = DENSE | {"vocab_size": 77}
    tokens = {
        sized(config, "0.5.9", (40 + at, 78.0), mem_fraction_static=0.8 + at / 100).max_total_num_tokens for at in range(15)
    }
    assert len(tokens) == 15
    assert len(made) == 1


KIMI = LATENT | {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25"}
QWEN = DENSE | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 94, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 128,
}  # fmt: skip


@pytest.mark.parametrize(("fraction", "tokens"), [(0.88, 159_277), (0.85, 116_171)])
def test_the_public_figures_of_kimi_k2_5_follow_from_its_two_readings(fraction, tokens):
    found = sized(KIMI, "0.5.9", (21.7085, 94.0372), tp_size=8, mem_fraction_static=fraction)
    assert found.max_total_num_tokens == tokens
    assert found.bytes_per_token == 70_272


def test_the_public_figure_of_qwen3_235b_has_a_bf16_cache_in_spite_of_its_fp8_weights():
    weights = QWEN | {"quantization_config": {"quant_method": "fp8"}}
    cell = sized(weights, "0.5.9", tp_size=4).bytes_per_token
    assert cell == 48_128
    assert round((367_404 + 1) * cell / 2 / 2**30, 2) == 8.23


@pytest.mark.parametrize(("gpu", "fraction"), [("Ascend 910B", 0.801), ("Ascend 910B4", 0.792)])
def test_ascend_cards_have_chunks_and_graphs_of_their_own(gpu, fraction):
    assert kvdiag.size(config=DENSE, release="0.5.9", gpu=gpu).mem_fraction_static == fraction


def test_more_memory_never_means_fewer_tokens():
    tokens = [sized(WINDOWS, "0.5.20", (at / 8, 78.0), page_size=64).max_total_num_tokens for at in range(100, 500)]
    assert tokens == sorted(tokens)


@pytest.mark.parametrize(
    "config",
    [
        DENSE | {"architectures": ["RwkvForCausalLM"], "model_type": "rwkv"},
        DENSE | {"architectures": ["JambaForCausalLM"], "model_type": "jamba", "mamba_d_state": 16, "mamba_d_conv": 4},
        DENSE | {"architectures": ["NewForCausalLM"], "model_type": "new", "layer_types": ["linear_attention"] * 32},
    ],
    ids=["rwkv", "jamba", "unknown linear attention"],
)
def test_a_stateful_architecture_without_a_rule_is_refused_and_not_sized_without_its_state(config):
    with pytest.raises(CannotSizeError, match="cannot size this architecture"):
        sized(config, "0.5.9")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"tp_sise": 2}, "tp_sise.*did you mean tp_size"),
        ({"dcp_size": 2}, "dcp_size: SGLang 0.5.9 has no such argument"),
        ({"kv_cache_dtype": "fp7"}, "kv_cache_dtype = 'fp7'"),
        ({"tp_size": 0}, "tp_size = 0"),
        ({"kv_cache_dtype": "nvfp4"}, "0.5.9 has no such value"),
        ({"swa_full_tokens_ratio": 1.5}, "swa_full_tokens_ratio = 1.5"),
        ({"attention_backend": "banana"}, "attention_backend = 'banana'"),
        ({"tp_size": "two"}, "tp_size = 'two'"),
        ({"tp_size": [2]}, "tp_size"),
        ({"mem_fraction_static": 1.5}, "mem_fraction_static = 1.5"),
    ],
)
def test_an_argument_the_release_does_not_take_is_an_error_that_names_it(args, told):
    with pytest.raises(KvdiagError, match=told):
        kvdiag.size(config=DENSE, release="0.5.9", args=args)


@pytest.mark.parametrize(
    "config",
    [
        DENSE | {"model_type": "nemotron_h", "hybrid_override_pattern": 1},
        DENSE | {"model_type": "nemotron-nas", "block_configs": 7},
        DENSE | {"num_hidden_layers": 0},
        DENSE | {"head_dim": "wide"},
    ],
    ids=["pattern", "blocks", "no layers", "a word"],
)
@pytest.mark.parametrize("release", ["0.3.6", "0.5.9", "0.5.22"])
def test_a_config_no_model_has_is_refused_with_a_message(config, release):
    with pytest.raises(KvdiagError):
        sized(config, release)


def test_the_command_prints_the_numbers_of_the_python_interface(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LATENT))
    given = ["--config", str(path), "--release", "0.5.9", "--tp", "8", "--gpu", "H100", "--avail", "30", "--total", "78"]
    with pytest.raises(SystemExit) as ended:
        main(["size", *given, "--format", "json"])
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    want = kvdiag.size(
        config=LATENT,
        release="0.5.9",
        args={"tp_size": 8},
        available_gpu_memory=30.0,
        pre_model_load_memory=78.0,
        gpu="H100",
    )
    assert found == json.loads(json.dumps(want.to_dict()))
    assert found["bytes_per_token"] == 70272
    with pytest.raises(SystemExit):
        main(["size", *given])
    assert "70,272" in capsys.readouterr().out


def test_a_refused_config_leaves_the_checks_that_need_none(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DENSE | {"architectures": ["JambaForCausalLM"], "mamba_d_state": 16}))
    log = Path(__file__).parents[1] / "fixtures" / "real" / "0.5.9-qwen3-memfrac005-nocap" / "server.log"
    start = json.loads(render(kvdiag.explain(str(log), config=str(tmp_path))))["starts"][0]
    verdicts = {check["name"]: check["verdict"] for check in start["checks"]}
    assert "cannot size this architecture" in json.dumps(start["model"])
    assert verdicts["bytes_per_token"] == "unknown"
    assert verdicts["memory_after_pool"] == "agree"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"tp_size": 2, "page_size": 48}, "a power of two, does not divide by --page-size 48"),
        ({"chunked_prefill_size": 1000, "page_size": 16}, "--chunked-prefill-size 1000 does not divide by --page-size 16"),
        ({"tp_size": 8, "attn_cp_size": 3}, "attn_cp_size x dp_size 3"),
        ({"max_total_tokens": 1}, "max_running_requests comes to 0"),
    ],
)
def test_a_server_that_would_stop_at_its_start_is_told_so_beside_its_figures(args, says):
    args = {"mem_fraction_static": 0.85, **args}
    notes = kvdiag.size(config=DENSE, release="0.5.22", args=args, available_gpu_memory=60.0, pre_model_load_memory=78.0).notes
    assert any(says in note for note in notes), notes


@pytest.mark.parametrize(
    ("algorithm", "release", "takes"),
    [("EAGLE3", "0.4.4.post1", False), ("EAGLE3", "0.4.4.post2", True), ("STANDALONE", "0.5.2rc2", False),
     ("NGRAM", "0.5.3", True), ("DFLASH", "0.5.10.post1", False), ("DSPARK", "0.5.15.post1", False), ("DSPARK", "0.5.16", True)],
)  # fmt: skip
def test_a_speculative_algorithm_is_taken_from_the_release_that_knows_it(algorithm, release, takes):
    def sized():
        return kvdiag.size(config=DENSE, release=release, args={"speculative_algorithm": algorithm}, draft_config=DENSE)

    if takes:
        assert sized().bytes_per_token
    else:
        with pytest.raises(KvdiagError, match=f"SGLang {re.escape(release)} has no such value"):
            sized()


def test_one_argument_under_two_names_with_two_values_is_refused():
    with pytest.raises(KvdiagError, match="given twice"):
        kvdiag.size(config=DENSE, release="0.5.22", args={"tp": 2, "tp_size": 4})


def test_two_configs_of_one_process_are_two(tmp_path):
    sizes = []
    for layers in (2, 4):
        path = tmp_path / f"{layers}.json"
        path.write_text(json.dumps(DENSE | {"num_hidden_layers": layers}), encoding="utf-8")
        sizes.append(kvdiag.size(config=str(path), release="0.5.9").bytes_per_token)
    assert sizes[1] == 2 * sizes[0]
