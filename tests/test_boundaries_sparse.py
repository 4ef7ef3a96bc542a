"""The right pools of sparse and compressed attention on either side of each change of SGLang's sizing: neighbouring releases."""

import pytest

import kvdiag
from kvdiag.errors import CannotSizeError
from tests.boundaries import (
    B200,
    BUDGET,
    GPT_OSS,
    H100,
    LATENT,
    LLAMA,
    PLAIN_CELL,
    Change,
    Refused,
    check,
    label,
    neighbours,
    plain,
    sized,
)  # fmt: skip

SPARSE = LATENT | {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_head_dim": 128,
                   "index_topk": 2048}  # fmt: skip
SHARED = SPARSE | {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa",
                   "indexer_types": ["full", "shared"] * 30 + ["full"]}  # fmt: skip
POOLED = SPARSE | {"index_kpool": 5}
MINIMAX = {
    "architectures": ["MiniMaxM3SparseForCausalLM"], "model_type": "minimax_m3", "num_hidden_layers": 8, "hidden_size": 6144,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 65536,
    "torch_dtype": "bfloat16", "sparse_attention_config": {"sparse_attention_freq": [0, 0, 0, 1, 1, 1, 1, 1],
    "sparse_index_dim": 128, "sparse_disable_index_value": [0, 0, 0, 1, 1, 1, 1, 0]},
}  # fmt: skip
MINIMAX_NVFP4 = MINIMAX | {"quantization_config": {"quant_method": "mxfp8", "moe_quant_algo": "NVFP4",
                                                   "moe_quant_format": "nvfp4-pack-quantized"}}  # fmt: skip
