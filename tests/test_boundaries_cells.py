"""The right bytes a token on either side of each change of SGLang's sizing: neighbouring releases."""

import pytest

import kvdiag
from kvdiag.errors import CannotSizeError
from tests.boundaries import GPT_OSS, LATENT, LLAMA, PLAIN_CELL, Change, check, label, sized

V2 = LATENT | {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2"}
SPARSE = LATENT | {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_head_dim": 128,
                   "index_topk": 2048}  # fmt: skip
SHARED = SPARSE | {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa",
                   "indexer_types": ["full", "shared"] * 30 + ["full"]}  # fmt: skip
POOLED = SPARSE | {"index_kpool": 5}
WIDE_K = LLAMA | {"head_dim": 192, "v_head_dim": 128}
V4 = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "num_hidden_layers": 4, "hidden_size": 4096,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "index_head_dim": 128,
    "sliding_window": 128, "compress_ratios": [0, 4, 128, 4], "max_position_embeddings": 1048576, "torch_dtype": "bfloat16",
}  # fmt: skip
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
    Change("a latent model without --enable-mla", "0.3.1.post1", "0.3.1.post2", V2, "bytes_per_token",
           128 // 8 * 256 * 61 * 2 * 2, 576 * 61 * 2, {"tp_size": 8}),
    Change("DeepSeek-V3 becomes latent", "0.4.0.post2", "0.4.1", LATENT, "bytes_per_token",
           128 // 8 * 64 * 61 * 2 * 2, 576 * 61 * 2, {"tp_size": 8}),
    Change("DP attention divides the heads' ranks", "0.4.1.post6", "0.4.1.post7", LLAMA, "kv_heads_per_rank", 1, 8,
           {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}),
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
    Change("DeepSeek-V4's ratio-128 state leaves the coefficient", "0.5.14", "0.5.15", V4, "bytes_per_token",
           V4_REST + V4_WINDOWS + 0.1 * (128 / 128 * 2 * 512 * 4), V4_REST + V4_WINDOWS),
    Change("DeepSeek-V4's rows are padded to pages", "0.5.20", "0.5.21", V4, "bytes_per_token", V4_REST + V4_WINDOWS, V4_PADDED),
    Change("a ModelOpt checkpoint's cache", "0.5.2", "0.5.3rc0",
           LLAMA | {"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}}, "bytes_per_token",
           PLAIN_CELL, PLAIN_CELL // 2),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_cells_change_where_sglang_changed_them(change):
    check(change)


def test_a_latent_class_sized_as_plain_attention_has_heads_of_256():
    plain = Change("", "", "", V2, "", None, None, {"tp_size": 8, "disable_mla": True})
    assert sized(plain, "0.4.3").bytes_per_token == 128 // 8 * 256 * 61 * 2 * 2
    latent = Change("", "", "", V2, "", None, None, {"tp_size": 8, "enable_mla": True})
    assert sized(latent, "0.3.0").bytes_per_token == 576 * 61 * 2


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

    (SPARSE, {"enable_dsa_cache_layer_split": True, "kv_cache_dtype": "bfloat16"}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "args"), UNRULED, ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_an_argument_that_no_rule_follows_is_refused_by_its_name(config, args):
    flag = "--" + next(iter(args)).replace("_", "-")
    with pytest.raises(CannotSizeError, match=f"cannot size a server with {flag}"):
        kvdiag.size(config=config, release="0.5.22", args=args)
    plain = {name: value for name, value in args.items() if name == "kv_cache_dtype"}
    assert kvdiag.size(config=config, release="0.5.22", args=plain).bytes_per_token
