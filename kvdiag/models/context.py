"""How many tokens a model can take, as ``get_context_length`` derives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvdiag.errors import ConfigError

CONTEXT_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
_ROPE_WITH_ORIGINAL = ("llama3", "yarn", "longrope")
_ROPE_PER_LAYER_KIND = ("gemma3", "gemma3n", "gemma4", "diffusion_gemma", "laguna", "mellum", "t5gemma2")
WITHOUT_A_KEY = 2048
_LARGEST = 10**12


def context_length(text: Mapping[str, Any], *, transformers_5: bool) -> int:
    """The first of SGLang's keys, times the rope factor where it extends it (``get_context_length``, unchanged since 0.3.0).

    transformers 5 (0.5.10 and newer) keeps the scaling per layer kind where a model has several, and writes
    ``original_max_position_embeddings`` into yarn, longrope and llama3 scalings, so neither multiplies there.
    Raises ConfigError for a length no model has.
    """
    limit = next((text[key] for key in CONTEXT_KEYS if isinstance(text.get(key), (int, float)) and text[key]), None)
    if limit is None:
        return WITHOUT_A_KEY
    extended = _factor(text, transformers_5) * limit
    if not 0 < extended <= _LARGEST:
        raise ConfigError(f"the config's context length is {extended!r}, which no model has; see its rope scaling")
    return int(extended)


def _factor(text: Mapping[str, Any], transformers_5: bool) -> float:
    scaling = text.get("rope_scaling")
    if transformers_5:
        scaling = scaling or text.get("rope_parameters")
        if str(text.get("model_type")).startswith(_ROPE_PER_LAYER_KIND):
            return 1
    if not isinstance(scaling, Mapping) or "original_max_position_embeddings" in scaling:
        return 1
    kind = scaling.get("rope_type") or (scaling.get("type") if transformers_5 else None)
    if kind == "llama3" or (transformers_5 and kind in _ROPE_WITH_ORIGINAL):
        return 1
    factor = scaling.get("factor", 1)
    return factor if isinstance(factor, (int, float)) and not isinstance(factor, bool) else 1
