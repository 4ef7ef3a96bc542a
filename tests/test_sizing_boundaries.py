"""The right formula on either side of each change of SGLang's sizing: neighbouring releases, and what each must give.

Expected values are worked out here from the shapes, by the formula of each side, not by kvdiag.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

import kvdiag
from kvdiag.errors import CannotSizeError
from kvdiag.releases import known_releases

G = 2**30
AVAIL, TOTAL, F = 40.0, 78.0, 0.88
REST = AVAIL - TOTAL * (1 - F)
BUDGET = int(REST * G)
H100, B200 = 81559, 183359

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
LATENT = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "max_position_embeddings": 163840, "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16",
}  # fmt: skip
V2 = LATENT | {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2"}
SPARSE = LATENT | {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_head_dim": 128,
                   "index_topk": 2048}  # fmt: skip
SHARED = SPARSE | {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa",
                   "indexer_types": ["full", "shared"] * 30 + ["full"]}  # fmt: skip
POOLED = SPARSE | {"index_kpool": 5}
MIMO = {
    "architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "num_hidden_layers": 12, "hidden_size": 4096,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "swa_num_key_value_heads": 8,
    "swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window_size": 128, "hybrid_layer_pattern": [0, 1, 1, 1] * 3,
    "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
}  # fmt: skip
WIDE_K = LLAMA | {"head_dim": 192, "v_head_dim": 128}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 32, "hidden_size": 2880,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 16, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA_4 = {
    "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "num_hidden_layers": 12, "hidden_size": 2816,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
    "num_global_key_value_heads": 2, "sliding_window": 1024, "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
}  # fmt: skip
NEXT = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "linear_num_value_heads": 32,
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4, "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
}  # fmt: skip
V4 = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "num_hidden_layers": 4, "hidden_size": 4096,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "index_head_dim": 128,
    "sliding_window": 128, "compress_ratios": [0, 4, 128, 4], "max_position_embeddings": 1048576, "torch_dtype": "bfloat16",
}  # fmt: skip
VISION = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "num_hidden_layers": 28,
    "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 128000,
    "vision_config": {"hidden_size": 1280, "num_hidden_layers": 32}, "torch_dtype": "bfloat16",
}  # fmt: skip
PLAIN_CELL = 8 * 128 * 32 * 2 * 2
TREE = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4}  # fmt: skip
STATE = (3 * (32 * 128 + 2 * 16 * 128) * 2 + 32 * 128 * 128 * 4) * 36
NEXT_CELL = 2 * 256 * 2 * 2 * 12


@dataclass(frozen=True)
class Change:
    """One change: the last release before it, the first with it, and the number's value on either side."""

    name: str
    before: str
    after: str
    config: dict[str, Any]
    number: str
    old: Any
    new: Any
    args: dict[str, Any] = field(default_factory=dict)
    gpu: int = H100
    memory: bool = True


