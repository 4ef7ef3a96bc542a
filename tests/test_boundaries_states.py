"""The right state pools on either side of each change of SGLang's sizing: neighbouring releases."""

import pytest

from kvdiag.releases import known_releases
from tests.boundaries import NEXT, REST, TREE, Change, G, Refused, check, label, sized

FALCON = {
    "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "num_hidden_layers": 12, "hidden_size": 2048,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "mamba_d_ssm": 4096, "mamba_n_heads": 64,
    "mamba_d_head": 64, "mamba_n_groups": 8, "mamba_d_state": 256, "mamba_d_conv": 4, "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}  # fmt: skip
NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "num_hidden_layers": 12, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "hybrid_override_pattern": "M-M*M-M-M*M-",
    "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
KIMI = {
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "num_hidden_layers": 8, "hidden_size": 2304,
    "num_attention_heads": 32, "num_key_value_heads": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "linear_attn_config": {"kda_layers": [1, 2, 3, 5, 6, 7], "full_attn_layers": [4, 8],
    "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4}, "model_max_length": 1048576, "torch_dtype": "bfloat16",
}  # fmt: skip
JET = {
    "architectures": ["JetNemotronForCausalLM"], "model_type": "jet_nemotron", "num_hidden_layers": 8, "hidden_size": 2048,
    "num_attention_heads": 16, "num_key_value_heads": 4, "layer_types": ["jet", "jet", "attn", "jet"] * 2,
    "efficient_attention_config": {"jet": {"num_heads": 16, "head_dim": 128, "expand_v": 2.0, "conv_size": 4}},
    "max_position_embeddings": 65536, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN_3_5 = NEXT | {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"}
HALF_STATES = NEXT | {"mamba_ssm_dtype": "bfloat16"}
UNEVEN = NEXT | {"num_hidden_layers": 14}
ONE_LAYER = 3 * (32 * 128 + 2 * 16 * 128) * 2 + 32 * 128 * 128 * 4
STATE = ONE_LAYER * 36
WIDEST = int(ONE_LAYER * 11 * (6 / 11))
NEXT_CELL = 2 * 256 * 2 * 2 * 12
FALCON_STATE = (3 * (4096 + 2 * 8 * 256) * 2 + 64 * 64 * 256 * 4) * 12
NEMOTRON_STATE = (3 * (8192 + 2 * 8 * 128) * 2 + 128 * 64 * 128 * 4) * 6
KIMI_STATE = (3 * 3 * 32 * 128 * 2 + 32 * 128 * 128 * 4) * 6
HALF = (3 * (32 * 128 + 2 * 16 * 128) * 2 + 32 * 128 * 128 * 2) * 36


def tokens_beside(states, each, cell=NEXT_CELL, rest=REST):
    """Tokens in what `states` slots leave; the older division of a float gives the same."""
    return int(int((rest - states * each / G) * G) // cell)


def share(rest=REST):
    """Bytes of the states by the default ratio of 0.9 to the KV cache."""
    return rest * 0.9 / 1.9 * G


BY_RATIO = int(share() // STATE)
PADDED = int((share() - STATE) // STATE)
KIMI_SLOTS = int(share() // KIMI_STATE)
HALVED = int(share() // (STATE // 2))
HALVES = {"tp_size": 2}
NO_RADIX = {"disable_radix_cache": True}
DRAFTS = {**TREE, "max_running_requests": 12}
TAKEN = STATE * 12 * 4 / G
SHARED_OUT = {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True, "max_running_requests": 40}
DRAFTED_14 = int(share() // (STATE * (1 + 4 / 5)))
DRAFTED_17 = int((share() - STATE * 5) // (STATE * (1 + 4 / 5)))

CHANGES = [
    Change("states have a pool", "0.5.2rc2", "0.5.2", NEXT, "max_mamba_cache_size", Refused("has no pool for it"), 512, HALVES),
    Change("as many states as requests, or 512", "0.5.2rc2", "0.5.2", NEXT, "max_total_num_tokens", Refused("from 0.5.2"),
           tokens_beside(100, STATE), {"max_running_requests": 100}),
    Change("states by ratio", "0.5.3.post1", "0.5.3.post2", NEXT, "max_mamba_cache_size", 100, BY_RATIO,
           {"max_running_requests": 100}),
    Change("states by ratio, in tokens", "0.5.3.post1", "0.5.3.post2", NEXT, "max_total_num_tokens",
           tokens_beside(512, STATE // 2, NEXT_CELL // 2), tokens_beside(HALVED, STATE // 2, NEXT_CELL // 2), HALVES),
    Change("a size asked for gives way to the ratio", "0.5.3.post1", "0.5.3.post2", NEXT, "max_mamba_cache_size", 50, BY_RATIO,
           {"max_mamba_cache_size": 50}),
    Change("a request takes three slots", "0.5.3.post1", "0.5.3.post2", NEXT, "max_running_requests", 512, HALVED // 3, HALVES),
    Change("slots hold their drafts", "0.5.3.post1", "0.5.3.post2", NEXT, "max_mamba_cache_size", 12,
           int(share() // STATE // 5), DRAFTS),
    Change("every Mamba2 model divides over replicas", "0.5.3", "0.5.3.post1", FALCON, "max_mamba_cache_size", 10, 40,
           SHARED_OUT),
    Change("and gated delta nets go on to", "0.5.3.post1", "0.5.3.post2", NEXT, "max_mamba_cache_size", 10,
           int(share() // (STATE // 2)) // 4, SHARED_OUT),
    Change("Falcon-H1's state is split as attention is", "0.5.4.post2", "0.5.4.post3", FALCON, "mamba_cache_per_req",
           FALCON_STATE // 8, FALCON_STATE // 2, {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}),
    Change("drafts apart", "0.5.6.post2", "0.5.7", NEXT, "max_mamba_cache_size", int(share() // STATE // 5),
           int(share(REST - TAKEN) // STATE), DRAFTS),
    Change("a size asked for holds", "0.5.6.post2", "0.5.7", NEXT, "max_mamba_cache_size", BY_RATIO, 50,
           {"max_mamba_cache_size": 50}),
    Change("two slots more without need", "0.5.6.post2", "0.5.7", NEXT, "max_running_requests", BY_RATIO // 3, BY_RATIO // 5),
    Change("and gone again", "0.5.7", "0.5.8", NEXT, "max_running_requests", BY_RATIO // 5, BY_RATIO // 3),
    Change("extra buffers cost two", "0.5.7", "0.5.8", NEXT, "max_running_requests", BY_RATIO // 5, BY_RATIO // 5,
           {"mamba_scheduler_strategy": "extra_buffer"}),
    Change("drafts beside a size asked for", "0.5.7", "0.5.8", NEXT, "max_total_num_tokens", tokens_beside(50, STATE),
           tokens_beside(50, STATE, rest=REST - TAKEN), {**DRAFTS, "max_mamba_cache_size": 50}),
    Change("the attention layers of a stage", "0.5.7", "0.5.8", NEXT, "bytes_per_token", NEXT_CELL, NEXT_CELL // 2,
           {"pp_size": 2}),
    Change("no radix cache no longer means 512", "0.5.8.post1", "0.5.9", NEXT, "max_mamba_cache_size", 512, HALVED,
           {**NO_RADIX, **HALVES}),
    Change("no radix cache and requests", "0.5.8.post1", "0.5.9", NEXT, "max_mamba_cache_size", 100, 100,
           {**NO_RADIX, "max_running_requests": 100}),
    Change("Kimi-Linear without a radix cache", "0.5.8.post1", "0.5.9", KIMI, "max_mamba_cache_size", 512, KIMI_SLOTS),
    Change("Kimi-Linear with one", "0.5.13.post1", "0.5.14", KIMI, "max_running_requests", min(KIMI_SLOTS, 2048),
           KIMI_SLOTS // 3),
    Change("the states' dtype in the config", "0.5.8.post1", "0.5.9", HALF_STATES, "mamba_cache_per_req", STATE, HALF),
    Change("one extra slot without an overlap schedule", "0.5.9", "0.5.10rc0", NEXT, "max_running_requests", BY_RATIO // 5,
           BY_RATIO // 4, {"mamba_scheduler_strategy": "extra_buffer", "disable_overlap_schedule": True}),
    Change("slots and drafts together", "0.5.12.post1", "0.5.13", NEXT, "max_mamba_cache_size",
           int(share(REST - TAKEN) // STATE), int(share() // (STATE * (1 + 4 / 3))), DRAFTS),
    Change("drafts of the requests that the states serve", "0.5.12.post1", "0.5.13", NEXT, "max_total_num_tokens",
           tokens_beside(60, STATE, rest=REST - STATE * 48 * 4 / G), tokens_beside(60, STATE, rest=REST - STATE * 20 * 4 / G),
           {**TREE, "max_mamba_cache_size": 60}),
    Change("extra buffers by default", "0.5.13.post1", "0.5.14", NEXT, "max_running_requests", BY_RATIO // 3, BY_RATIO // 5),
    Change("a padding slot of states", "0.5.16", "0.5.17", NEXT, "max_mamba_cache_size", BY_RATIO, PADDED),
    Change("a padding slot of states, in tokens", "0.5.16", "0.5.17", NEXT, "max_total_num_tokens",
           tokens_beside(BY_RATIO, STATE), tokens_beside(PADDED + 1, STATE)),
    Change("a padding slot of drafts", "0.5.16", "0.5.17", NEXT, "max_mamba_cache_size", DRAFTED_14, DRAFTED_17, DRAFTS),
    Change("a padding slot of drafts, in tokens", "0.5.16", "0.5.17", NEXT, "max_total_num_tokens",
           tokens_beside(DRAFTED_14, STATE, rest=REST - STATE * min(12, DRAFTED_14 // 5) * 4 / G),
           tokens_beside(DRAFTED_17 + 1, STATE, rest=REST - STATE * (min(12, DRAFTED_17 // 5) + 1) * 4 / G), DRAFTS),
    Change("a padding slot beside a size asked for", "0.5.16", "0.5.17", NEXT, "max_total_num_tokens",
           tokens_beside(50, STATE), tokens_beside(51, STATE), {"max_mamba_cache_size": 50}),
    Change("the widest stage's states", "0.5.16", "0.5.17", UNEVEN, "max_mamba_cache_size",
           int(share() // (ONE_LAYER * 11)), int((share() - WIDEST) // WIDEST), {"pp_size": 2}),
    Change("a ring of records for drafts", "0.5.15.post1", "0.5.16", NEXT, "max_mamba_cache_size", Refused("no such argument"),
           Refused("no rule follows the ring of 0.5.16"), {"enable_gdn_replayssm_spec": True}),
    Change("a prefill server keeps no drafts' states", "0.5.21", "0.5.22", NEXT, "max_mamba_cache_size", DRAFTED_17, PADDED,
           {**TREE, "disaggregation_mode": "prefill"}),
    Change("drafts fused with the states", "0.5.22", "0.5.23", NEXT, "max_mamba_cache_size", Refused("enable-unified-memory"),
           Refused("enable-unified-memory"), {**DRAFTS, "enable_unified_memory": True}),
    Change("states of one request at least", "0.5.22", "0.5.23", NEXT, "max_mamba_cache_size", Refused("single request"), 1,
           {**NO_RADIX, "tp_size": 8, "dp_size": 4, "enable_dp_attention": True, "max_running_requests": 2}),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_states_change_where_sglang_changed_them(change):
    check(change)


STATEFUL_SINCE = {
    "0.5.2": NEXT | {"num_hidden_layers": 12},
    "0.5.3rc2": FALCON,
    "0.5.3.post1": NEMOTRON,
    "0.5.4.post2": KIMI,
    "0.5.5.post1": JET,
    "0.5.9": QWEN_3_5,
}


@pytest.mark.parametrize(("first", "config"), STATEFUL_SINCE.items(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_model_with_states_is_refused_before_its_release_has_a_pool_for_them(first, config):
    releases = [str(release) for release in known_releases()]
    before = releases[releases.index(first) - 1]
    check(Change("", before, first, config, "kv_cache_dtype", Refused(f"no pool for it .from {first}"), "bfloat16"))
    assert sized(Change("", "", "", config, "", None, None), first).max_mamba_cache_size


def test_nemotron_keeps_its_states_over_all_replicas_to_0_5_6():
    change = Change("", "", "", NEMOTRON, "", None, None, SHARED_OUT)
    slots = {release: sized(change, release).max_mamba_cache_size for release in ("0.5.3.post1", "0.5.6.post2", "0.5.7")}
    assert slots == {"0.5.3.post1": 40, "0.5.6.post2": int(share() // (NEMOTRON_STATE // 2)), "0.5.7": slots["0.5.6.post2"]}
