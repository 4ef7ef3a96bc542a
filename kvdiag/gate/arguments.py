"""The server arguments that matter, as a baseline keeps them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvdiag.gate.codes import argument_rules
from kvdiag.lines.personal import impersonal

_SNAPSHOT = re.compile(r"models--([^/]+)/snapshots/[^/]+/?$")
_HOME = re.compile(r"(?:/home|/Users|[A-Za-z]:[/\\]+Users)[/\\]+[^/\\]+[/\\]*")
_PATH = re.compile(r"^(?:~|\.{1,2})?/.+")


def from_shared_memory() -> frozenset[str]:
    """Arguments that SGLang derives from the machine's memory where there is no GPU."""
    return argument_rules()["from_shared_memory"]


def kept_arguments(server_args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments a baseline holds, in order of name: without secrets, places, and what is not given."""
    rules = argument_rules()
    kept: dict[str, Any] = {}
    for name in sorted(server_args):
        if name in rules["ignored"] or name in rules["secret"] or name == "model_path":
            continue
        value = server_args[name]
        if value is None or value is False or value in ("", "{}", "[]") or (isinstance(value, list | dict | tuple) and not value):
            continue
        kept[name] = _without_place(value, name in rules["places"])
    return kept


def _without_place(value: Any, is_place: bool) -> Any:
    if isinstance(value, str) and (is_place or _PATH.match(value)):
        value = last_part(value)
    if isinstance(value, str):
        return impersonal(value)
    if isinstance(value, list | tuple):
        return [_without_place(item, is_place) for item in value]
    if isinstance(value, dict):
        return {str(key): _without_place(item, is_place) for key, item in value.items()}
    return value


def last_part(place: str) -> str:
    """The name at the end of a path or of a hub's ``owner/name``; of a cached snapshot the model's name.

    Of somebody's home it is ``home``: its own name is a person's.
    """
    if _HOME.fullmatch(place):
        return "home"
    cached = _SNAPSHOT.search(place)
    if cached:
        return cached.group(1).rpartition("--")[2]
    return re.split(r"[/\\]", place.rstrip("/\\"))[-1] or place
