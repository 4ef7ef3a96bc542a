"""Sparse and compressed attention: the index beside the latent, MiniMax's sparse layers, DeepSeek-V4's compressed pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvdiag.errors import ConfigError
from kvdiag.frozen import frozen, replace
from kvdiag.models.config import ModelConfig

Values = Mapping[str, Any]
V41 = "deepseek_v41"


@frozen
class Index:
    """The key index of DSA (``index_topk``): width a token, layers that reuse the previous layer's choice, pooling."""

    head_dim: int
    shared_layers: frozenset[int]
    kpool: int


@frozen
class SparseLayers:
    """MiniMax-M3: dense and sparse layers, the latter with an index of keys and, unless in `key_only`, values."""

    dense: tuple[int, ...]
    sparse: tuple[int, ...]
    key_only: frozenset[int]
    index_dim: int


@frozen
class Compressed:
    """DeepSeek-V4: one compression ratio a layer; `sources` are the layers that own storage of ratio 1 and 2.

    `is_v41` says that it is DeepSeek-V4.1, whose window pool is sized by requests; `sees_images` that its config has an image
    encoder (``vision_n_layers``).
    """

    ratios: tuple[int, ...]
    nope_dim: int
    rope_dim: int
    index_dim: int
    window: int | None
    sources: tuple[int, ...]
    is_v41: bool = False
    sees_images: bool = False


@frozen
class CompressedKeys:
    """QSA (``parse_qsa_profile``): compressed keys beside the ordinary cache."""

    kv_heads: int
    head_dim: int
    ratio: int


def index_of(text: Values, layers: int, place: str) -> Index | None:
    """The DSA index of a config with ``index_topk``, None without.

    Which layers share follows ``dsa_layer_skips_topk``: ``indexer_types``, ``cli_factor``, ``index_topk_pattern``, or
    ``index_topk_freq`` with ``index_skip_topk_offset``, in that order.
    """
    if text.get("index_topk") is None:
        return None
    shared = frozenset(i for i in range(layers) if _shares(text, i, place))
    return Index(_number(text, "index_head_dim", place, 128), shared, max(1, _number(text, "index_kpool", place, 1)))


def _shares(text: Values, layer: int, place: str) -> bool:
    types = text.get("indexer_types")
    if isinstance(types, list):
        return layer < len(types) and types[layer] == "shared"
    factor = _number(text, "cli_factor", place, 1)
    if factor > 1:
        return layer % factor != 0
    pattern = text.get("index_topk_pattern")
    if isinstance(pattern, (str, list)):
        return layer < len(pattern) and pattern[layer] == "S"
    every = max(1, _number(text, "index_topk_freq", place, 1))
    offset = text.get("index_skip_topk_offset")
    first = _number(text, "index_skip_topk_offset", place, 1) - 1 if offset is not None else 1
    return max(layer - first, 0) % every != 0


def sparse_layers_of(text: Values, whole: Values, layers: int, place: str) -> SparseLayers | None:
    """MiniMax's ``sparse_attention_config``, None without one (``get_minimax_sparse_attention_config``)."""
    config = text.get("sparse_attention_config") or whole.get("sparse_attention_config")
    if not isinstance(config, Mapping) or not isinstance(config.get("sparse_attention_freq"), list):
        return None
    frequency = config["sparse_attention_freq"][:layers]
    without = config.get("sparse_disable_index_value")
    without = without if isinstance(without, list) else []
    return SparseLayers(
        tuple(i for i, value in enumerate(frequency) if value == 0),
        tuple(i for i, value in enumerate(frequency) if value != 0),
        frozenset(i for i, value in enumerate(without) if value),
        _number(config, "sparse_index_dim", place, None),
    )


def flattened(config: ModelConfig) -> ModelConfig:
    """DeepSeek-V4.1's config with the keys of its text part beside its own, as SGLang reads it; other configs unchanged."""
    if not str(config.whole.get("model_type")).startswith(V41):
        return config
    inner = {name: value for name, value in config.text.items() if name != "model_type"}
    flat = {**inner, **{name: value for name, value in config.whole.items() if name != "text_config"}}
    vision = flat.pop("vision_config", None)
    if isinstance(vision, Mapping):
        flat.setdefault("vision_n_layers", vision.get("num_hidden_layers"))
    if flat.get("architectures") == ["DeepseekV41ForCausalLM"]:
        flat["architectures"] = ["DeepseekV4ForCausalLM"]
    return replace(config, whole=flat, text=flat)


def compressed_of(text: Values, architecture: str, place: str) -> Compressed | None:
    """DeepSeek-V4's layers by compression ratio, None for other models."""
    ratios = text.get("compress_ratios")
    if not architecture.startswith("DeepseekV4") or not isinstance(ratios, list):
        return None
    if not all(isinstance(ratio, int) and 0 <= ratio <= 10**9 for ratio in ratios):
        raise ConfigError(f"{place}: compress_ratios holds {str(ratios)[:80]}, not one whole number a layer")
    rope = _number(text, "qk_rope_head_dim", place, None)
    sources = text.get("kv_source_layer_ids")
    window = text.get("sliding_window")
    is_v41 = str(text.get("model_type")).startswith(V41)
    return Compressed(
        tuple(ratios),
        _number(text, "head_dim", place, None) - rope,
        rope,
        _number(text, "index_head_dim", place, 128),
        window if isinstance(window, int) else None,
        tuple(sources) if isinstance(sources, list) else (),
        is_v41,
        is_v41 and bool(text.get("vision_n_layers")),
    )


def compressed_keys_of(text: Values, place: str) -> CompressedKeys | None:
    """QSA's compressed keys, None where the config has no compressed index."""
    if text.get("indexer_compress_ratio") is None:
        return None
    ratio = _number(text, "indexer_compress_ratio", place, None)
    heads = _number(text, "indexer_kv_heads", place, 1)
    return CompressedKeys(heads, _number(text, "indexer_head_dim", place, None), max(1, ratio))


def _number(text: Values, key: str, place: str, default: int | None) -> int:
    value = text.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**9:
        raise ConfigError(f"{place}: {key} is {value!r}, not a whole number a model could have")
    return value
