"""What a config.json leaves out is filled in as the class that reads it does: SGLang's own class before transformers'."""

from __future__ import annotations

import pytest

import kvdiag

LONGCAT = {
    "architectures": ["LongcatFlashForCausalLM"], "model_type": "longcat_flash", "num_layers": 28, "hidden_size": 6144,
    "num_attention_heads": 64, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "max_position_embeddings": 131072,
}  # fmt: skip
CHATGLM = {
    "architectures": ["ChatGLMModel"], "model_type": "chatglm", "num_layers": 40, "hidden_size": 4096, "num_attention_heads": 32,
    "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 128, "seq_length": 131072,
    "torch_dtype": "bfloat16",
}  # fmt: skip
EXAONE = {
    "architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "num_layers": 30, "hidden_size": 2560,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 80, "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize("release", ["0.5.2", "0.5.9", "0.5.16", "0.5.23"])
def test_longcat_has_two_cache_layers_for_each_of_the_layers_it_names_num_layers(release):
    """``LongcatFlashConfig`` takes num_layers as it stands; transformers' class of that name doubles it by itself."""
    by_class = kvdiag.size(config=LONGCAT, release=release)
    written_out = kvdiag.size(config={**LONGCAT, "num_hidden_layers": 28}, release=release)
    assert by_class.bytes_per_token == written_out.bytes_per_token == (512 + 64) * 2 * 2 * 28
    assert by_class.kv_cache_dtype == "bfloat16"


def test_a_class_that_sglang_registers_knows_keys_by_its_own_names():
    assert kvdiag.size(config=CHATGLM, release="0.4.6").bytes_per_token == 2 * 128 * 40 * 2 * 2
    assert kvdiag.size(config=CHATGLM, release="0.4.6").context_len == 131072
    assert kvdiag.size(config=EXAONE, release="0.4.6").bytes_per_token == 8 * 80 * 30 * 2 * 2
    without_groups = {name: value for name, value in CHATGLM.items() if name != "multi_query_group_num"}
    assert kvdiag.size(config=without_groups, release="0.4.6").kv_heads_per_rank == 1


def test_defaults_of_sglangs_own_class_come_before_those_of_transformers():
    bare = {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"}
    assert kvdiag.size(config=bare, release="0.5.9").terms["layers"] == 48 // 4
    layers = {"layer_types": ["attention"] * 40}
    granite = {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", **layers}
    assert kvdiag.size(config=granite, release="0.5.9").kv_heads_per_rank == 8
