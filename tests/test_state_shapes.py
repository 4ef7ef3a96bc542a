"""What each family of stateful models keeps, read from its config: layers, widths and taps worked out by hand."""

from __future__ import annotations

import pytest

from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.models.state import state_of

HALF = ["mamba", "attention"] * 2


def shape(**config):
    return state_of(config, "ExampleForCausalLM", 4, "config.json")


@pytest.mark.parametrize(
    ("config", "family", "layers", "attending", "width", "groups", "heads", "dim", "state", "taps"),
    [
        ({"model_type": "granitemoehybrid", "layer_types": HALF, "hidden_size": 1536, "mamba_n_heads": 48, "mamba_d_head": 64,
          "mamba_d_state": 128, "mamba_d_conv": 4}, "mamba2", (0, 2), (1, 3), 3072, 1, 48, 64, 128, 4),
        ({"model_type": "granitemoehybrid", "layers_block_type": HALF, "hidden_size": 1536, "mamba_n_heads": 48,
          "mamba_d_head": "auto", "mamba_d_state": 128, "mamba_expand": 4, "mamba_n_groups": 2},
         "mamba2", (0, 2), (1, 3), 6144, 2, 48, 128, 128, 4),
        ({"model_type": "lfm2", "layer_types": ["conv", "conv", "full_attention", "conv"], "hidden_size": 1024,
          "conv_L_cache": 3}, "conv", (0, 1, 3), (2,), 1024, 1, 1, 1024, 0, 3),
        ({"model_type": "jet_nemotron", "layer_types": ["jet", "attn", "jet", "swa"],
          "efficient_attention_config": {"jet": {"num_heads": 12, "head_dim": 96, "expand_v": 2, "conv_size": 4}}},
         "mamba2", (0, 2), (1, 3), 2304, 12, 12, 192, 96, 4),
        ({"model_type": "bailing_hybrid", "layer_group_size": 4, "num_attention_heads": 16, "hidden_size": 2048},
         "mamba2", (0, 1, 2), (3,), 0, 0, 16, 128, 128, 1),
        ({"model_type": "bailing_hybrid", "layer_group_size": [1, 0, 1, 1], "num_attention_heads": 16, "head_dim": 64,
          "hidden_size": 1024,
          "short_conv_kernel_size": 4}, "kda", (0, 2, 3), (1,), 1024, 16, 16, 64, 64, 4),
        ({"model_type": "mamba2", "expand": 2, "hidden_size": 768, "num_heads": 24, "head_dim": 64, "state_size": 128},
         "mamba2", (0, 1, 2, 3), (), 1536, 1, 24, 64, 128, 4),
        ({"model_type": "mamba", "hidden_size": 768, "expand": 2}, "mamba1", (0, 1, 2, 3), (), 1536, 1, 1536, 1, 16, 4),
        ({"model_type": "falcon_mamba", "hidden_size": 768, "intermediate_size": 2048, "state_size": 8, "conv_kernel": 3},
         "mamba1", (0, 1, 2, 3), (), 2048, 1, 2048, 1, 8, 3),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-*M", "mamba_num_heads": 8, "mamba_head_dim": 64,
          "n_groups": 2, "ssm_state_size": 128, "conv_kernel": 4}, "mamba2", (0, 3), (2,), 512, 2, 8, 64, 128, 4),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_family_keeps_what_its_config_says(config, family, layers, attending, width, groups, heads, dim, state, taps):
    found = shape(**config)
    assert (found.family, found.layers, found.attention_layers) == (family, layers, attending)
    assert (found.intermediate_size, found.n_groups) == (width, groups)
    assert (found.num_heads, found.head_dim, found.state_size, found.conv_kernel) == (heads, dim, state, taps)


@pytest.mark.parametrize(
    "config",
    [{"model_type": "granitemoehybrid", "layer_types": ["attention"] * 4},
     {"model_type": "lfm2", "layer_types": ["full_attention"] * 4},
     {"model_type": "llama"}, {"model_type": "minimax", "attn_type_list": [1, 1, 1, 1]}],
    ids=lambda config: config["model_type"],
)  # fmt: skip
def test_layers_that_all_attend_keep_no_state(config):
    assert shape(**config) is None


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "lfm2", "layer_types": "conv"}, "layer_types is str, not a list of layer kinds"),
        ({"model_type": "jet_nemotron", "layer_types": [], "efficient_attention_config": 3}, "efficient_attention_config is int"),
        ({"model_type": "jet_nemotron", "layer_types": [], "efficient_attention_config": {"jet": {"num_heads": 1, "head_dim": 1,
          "expand_v": "two"}}}, "expand_v is 'two'"),
        ({"model_type": "mamba2", "hidden_size": True}, "hidden_size is True, not a whole number"),
    ],
)  # fmt: skip
def test_a_key_that_cannot_be_is_named(config, said):
    with pytest.raises(ConfigError, match=f"config.json.*{said}"):
        shape(**config)


def test_marks_of_state_that_no_rule_reads_are_refused():
    with pytest.raises(CannotSizeError, match=r"ExampleForCausalLM keeps state in some layers .ssm_cfg, conv. and no rule"):
        shape(model_type="new", ssm_cfg={"d_state": 16}, layer_types=["conv"])
    with pytest.raises(CannotSizeError, match="rwkv7"):
        shape(model_type="rwkv7")
