"""Layouts that SGLang sizes but whose model would not load, or only with an environment switch: notes beside the figures."""

from __future__ import annotations

from collections.abc import Iterable

from kvdiag.models import Geometry
from kvdiag.sizing.arguments import ServerArguments

LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"


def would_not_start(geometry: Geometry, arguments: ServerArguments, given: Iterable[str]) -> tuple[str, ...]:
    """Why the server would stop before its pools are made, as far as the arguments named in `given` are the cause."""
    names, notes = set(given), []
    heads, ranks = geometry.num_attention_heads, arguments.attention_tp_size
    if names & {"tp_size", "dp_size", "enable_dp_attention", "attn_cp_size"} and heads % ranks:
        notes.append(f"{heads} attention heads do not divide by {ranks} ranks: most model classes refuse to load so")
    if arguments.enable_dp_attention and arguments.tp_size % max(1, arguments.dp_size):
        notes.append(f"the server would not start: tp_size {arguments.tp_size} does not divide by dp_size {arguments.dp_size}")
    if arguments.dcp_size > 1 and arguments.tp_size % arguments.dcp_size:
        notes.append(f"the server would not start: dcp_size {arguments.dcp_size} does not divide tp_size {arguments.tp_size}")
    longest = max(geometry.context_len, geometry.context_len_5)
    if "context_length" in names and arguments.context_length is not None and arguments.context_length > longest:
        notes.append(
            f"the server would not start: --context-length {arguments.context_length} is more than the model's {longest}, "
            f"which SGLang takes only with {LONGER} in its environment"
        )
    return tuple(notes)
