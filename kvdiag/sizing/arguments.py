"""The server arguments that sizing depends on, from a server_args dump or the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "int | None": (int,),
    "float | None": (float, int),
    "bool": (bool,),
    "str | None": (str,),
    "str": (str,),
}


@dataclass(frozen=True, slots=True)
class ServerArguments:
    """SGLang's own names and defaults (``srt/server_args.py``); None where SGLang would decide."""

    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1
    enable_dp_attention: bool = False
    page_size: int | None = None
    kv_cache_dtype: str = "auto"
    dtype: str = "auto"
    mem_fraction_static: float | None = None
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    context_length: int | None = None
    speculative_algorithm: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    device: str = "cuda"

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> ServerArguments:
        """The known arguments of `arguments`; unknown names, None and values of another type keep the default."""
        taken: dict[str, Any] = {}
        for field in fields(cls):
            value = arguments.get(field.name)
            if value is not None and isinstance(value, _TYPES[str(field.type)]):
                taken[field.name] = value
        return cls(**taken)

    @property
    def attention_tp_size(self) -> int:
        """Ranks that share the KV heads: tp_size, or tp_size // dp_size under DP attention."""
        return max(1, self.tp_size // self.dp_size) if self.enable_dp_attention else self.tp_size
