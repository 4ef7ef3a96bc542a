"""Public models by name: the sizing keys of their published config.json (``rules/models``).

A name is matched loosely where the words left over cannot change a shape (a quantised copy, an instruction-tuned one, the
organisation, a path), and not at all where they could: a draft, a pruned or a distilled model has shapes of its own.

An entry may lack a key that the published file has: `Match.untold` says which, so that no default is taken for it in silence.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.frozen import frozen
from kvdiag.models.config import config_from
from kvdiag.models.context import CONTEXT_KEYS

_HUB_CACHE = r"models--([^/\\]+?)--([^/\\]+)"
_GGUF = r"(?i)\.gguf$|-\d{5}-of-\d{5}(?=\.gguf$)"
_TUNED = frozenset({"instruct", "chat", "it", "base", "pt", "hf"})
_WEIGHTS = (
    r"awq|gptq|gguf|bnb|marlin|autoround|quark|modelopt|compressed|tensors|quantized|quantised|quant|unsloth|mlx|dynamic|static|"
    r"channel|block|tensor|pertensor|ud|sym|asym|dq|"
    r"fp8|fp4|nvfp4|mxfp4|mxfp8|int4|int8|bf16|fp16|w\d+a\d+(?:fp8|fp)?|[48]bit|g\d+|gs\d+|i?q\d[a-z0-9]*"
)
_FORMATS = r"awq|gptq|gguf|bnb|fp8|fp4|nvfp4|mxfp4|mxfp8|int4|int8|w\d+a\d+(?:fp8|fp)?|[48]bit|i?q\d.*"
_GGUF_FORMAT = r"(?<![a-z0-9])i?q\d(?:_[0-9a-z]+)*"
DTYPE, CONTEXT, ENCODER, KV_DTYPE = "dtype", "context_len", "vision_config", "kv_cache_dtype"
_DTYPE_KEYS = ("dtype", "torch_dtype")


@frozen
class Match:
    """An entry of the catalogue found by a name.

    `config` holds the keys of the published config.json. `exact` is whether the name is one of the entry's own; `note` says
    what was left over of a name that is not: weights that were quantised, which tell nothing of the KV cache's dtype. `untold`
    is what neither the entry nor the name tells: ``dtype``, ``context_len``, ``vision_config``, ``kv_cache_dtype``.
    """

    name: str
    config: dict[str, Any]
    source: str
    date: str
    exact: bool
    note: str = ""
    untold: tuple[str, ...] = ()


def catalogue_match(name: str) -> Match | None:
    """The entry that `name` means (an id, a path that ends in one, a hub cache path, a quantised copy's name), or None."""
    words = _words(name)
    if not words:
        return None
    known = _catalogue()
    copy = known["copies"].get(_copy(name))
    fork = None if copy is None else known["forks"][copy]
    plain, removed = _without_weights(words)
    entry = _named(words, "names")
    if entry is not None:
        return _match(entry, fork, True, removed if _is_foreign(name, entry) else ())
    for candidate in dict.fromkeys((plain, _without_tuning(plain))):
        entry = _named(candidate, "names", "short")
        if entry is not None:
            return _match(entry, fork, False, removed)
    return None


def catalogue_entry(name: str) -> dict[str, Any] | None:
    """As `catalogue_match`, but the entry as its file has it."""
    found = catalogue_match(name)
    return {"names": [found.name], "config": found.config, "source": found.source, "date": found.date} if found else None


def catalogue_names() -> list[str]:
    """The first name of every model, in the order of the files."""
    return [entry["names"][0] for entry in _catalogue()["models"]]


def _formats(removed: tuple[str, ...]) -> list[str]:
    return [word for word in removed if re.fullmatch(_FORMATS, word)]


def nearest(name: str) -> str | None:
    """The model whose name is most like `name`, with its maker or without, None where none is like it."""
    from difflib import get_close_matches

    known = {form.lower(): each for each in catalogue_names() for form in (each.rpartition("/")[2], each)}
    found = get_close_matches(name.lower(), list(known), 1, 0.8)
    return known[found[0]] if found else None


def _note(name: str, removed: tuple[str, ...]) -> str:
    formats = _formats(removed)
    if not formats:
        return f"matched by name to {name}"
    return f"matched by name to {name} with {'-'.join(formats)} weights; its KV dtype is not told by its name"


def _match(entry: dict[str, Any], fork: dict[str, Any] | None, exact: bool, removed: tuple[str, ...]) -> Match:
    config, name, untold = dict(entry["config"]), entry["names"][0], _untold(entry)
    if fork is not None:
        keys = {"quant_method": "modelopt", "quant_algo": fork["weights"], "kv_cache_quant_algo": fork["kv_cache_quant_algo"]}
        config |= {**fork.get("config", {}), "quantization_config": keys}
        return Match(fork["name"], config, entry["source"], entry["date"], True, "", untold)
    untold += (KV_DTYPE,) if _formats(removed) else ()
    note = "" if exact and not _formats(removed) else _note(name, removed)
    return Match(name, config, entry["source"], entry["date"], exact, note, untold)


def _is_foreign(name: str, entry: dict[str, Any]) -> bool:
    """Whether an id's organisation published none of the entry's models: its quantised copy of that name may be another."""
    owner = _organisation(name)
    return len(_parts(name)) == 2 and owner not in {_organisation(own) for own in entry["names"]}


def _untold(entry: dict[str, Any]) -> tuple[str, ...]:
    """What the published file may hold and the entry does not, less what its `absent` says the file lacks too."""
    whole = entry["config"]
    text = config_from(whole, "catalogue", entry["names"][0]).text
    absent = set(entry.get("absent", ()))
    known = {
        DTYPE: any(part.get(key) for part in (text, whole) for key in _DTYPE_KEYS) or absent & set(_DTYPE_KEYS),
        CONTEXT: any(text.get(key) for key in CONTEXT_KEYS) or absent & set(CONTEXT_KEYS),
        ENCODER: text is whole or ENCODER in whole or ENCODER in absent,
    }
    return tuple(name for name, told in known.items() if not told)


def compile_catalogue(documents: list[rulebook.Document]) -> dict[str, Any]:
    """What the cache keeps of the rules: the entries, and the words of every name with the number of its entry.

    `short` has names less their words of tuning, where only one entry has such a name. `copies` are quantised copies whose own
    files name a KV dtype, by organisation too: another organisation's copy of the same name may not.
    """
    models = [entry for document in documents for entry in document.get("model", ())]
    forks = [entry for document in documents for entry in document.get("fork", ())]
    names: dict[str, int] = {}
    short: dict[str, set[int]] = {}
    for number, entry in enumerate(models):
        for name in entry["names"]:
            words = _words(name)
            if names.setdefault(" ".join(words), number) == number:
                short.setdefault(" ".join(_without_tuning(_without_weights(words)[0])), set()).add(number)
    return {
        "models": models,
        "forks": forks,
        "names": names,
        "short": {words: min(found) for words, found in short.items() if len(found) == 1},
        "copies": {_copy(fork["name"]): number for number, fork in enumerate(forks)},
    }


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, Any]:
    found: dict[str, Any] = rulebook.load("models", compile_catalogue)
    return found


