"""The right budget, clamps and request slots on either side of each change of SGLang: neighbouring releases.

What needs no pair of releases: ``rest_memory`` itself and its integer part (one formula throughout, and the two ways of
dividing it give one integer), the cap before or after the page (the floor of the lesser is the lesser floor),
SGLANG_CI_SMALL_KV_SIZE and post-capture sizing (switches of the environment, off by default: `test_environment.py`, and the
lines they print in `test_boundaries_logs.py`), scratch of --enable-kv-cache-sharding (refused by its name), and what a
context rank calls its capacity, which is printed without the other ranks' share.
"""

import pytest

import kvdiag
from kvdiag.errors import KvdiagError
from tests.boundaries import (
    AVAIL,
    B200,
    GPT_OSS,
    LATENT,
    LLAMA,
    PLAIN_CELL,
    REST,
    TOTAL,
    Change,
    F,
    G,
    Refused,
    check,
    label,
    sized,
    tokens,
)

VISION = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "num_hidden_layers": 28,
    "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 128000,
    "vision_config": {"hidden_size": 1280, "num_hidden_layers": 32}, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_VL = VISION | {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl"}
SPARSE = LATENT | {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_head_dim": 128,
                   "index_topk": 2048}  # fmt: skip
QWEN3_SMALL = LLAMA | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 28, "head_dim": 128,
                       "hidden_size": 1024, "num_attention_heads": 16}  # fmt: skip
UNEVEN = LLAMA | {"num_hidden_layers": 33}
PLAIN = tokens(PLAIN_CELL)
ATTENTION_DP = {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}
FEW, MANY = {"tp_size": 8, "max_total_tokens": 1000}, {"tp_size": 8, "max_total_tokens": 40_000}


