"""The diagnostics of the gate and what a change of each number means, as ``rules/drift`` documents them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.frozen import frozen
from kvdiag.starts.tables import UNITS

LEVELS = ("note", "warning", "error")


@frozen
class Code:
    """A diagnostic of the gate: its title, what it means, what to do."""

    code: str
    title: str
    meaning: str
    advice: str


@frozen
class Meaning:
    """What a change of a number means: its code, its kind (capacity, setting, reading), and which way is better."""

    code: str
    kind: str
    better: str


@lru_cache(maxsize=1)
def _documents() -> dict[str, dict[str, Any]]:
    """The documents by the name of their file; what begins with an underscore is the rule book's own."""
    return {
        d["_path"].replace("\\", "/").rpartition("/")[2]: {k: v for k, v in d.items() if not k.startswith("_")}
        for d in rulebook.load("drift")
    }


@lru_cache(maxsize=1)
def codes() -> dict[str, Code]:
    """Every diagnostic of the gate by its code."""
    return {code: Code(code, e["title"], e["meaning"], e["advice"]) for code, e in _documents()["codes.toml"].items()}


@lru_cache(maxsize=256)
def meaning_of(number: str, unit: str) -> Meaning:
    """What a change of the number of that name means; one that no rule names is a reading if it is bytes, else a setting."""
    table = _documents()["numbers.toml"]
    entry = table.get(number) or table["other_bytes" if unit == "bytes" else "other"]
    return Meaning(entry["code"], entry["kind"], entry["better"])


@lru_cache(maxsize=1)
def number_names() -> frozenset[str]:
    """The numbers that rules know the meaning or the unit of."""
    return frozenset(UNITS) | (frozenset(_documents()["numbers.toml"]) - {"other", "other_bytes"})


@lru_cache(maxsize=1)
def argument_names() -> frozenset[str]:
    """The server arguments of every release."""
    return frozenset(name for document in rulebook.load("arguments") for name in document["fields"])


@lru_cache(maxsize=1)
def argument_rules() -> dict[str, frozenset[str]]:
    """The lists of ``rules/drift/arguments.toml``."""
    return {name: frozenset(values) for name, values in _documents()["arguments.toml"].items()}
