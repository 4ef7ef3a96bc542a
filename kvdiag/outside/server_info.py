"""The JSON of ``/get_server_info`` (``/server_info``): the arguments in force and the capacity."""

from __future__ import annotations

import json
from typing import Any

from kvdiag.errors import InputError
from kvdiag.outside.model import Outside, read_text
from kvdiag.quantity import Interval

_ADVICE = "save the answer of /get_server_info"
_NUMBERS = {"max_total_num_tokens": "tokens", "max_req_input_len": "tokens"}
_ARGUMENTS = (
    "model_path", "dtype", "quantization", "kv_cache_dtype", "mem_fraction_static", "tp_size", "dp_size", "pp_size", "page_size",
    "max_total_tokens", "max_running_requests", "context_length", "speculative_algorithm",
    "swa_full_tokens_ratio", "disable_radix_cache", "enable_dp_attention",
)  # fmt: skip
"""Arguments that decide capacity and are plain values in the log and here."""


def read_server_info(path: str) -> tuple[Outside, ...]:
    """What the file at `path` states; raises InputError where it is not that JSON."""
    return server_info(read_text(path, _ADVICE), path)


def server_info(text: str, place: str) -> tuple[Outside, ...]:
    """What the JSON states; `place` is named in the InputError for text that is not a server's info."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{place}: not JSON; {_ADVICE}") from None
    if not isinstance(data, dict) or not (
        {"max_total_num_tokens", "server_args", "internal_states"} & data.keys() or "tp_size" in data
    ):
        raise InputError(f"{place}: JSON, but not a server's info (no max_total_num_tokens and no tp_size in it); {_ADVICE}")
    nested = data.get("server_args")
    arguments: dict[str, Any] = nested if isinstance(nested, dict) else data
    found = [
        Outside("server_info", name, Interval.of(value, unit=unit))
        for name, unit in _NUMBERS.items()
        if isinstance(value := data.get(name), int) and 0 <= value < 1 << 60
    ]
    found += [
        Outside("server_info", f"argument {name}", str(arguments[name]))
        for name in _ARGUMENTS
        if name in arguments and isinstance(arguments[name], (int, float, str, bool, type(None)))
    ]
    return tuple(found)
