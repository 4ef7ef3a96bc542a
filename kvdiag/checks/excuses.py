"""What a log leaves open of the memory, or of a token's bytes: the reasons for which figures that differ raise no alarm."""

from __future__ import annotations

import re

from kvdiag.checks.inputs import CheckInputs, draft_path, no_draft_config
from kvdiag.checks.verdict import Excuse
from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.sizing.fraction import loading_share
from kvdiag.sizing.resolve import is_multimodal, resolve
from kvdiag.sizing.speculative import needs_draft_config

SHARED_MEMORY = (
    "the printed avail mem and the one sizing used are two readings of memory that other processes share; "
    "they differ by more than the printed digits"
)
MOVING_MEMORY = (
    "free memory grew while the weights were loaded: something else gives memory back, and the printed avail mem and the one "
    "sizing used may differ"
)


def budget_excuses(inputs: CheckInputs) -> list[Excuse]:
    """What may have moved free memory, or the capacity made of it, between the lines the log prints."""
    start, found = inputs.start, []
    evidence = start.release
    if inputs.on_shared_memory:
        found.append(Excuse(SHARED_MEMORY))
    if any(reading.total is not None and reading.available.low > reading.total.high for reading in inputs.readings):
        found.append(Excuse(MOVING_MEMORY))
    if evidence is not None and evidence.contradiction:
        found.append(Excuse(f"the tree that printed this is not known: {evidence.contradiction}"))
    if inputs.ranks_missing:
        why = f"{inputs.ranks_missing} ranks are not in the log and the smallest free memory decides"
        found.append(Excuse(why, raises=False))
    if start.server_args.get("enable_lora") or start.server_args.get("lora_paths"):
        found.append(Excuse("LoRA adapters take memory between loading and sizing, and no line states how much", raises=False))
    if any("symmetric memory" in event.record.message for event in start.events_of("pool_budget")):
        found.append(
            Excuse("the symmetric memory pool takes memory between loading and sizing, and no line states how much", raises=False)
        )
    if start.address_space:
        found.append(Excuse("what the capture of graphs left sized the pool anew, and no line states that budget"))
    found += [
        Excuse(f"{switch}, which stands in no line, may have been set: with it the figures fit (say so with --env)")
        for switch in inputs.switches
    ]
    if inputs.arguments.chunked_prefill_size is None and inputs.arguments.disable_radix_cache and _has_windows(inputs):
        found.append(Excuse("no line states chunked_prefill_size, by which a window pool for bounded requests is sized"))
    if inputs.unseen("max_total_tokens"):
        found.append(Excuse("--max-total-tokens may cap the pool (the log has no whole server_args line)", raises=False))
    found += draft_excuses(inputs)
    if _lowers_fraction(inputs):
        found.append(Excuse("the fraction of an image model is lowered as it loads, and no line says to what", raises=False))
    if _reserves(inputs) and not any("Reserving" in event.record.message for event in start.events_of("pool_budget")):
        found.append(Excuse("what is reserved for images is not known (no 'Reserving ... of the KV budget' line)"))
    return found + cell_excuses(inputs)


def _has_windows(inputs: CheckInputs) -> bool:
    return inputs.geometry is not None and inputs.geometry.windows is not None


def draft_excuses(inputs: CheckInputs) -> list[Excuse]:
    """What a draft model of unknown shape takes of a token's bytes."""
    if inputs.draft is not None or not any(needs_draft_config(inputs.arguments, release) for release in inputs.candidates()):
        return []
    path = draft_path(inputs.start)
    why = f"{no_draft_config(path)}; its cache shares the budget"
    return [Excuse(why, raises=False)]


def _lowers_fraction(inputs: CheckInputs) -> bool:
    """Whether a release the log may be of lowers an image model's fraction, and no line of the log says so."""
    if inputs.geometry is None or inputs.start.events_of("fraction_changed"):
        return False
    return any(
        loading_share(release) < 1 and is_multimodal(inputs.geometry, inputs.arguments, release)
        for release in inputs.candidates()
    )


def _reserves(inputs: CheckInputs) -> bool:
    """Whether the newest possible release keeps part of the budget back for a multimodal model (0.5.18 and newer)."""
    if inputs.geometry is None:
        return False
    try:
        settings = resolve(inputs.geometry, inputs.arguments, inputs.candidates()[-1], inputs.device, inputs.draft)
    except (CannotSizeError, ConfigError):
        return False
    return settings.reserved_gib > 0


_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.:-]+")
"""``owner/name``; anything else is a folder or a store of someone's own, which may hold another model than the published one."""


def cell_excuses(inputs: CheckInputs) -> list[Excuse]:
    """What may have changed the bytes of a token."""
    found = []
    unseen = inputs.unseen("tp_size", "enable_dp_attention", "pp_size")
    if unseen:
        found.append(
            Excuse(f"{', '.join(unseen)} cannot be seen (the log has no whole server_args line; ranks counted: {_world(inputs)})")
        )
    if inputs.arguments.pp_size > 1 and inputs.arguments.environment.pp_layer_partition is None:
        found.append(Excuse("SGLANG_PP_LAYER_PARTITION, which stands in no line, may split the layers over the stages otherwise"))
    path = inputs.start.server_args.get("model_path")
    if inputs.by_name and isinstance(path, str) and not _HUB_ID.fullmatch(path):
        found.append(
            Excuse(f"{path} may hold another model than the catalogue's of that name, which is taken; give --config PATH")
        )
    if inputs.config is not None and "KV dtype" in inputs.config.note and inputs.arguments.kv_cache_dtype == "auto":
        found.append(Excuse(f"the KV dtype is open: {inputs.config.note}"))
    elif inputs.arguments.kv_cache_dtype == "auto" and inputs.unseen("kv_cache_dtype"):
        found.append(Excuse("no line states the KV dtype"))
    return found


def _world(inputs: CheckInputs) -> str:
    arguments = inputs.arguments
    return f"tp {arguments.tp_size}, pp {arguments.pp_size}, dp {arguments.dp_size}"
