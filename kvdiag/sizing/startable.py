"""Layouts that SGLang sizes but whose model would not load, or only with an environment switch: notes beside the figures."""

from __future__ import annotations

from collections.abc import Iterable

from kvdiag.models import Geometry
from kvdiag.models.catalogue import CONTEXT
from kvdiag.sizing.arguments import ServerArguments

LEAST_CHUNK = 2048
"""Every default of chunked_prefill_size is a multiple of it."""
LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"


def would_not_start(geometry: Geometry, arguments: ServerArguments, given: Iterable[str]) -> tuple[str, ...]:
    """Why the server would stop before its pools are made, as far as the arguments named in `given` are the cause."""
    names, notes = set(given), []
    heads, ranks = geometry.num_attention_heads, arguments.attention_tp_size
    if names & {"tp_size", "dp_size", "enable_dp_attention", "attn_cp_size"} and heads % ranks:
        notes.append(f"{heads} attention heads do not divide by {ranks} ranks: most model classes refuse to load so")
    if arguments.enable_dp_attention and arguments.tp_size % max(1, arguments.dp_size):
        notes.append(f"the server would not start: tp_size {arguments.tp_size} does not divide by dp_size {arguments.dp_size}")
    shares = arguments.attn_cp_size * arguments.attention_dp_size
    if arguments.attn_cp_size > 1 and arguments.tp_size % shares:
        notes.append(
            f"the server would not start: tp_size {arguments.tp_size} does not divide by attn_cp_size x dp_size {shares}"
        )
    if arguments.pp_size > 1 and arguments.speculative_algorithm and names & {"pp_size", "speculative_algorithm"}:
        notes.append(
            "the server would not start: SGLang refuses pipeline stages with speculative decoding (but for EAGLE on Ascend)"
        )
    if arguments.pp_size > geometry.num_hidden_layers:
        notes.append(f"{arguments.pp_size} stages for {geometry.num_hidden_layers} layers: some of them hold none")
    if arguments.dcp_size > 1 and arguments.tp_size % arguments.dcp_size:
        notes.append(f"the server would not start: dcp_size {arguments.dcp_size} does not divide tp_size {arguments.tp_size}")
    chunk = arguments.chunked_prefill_size or LEAST_CHUNK
    if names & {"page_size", "chunked_prefill_size"} and chunk > 0 and chunk % (arguments.page_size or 1):
        stated = f"--chunked-prefill-size {chunk}" if arguments.chunked_prefill_size else "the prefill chunk, a power of two,"
        notes.append(f"the server would not start: {stated} does not divide by --page-size {arguments.page_size}")
    longest = max(geometry.context_len, geometry.context_len_5)
    told = CONTEXT not in geometry.untold
    if told and "context_length" in names and arguments.context_length is not None and arguments.context_length > longest:
        notes.append(
            f"the server would not start: --context-length {arguments.context_length} is more than the model's {longest}, "
            f"which SGLang takes only with {LONGER} in its environment"
        )
    return tuple(notes)


def serves_none(max_running_requests: float | None) -> tuple[str, ...]:
    """The note where not one request may run, on which every release's ``TpModelWorker`` stops."""
    if max_running_requests is None or max_running_requests > 0:
        return ()
    return (
        "the server would not start: max_running_requests comes to 0; give more tokens, more state slots "
        "(--max-mamba-cache-size) or a larger --max-running-requests",
    )
