"""Which layers attend to a sliding window only, and the shape of their keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvdiag.errors import ConfigError
from kvdiag.frozen import frozen

_PATTERN_ARCHITECTURES = ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM")
_EXCLUSIVE = ("GptOss", "Gemma", "DiffusionGemma", "Afmoe", "Mellum", "MuseGlimmer", "Exaone4", "Olmo2", "Inkling")
_ONE_WINDOW_LAYER = ("MiMoV2MTP", "Step3p5MTP", "IQuestQ1MTP")


@frozen
class Windows:
    """Layers of a model by kind, before any pipeline split; `window` is the number of tokens SGLang keeps reachable.

    `opted_in` says that the config asks for two pools (``is_hybrid_swa``) with a ``hybrid_layer_pattern`` of its own.
    """

    full_layers: tuple[int, ...]
    window_layers: tuple[int, ...]
    window: int | None
    num_key_value_heads: int | None
    head_dim: int
    v_head_dim: int
    opted_in: bool = False


def windows_of(
    text: Mapping[str, Any], architecture: str, layers: int, head_dim: int, place: str, *, double_set: bool = False
) -> Windows | None:
    """The layers by kind as SGLang's lists find them (``get_hybrid_layer_ids``), None where nothing tells them.

    Gemma-4 (`double_set`) keeps the dimensions of its window layers in the plain keys, those of the full ones in ``global_*``.
    """
    kinds = _kinds(text, architecture, layers, place)
    if kinds is None:
        return None
    full, window = kinds
    swa_dim = _number(text, "swa_head_dim", place) or head_dim
    heads = _number(text, "swa_num_key_value_heads", place)
    other = text.get("attention_other_setting")
    if heads is None and isinstance(other, Mapping):
        heads = _number(other, "num_attention_groups", place)
    if double_set:
        swa_dim, heads = _number(text, "head_dim", place) or head_dim, _number(text, "num_key_value_heads", place)
        return Windows(full, window, _window(text, architecture), heads, swa_dim, swa_dim)
    v_dim = _number(text, "swa_v_head_dim", place) or swa_dim
    opted_in = bool(text.get("is_hybrid_swa")) and isinstance(text.get("hybrid_layer_pattern"), list)
    return Windows(full, window, _window(text, architecture), heads, swa_dim, v_dim, opted_in)


def has_double_set(whole: Mapping[str, Any]) -> bool:
    """Whether SGLang reads Gemma-4's double set of attention dimensions: of whole models, not of a text model's own config."""
    kind = str(whole.get("model_type"))
    return kind.startswith(("gemma4", "diffusion_gemma")) and kind != "gemma4_text"


def _kinds(text: Mapping[str, Any], architecture: str, layers: int, place: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    if architecture in _ONE_WINDOW_LAYER:
        return (), (0,)
    if architecture.startswith("Llama4"):
        return tuple(range(3, layers, 4)), tuple(i for i in range(layers) if i % 4 != 3)
    if architecture == "UnlimitedOCRForCausalLM":
        return (), tuple(range(layers))
    if architecture == "IQuestQ1ForCausalLM":
        kinds = _iquest(text, layers, place)
        return _where(kinds, "full_attention"), _where(kinds, "sliding_attention")
    if isinstance(text.get("local_layer_ids"), list):
        local = set(text["local_layer_ids"])
        return tuple(i for i in range(layers) if i not in local), tuple(i for i in range(layers) if i in local)
    pattern = text.get("hybrid_layer_pattern")
    if isinstance(pattern, list) and (architecture in _PATTERN_ARCHITECTURES or text.get("is_hybrid_swa")):
        return _where(pattern[:layers], 0), _where(pattern[:layers], 1)
    types = text.get("layer_types")
    if not isinstance(types, list):
        types = _spread(text, layers)
    if types is None or "sliding_attention" not in types:
        return None
    return _where(types[:layers], "full_attention"), _where(types[:layers], "sliding_attention")


def _iquest(text: Mapping[str, Any], layers: int, place: str) -> list[Any]:
    """IQuest-Q1's layer kinds from its blocks; its class never reads ``layer_types`` (``IQuestQ1Config``)."""
    parts = {"first_layers_types": ["full_attention"], "last_layers_types": ["full_attention"] * 3,
             "hybrid_layers_types_block": ["full_attention", *["sliding_attention"] * 3]}  # fmt: skip
    first, last, block = (text[name] if isinstance(text.get(name), list) else default for name, default in parts.items())
    repeats = _number(text, "num_hybrid_layers_block", place)
    kinds = [*first, *block * min(21 if repeats is None else repeats, layers), *last]
    if text.get("use_hybrid_layers") is False or text.get("use_sliding_window") is False:
        return ["full_attention"] * layers
    if len(kinds) != layers:
        raise ConfigError(f"{place}: the blocks of layer kinds make {len(kinds)} layers, num_hidden_layers is {layers}")
    return kinds


def _spread(text: Mapping[str, Any], layers: int) -> list[str] | None:
    """Layer kinds of configs older than ``layer_types``, by the rules of their transformers classes."""
    kind = str(text.get("model_type"))
    if kind.startswith("gemma2"):
        return ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]
    if kind == "gpt_oss":
        return ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]
    period = text.get("sliding_window_pattern")
    if not isinstance(period, int) and kind.startswith("gemma3"):
        period = 5 if kind.startswith("gemma3n") else 6
    if isinstance(period, int) and not isinstance(period, bool) and period > 1 and text.get("sliding_window"):
        return ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(layers)]
    return None


def _where(values: Sequence[Any], wanted: Any) -> tuple[int, ...]:
    return tuple(i for i, value in enumerate(values) if value == wanted)


def _window(text: Mapping[str, Any], architecture: str) -> int | None:
    """``sliding_window_size``: some model classes return one less than the config's value."""
    keys = ("sliding_window_size", "sliding_window", "window_size", "attention_chunk_size")
    size: int | None = next((text[key] for key in keys if isinstance(text.get(key), int)), None)
    if size is None or isinstance(size, bool) or size <= 0:
        return None
    return size - 1 if architecture.startswith(_EXCLUSIVE) else size


def _number(text: Mapping[str, Any], key: str, place: str) -> int | None:
    value = text.get(key)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**9:
        return value
    raise ConfigError(f"{place}: {key} is {value!r}, not a whole number a model could have")
