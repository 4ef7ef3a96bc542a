"""The fraction a server would have chosen itself, on the card that its free memory points to."""

from __future__ import annotations

from typing import Any

from kvdiag.checks.cards import likely_gpus
from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.readings import Reading
from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.frozen import replace
from kvdiag.sizing import Device, size

MOST_RELEASES = 30
"""A log of more releases than this tells no default worth the time."""


def default_terms(inputs: CheckInputs, worst: Reading) -> dict[str, Any]:
    """What the default of ``mem_fraction_static`` would be there, as terms of a check; empty where it cannot be told."""
    if inputs.geometry is None or inputs.on_shared_memory or len(inputs.candidates()) > MOST_RELEASES:
        return {}
    cards = likely_gpus(worst.total) if worst.total is not None else []
    found: set[float] = set()
    for device in {Device(card.memory_mib, card.compute_capability, card.vendor) for card in cards}:
        for release in inputs.candidates():
            try:
                sized = size(
                    inputs.geometry, replace(inputs.arguments, mem_fraction_static=None), release, None, device, inputs.draft
                )
            except (CannotSizeError, ConfigError):
                continue
            if sized.mem_fraction_static is None:
                return {}
            found.add(sized.mem_fraction_static)
    if not found:
        return {}
    terms: dict[str, Any] = {"gpu": [card.name for card in cards], "default_mem_fraction_static": sorted(found)}
    if inputs.mem_fraction_static is not None:
        terms["is_default"] = found == {float(inputs.mem_fraction_static)}
    return terms
