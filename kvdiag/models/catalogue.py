"""Public models by name: the sizing keys of their published config.json (``rules/models``).

A name is matched loosely where the words left over cannot change a shape (a quantised copy, an instruction-tuned one, the
organisation, a path), and not at all where they could: a draft, a pruned or a distilled model has shapes of its own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.frozen import frozen

_HUB_CACHE = re.compile(r"models--([^/\\]+?)--([^/\\]+)")
_GGUF = re.compile(r"\.gguf$|-\d{5}-of-\d{5}(?=\.gguf$)", re.IGNORECASE)
_TUNED = frozenset({"instruct", "chat", "it", "base", "pt", "hf"})
_WEIGHTS = re.compile(
    r"awq|gptq|gguf|bnb|marlin|autoround|quark|modelopt|compressed|tensors|quantized|quantised|quant|unsloth|mlx|dynamic|static|"
    r"channel|block|tensor|pertensor|ud|sym|asym|dq|"
    r"fp8|fp4|nvfp4|mxfp4|mxfp8|int4|int8|bf16|fp16|w\d+a\d+(?:fp8|fp)?|[48]bit|g\d+|gs\d+|i?q\d[a-z0-9]*"
)
_FORMATS = re.compile(r"awq|gptq|gguf|bnb|fp8|fp4|nvfp4|mxfp4|mxfp8|int4|int8|w\d+a\d+(?:fp8|fp)?|[48]bit|i?q\d.*")
_GGUF_FORMAT = re.compile(r"(?<![a-z0-9])i?q\d(?:_[0-9a-z]+)*")


@frozen
class Match:
    """An entry of the catalogue found by a name.

    `config` holds the keys of the published config.json. `exact` is whether the name is one of the entry's own; `note` says
    what was left over of a name that is not: weights that were quantised, which tell nothing of the KV cache's dtype.
    """

    name: str
    config: dict[str, Any]
    source: str
    date: str
    exact: bool
    note: str = ""


def catalogue_match(name: str) -> Match | None:
    """The entry that `name` means (an id, a path that ends in one, a hub cache path, a quantised copy's name), or None."""
    words = _words(name)
    if not words:
        return None
    fork = _forks().get((_organisation(name), words))
    entry = _names().get(words)
    if entry is not None:
        return _match(entry, fork, True, "")
    plain, removed = _without_weights(words)
    for candidate in dict.fromkeys((plain, _without_tuning(plain))):
        entry = _names().get(candidate) or _short_names().get(candidate)
        if entry is not None:
            return _match(entry, fork, fork is not None, "" if fork else _note(entry["names"][0], removed))
    return None


def catalogue_entry(name: str) -> dict[str, Any] | None:
    """As `catalogue_match`, but the entry as its file has it."""
    found = catalogue_match(name)
    return {"names": [found.name], "config": found.config, "source": found.source, "date": found.date} if found else None


def catalogue_names() -> list[str]:
    """The first name of every model, in the order of the files."""
    return [entry["names"][0] for entry in _documents("model")]


def _note(name: str, removed: tuple[str, ...]) -> str:
    formats = [word for word in removed if _FORMATS.fullmatch(word)]
    if not formats:
        return f"matched by name to {name}"
    return f"matched by name to {name} with {'-'.join(formats)} weights; its KV dtype is not told by its name"


def _match(entry: dict[str, Any], fork: dict[str, Any] | None, exact: bool, note: str) -> Match:
    config, name = dict(entry["config"]), entry["names"][0]
    if fork is not None:
        keys = {"quant_method": "modelopt", "quant_algo": fork["weights"], "kv_cache_quant_algo": fork["kv_cache_quant_algo"]}
        config["quantization_config"] = keys
        name = fork["name"]
    return Match(name, config, entry["source"], entry["date"], exact, note)


def _documents(kind: str) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = rulebook.load("models")
    return [entry for document in documents for entry in document.get(kind, ())]


@lru_cache(maxsize=1)
def _names() -> dict[tuple[str, ...], dict[str, Any]]:
    return {_words(name): entry for entry in reversed(_documents("model")) for name in entry["names"]}


@lru_cache(maxsize=1)
def _short_names() -> dict[tuple[str, ...], dict[str, Any]]:
    """Names less their words of tuning, where only one entry has such a name."""
    short: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for words, entry in _names().items():
        short.setdefault(_without_tuning(_without_weights(words)[0]), []).append(entry)
    return {words: found[0] for words, found in short.items() if len({id(entry) for entry in found}) == 1}


@lru_cache(maxsize=1)
def _forks() -> dict[tuple[str, tuple[str, ...]], dict[str, Any]]:
    """Quantised copies whose own files name a KV dtype; another organisation's copy of the same name may not."""
    return {(_organisation(fork["name"]), _words(fork["name"])): fork for fork in _documents("fork")}


def _organisation(name: str) -> str:
    cached = _HUB_CACHE.search(name)
    parts = re.split(r"[/\\]", name.rstrip("/\\"))
    return (cached.group(1) if cached else parts[-2] if len(parts) > 1 else "").lower()


def _words(name: str) -> tuple[str, ...]:
    """The last part of a path or id, in lower-case words: ``Qwen2_5-7B`` and ``qwen2.5-7b`` are the same."""
    cached = _HUB_CACHE.search(name)
    last = cached.group(2) if cached else re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    last = _GGUF.sub("", _GGUF.sub("", last)).partition(":")[0].lower()
    last = _GGUF_FORMAT.sub(lambda found: found[0].replace("_", ""), last)
    last = re.sub(r"(?<=\d)_(?=\d)", ".", last)
    return tuple(part for part in re.split(r"[-_ ]|\.(?=w\d|i?q\d|fp\d|gguf)", last) if part)


def _without_weights(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`words` less those that say how weights are stored, which only ever follow the model's own name and size."""
    kept = len(words)
    while kept > 2 and (_WEIGHTS.fullmatch(words[kept - 1]) or words[kept - 1] in _TUNED):
        kept -= 1
    tail = words[kept:]
    removed = tuple(word for word in tail if word not in _TUNED)
    return words[:kept] + tuple(word for word in tail if word in _TUNED), removed


def _without_tuning(words: tuple[str, ...]) -> tuple[str, ...]:
    kept = len(words)
    while kept > 1 and words[kept - 1] in _TUNED:
        kept -= 1
    return words[:kept]
