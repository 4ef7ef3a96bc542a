"""The right bytes a token of plain and latent caches on either side of each change of SGLang's sizing: neighbouring releases."""

import pytest

import kvdiag
from kvdiag.errors import CannotSizeError
from kvdiag.releases import parse_release
from tests.boundaries import GPT_OSS, LATENT, LLAMA, PLAIN_CELL, Change, Refused, check, label, neighbours, plain

V2 = LATENT | {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2"}
WIDE_K = LLAMA | {"head_dim": 192, "v_head_dim": 128}
FP8 = {"kv_cache_dtype": "fp8_e4m3"}

CHANGES = [
    Change("a latent model without --enable-mla", "0.3.1.post1", "0.3.1.post2", V2, "bytes_per_token",
           plain(16, 2 * 256, 61), 576 * 61 * 2, {"tp_size": 8}),
    Change("--enable-mla ends", "0.3.1.post1", "0.3.1.post2", V2, "bytes_per_token", 576 * 61 * 2, Refused("no such argument"),
           {"tp_size": 8, "enable_mla": True}),
    Change("--disable-mla begins", "0.3.1.post1", "0.3.1.post2", V2, "bytes_per_token", Refused("no such argument"),
           plain(16, 2 * 256, 61), {"tp_size": 8, "disable_mla": True}),
    Change("--disable-mla ends", "0.4.5.post1", "0.4.5.post2", V2, "bytes_per_token", plain(16, 2 * 256, 61),
           Refused("no such argument"), {"tp_size": 8, "disable_mla": True}),
    Change("DP attention divides the heads' ranks", "0.4.1.post6", "0.4.1.post7", LLAMA, "kv_heads_per_rank", 1, 8,
           {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}),
    Change("fp8_e4m3", "0.4.1.post5", "0.4.1.post6", LLAMA, "bytes_per_token", Refused("has no such value"), PLAIN_CELL // 2,
           FP8),
    Change("a ModelOpt checkpoint's cache", "0.5.2", "0.5.3rc0",
           LLAMA | {"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}}, "bytes_per_token",
           PLAIN_CELL, PLAIN_CELL // 2),
    Change("weights in FP8 leave the cache alone", "0.5.2", "0.5.3rc0",
           LLAMA | {"quantization_config": {"quant_method": "fp8"}}, "bytes_per_token", PLAIN_CELL, PLAIN_CELL),
    Change("bfloat16 by name", "0.5.3.post3", "0.5.4", LLAMA, "bytes_per_token", Refused("has no such value"), PLAIN_CELL,
           {"kv_cache_dtype": "bfloat16"}),
    Change("the width of V counts", "0.5.6.post2", "0.5.7", WIDE_K, "bytes_per_token",
           plain(8, 2 * 192, 32), plain(8, 192 + 128, 32)),
    Change("heads over decode-context ranks", "0.5.17", "0.5.18", LLAMA, "kv_heads_per_rank", 1, 2,
           {"tp_size": 8, "dcp_size": 2}),
    Change("FP4 for a latent", "0.5.4.post2", "0.5.4.post3", LATENT, "bytes_per_token", Refused("has no such value"),
           576 * 61 // 2 + 36 * 61, {"kv_cache_dtype": "fp4_e2m1"}),
    Change("FP4 without and with scales", "0.5.5.post2", "0.5.5.post3", LLAMA, "bytes_per_token",
           PLAIN_CELL // 2, PLAIN_CELL // 4 + 8 * 128 * 32 * 2 // 16, {"kv_cache_dtype": "fp4_e2m1"}),
    Change("FP4's workspace", "0.5.15.post1", "0.5.16", LLAMA, "bytes_per_token",
           PLAIN_CELL // 4 + 8 * 128 * 32 * 2 // 16, PLAIN_CELL // 4 + 8 * 128 * 32 * 2 // 16 + 8 * 128 * 2,
           {"kv_cache_dtype": "fp4_e2m1"}),
    Change("a latent has no workspace", "0.5.15.post1", "0.5.16", LATENT, "bytes_per_token", 576 * 61 // 2 + 36 * 61,
           576 * 61 // 2 + 36 * 61, {"kv_cache_dtype": "fp4_e2m1"}),
    Change("FP4 under its first name ends", "0.5.20", "0.5.21", LATENT, "bytes_per_token", 576 * 61 // 2 + 36 * 61,
           Refused("has no such value"), {"kv_cache_dtype": "fp4_e2m1"}),
    Change("FP4 by recipe", "0.5.20", "0.5.21", LLAMA, "bytes_per_token",
           8 * 128 * 32 + 8 * 128 * 32 * 2 // 16 + 8 * 128 * 2, 8 * 64 * 32 * 2 + 8 * 128 // 16 * 32 * 2,
           {"kv_cache_dtype": "fp4_mx_block16"}),
    Change("MXFP8", "0.5.15.post1", "0.5.16", LLAMA, "bytes_per_token", Refused("has no such value"),
           plain(8, 256, 32, 1) + 8 * 256 * 32 // 32, {"kv_cache_dtype": "mxfp8"}),
    Change("the profile moves to a mixin", "0.5.6.post2", "0.5.7", LLAMA, "symbol", "ModelRunner.profile_max_num_token",
           "ModelRunnerKVCacheMixin.get_cell_size_per_token"),
    Change("and to configurators", "0.5.10.post1", "0.5.11", LLAMA, "symbol", "ModelRunnerKVCacheMixin.get_cell_size_per_token",
           "DefaultPoolConfigurator._compute_cell_size"),
    Change("of window pools too", "0.5.10.post1", "0.5.11", GPT_OSS, "symbol", "ModelRunnerKVCacheMixin.get_cell_size_per_token",
           "HybridSWAPoolConfigurator.__init__"),
    Change("which compute it apart", "0.5.19", "0.5.20", GPT_OSS, "symbol", "HybridSWAPoolConfigurator.__init__",
           "HybridSWAPoolConfigurator._recompute_cell_size"),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_cells_change_where_sglang_changed_them(change):
    check(change)


LATENT_SINCE = {
    "0.3.1": ("MiniCPM3ForCausalLM",),
    "0.4.1": ("DeepseekV3ForCausalLM",),
    "0.4.3.post1": ("DeepseekV3ForCausalLMNextN",),
    "0.4.4.post2": ("DeepseekVL2ForCausalLM",),
    "0.4.6.post2": ("KimiVLForConditionalGeneration",),
    "0.5.2rc0": ("LongcatFlashForCausalLM", "LongcatFlashForCausalLMNextN"),
    "0.5.3rc0": ("DotsVLMForCausalLM",),
    "0.5.3rc2": ("DeepseekV32ForCausalLM",),
    "0.5.4.post2": ("KimiLinearForCausalLM",),
    "0.5.6.post1": ("MistralLarge3ForCausalLM", "MistralLarge3ForCausalLMEagle", "PixtralForConditionalGeneration"),
    "0.5.8": ("Glm4MoeLiteForCausalLM",),
    "0.5.9": (
        "BailingMoeForCausalLMNextN", "BailingMoeV2_5ForCausalLM", "GlmMoeDsaForCausalLM", "KimiK25ForConditionalGeneration",
    ),
    "0.5.10rc0": ("SarvamMLAForCausalLM",),
    "0.5.12": ("Eagle3DeepseekV2ForCausalLM",),
    "0.5.13": ("Glm4MoeLiteForCausalLMNextN",),
    "0.5.16": ("GlmMoeDsaForCausalLMNextN",),
    "0.5.17": ("KimiK3ForConditionalGeneration",),
    "0.5.19": (
        "BailingMoeV3ForCausalLM", "Dots3NoteForCausalLM", "Dots3NoteForCausalLMNextN", "KimiK3LinearForCausalLM",
    ),
    "0.5.20": (
        "Glm5NextForConditionalGeneration", "Glm5NextForConditionalGenerationNextN", "HYV4ForCausalLM", "HYV4ForCausalLMNextN",
    ),
    "0.5.21": ("BailingMoeV3VLForConditionalGeneration", "GigaChat35ForCausalLM", "GigaChat35ForCausalLMNextN"),
}  # fmt: skip
"""As ``ModelConfig._derive_model_shapes`` has them, release by release."""


@pytest.mark.parametrize(("before", "first", "name"), neighbours(LATENT_SINCE))
def test_each_latent_class_is_sized_so_from_its_release(before, first, name):
    args = {"tp_size": 8, **({"enable_mla": True} if first == "0.3.1" else {})}
    layers = 122 if name == "LongcatFlashForCausalLM" else 61
    width = 64 + 128 if parse_release(before) >= parse_release("0.5.7") else 2 * 64
    change = Change("", before, first, LATENT | {"architectures": [name]}, "bytes_per_token", plain(16, width, layers),
                    576 * layers * 2, args)  # fmt: skip
    check(change)


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
