"""What of a model's config decides the size of its KV cache, with the keys and defaults SGLang would read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvdiag.errors import ConfigError
from kvdiag.frozen import frozen, plain_of, replace
from kvdiag.models.catalogue import DTYPE
from kvdiag.models.config import ModelConfig
from kvdiag.models.context import context_length
from kvdiag.models.defaults import text_values, vision_values
from kvdiag.models.sparse import (
    Compressed,
    CompressedKeys,
    Index,
    SparseLayers,
    compressed_keys_of,
    compressed_of,
    flattened,
    index_of,
    sparse_layers_of,
)
from kvdiag.models.state import StateShape, state_of
from kvdiag.models.windows import Windows, has_double_set, windows_of

_KV_HEADS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")
PACKED_EXPERTS = "minimax_m3_nvfp4"
_FALCON = ("falcon", "RefinedWeb", "RefinedWebModel")


@frozen
class Geometry:
    """The shape of attention of a model, before any parallel split and whatever the release.

    `attention` is a word for reports: ``mha``, ``gqa``, ``mqa``, ``mla``, ``dsa``, ``swa``, ``hybrid-swa``,
    ``hybrid-state``, ``state``, ``minimax-sparse`` or ``dsv4``. `num_attention_layers` counts layers with a cache where
    they differ from the model's. `head_dim` is as the config has it; `kv_lora_rank` is zero without a latent.
    `context_len` is the model's own limit with transformers 4, `context_len_5` with transformers 5. `vision` is layers
    and width of the image encoder, `towers` the encoders whose keys are there, `nested` says that the text model has a
    config of its own, `language_only` that the checkpoint asks to be served as text, `zero_v` that its V head dim is 0, which
    releases up to 0.5.18 take as it is, `untold` what the catalogue does not hold of the model (``ModelConfig.untold``). Which
    of these a release uses is decided in ``kvdiag.sizing``.
    """

    attention: str
    architecture: str
    model_type: str
    num_hidden_layers: int
    num_attention_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    swa_kv_lora_rank: int
    swa_qk_rope_head_dim: int
    dtype: str
    kv_cache_quant_algo: str
    quantization: str
    context_len: int
    context_len_5: int
    num_nextn_predict_layers: int | None
    vision: tuple[int, int] | None
    windows: Windows | None = None
    index: Index | None = None
    state: StateShape | None = None
    sparse: SparseLayers | None = None
    compressed: Compressed | None = None
    compressed_keys: CompressedKeys | None = None
    dual_chunk: bool = False
    nested: bool = False
    towers: tuple[str, ...] = ()
    language_only: bool = False
    zero_v: bool = False
    untold: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {key: sorted(value) if isinstance(value, frozenset) else value for key, value in plain_of(self).items()}


_MOST_LAYERS = 10_000


def geometry_of(config: ModelConfig) -> Geometry:
    """The geometry of a config, by the rules of SGLang's ``ModelConfig`` (``srt/configs/model_config.py``).

    Raises CannotSizeError for architectures no formula covers, ConfigError where a needed key is missing or wrong.
    """
    config = flattened(config)
    architecture = config.architectures[0] if config.architectures else ""
    whole_text = architecture.startswith("Llava") and architecture.endswith("ForCausalLM")
    given = config.whole if whole_text else config.text
    text = text_values(config.whole, given)
    read = replace(config, text=text)
    layers = _layers(read, text)
    state = state_of(text, architecture, layers, config.place)
    heads = _heads(read, state)
    kv_heads = _kv_heads(read, heads)
    head_dim, v_head_dim = _dims(read, text, heads)
    double_set = has_double_set(config.whole)
    windows = windows_of(text, architecture, layers, head_dim, config.place, double_set=double_set)
    if double_set:
        head_dim = v_head_dim = read.integer("global_head_dim") or head_dim
        kv_heads = read.integer("num_global_key_value_heads") or kv_heads
    compressed = compressed_of(text, architecture, config.place)
    rope = 0 if text.get("use_mla_nope") else (read.integer("qk_rope_head_dim") or 0)
    unfolded = bool(compressed) or (architecture == "DeepseekVL2ForCausalLM" and text.get("use_mla") is False)
    latent = 0 if unfolded else (read.integer("kv_lora_rank") or 0)
    shape = Geometry(
        "",
        architecture,
        str(text.get("model_type") or config.whole.get("model_type") or ""),
        layers,
        _attention_layers(read, architecture, layers),
        heads,
        kv_heads,
        head_dim,
        v_head_dim,
        latent,
        rope if latent else 0,
        read.integer("swa_kv_lora_rank") or latent,
        (read.integer("swa_qk_rope_head_dim") or rope) if latent else 0,
        _dtype(config, text),
        _kv_algo(config),
        _quantization(config, text),
        context_length(text, transformers_5=False),
        context_length(text, transformers_5=True),
        read.integer("num_nextn_predict_layers"),
        _vision(config),
        windows,
        index_of(text, layers, config.place) if latent else None,
        state,
        sparse_layers_of(text, config.whole, layers, config.place),
        compressed,
        compressed_keys_of(text, config.place),
        isinstance(text.get("dual_chunk_attention_config"), Mapping),
        given is not config.whole,
        tuple(name for name in ("vision_config", "audio_config") if config.whole.get(name) is not None),
        config.whole.get("language_model_only") is True,
        text.get("v_head_dim") == 0,
        config.untold,
    )
    return replace(shape, attention=_word(shape))


def _layers(config: ModelConfig, text: Mapping[str, Any]) -> int:
    """``num_hidden_layers``; Nemotron-H counts its pattern instead, DBRX and its kin use n_layers."""
    pattern = text.get("layers_block_type") or text.get("hybrid_override_pattern")
    if text.get("model_type") in ("nemotron_h", "nemotron_h_puzzle") and isinstance(pattern, (list, str)) and pattern:
        return len(pattern)
    listed = text.get("zaya_layers")
    if text.get("model_type") == "zaya" and isinstance(listed, list) and listed:
        return len(listed)
    layers = config.required("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if not 0 < layers <= _MOST_LAYERS:
        raise ConfigError(f"{config.place}: num_hidden_layers is {layers}, which no model has")
    return layers


def _heads(config: ModelConfig, state: StateShape | None) -> int:
    names = ("num_attention_heads", "n_head", "n_heads", "encoder_attention_heads")
    if (state is not None and not state.attention_layers) or config.integer("kv_lora_rank"):
        return config.integer(*names) or 0
    heads = config.required(*names)
    if not heads:
        raise ConfigError(f"{config.place}: num_attention_heads must be above zero")
    return heads


def _kv_heads(config: ModelConfig, heads: int) -> int:
    """All KV heads of a layer (``ModelConfig.get_total_num_kv_heads``, 0.3.1 and newer)."""
    text = config.text
    new_falcon = text.get("model_type") in _FALCON and text.get("new_decoder_architecture")
    if text.get("multi_query") is True and not new_falcon:
        return 1
    inner = text.get("attn_config")
    if text.get("model_type") in ("mpt", "dbrx") and isinstance(inner, Mapping) and isinstance(inner.get("kv_n_heads"), int):
        return int(inner["kv_n_heads"])
    if text.get("model_type") == "nemotron-nas":
        return _nas_heads(config, heads)
    return config.integer(*_KV_HEADS) or heads


def _nas_heads(config: ModelConfig, heads: int) -> int:
    groups = set()
    blocks = config.text.get("block_configs")
    for block in blocks if isinstance(blocks, list) else ():
        attention = block.get("attention") if isinstance(block, Mapping) else None
        if isinstance(attention, Mapping) and not attention.get("no_op") and isinstance(attention.get("n_heads_in_group"), int):
            groups.add(heads // max(1, attention["n_heads_in_group"]))
    if len(groups) != 1:
        raise ConfigError(f"{config.place}: block_configs have {len(groups)} numbers of KV heads; SGLang takes exactly one")
    return int(groups.pop())


def _dims(config: ModelConfig, text: Mapping[str, Any], heads: int) -> tuple[int, int]:
    if not heads:
        return 0, 0
    head_dim = config.integer("head_dim", "attention_head_dim") or config.required("hidden_size", "n_embd", "d_model") // heads
    if text.get("model_type") in ("deepseek_v2", "deepseek_v3") and text.get("qk_rope_head_dim"):
        head_dim = config.required("qk_rope_head_dim")
    return head_dim, config.integer("v_head_dim") or head_dim


def _attention_layers(config: ModelConfig, architecture: str, layers: int) -> int:
    """Layers that take a cache slot: LongCat has two a layer, loop models one a pass, Whisper three kinds.

    IQuest's loop coder is multiplied by its loops twice, as its class does not tell its runner its last layer.
    """
    if architecture.startswith("LongcatFlash") and not architecture.endswith("NextN"):
        return 2 * layers
    if architecture == "WhisperForConditionalGeneration":
        return (config.integer("encoder_layers") or 0) + 2 * (config.integer("decoder_layers") or layers)
    loops = max(1, config.integer("loop_num", "num_loops") or 1)
    return layers * (loops**2 if architecture == "IQuestLoopCoderForCausalLM" else loops)


def _dtype(config: ModelConfig, text: Mapping[str, Any]) -> str:
    """The model's dtype as ``_get_and_verify_dtype`` resolves ``auto``: float32 and unknown become a 16-bit type.

    gpt-oss runs in bfloat16 whatever its config says, and what the catalogue does not hold is taken as bfloat16.
    """
    if str(text.get("model_type")) == "gpt_oss" or DTYPE in config.untold:
        return "bfloat16"
    for place in (text, config.whole):
        found = place.get("dtype") or place.get("torch_dtype")
        if isinstance(found, str):
            name = found.removeprefix("torch.")
            if name in ("bfloat16", "float16"):
                return name
    return "bfloat16" if str(text.get("model_type")).startswith("gemma") else "float16"


def _kv_algo(config: ModelConfig) -> str:
    """The cache dtype a ModelOpt checkpoint asks for (``kv_cache_quant_algo``), empty where none does."""
    for place in (config.whole, config.text):
        found = place.get("quantization_config")
        if not isinstance(found, Mapping):
            continue
        inner = found.get("quantization") if isinstance(found.get("quantization"), Mapping) else found
        assert isinstance(inner, Mapping)
        algo = inner.get("kv_cache_quant_algo")
        if isinstance(algo, str):
            return algo.upper()
        scheme = found.get("kv_cache_scheme")
        if str(found.get("quant_method", "")).startswith("modelopt") and isinstance(scheme, Mapping):
            return "FP8" if scheme.get("num_bits") == 8 and scheme.get("type") == "float" else ""
    return ""


def _quantization(config: ModelConfig, text: Mapping[str, Any]) -> str:
    """The weights' format; MXFP8 projections around packed NVFP4 experts have a name of their own (0.5.23)."""
    for place in (config.whole, text):
        found = place.get("quantization_config")
        if isinstance(found, Mapping):
            packed = found.get("moe_quant_format") == "nvfp4-pack-quantized" and found.get("quant_method") == "mxfp8"
            return PACKED_EXPERTS if packed else str(found.get("quant_method") or "")
    return ""


def _vision(config: ModelConfig) -> tuple[int, int] | None:
    """Layers and width of the image encoder; 24 and 1024 where its config does not say (``adjust_mem_fraction_for_vlm``)."""
    values = vision_values(config.whole)
    if values is None:
        return None
    layers, width = values.get("num_hidden_layers", 24), values.get("hidden_size", 1024)
    return (layers, width) if isinstance(layers, int) and isinstance(width, int) else (24, 1024)


def _word(shape: Geometry) -> str:
    if shape.compressed:
        return "dsv4"
    if shape.state:
        return "hybrid-state" if shape.state.attention_layers else "state"
    if shape.sparse:
        return "minimax-sparse"
    if shape.kv_lora_rank:
        return "dsa" if shape.index else "mla"
    if shape.windows:
        return "hybrid-swa" if shape.windows.full_layers else "swa"
    if shape.num_key_value_heads == 1:
        return "mqa"
    return "gqa" if shape.num_key_value_heads < shape.num_attention_heads else "mha"
