"""What the tests of SGLang's changes share: a change, the two neighbouring releases around it, and shapes to size.

Expected values are worked out in the tests from the shapes, by the formula of each side, not by kvdiag.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

import kvdiag
from kvdiag.errors import KvdiagError
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
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 32, "hidden_size": 2880,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 16, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
NEXT = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "linear_num_value_heads": 32,
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4, "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
}  # fmt: skip
TREE = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4}  # fmt: skip
PLAIN_CELL = 8 * 128 * 32 * 2 * 2


@dataclass(frozen=True)
class Refused:
    """A side of a change on which SGLang or kvdiag refuses, and what the refusal says."""

    says: str


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
    gpu: int | None = H100
    draft: dict[str, Any] | None = None
    memory: tuple[float, float] = (AVAIL, TOTAL)


def plain(heads, width, layers, element=2):
    """Bytes a token of layers of one kind; `width` is that of K and V together."""
    return heads * width * layers * element


def neighbours(table):
    """Of a table of names by their first release: each with the release before it and its own."""
    releases = [str(release) for release in known_releases()]
    return [(releases[releases.index(first) - 1], first, name) for first, names in table.items() for name in names]


def tokens(cell, budget=BUDGET):
    return int(budget // cell)


def sized(change, release):
    args = dict(change.args)
    if change.number != "mem_fraction_static":
        args.setdefault("mem_fraction_static", F)
    capability = (10, 0) if change.gpu == B200 else (9, 0)
    return kvdiag.size(
        config=change.config, release=release, args=args, available_gpu_memory=change.memory[0],
        pre_model_load_memory=change.memory[1], gpu_mem_mib=change.gpu, compute_capability=capability,
        draft_config=change.draft,
    )  # fmt: skip


def check(change):
    """Holds `change` to its values on both sides."""
    names = [str(release) for release in known_releases()]
    assert names.index(change.before) + 1 == names.index(change.after), "neighbouring releases"
    for release, wanted in ((change.before, change.old), (change.after, change.new)):
        if isinstance(wanted, Refused):
            with pytest.raises(KvdiagError, match=wanted.says):
                sized(change, release)
            continue
        found = getattr(sized(change, release), change.number)
        assert found == (pytest.approx(wanted, rel=1e-12) if isinstance(wanted, float) else wanted), release


def label(change):
    """The name of a change's test."""
    return f"{change.after}-{change.name}"
