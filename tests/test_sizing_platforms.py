"""What AMD's, Ascend's, Intel's and other NVIDIA cards change: rows made by SGLang's own code, and defaults by platform."""

import json
from pathlib import Path

import pytest

import kvdiag
from kvdiag.errors import CannotSizeError

DATA = Path(__file__).parent / "data" / "oracle"
CONFIGS = {}
for name in ("configs", "remade_configs", "kinds_configs", "platforms_configs"):
    CONFIGS |= json.loads((DATA / f"{name}.json").read_text())
ROWS = [json.loads(line) for line in (DATA / "platforms.jsonl").read_text().splitlines()]
GIVEN = ("version", "model", "args", "vendor", "gpu_mem_mib", "capability", "available_gpu_mem_gib", "pre_model_load_gib")
CARDS = {"amd": "MI300X", "ascend": "910B"}
SPARSE, FP8 = "DeepSeek-V3.2", {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3", "mem_fraction_static": 0.8}
RAW, SCALED = (576 + 132) * 61, (656 + 132) * 61
"""Bytes of DeepSeek-V3.2's token: the latent's 512 + 64 values in fp8, or with scales and a bfloat16 rope part; keys beside."""


def sized(row):
    card = {"gpu_mem_mib": row["gpu_mem_mib"]}
    if row["vendor"] == "nvidia":
        card["compute_capability"] = tuple(row["capability"])
    return kvdiag.size(
        config=CONFIGS[row["model"]], release=row["version"], args=row["args"],
        available_gpu_memory=row["available_gpu_mem_gib"], pre_model_load_memory=row["pre_model_load_gib"],
        gpu=CARDS.get(row["vendor"]), **card,
    )  # fmt: skip


def of(model, release, gpu, **args):
    return kvdiag.size(config=CONFIGS[model], release=release, args=args, gpu=gpu)


def test_rows_made_by_sglang_on_other_platforms_are_sized_to_the_token():
    wrong = []
    for row in ROWS:
        found, wanted = sized(row), {name: value for name, value in row.items() if name not in GIVEN}
        differ = [
            f"{name} {getattr(found, name)} != {value}"
            for name, value in wanted.items()
            if getattr(found, name) != (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value)
        ]
        if differ:
            wrong.append(f"{row['version']} {row['vendor']} {row['model']} {row['args']}: {'; '.join(differ)}")
    assert not wrong, "\n".join(wrong)


def test_there_are_rows_of_every_platform():
    assert {row["vendor"] for row in ROWS} == {"amd", "ascend", "intel", "nvidia"}
    assert len(ROWS) > 150


@pytest.mark.parametrize(
    ("model", "release", "args", "share"),
    [
        ("gpt-oss-20b", "0.5.9", {}, 1), ("gpt-oss-20b", "0.5.10rc0", {}, 0.85),
        ("gpt-oss-20b", "0.5.23", {"attention_backend": "triton"}, 1),
        ("gpt-oss-20b", "0.5.23", {"prefill_attention_backend": "triton", "decode_attention_backend": "triton"}, 1),
        ("gpt-oss-20b", "0.5.23", {"context_length": 8192}, 1), ("gpt-oss-20b", "0.5.23", {"context_length": 8193}, 0.85),
        ("gemma-4-26B-A4B", "0.5.14", {}, 1), ("gemma-4-26B-A4B", "0.5.23", {"prefill_attention_backend": "triton"}, 1),
        ("MiniMax-M3", "0.5.16", {}, 1), ("MiniMax-M3", "0.5.23", {"prefill_attention_backend": "triton"}, 0.85),
        ("DeepSeek-V3.2", "0.5.23", {}, 1),
        ("DeepSeek-V3.2", "0.5.23", {"tp_size": 8, "prefill_attention_backend": "triton"}, 0.85),
        ("DeepSeek-V3.2", "0.5.23", {"tp_size": 4, "prefill_attention_backend": "triton"}, 1),
        ("DeepSeek-V3.2", "0.5.23", {"attention_backend": "aiter"}, 0.85),
        ("DeepSeek-V4-Flash", "0.5.23", {"attention_backend": "aiter"}, 1),
    ],
)  # fmt: skip
def test_what_amds_attention_leaves_of_the_fraction_follows_the_backend_in_force(model, release, args, share):
    given = of(model, release, "MI300X", **args, mem_fraction_static=0.8).mem_fraction_static
    assert given == pytest.approx(0.8 * share)


def test_only_nvidias_cards_keep_memory_for_prefill_graphs():
    # MI300X: 196,592 MiB less 512, 1.5 a token of 16,384, 2 a graph of 512 and 128 for one rank, and 0.85 of it for aiter
    reserve = 512 + 16384 * 1.5 + 512 * 2 + 128
    assert of("Qwen3-8B", "0.5.23", "MI300X").mem_fraction_static == round((196592 - reserve) / 196592, 3) * 0.85


@pytest.mark.parametrize(
    ("gpu", "release", "args", "cell"),
    [
        ("MI300X", "0.5.17", {}, RAW), ("MI300X", "0.5.17", {"dsa_decode_backend": "triton"}, SCALED),
        ("MI300X", "0.5.19", {"dsa_decode_backend": "tilelang"}, RAW),
        ("MI300X", "0.5.20", {"dsa_decode_backend": "triton"}, RAW),
        ("MI300X", "0.5.23", {}, RAW), ("RTX PRO 6000", "0.5.23", {}, RAW), ("H200", "0.5.23", {}, SCALED),
        ("B200", "0.5.23", {"dsa_prefill_backend": "flashmla_kv"}, RAW),
        ("B200", "0.5.23", {"dsa_prefill_backend": "flashmla_kv", "dsa_decode_backend": "flashmla_kv"}, SCALED),
        ("B200", "0.5.23", {"dsa_prefill_backend": "flashmla_kv", "disaggregation_mode": "decode"}, RAW),
        ("B200", "0.5.23", {"dsa_prefill_backend": "flashmla_kv", "disaggregation_mode": "prefill"}, SCALED),
        ("H200", "0.5.20", {"dsa_decode_backend": "trtllm", "disaggregation_mode": "prefill"}, SCALED),
        ("H200", "0.5.19", {"dsa_decode_backend": "trtllm", "disaggregation_mode": "prefill"}, RAW),
        ("H200", "0.5.22", {"dsa_decode_backend": "tilelang", "dsa_prefill_backend": "tilelang"}, RAW),
        ("910B", "0.5.19", {}, SCALED), ("910B", "0.5.23", {}, SCALED),
    ],
)  # fmt: skip
def test_rows_of_sparse_attention_are_as_the_backend_of_platform_and_role_reads_them(gpu, release, args, cell):
    assert of(SPARSE, release, gpu, **FP8, **args).bytes_per_token == cell


def test_one_card_of_the_rtx_family_packs_the_rows_of_glm_only():
    # 78 layers x (656 with scales + 132), as flashinfer_sparse_mla reads them
    assert of("GLM-5", "0.5.23", "RTX PRO 6000", **FP8).bytes_per_token == 78 * (656 + 132)
    assert of("GLM-5", "0.5.23", "B200", **FP8).bytes_per_token == 78 * (576 + 132)


@pytest.mark.parametrize(("release", "keys"), [("0.5.19", 132), ("0.5.20", 256), ("0.5.23", 256)])
def test_index_keys_beside_a_bfloat16_cache_are_plain_on_ascend(release, keys):
    args = {"tp_size": 8, "mem_fraction_static": 0.8}
    named = of(SPARSE, release, "910B", **args, kv_cache_dtype="bfloat16")
    assert named.bytes_per_token == (576 * 2 + keys) * 61
    for sizing in (of(SPARSE, release, "910B", **args), of(SPARSE, release, None, **args, device="npu")):
        assert (sizing.bytes_per_token, sizing.kv_cache_dtype, sizing.page_size) == (named.bytes_per_token, "bfloat16", 128)


def test_the_first_releases_with_sparse_attention_leave_a_server_on_ascend_its_arguments():
    args = {"tp_size": 8, "mem_fraction_static": 0.7}
    for place in ({"gpu": "910B"}, {"gpu": None, "device": "npu"}):
        found = of(SPARSE, "0.5.3rc2", **place, **args)
        assert (found.mem_fraction_static, found.page_size) == (0.7, 128)
    assert of(SPARSE, "0.5.3rc2", "H200", **args).mem_fraction_static == 0.8


@pytest.mark.parametrize(("release", "page"), [("0.5.19", 1), ("0.5.20", 128)])
def test_sparse_attention_on_intel_is_bfloat16_and_pages_by_128_from_its_release(release, page):
    found = of(SPARSE, release, None, tp_size=8, device="xpu")
    assert (found.kv_cache_dtype, found.page_size) == ("bfloat16", page)


def test_shared_index_layers_of_a_moved_cache_keep_keys_up_to_the_release_that_elides_them():
    every, alone = (576 * 2 + 132) * 78, of("GLM-5.2", "0.5.21", "H200", tp_size=8).bytes_per_token
    assert alone < every
    for args in ({"disaggregation_mode": "decode"}, {"enable_hierarchical_cache": True}):
        assert of("GLM-5.2", "0.5.21", "H200", tp_size=8, **args).bytes_per_token == every
        assert of("GLM-5.2", "0.5.22", "H200", tp_size=8, **args).bytes_per_token == alone
    assert of("GLM-5.2", "0.5.22", "910B", tp_size=8).bytes_per_token == (576 * 2 + 256) * 78
    assert of("GLM-5.2", "0.5.23", "910B", tp_size=8).bytes_per_token < (576 * 2 + 256) * 78


@pytest.mark.parametrize("args", [{"gpu": "910B"}, {"device": "npu"}, {"gpu": "910B", "device": "npu"}])
def test_deepseek_v4_on_ascend_is_one_server_however_it_is_told(args):
    gpu = args.pop("gpu", None)
    found = of("DeepSeek-V4-Flash", "0.5.23", gpu, tp_size=4, mem_fraction_static=0.9, **args)
    # by kind of layer: windows, latents and keys of ratio 4, latents of ratio 128; no page is padded
    window = 0.1 * (584 * 43 + 8 / 128 * 10240 * 21)
    assert found.bytes_per_token == pytest.approx(window + 21 * (584 + 132) / 4 + 20 * 584 / 128)
    assert (found.page_size, found.kv_cache_dtype) == (128, "bfloat16")


@pytest.mark.parametrize(
    ("gpu", "page"), [("MI300X", 1), ("A100", 1), ("RTX 5090", 1), ("H100", 128), ("B200", 128), ("910B", 128)]
)
def test_minimax_m3_pages_by_128_where_kernels_for_it_are(gpu, page):
    assert of("MiniMax-M3", "0.5.23", gpu, tp_size=8).page_size == page


def test_intels_cards_page_by_128_only_with_their_own_backend():
    assert of("Qwen3-8B", "0.5.23", None, device="xpu").page_size == 1
    assert of("Qwen3-8B", "0.5.23", None, device="xpu", attention_backend="intel_xpu").page_size == 128
    assert of("Qwen3-8B", "0.5.23", None, device="xpu", prefill_attention_backend="intel_xpu").page_size == 128
    assert of("Qwen3-8B", "0.5.19", None, device="xpu", prefill_attention_backend="intel_xpu").page_size == 1
    assert of("gpt-oss-20b", "0.5.10", None, device="xpu").page_size == 1
    assert of("gpt-oss-20b", "0.5.11", None, device="xpu").page_size == 128


@pytest.mark.parametrize(("place", "first"), [({"gpu": "MI300X"}, "0.5.16"), ({"device": "xpu"}, "0.5.18")])
def test_a_state_model_whose_default_strategy_the_platform_lacks_does_not_start(place, first):
    gpu, args = place.get("gpu"), {name: value for name, value in place.items() if name != "gpu"}
    before = {"0.5.16": "0.5.15.post1", "0.5.18": "0.5.17"}[first]
    with pytest.raises(CannotSizeError, match=f"would not start.*from {first} only"):
        of("Qwen3-Next-80B-A3B", before, gpu, **args)
    assert of("Qwen3-Next-80B-A3B", before, gpu, **args, mamba_scheduler_strategy="no_buffer").bytes_per_token
    assert of("Qwen3-Next-80B-A3B", first, gpu, **args).bytes_per_token