def tokens(cell, budget=BUDGET):
    return int(budget // cell)


def by_chunk(chunk, graphs, ranks, more=0.0, memory=H100):
    """The default fraction from 0.5.3rc2: MiB kept for activations, graphs and ranks, at least 10 GiB on large cards."""
    reserve = max(512 + chunk * 1.5 + graphs * 2 + ranks / 8 * 1024 + more, 10 * 1024 if memory > 60 * 1024 else 0)
    return round((memory - reserve) / memory, 3)


def slots_by_ratio(each, copies=1, padding=0, rest=REST):
    return int((rest * 0.9 / 1.9 * G - padding * each) // each // copies)


def state_and_tokens(release_slots, each, charged, cell, rest=REST):
    return int(int((rest - (release_slots + charged) * each / G) * G) // cell)


K16 = int((REST * 0.9 / 1.9 * G) // STATE)
K17 = int((REST * 0.9 / 1.9 * G - STATE) // STATE)
DRAFTED = 48
FULL, SWA = 8 * 128 * 2, 8 * 128 * 2
V4_ROW = 448 + 64 * 2 + 8
V4_STATE = 8 / 128 * (2 * 2 * 512 * 4 + 2 * 2 * 128 * 4)
V4_REST = V4_ROW / 4 * 2 + V4_ROW / 128 + 132 / 4 * 2
V4_WINDOWS = 0.1 * (V4_ROW * 4 + V4_STATE * 2)

V4_PAGE = 260 * 576 / 256
V4_SMALL = {4: -(-64 * 584 // 576) * 576 / 64, 128: -(-2 * 584 // 576) * 576 / 2}
V4_PADDED = (
    0.1 * (V4_PAGE * 4 + 8 / 256 * (2 * 2 * 512 * 4 + 2 * 2 * 128 * 4) * 2)
    + (V4_SMALL[4] / 4 + 132 / 4) * 2
    + V4_SMALL[128] / 128
)

CHANGES = [
    Change("most estimated requests 5120 to 4096", "0.3.0", "0.3.1", LLAMA, "max_running_requests",
           5120, 4096, {"tp_size": 8}),
    Change("a latent model without --enable-mla", "0.3.1.post1", "0.3.1.post2", V2, "bytes_per_token",
           128 // 8 * 256 * 61 * 2 * 2, 576 * 61 * 2, {"tp_size": 8}),
    Change("the pool's padding request", "0.3.1.post3", "0.3.2", LLAMA, "max_running_requests", 4096, 4097,
           {"tp_size": 8}),
    Change("the pool's padding request ends", "0.4.6.post5", "0.4.7", LLAMA, "max_running_requests", 4097, 4096, {"tp_size": 8}),
    Change("DeepSeek-V3 becomes latent", "0.4.0.post2", "0.4.1", LATENT, "bytes_per_token",
           128 // 8 * 64 * 61 * 2 * 2, 576 * 61 * 2, {"tp_size": 8}),
    Change("DP attention divides the heads' ranks", "0.4.1.post6", "0.4.1.post7", LLAMA, "kv_heads_per_rank", 1, 4,
           {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}),
    Change("speculation's default of running requests", "0.4.4.post4", "0.4.5", LLAMA, "max_running_requests", 32, 48, TREE),
    Change("head-room for drafts ends", "0.5.6.post2", "0.5.7", LLAMA, "max_total_num_tokens",
           tokens(PLAIN_CELL) + 48 * 3 * 1 + 48 * 4 + 100, tokens(PLAIN_CELL), TREE),
    Change("the width of V counts", "0.5.6.post2", "0.5.7", WIDE_K, "bytes_per_token",
           8 * 192 * 32 * 2 * 2, 8 * (192 + 128) * 32 * 2),
    Change("the sparse index counts", "0.5.3", "0.5.3.post1", SPARSE, "bytes_per_token", 576 * 61 * 2, (576 * 2 + 132) * 61),
    Change("packed fp8 rows count", "0.5.16", "0.5.17", SPARSE, "bytes_per_token", (576 + 132) * 61, (656 + 132) * 61,
           {"kv_cache_dtype": "fp8_e4m3"}),
    Change("layers that share an index have none", "0.5.17", "0.5.18", SHARED, "bytes_per_token",
           (1152 + 132) * 61, 1152 * 61 + 132 * 31),
    Change("pooled index keys", "0.5.21", "0.5.22", POOLED, "bytes_per_token", (1152 + 132) * 61, (1152 + 27) * 61),
    Change("FP4 without and with scales", "0.5.5.post2", "0.5.5.post3", LLAMA, "bytes_per_token",
           PLAIN_CELL // 2, PLAIN_CELL // 4 + 8 * 128 * 32 * 2 // 16, {"kv_cache_dtype": "fp4_e2m1"}),
    Change("FP4's workspace", "0.5.15.post1", "0.5.16", LLAMA, "bytes_per_token",
           PLAIN_CELL // 4 + 8 * 128 * 32 * 2 // 16, PLAIN_CELL // 4 + 8 * 128 * 32 * 2 // 16 + 8 * 128 * 2,
           {"kv_cache_dtype": "fp4_e2m1"}),
    Change("FP4 by recipe", "0.5.20", "0.5.21", LLAMA, "bytes_per_token",
           8 * 128 * 32 + 8 * 128 * 32 * 2 // 16 + 8 * 128 * 2, 8 * 64 * 32 * 2 + 8 * 128 // 16 * 32 * 2,
           {"kv_cache_dtype": "fp4_mx_block16"}),
    Change("gpt-oss gets a window pool", "0.5.7", "0.5.8", GPT_OSS, "swa_max_total_num_tokens", None,
           int(int(tokens(FULL * 32) * 32 / (16 + 0.8 * 16)) * 0.8)),
    Change("window pools shared out by bytes", "0.5.8.post1", "0.5.9", MIMO, "bytes_per_token",
           4 * 320 * 2 * 12 + 8 * 320 * 2 * 9, 4 * 320 * 2 * 3 + 8 * 320 * 2 * 9),
    Change("the ratio enters the cell", "0.5.10.post1", "0.5.11", GPT_OSS, "bytes_per_token", FULL * 16 + SWA * 16,
           FULL * 16 + 0.8 * SWA * 16),
    Change("Gemma-4 gets a window pool", "0.5.10.post1", "0.5.11", GEMMA_4, "bytes_per_token", 2 * 1024 * 12 * 2,
           2 * 1024 * 2 * 2 + 0.8 * (8 * 512 * 2) * 10),
    Change("stages no longer count the next one's first layer", "0.5.20", "0.5.21", GPT_OSS, "bytes_per_token",
           FULL * 8 + 0.8 * SWA * 9, FULL * 8 + 0.8 * SWA * 8, {"pp_size": 2}),
    Change("the last stages take the remainder", "0.5.5.post3", "0.5.6", LLAMA, "max_total_num_tokens",
           tokens(8 * 128 * 2 * 2 * 12), tokens(8 * 128 * 2 * 2 * 11), {"pp_size": 3}),
    Change("states by ratio", "0.5.3.post1", "0.5.3.post2", NEXT, "max_mamba_cache_size", 100, K16,
           {"max_running_requests": 100}),
    Change("a padding slot of states", "0.5.16", "0.5.17", NEXT, "max_mamba_cache_size", K16, K17),
    Change("a padding slot of states, in tokens", "0.5.16", "0.5.17", NEXT, "max_total_num_tokens",
           state_and_tokens(K16, STATE, 0, NEXT_CELL), state_and_tokens(K17, STATE, 1, NEXT_CELL)),
    Change("extra buffers by default", "0.5.13.post1", "0.5.14", NEXT, "max_running_requests", K16 // 3, K16 // 5),
    Change("two slots more without need", "0.5.6.post2", "0.5.7", NEXT, "max_running_requests", K16 // 3, K16 // 5),
    Change("and gone again", "0.5.7", "0.5.8", NEXT, "max_running_requests", K16 // 5, K16 // 3),
    Change("drafts are charged", "0.5.13.post1", "0.5.14", LATENT, "bytes_per_token",
           576 * 61 * 2, 576 * 62 * 2, TREE),
    Change("multimodal reservation", "0.5.17", "0.5.18", VISION, "rest_memory_bytes", REST * G,
           (AVAIL - TOTAL * (1 - F) - 100 / 1024) * G),
    Change("requests asked for are capped", "0.5.9", "0.5.10rc0", LLAMA, "max_running_requests", 5000, 4096,
           {"max_running_requests": 5000, "tp_size": 8}),
    Change("requests asked for are not capped any more", "0.5.13.post1", "0.5.14", LLAMA, "max_running_requests", 4096, 5000,
           {"max_running_requests": 5000, "tp_size": 8}),
    Change("one request for each replica", "0.5.22", "0.5.23", LLAMA, "max_running_requests", 0, 1,
           {"max_running_requests": 2, "tp_size": 8, "dp_size": 4, "enable_dp_attention": True}),
    Change("rope factor with transformers 5", "0.5.9", "0.5.10rc0",
           LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "context_len", 32768, 8192),
    Change("default fraction of 8 ranks: 0.82", "0.3.5.post2", "0.3.6", LLAMA, "mem_fraction_static", 0.83, 0.82, {"tp_size": 8}),
    Change("default fraction of 8 ranks: 0.81", "0.3.6.post3", "0.4.0", LLAMA, "mem_fraction_static", 0.82, 0.81, {"tp_size": 8}),
    Change("default fraction by the card", "0.4.7.post1", "0.4.8", LLAMA, "mem_fraction_static", 0.81,
           round((H100 - (9.5 + 8 / 2) * 1024) / H100, 3), {"tp_size": 8}),
    Change("default fraction by the chunk", "0.5.3rc0", "0.5.3rc2", LLAMA, "mem_fraction_static",
           round((H100 - (9.5 + 8 / 2) * 1024) / H100, 3), by_chunk(8192, 512, 8), {"tp_size": 8}),
    Change("prefill graphs by default", "0.5.9", "0.5.10rc0", LATENT, "mem_fraction_static",
           by_chunk(8192, 512, 8), by_chunk(8192, 512, 8, 1536), {"tp_size": 8}),
    Change("no reserve for drafts", "0.5.13.post1", "0.5.14", LATENT, "mem_fraction_static",
           round((H100 - (max(512 + 8192 * 1.5 + 1024 + 1024 + 1536, 10240) + 4096)) / H100, 3),
           by_chunk(8192, 512, 8, 1536), {"tp_size": 8, **TREE}),
    Change("small cards' chunk and graphs", "0.5.19", "0.5.20", LLAMA, "mem_fraction_static",
           round((24564 - (512 + 2048 * 1.5 + 128)) / 24564, 3), round((24564 - (512 + 4096 * 1.5 + 128)) / 24564, 3),
           {"disable_cuda_graph": True}, 24564),
    Change("DeepSeek-V4's ratio-128 state leaves the coefficient", "0.5.14", "0.5.15", V4, "bytes_per_token",
           V4_REST + V4_WINDOWS + 0.1 * (128 / 128 * 2 * 512 * 4), V4_REST + V4_WINDOWS),
    Change("DeepSeek-V4's rows are padded to pages", "0.5.20", "0.5.21", V4, "bytes_per_token", V4_REST + V4_WINDOWS, V4_PADDED),
    Change("a ModelOpt checkpoint's cache", "0.5.2", "0.5.3rc0",
           LLAMA | {"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}}, "bytes_per_token",
           PLAIN_CELL, PLAIN_CELL // 2),
    Change("the window pool by the requests that may run", "0.5.13.post1", "0.5.14", GPT_OSS, "swa_max_total_num_tokens",
           int(tokens(FULL * 16 + 0.8 * SWA * 16) * 0.8), 10 * (127 + 128 + 1 + 1) + 2 * 8192 + 1,
           {"max_running_requests": 10, "disable_radix_cache": True}),
    Change("a prefill server keeps no drafts' states", "0.5.21", "0.5.22", NEXT, "max_mamba_cache_size",
           int((REST * 0.9 / 1.9 * G - STATE * 5) // (STATE * (1 + 4 / 5))), K17, {**TREE, "disaggregation_mode": "prefill"}),
    Change("Blackwell's default takes pages of 64", "0.5.6.post2", "0.5.7", LLAMA, "page_size", 1, 64, {}, B200),
    Change("trtllm_mha takes pages of 128", "0.5.16", "0.5.17", LLAMA, "page_size", 64, 128,
           {"attention_backend": "trtllm_mha", "page_size": 128}, B200),
]  # fmt: skip


def sized(change, release):
    args = dict(change.args)
    if change.number != "mem_fraction_static":
        args.setdefault("mem_fraction_static", F)
    capability = (10, 0) if change.gpu == B200 else (9, 0)
    return kvdiag.size(
        config=change.config, release=release, args=args, available_gpu_memory=AVAIL, pre_model_load_memory=TOTAL,
        gpu_mem_mib=change.gpu, compute_capability=capability,
    )  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.after}-{change.name}")
def test_the_formula_changes_where_sglang_changed_it(change):
    names = [str(release) for release in known_releases()]
    assert names.index(change.before) + 1 == names.index(change.after), "neighbouring releases"
    for release, wanted in ((change.before, change.old), (change.after, change.new)):
        found = getattr(sized(change, release), change.number)
        assert found == (pytest.approx(wanted, rel=1e-12) if isinstance(wanted, float) else wanted), release


def test_a_latent_class_sized_as_plain_attention_has_heads_of_256():
    plain = Change("", "", "", V2, "", None, None, {"tp_size": 8, "disable_mla": True})
    assert sized(plain, "0.4.3").bytes_per_token == 128 // 8 * 256 * 61 * 2 * 2
    latent = Change("", "", "", V2, "", None, None, {"tp_size": 8, "enable_mla": True})
    assert sized(latent, "0.3.0").bytes_per_token == 576 * 61 * 2


def test_a_window_pool_too_small_for_one_request_stops_the_server_from_0_5_16():
    change = Change(
        "", "0.5.15.post1", "0.5.16", GPT_OSS, "", None, None, {"swa_full_tokens_ratio": 0.5, "max_total_tokens": 200}
    )
    assert sized(change, change.before).swa_max_total_num_tokens == 100
    with pytest.raises(CannotSizeError, match="cannot hold the window"):
        sized(change, change.after)


NVFP4 = [
    ({}, (10, 0), 1, False), ({"attention_backend": "flashinfer"}, (10, 0), 2, True), ({}, (12, 0), 1, True),
    ({"prefill_kv_cache_dequant_dtype": "fp8_e4m3"}, (10, 0), 2, True),
]  # fmt: skip


@pytest.mark.parametrize(("args", "capability", "layouts", "workspace"), NVFP4)
def test_nvfp4_counts_the_scales_and_the_workspace_its_backends_need(args, capability, layouts, workspace):
    args = {"kv_cache_dtype": "nvfp4", **args}
    found = kvdiag.size(config=LLAMA, release="0.5.22", args=args, compute_capability=capability).bytes_per_token
    assert found == 8 * 64 * 32 * 2 + layouts * 8 * 8 * 32 * 2 + (8 * 128 * 2 if workspace else 0)


def test_nvfp4_on_an_unknown_gpu_is_refused():
    with pytest.raises(CannotSizeError, match="depends on the GPU"):
        kvdiag.size(config=LLAMA, release="0.5.22", args={"kv_cache_dtype": "nvfp4"})


UNRULED = [
    (LLAMA, {"enable_hisparse": True}), (GPT_OSS, {"enable_unified_memory": True}), (LLAMA, {"enable_kv_cache_sharding": True}),
    (NEXT, {"enable_linear_replayssm_spec": True}), (V4, {"dsv4_attn_backend": "trtllm"}),
    (SPARSE, {"enable_dsa_cache_layer_split": True, "kv_cache_dtype": "bfloat16"}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "args"), UNRULED, ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_an_argument_that_no_rule_follows_is_refused_by_its_name(config, args):
    flag = "--" + next(iter(args)).replace("_", "-")
    with pytest.raises(CannotSizeError, match=f"cannot size a server with {flag}"):
        kvdiag.size(config=config, release="0.5.22", args=args)
    plain = {name: value for name, value in args.items() if name == "kv_cache_dtype"}
    assert kvdiag.size(config=config, release="0.5.22", args=plain).bytes_per_token


def test_without_memory_the_sizing_says_what_to_give():
    (missing,) = kvdiag.size(config=LLAMA, release="0.5.9").missing
    assert "--avail" in missing
    assert "--total" in missing
