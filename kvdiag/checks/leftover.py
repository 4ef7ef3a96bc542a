"""What a change of arguments would leave free at the end of the start-up, and what about it no log tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.levers import keep
from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.quantity import Interval
from kvdiag.quantity.figures import memory
from kvdiag.sizing import ArgumentError, strict_arguments
from kvdiag.sizing.history import since
from kvdiag.sizing.plan import make_plan
from kvdiag.sizing.slots import EXTRA_CONTEXT
from kvdiag.starts import Number

_UNTOLD = {
    "quantization": "what the weights take with another --quantization",
    "dtype": "what the weights take in another --dtype",
    "device": "the memory of another --device",
    "speculative_algorithm": "the weights and the pool of the draft that comes or goes with --speculative-algorithm",
    "speculative_draft_model_path": "the weights and the pool of another draft",
    "enable_dp_attention": "the weights a rank holds with DP attention, which copies attention and dense layers but not experts",
}
_CAPTURED = (
    "disable_cuda_graph", "cuda_graph_max_bs", "piecewise_cuda_graph_max_tokens", "enable_piecewise_cuda_graph",
    "disable_piecewise_cuda_graph", "chunked_prefill_size", "attention_backend", "prefill_attention_backend",
    "decode_attention_backend", "speculative_num_steps", "speculative_num_draft_tokens", "speculative_eagle_topk",
)  # fmt: skip
_NO_REPLICAS = "--enable-dp-attention does nothing while --dp-size is 1: give --dp-size N too, which divides --tp-size"
_ENTRY_BYTES = 4
_NOTHING = Interval.of(0, unit="bytes")


def untold(inputs: CheckInputs, changes: Mapping[str, Any]) -> tuple[str, ...]:
    """What these changes bring that the log of a server without them cannot tell, so that no capacity follows."""
    if changes.get("enable_dp_attention") and int(changes.get("dp_size", inputs.arguments.dp_size)) <= 1:
        return (_NO_REPLICAS,)
    told = [why for name, why in _UNTOLD.items() if name in changes and changes[name] != _given(inputs, name)]
    return tuple(f"the log does not tell {why}" for why in told)


def not_taken(inputs: CheckInputs, changes: Mapping[str, Any]) -> tuple[str, ...]:
    """Why no release the log may be of takes these arguments, empty where one does."""
    why = ""
    for release in reversed(inputs.candidates()):
        try:
            strict_arguments(changes, release)
            return ()
        except ArgumentError as error:
            why = why or str(error)
    return (f"no release that the log may be of takes the change: {why}",)


def notes_on_rest(
    inputs: CheckInputs, changes: Mapping[str, Any], before: Interval, numbers: Mapping[str, Interval], after: Arithmetic
) -> list[str]:
    """What would be left on the fullest rank, where the log states what is; `before` is the budget in the log.

    Pools grow by the change of the budget, or of tokens times the stage's bytes where stages differ; the request table
    grows with requests and context.
    """
    captured = [name for name in _CAPTURED if name in changes and changes[name] != getattr(inputs.arguments, name)]
    if captured:
        flags = ", ".join("--" + name.replace("_", "-") for name in captured)
        return [f"what graphs and activations take changes with {flags} and is not in the log: no figure for what would be left"]
    table, draft = _table_growth(inputs, changes, numbers), _draft_growth(inputs, changes, numbers)
    found: list[tuple[Interval, Interval, str]] = []
    for left in _left(inputs):
        growth = _growth(inputs, left, before, numbers, after)
        if growth is not None and left.interval is not None:
            found.append((left.interval - growth - table - (draft or _NOTHING), left.interval, left.rank))
    if not found:
        return []
    least, now, rank = min(found, key=lambda item: item[0].low)
    where = f" on {rank}, the fullest rank of the log" if len(found) > 1 else ""
    most = "about" if draft is not None else _bound(inputs, numbers)
    said = f"{most} {memory(least)} would be left after the start{where}, where the log has {memory(now)}"
    if draft is None:
        said += " (the draft's pool follows the capacity, and what it takes is not in the log)"
    if table.high >= 1 << 28:
        said += f" ({memory(table)} of it goes to a longer request table)"
    if least.high < 0:
        return [said + ": the server would run out of memory before it is ready"]
    if least.low < 0:
        return [said + ": it may run out of memory before it is ready"]
    return [said + _short_of(inputs, least, now)]


def _short_of(inputs: CheckInputs, left: Interval, now: Interval) -> str:
    """A warning where less would be left than advice keeps for activations, and less than the log has."""
    total = min((reading.total for reading in inputs.readings if reading.total is not None), key=lambda t: t.low, default=None)
    if total is None or inputs.on_shared_memory or left.low >= min(keep(total), now.low):
        return ""
    return (
        f". Less than the {memory(keep(total))} that kvdiag's advice keeps for the activations of a large prefill: it may run out"
    )


def _bound(inputs: CheckInputs, numbers: Mapping[str, Interval]) -> str:
    """Which way an unknown pool of the draft moves what is left: it grows and shrinks with the capacity."""
    tokens, stated = numbers.get("max_total_num_tokens"), inputs.start.first("max_total_num_tokens")
    if tokens is None or stated is None or not isinstance(stated.value, int):
        return "perhaps"
    return "at most" if tokens.low >= stated.value else "at least" if tokens.high <= stated.value else "about"


def _given(inputs: CheckInputs, name: str) -> Any:
    given = inputs.start.server_args.get(name, getattr(inputs.arguments, name))
    return inputs.arguments.device if name == "device" else given


def _left(inputs: CheckInputs) -> list[Number]:
    """The last reading of every rank after everything is made."""
    last: dict[str, Number] = {}
    for name in ("memory_after_graphs", "memory_after_start"):
        for number in inputs.start.numbers:
            if number.name == name and number.interval is not None and number.role != "draft":
                last[number.rank] = number
    return list(last.values())


def _growth(
    inputs: CheckInputs, left: Number, before: Interval, numbers: Mapping[str, Interval], after: Arithmetic
) -> Interval | None:
    rest, tokens = numbers.get("rest_memory_bytes"), numbers.get("max_total_num_tokens")
    if rest is None:
        return None
    cells = _stage_cells(after)
    stated = inputs.start.first("max_total_num_tokens")
    capped = inputs.arguments.max_total_tokens is not None or after.arguments.max_total_tokens is not None
    if capped and (tokens is None or stated is None):
        return None
    if not (capped or len(set(cells)) > 1) or tokens is None or stated is None or not isinstance(stated.value, int):
        return rest - before
    if capped and len(set(cells)) == 1:
        old = inputs.start.first("kv_pool_bytes")
        others = "max_mamba_cache_size" in numbers or "swa_max_total_num_tokens" in numbers or _charges_draft(inputs)
        if old is None or old.interval is None or others:
            return None
        return (tokens * int(cells[0])).with_unit("bytes") - old.interval
    stage = next((int(tag[2:]) for tag in left.rank.split() if tag.startswith("PP") and tag[2:].isdecimal()), None)
    own = cells if stage is None or stage >= len(cells) else (cells[stage],)
    more = tokens.with_unit("tokens") - Interval.of(stated.value, unit="tokens")
    return Interval.of(min(more.low * int(c) for c in own), max(more.high * int(c) for c in own), "bytes")


def _stage_cells(after: Arithmetic) -> tuple[float, ...]:
    """Bytes of a token on every pipeline stage by the newest release the log may be of."""
    settings = next((s for release in reversed(after.inputs.candidates()) if (s := after.settings(release)) is not None), None)
    if settings is None:
        return ()
    try:
        return tuple(stage.cell for stage in make_plan(settings).stages)
    except (CannotSizeError, ConfigError):
        return ()


def _charges_draft(inputs: CheckInputs) -> bool:
    """Whether a draft's pool may be a part of the budget (0.5.14 and newer), so that the target's is not all of it."""
    drafted = inputs.arguments.speculative_algorithm not in (None, "NGRAM")
    return drafted and any(since(release, "0.5.14") for release in inputs.candidates())


def _draft_growth(inputs: CheckInputs, changes: Mapping[str, Any], numbers: Mapping[str, Interval]) -> Interval | None:
    """Bytes by which a draft's pool outside the budget grows (before 0.5.14); None where the log does not state that pool.

    It holds as many tokens as the target's. With another KV dtype its rows may change as the target's do or stay.
    """
    algorithm, stated = inputs.arguments.speculative_algorithm, inputs.start.first("max_total_num_tokens")
    if algorithm in (None, "NGRAM") or all(since(release, "0.5.14") for release in inputs.candidates()):
        return _NOTHING
    tokens, pool = numbers.get("max_total_num_tokens"), inputs.start.first("kv_pool_bytes", role="draft")
    if tokens is None or stated is None or not isinstance(stated.value, int) or not stated.value:
        return None
    if tokens.low == tokens.high == stated.value and "kv_cache_dtype" not in changes:
        return _NOTHING
    if pool is None or pool.interval is None or pool.role != "draft":
        return None
    grown = (pool.interval * (tokens / Interval.of(stated.value, unit="tokens")) - pool.interval).with_unit("bytes")
    return Interval(min(grown.low, Fraction(0)), max(grown.high, Fraction(0)), "bytes") if "kv_cache_dtype" in changes else grown


def _table_growth(inputs: CheckInputs, changes: Mapping[str, Any], numbers: Mapping[str, Interval]) -> Interval:
    """Bytes by which ``ReqToTokenPool`` grows: rows of the context's length for every request."""
    requests, context = inputs.start.first("max_running_requests"), inputs.start.first("context_len")
    predicted = numbers.get("max_running_requests")
    if predicted is None or requests is None or context is None:
        return _NOTHING
    if not isinstance(requests.value, int) or not isinstance(context.value, int):
        return _NOTHING
    length = changes.get("context_length") or context.value
    old = requests.value * (context.value + EXTRA_CONTEXT) * _ENTRY_BYTES
    ends = [int(end) * (length + EXTRA_CONTEXT) * _ENTRY_BYTES - old for end in (predicted.low, predicted.high)]
    return Interval.of(min(ends), max(ends), "bytes")


def contradictions(checks: Iterable[Any]) -> tuple[str, ...]:
    """Checks on which a prediction rests and that disagree with the log, in words."""
    rests_on = ("bytes_per_token", "kv_pool_bytes", "rest_memory", "max_total_num_tokens")
    bad = dict.fromkeys(check.name for check in checks if check.verdict == "disagree" and check.name in rests_on)
    if not bad:
        return ()
    return (f"the log's own {', '.join(bad)} disagree with the arithmetic (kvdiag explain shows where)",)
