"""What transformers fills in where a config.json is silent (``rules/transformers``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kvdiag import rulebook

_OWN_TEXT_CONFIGS = ("deepseek_vl_v2", "deepseek-ocr", "unlimited-ocr")
"""Models whose nested text config SGLang reads with a class of its own, or as it stands, not with transformers'."""
_OWN_CONFIG_CLASSES = ("head_dim",)
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


@lru_cache(maxsize=1)
def _classes() -> dict[str, Any]:
    classes: dict[str, Any] = {}
    for document in rulebook.load("transformers"):
        for name, entry in document.items():
            if isinstance(entry, dict):
                classes[name] = {**classes.get(name, {}), **entry}
    return classes


def text_values(whole: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the text model as a transformers config object has them: given, by another name, or by default.

    `text` is the part of `whole` that describes the language model, or `whole` itself. A key whose value is null counts
    as absent, as SGLang's own ``getattr(config, key, None)`` chains treat it.
    """
    values = {name: value for name, value in text.items() if value is not None}
    entry = _classes().get(_class_name(whole, text), {})
    for name, other in entry.get("aliases", {}).items():
        if name not in values and other in values:
            values[name] = values[other]
    own = _OWN_CONFIG_CLASSES if whole is not text and whole.get("model_type") in _OWN_TEXT_CONFIGS else ()
    for name, value in entry.get("defaults", {}).items():
        if name not in own:
            values.setdefault(name, value)
    return values


def vision_values(whole: Mapping[str, Any]) -> dict[str, Any] | None:
    """The vision encoder's keys with its class's defaults; None where neither the config nor its class has an encoder."""
    given, entry = whole.get("vision_config"), _classes().get(str(whole.get("model_type")), {})
    if not isinstance(given, Mapping):
        return dict(entry["vision"]) if "vision" in entry and not entry.get("vision_optional") else None
    values = {name: value for name, value in given.items() if value is not None}
    for name, other in entry.get("vision_aliases", {}).items():
        if other in values:
            values[name] = values[other]
    return {**entry.get("vision", {}), **values}


def _class_name(whole: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    if text is whole or isinstance(text.get("model_type"), str):
        return str(text.get("model_type"))
    outer = _classes().get(str(whole.get("model_type")), {})
    return str(next((outer[key] for key in _NESTED if key in outer), ""))