def _named(words: tuple[str, ...], *kinds: str) -> dict[str, Any] | None:
    known = _catalogue()
    numbers = (known[kind].get(" ".join(words)) for kind in kinds)
    return next((known["models"][number] for number in numbers if number is not None), None)


def _copy(name: str) -> str:
    return f"{_organisation(name)}/{' '.join(_words(name))}"


def _organisation(name: str) -> str:
    cached = re.search(_HUB_CACHE, name) if "models--" in name else None
    parts = _parts(name)
    return (cached.group(1) if cached else parts[-2] if len(parts) > 1 else "").lower()


def _parts(name: str) -> list[str]:
    return name.replace("\\", "/").rstrip("/").split("/")


def _words(name: str) -> tuple[str, ...]:
    """The last part of a path or id, in lower-case words: ``Qwen2_5-7B``, ``Qwen2___5-7B`` and ``qwen2.5-7b`` are the same.

    Three underscores are what ModelScope's cache of downloads has for a point.
    """
    cached = re.search(_HUB_CACHE, name) if "models--" in name else None
    last = cached.group(2) if cached else _parts(name)[-1]
    if "gguf" in last.lower():
        last = re.sub(_GGUF, "", re.sub(_GGUF, "", last))
    last = last.partition(":")[0].lower()
    last = re.sub(_GGUF_FORMAT, lambda found: found[0].replace("_", ""), last)
    last = re.sub(r"(?<=\d)(?:_|___)(?=\d)", ".", last)
    return tuple(part for part in re.split(r"[-_ ]|\.(?=w\d|i?q\d|fp\d|gguf)", last) if part)


def _without_weights(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`words` less those that say how weights are stored, which only ever follow the model's own name and size."""
    kept = len(words)
    while kept > 2 and (re.fullmatch(_WEIGHTS, words[kept - 1]) or words[kept - 1] in _TUNED):
        kept -= 1
    tail = words[kept:]
    removed = tuple(word for word in tail if word not in _TUNED)
    return words[:kept] + tuple(word for word in tail if word in _TUNED), removed


def _without_tuning(words: tuple[str, ...]) -> tuple[str, ...]:
    kept = len(words)
    while kept > 1 and words[kept - 1] in _TUNED:
        kept -= 1
    return words[:kept]