CHANGES = [
    Change("most estimated requests 5120 to 4096, and the last slot counts", "0.3.0", "0.3.1", LLAMA, "max_running_requests",
           5119, 4096, {"tp_size": 8}),
    Change("the pool's padding request", "0.3.1.post1", "0.3.1.post2", LLAMA, "max_running_requests", 4096, 4097,
           {"tp_size": 8}),
    Change("the pool's padding request ends", "0.4.6.post5", "0.4.7", LLAMA, "max_running_requests", 4097, 4096, {"tp_size": 8}),
    Change("requests are estimated before the cap", "0.4.1.post3", "0.4.1.post4", LLAMA, "max_running_requests",
           int(40_000 / 8192 * 512) + 1, 4097, MANY),
    Change("and after it again", "0.5.9", "0.5.10rc0", LLAMA, "max_running_requests", 4096, int(40_000 / 8192 * 512), MANY),
    Change("requests asked for are divided over replicas", "0.4.1.post6", "0.4.1.post7", LLAMA, "max_running_requests", 64, 8,
           {**ATTENTION_DP, "max_running_requests": 64}),
    Change("DP attention of fewer replicas than ranks", "0.4.4", "0.4.4.post1", LLAMA, "max_running_requests", 64 // 8, 64 // 4,
           {**ATTENTION_DP, "max_running_requests": 64}),
    Change("DP attention of fewer replicas than ranks, heads", "0.4.4", "0.4.4.post1", LLAMA, "kv_heads_per_rank", 8, 4,
           ATTENTION_DP),
    Change("requests asked for are capped", "0.5.9", "0.5.10rc0", LLAMA, "max_running_requests", 5000, 4096,
           {"max_running_requests": 5000, "tp_size": 8}),
    Change("requests asked for are not capped any more", "0.5.13.post1", "0.5.14", LLAMA, "max_running_requests", 4096, 5000,
           {"max_running_requests": 5000, "tp_size": 8}),
    Change("but by half the tokens", "0.5.13.post1", "0.5.14", LLAMA, "max_running_requests", 600, 500,
           {**FEW, "max_running_requests": 600}),
    Change("one request for each replica", "0.5.22", "0.5.23", LLAMA, "max_running_requests", 0, 1,
           {**ATTENTION_DP, "max_running_requests": 2}),
    Change("the MLX back end's pool", "0.5.10.post1", "0.5.11", QWEN3_SMALL, "bytes_per_token",
           Refused("has no shared pool"), 114_688, {"backend": "mlx"}),
    Change("latent models in stages", "0.5.0rc2", "0.5.1", LATENT, "max_total_num_tokens",
           Refused("no pipeline stages for latent attention"), tokens(576 * 2 * 30), {"pp_size": 2}),
    Change("latent models take the least of their stages", "0.5.2rc2", "0.5.2", LATENT, "max_total_num_tokens",
           tokens(576 * 2 * 30), tokens(576 * 2 * 31), {"pp_size": 2}),
    Change("the least of the stages decides", "0.5.2rc2", "0.5.2", UNEVEN, "max_total_num_tokens",
           tokens(4096 * 16), tokens(4096 * 17), {"pp_size": 2}),
    Change("the last stages take the remainder", "0.5.5.post3", "0.5.6", LLAMA, "max_total_num_tokens",
           tokens(8 * 128 * 2 * 2 * 12), tokens(8 * 128 * 2 * 2 * 11), {"pp_size": 3}),
    Change("the cap is what the full pool may hold", "0.5.10.post1", "0.5.11", GPT_OSS, "full_max_total_num_tokens",
           int(100_001 * 2 / (1 + 0.8)), 100_001, {"max_total_tokens": 100_001}),
    Change("no memory left has its own words", "0.5.13.post1", "0.5.14", LLAMA, "max_total_num_tokens",
           Refused("not enough memory for one token"), Refused("the weights leave no memory"), memory=(5.0, 78.0)),
    Change("multimodal reservation", "0.5.17", "0.5.18", VISION, "rest_memory_bytes", REST * G,
           (AVAIL - TOTAL * (1 - F) - 100 / 1024) * G),
    Change("Qwen3-VL's transport in place of its cache", "0.5.19", "0.5.20", QWEN3_VL, "rest_memory_bytes",
           (AVAIL - TOTAL * (1 - F) - 100 / 1024) * G, (AVAIL - TOTAL * (1 - F) - 1) * G),
    Change("rope factor with transformers 5", "0.5.9", "0.5.10rc0",
           LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "context_len", 32768, 8192),
    Change("decode context ranks share heads", "0.5.17", "0.5.18", LLAMA, "kv_heads_per_rank", 1, 4,
           {"tp_size": 8, "dcp_size": 4}),
    Change("decode context ranks copy the index", "0.5.21", "0.5.22", SPARSE, "bytes_per_token",
           (1152 + 132) * 61, (1152 + 132 * 2) * 61, {"tp_size": 8, "dcp_size": 2}),
    Change("Blackwell's default takes pages of 64", "0.5.6.post2", "0.5.7", LLAMA, "page_size", 1, 64, {}, B200),
    Change("trtllm_mha takes pages of 128", "0.5.16", "0.5.17", LLAMA, "page_size", 64, 128,
           {"attention_backend": "trtllm_mha", "page_size": 128}, B200),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_the_budget_changes_where_sglang_changed_it(change):
    check(change)


def test_without_memory_the_sizing_says_what_to_give():
    (missing,) = kvdiag.size(config=LLAMA, release="0.5.9").missing
    assert "--avail" in missing
    assert "--total" in missing


NEW_ARGUMENTS = [("page_size", 16, "0.4.3.post4", "0.4.4"), ("pp_size", 2, "0.4.6.post1", "0.4.6.post2")]


@pytest.mark.parametrize(("name", "value", "before", "after"), NEW_ARGUMENTS)
def test_a_clamp_begins_with_its_argument(name, value, before, after):
    change = Change("", "", "", LLAMA, "", None, None, {name: value})
    with pytest.raises(KvdiagError, match=f"SGLang {before} has no such argument"):
        sized(change, before)
    wanted = {"page_size": PLAIN // 16 * 16, "pp_size": tokens(PLAIN_CELL // 2)}[name]
    assert sized(change, after).max_total_num_tokens == wanted


@pytest.mark.parametrize("release", ["0.3.0", "0.4.4", "0.5.2", "0.5.7", "0.5.11", "0.5.23"])
def test_the_cap_comes_before_the_page_in_every_order(release):
    args = {"max_total_tokens": 100_001} | ({"page_size": 64} if release != "0.3.0" else {})
    found = sized(Change("", "", "", LLAMA, "", None, None, args), release).max_total_num_tokens
    assert found == (100_001 if release == "0.3.0" else 100_001 // 64 * 64)


def test_no_more_requests_run_than_half_the_tokens_where_none_are_asked_for():
    for release in ("0.3.1", "0.4.4", "0.5.9", "0.5.10rc0", "0.5.23"):
        assert sized(Change("", "", "", LLAMA, "", None, None, FEW), release).max_running_requests == 500


CONTEXT = {"max_sequence_length": 1000, "seq_length": 2000, "max_seq_len": 3000, "model_max_length": 4000,
           "max_position_embeddings": 5000}  # fmt: skip


@pytest.mark.parametrize("first", range(len(CONTEXT)))
def test_the_context_length_is_the_first_key_of_an_order(first):
    keys = list(CONTEXT)[first:]
    config = {name: value for name, value in LLAMA.items() if name not in CONTEXT} | {key: CONTEXT[key] for key in keys}
    for release in ("0.4.4", "0.5.9", "0.5.23"):
        assert sized(Change("", "", "", config, "", None, None), release).context_len == CONTEXT[keys[0]]
        given = sized(Change("", "", "", config, "", None, None, {"context_length": 500}), release)
        assert given.context_len == 500
        assert given.max_total_num_tokens == PLAIN


def test_a_model_with_windows_has_no_shared_pool_on_mlx():
    with pytest.raises(KvdiagError, match="one uniform KV shape"):
        kvdiag.size(config=GPT_OSS, release="0.5.22", args={"backend": "mlx"})
