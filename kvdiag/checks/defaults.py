"""The fraction a server would have chosen itself, on the card that its free memory points to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.readings import Reading
from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.models.gpus import Gpu, gpus
from kvdiag.sizing import Device, size

_MIB = 1 << 20
MOST_RELEASES = 30
"""A log of more releases than this tells no default worth the time."""


def likely_gpus(worst: Reading) -> list[Gpu]:
    """The cards of the smallest memory in the catalogue that had as much free: a card has a little less free than it has."""
    if worst.total is None:
        return []
    able = [gpu for gpu in gpus() if gpu.memory_mib is not None and gpu.memory_mib * _MIB >= worst.total.low]
    least = min((gpu.memory_mib for gpu in able if gpu.memory_mib is not None), default=None)
    return [gpu for gpu in able if gpu.memory_mib == least]


def default_terms(inputs: CheckInputs, worst: Reading) -> dict[str, Any]:
    """What the default of ``mem_fraction_static`` would be there, as terms of a check; empty where it cannot be told."""
    if inputs.geometry is None or inputs.on_shared_memory or len(inputs.candidates()) > MOST_RELEASES:
        return {}
    cards = likely_gpus(worst)
    found: set[float] = set()
    for device in {Device(card.memory_mib, card.compute_capability, card.vendor) for card in cards}:
        for release in inputs.candidates():
            try:
                sized = size(
                    inputs.geometry, replace(inputs.arguments, mem_fraction_static=None), release, None, device, inputs.draft
                )
            except (CannotSizeError, ConfigError):
                continue
            if sized.mem_fraction_static is not None:
                found.add(sized.mem_fraction_static)
    if not found:
        return {}
    terms: dict[str, Any] = {"gpu": [card.name for card in cards], "default_mem_fraction_static": sorted(found)}
    if inputs.mem_fraction_static is not None:
        terms["is_default"] = found == {float(inputs.mem_fraction_static)}
    return terms
