"""What of a model's config decides the size of its KV cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.models.config import ModelConfig

_KV_HEADS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
_CONTEXT = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
_STATEFUL = ("linear_attn_config", "linear_num_value_heads", "mamba_d_state", "ssm_state_size", "hybrid_override_pattern")
_HYBRID_SWA = ("GptOss", "MiMoV2", "Llama4", "Step3p5", "Step3p7", "Gemma4")


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of attention, per layer and for the whole model (before any parallel split).

    `attention` is ``mha``, ``gqa``, ``mqa`` or ``mla``. For MLA `kv_lora_rank` and `qk_rope_head_dim` are set; for
    the others `num_key_value_heads`, `head_dim` and `v_head_dim`. `context_len` is the model's own limit in tokens.
    """

    attention: str
    architecture: str
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    dtype: str
    context_len: int

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {name: getattr(self, name) for name in self.__slots__}


def geometry_of(config: ModelConfig) -> Geometry:
    """The geometry of a config, by the rules of SGLang's ``ModelConfig`` (``srt/configs/model_config.py``).

    Raises CannotSizeError for architectures no formula covers, ConfigError where a needed key is missing or wrong.
    """
    architecture = config.architectures[0] if config.architectures else ""
    _refuse_unknown(config, architecture)
    heads = config.required("num_attention_heads", "n_head", "n_heads")
    layers = config.required("num_hidden_layers", "n_layer", "n_layers")
    if not heads or not layers:
        raise ConfigError(f"{config.place}: num_attention_heads and num_hidden_layers must be above zero")
    latent = config.integer("kv_lora_rank") or 0
    kv_heads = _kv_heads(config, heads)
    if latent:
        attention = "mla"
        head_dim = v_head_dim = 0
    else:
        attention = "mqa" if kv_heads == 1 else "gqa" if kv_heads < heads else "mha"
        head_dim = config.integer("head_dim") or config.required("hidden_size", "n_embd") // heads
        v_head_dim = config.integer("v_head_dim") or head_dim
    return Geometry(
        attention,
        architecture,
        layers,
        heads,
        kv_heads,
        head_dim,
        v_head_dim,
        latent,
        (config.integer("qk_rope_head_dim") or 0) if latent else 0,
        str(config.text.get("dtype") or config.text.get("torch_dtype") or config.whole.get("torch_dtype") or "bfloat16"),
        config.integer(*_CONTEXT) or 0,
    )


def _kv_heads(config: ModelConfig, heads: int) -> int:
    if config.text.get("multi_query") is True:
        return 1
    return config.integer(*_KV_HEADS) or heads


def _refuse_unknown(config: ModelConfig, architecture: str) -> None:
    for key in _STATEFUL:
        if config.text.get(key):
            raise CannotSizeError(f"cannot size this architecture: {architecture or 'the model'} keeps state ({key})")
    if config.text.get("index_topk"):
        raise CannotSizeError(f"cannot size this architecture: {architecture} has a sparse-attention index")
    if architecture.startswith(_HYBRID_SWA):
        raise CannotSizeError(f"cannot size this architecture: {architecture} has a sliding-window pool of its own")
