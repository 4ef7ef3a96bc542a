"""The right window pools on either side of each change of SGLang's sizing: neighbouring releases."""

import pytest

from kvdiag.errors import CannotSizeError
from tests.boundaries import GPT_OSS, Change, check, label, sized, tokens

MIMO = {
    "architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "num_hidden_layers": 12, "hidden_size": 4096,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "swa_num_key_value_heads": 8,
    "swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window_size": 128, "hybrid_layer_pattern": [0, 1, 1, 1] * 3,
    "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA_4 = {
    "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "num_hidden_layers": 12, "hidden_size": 2816,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
    "num_global_key_value_heads": 2, "sliding_window": 1024, "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
}  # fmt: skip
FULL, SWA = 8 * 128 * 2, 8 * 128 * 2

CHANGES = [
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
    Change("the window pool by the requests that may run", "0.5.13.post1", "0.5.14", GPT_OSS, "swa_max_total_num_tokens",
           int(tokens(FULL * 16 + 0.8 * SWA * 16) * 0.8), 10 * (127 + 128 + 1 + 1) + 2 * 8192 + 1,
           {"max_running_requests": 10, "disable_radix_cache": True}),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_window_pools_change_where_sglang_changed_them(change):
    check(change)


def test_a_window_pool_too_small_for_one_request_stops_the_server_from_0_5_16():
    change = Change(
        "", "0.5.15.post1", "0.5.16", GPT_OSS, "", None, None, {"swa_full_tokens_ratio": 0.5, "max_total_tokens": 200}
    )
    assert sized(change, change.before).swa_max_total_num_tokens == 100
    with pytest.raises(CannotSizeError, match="cannot hold the window"):
        sized(change, change.after)