QSA = LLAMA | {"indexer_n_heads": 4, "indexer_kv_heads": 2, "indexer_head_dim": 128, "indexer_compress_ratio": 4}
V4 = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "num_hidden_layers": 4, "hidden_size": 4096,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "index_head_dim": 128,
    "sliding_window": 128, "compress_ratios": [0, 4, 128, 4], "max_position_embeddings": 1048576, "torch_dtype": "bfloat16",
}  # fmt: skip
V4_AND_PREDICT = V4 | {"compress_ratios": [0, 4, 128, 4, 0]}
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
MINIMAX_PLAIN = plain(4, 2 * 128, 8)
MINIMAX_INDEX = 2 * 128 + 4 * 128
MINIMAX_ROWS = 2 * (4 * 128 * 64 + 4 * 128 * 8) + 128 * 64 + 128 * 8
V4_OLD_STATE = 0.1 * (128 / 128 * 2 * 512 * 4)
V4_FIXED = -(-((256 + 1) * 128 + 128 + 1) // 128) * 128 * 2 * 512 * 4
FP8 = {"kv_cache_dtype": "fp8_e4m3"}
RAW, SCALED, INDEX = 576 * 61, 656 * 61, 132 * 61
BOTH = {**FP8, "dsa_prefill_backend": "tilelang", "dsa_decode_backend": "tilelang"}
DECODE = {**FP8, "dsa_prefill_backend": "flashmla_kv", "dsa_decode_backend": "trtllm"}


def v4_tokens(price, fixed=0):
    return int((BUDGET - fixed) / price) // 256 * 256


CHANGES = [
    Change("the sparse index counts", "0.5.3", "0.5.3.post1", SPARSE, "bytes_per_token", 576 * 61 * 2, (576 * 2 + 132) * 61),
    Change("the index of an fp8 cache", "0.5.3", "0.5.3.post1", SPARSE, "bytes_per_token", RAW, RAW + INDEX, FP8),
    Change("packed fp8 rows count", "0.5.16", "0.5.17", SPARSE, "bytes_per_token", RAW + INDEX, SCALED + INDEX, FP8),
    Change("trtllm's rows are plain", "0.5.16", "0.5.17", SPARSE, "bytes_per_token", RAW + INDEX, RAW + INDEX,
           {**FP8, "dsa_prefill_backend": "trtllm", "dsa_decode_backend": "trtllm"}),
    Change("Blackwell's default is trtllm", "0.5.16", "0.5.17", SPARSE, "bytes_per_token", RAW + INDEX, RAW + INDEX, FP8, B200),
    Change("and of the phase that is not named", "0.5.16", "0.5.17", SPARSE, "bytes_per_token", RAW + INDEX, RAW + INDEX,
           {**FP8, "dsa_prefill_backend": "flashmla_kv"}, B200),
    Change("a prefill server's own back end", "0.5.19", "0.5.20", SPARSE, "bytes_per_token", RAW + INDEX, SCALED + INDEX,
           {**DECODE, "disaggregation_mode": "prefill"}),
    Change("a decode server's own back end", "0.5.19", "0.5.20", SPARSE, "bytes_per_token", RAW + INDEX, RAW + INDEX,
           {**DECODE, "disaggregation_mode": "decode"}),
    Change("tilelang's rows are plain", "0.5.21", "0.5.22", SPARSE, "bytes_per_token", SCALED + INDEX, RAW + INDEX, BOTH),
    Change("layers that share an index have none", "0.5.17", "0.5.18", SHARED, "bytes_per_token",
           (1152 + 132) * 61, 1152 * 61 + 132 * 31),
    Change("index keys on every decode-context rank", "0.5.21", "0.5.22", SPARSE, "bytes_per_token", (1152 + 132) * 61,
           (1152 + 2 * 132) * 61, {"tp_size": 8, "dcp_size": 2}),
    Change("pooled index keys", "0.5.21", "0.5.22", POOLED, "bytes_per_token", (1152 + 132) * 61, (1152 + 27) * 61),
    Change("a share of the cache in host memory", "0.5.16", "0.5.17", SPARSE, "bytes_per_token", Refused("--enable-hisparse"),
           Refused("--enable-hisparse"), {"enable_hisparse": True}),
    Change("MiniMax-M3 is known", "0.5.13.post1", "0.5.14", MINIMAX, "bytes_per_token", Refused("does not know"), MINIMAX_PLAIN),
    Change("its sparse layers have an index", "0.5.14", "0.5.15", MINIMAX, "bytes_per_token", MINIMAX_PLAIN,
           MINIMAX_PLAIN + 2 * MINIMAX_INDEX),
    Change("its index in fp8", "0.5.20", "0.5.21", MINIMAX, "bytes_per_token", MINIMAX_PLAIN // 2 + 2 * MINIMAX_INDEX,
           MINIMAX_PLAIN // 2 + MINIMAX_INDEX, FP8, B200),
    Change("and packed in NVFP4", "0.5.22", "0.5.23", MINIMAX_NVFP4, "bytes_per_token", MINIMAX_PLAIN + 2 * MINIMAX_INDEX,
           5 * MINIMAX_ROWS // 128, {}, B200),
    Change("but on Blackwell only", "0.5.22", "0.5.23", MINIMAX_NVFP4, "bytes_per_token", MINIMAX_PLAIN + 2 * MINIMAX_INDEX,
           MINIMAX_PLAIN + 2 * MINIMAX_INDEX),
    Change("QSA's compressed keys", "0.5.19", "0.5.20", QSA, "bytes_per_token", PLAIN_CELL, PLAIN_CELL + 2 * 128 * 2 // 4 * 32),
    Change("QSA's compressed keys in fp8", "0.5.21", "0.5.22", QSA, "bytes_per_token", Refused("no such argument"),
           PLAIN_CELL + 2 * 128 // 4 * 32, {"qsa_indexer_dtype": "fp8_e4m3"}),
    Change("DeepSeek-V4 is known", "0.5.11", "0.5.12", V4, "bytes_per_token", Refused("does not know"),
           V4_REST + V4_WINDOWS + V4_OLD_STATE),
    Change("a predict layer of DeepSeek-V4", "0.5.12.post1", "0.5.13", V4_AND_PREDICT, "bytes_per_token",
           V4_REST + V4_WINDOWS + V4_OLD_STATE + 0.1 * V4_ROW, V4_REST + V4_WINDOWS + V4_OLD_STATE),
    Change("DeepSeek-V4's ratio-128 state leaves the coefficient", "0.5.14", "0.5.15", V4, "bytes_per_token",
           V4_REST + V4_WINDOWS + V4_OLD_STATE, V4_REST + V4_WINDOWS),
    Change("and is a fixed amount", "0.5.14", "0.5.15", V4, "max_total_num_tokens",
           v4_tokens(V4_REST + V4_WINDOWS + V4_OLD_STATE), v4_tokens(V4_REST + V4_WINDOWS, V4_FIXED)),
    Change("by the requests that may run", "0.5.14", "0.5.15", V4, "c128_state_pool_size",
           int(v4_tokens(V4_REST + V4_WINDOWS + V4_OLD_STATE) * 0.1) // 256 * 256 // 128 * 128, 257 * 128),
    Change("DeepSeek-V4's window pool must hold a request", "0.5.19", "0.5.20", V4, "swa_max_total_num_tokens", 256,
           Refused("cannot hold the window"), {"max_total_tokens": 2560}),
    Change("a ratio of 0.8 is the user's", "0.5.19", "0.5.20", V4, "bytes_per_token", V4_REST + V4_WINDOWS,
           V4_REST + 8 * V4_WINDOWS, {"swa_full_tokens_ratio": 0.8}),
    Change("DeepSeek-V4's rows are padded to pages", "0.5.20", "0.5.21", V4, "bytes_per_token", V4_REST + V4_WINDOWS, V4_PADDED),
    Change("its states by pages", "0.5.20", "0.5.21", V4, "c4_state_pool_size",
           int(v4_tokens(V4_REST + V4_WINDOWS, V4_FIXED) * 0.1) // 256 * 256 // 128 * 8,
           int(v4_tokens(V4_PADDED, V4_FIXED) * 0.1) // 256 * 8),
    Change("requests that are stated leave its windows alone", "0.5.20", "0.5.21", V4, "bytes_per_token", V4_REST + V4_WINDOWS,
           V4_PADDED, {"max_running_requests": 64}),
    Change("and so do prefixes kept", "0.5.20", "0.5.21", V4, "bytes_per_token", Refused("no such argument"), V4_PADDED,
           {"max_running_requests": 64, "swa_prefix_tails": 10}),
    Change("DeepSeek-V4.1 is known", "0.5.20", "0.5.21", V4 | {"model_type": "deepseek_v41"}, "kv_cache_dtype",
           Refused("does not know DeepSeek-V4.1"), "fp8_e4m3"),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_sparse_pools_change_where_sglang_changed_them(change):
    check(change)


SPARSE_SINCE = {
    "0.5.3rc2": ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM"),
    "0.5.4": ("DeepseekV3ForCausalLMNextN",),
    "0.5.6.post1": ("MistralLarge3ForCausalLM", "PixtralForConditionalGeneration"),
    "0.5.9": ("GlmMoeDsaForCausalLM",),
    "0.5.16": ("GlmMoeDsaForCausalLMNextN", "LongcatFlashForCausalLM", "LongcatFlashForCausalLMNextN"),
    "0.5.19": ("Dots3NoteForCausalLM", "Dots3NoteForCausalLMNextN"),
    "0.5.20": (
        "Glm5NextForConditionalGeneration", "Glm5NextForConditionalGenerationNextN", "HYV4ForCausalLM", "HYV4ForCausalLMNextN",
    ),
}  # fmt: skip
"""As ``is_deepseek_dsa`` (first ``is_deepseek_nsa``) has them; such a model is served in pages of 64."""


@pytest.mark.parametrize(("before", "first", "name"), neighbours(SPARSE_SINCE))
def test_each_class_has_its_sparse_index_from_its_release(before, first, name):
    check(Change("", before, first, SPARSE | {"architectures": [name]}, "page_size", 1, 64))


@pytest.mark.parametrize("release", ["0.5.3rc2", "0.5.9", "0.5.17", "0.5.23"])
def test_the_gpu_decides_the_dtype_of_a_sparse_cache(release):
    for gpu, dtype in ((H100, "bfloat16"), (B200, "fp8_e4m3")):
        assert sized(Change("", "", "", SPARSE, "", None, None, {}, gpu), release).kv_cache_dtype == dtype


def test_attention_with_sinks_has_no_cache_in_fp8():
    sinks = SPARSE | {"architectures": ["HYV4ForCausalLM"], "model_type": "hy_v4"}
    assert sized(Change("", "", "", sinks, "", None, None, {}, B200), "0.5.20").kv_cache_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("release", "backends", "row"),
    [("0.5.17", (None, None), RAW), ("0.5.17", ("tilelang", "flashmla_kv"), RAW), ("0.5.17", ("flashmla_kv", "aiter"), RAW),
     ("0.5.19", ("triton", "flashmla_kv"), SCALED), ("0.5.20", (None, None), RAW), ("0.5.20", ("triton", "flashmla_kv"), RAW)],
)  # fmt: skip
def test_the_rows_of_an_fp8_cache_on_amd_follow_its_back_ends(release, backends, row):
    named = {"dsa_prefill_backend": backends[0], "dsa_decode_backend": backends[1]}
    found = kvdiag.size(config=SPARSE, release=release, args=FP8 | {k: v for k, v in named.items() if v}, gpu="MI300X")
    assert found.bytes_per_token == row + INDEX


def test_a_consumer_card_has_back_ends_of_its_own_for_glm():
    glm = SPARSE | {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa"}
    cells = [kvdiag.size(config=config, release="0.5.17", args=FP8, compute_capability=(12, 0)) for config in (SPARSE, glm)]
    assert [found.bytes_per_token for found in cells] == [RAW + INDEX, SCALED + INDEX]


def test_minimax_packed_in_nvfp4_on_an_unknown_gpu_is_refused():
    with pytest.raises(CannotSizeError, match="packed by the GPU"):
        kvdiag.size(config=MINIMAX_NVFP4, release="0.5.23")


def test_deepseek_v4_sizes_its_windows_by_ratio_whatever_may_run():
    for args in ({}, {"max_running_requests": 64}, {"max_running_requests": 64, "swa_prefix_tails": 10}):
        found = sized(Change("", "", "", V4, "", None, None, args), "0.5.21")
        assert found.swa_max_total_num_tokens == int(found.full_max_total_num_tokens * 0.1) // 256 * 256


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
