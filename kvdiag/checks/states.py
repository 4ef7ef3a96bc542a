"""How many requests the state slots of a start allow, where no line says it."""

from __future__ import annotations

from kvdiag.checks.inputs import CheckInputs
from kvdiag.quantity import Interval
from kvdiag.releases import parse_release

_WITH_PREFIX_CACHE = 3, 5
"""Slots of one request where states are kept for prefixes as well (``_calculate_mamba_ratio``)."""
_FIRST = "0.5.3.post2"
"""The release from which the prefix cache keeps states."""


def slots_of_a_request(inputs: CheckInputs) -> tuple[int, int]:
    """Slots that one request may need, least and most: one without the prefix cache, else three to five."""
    arguments, releases = inputs.arguments, inputs.candidates()
    if arguments.disable_radix_cache or arguments.disaggregation_mode == "decode" or releases[-1] < parse_release(_FIRST):
        return 1, 1
    least, most = _WITH_PREFIX_CACHE
    if arguments.mamba_scheduler_strategy == "no_buffer":
        most = least
    cached = not inputs.unseen("disable_radix_cache", "disaggregation_mode") and releases[0] >= parse_release(_FIRST)
    return (least if cached else 1), most


def requests_of_states(inputs: CheckInputs) -> tuple[int, Interval] | None:
    """The state slots of the smallest rank and the requests they allow; None where the log has no slots, or they allow none.

    A server that took up its work runs at least one request, whatever a request may need at most.
    """
    found = [n.value for n in inputs.start.find("max_mamba_cache_size") if isinstance(n.value, int)]
    least, most = slots_of_a_request(inputs)
    slots = min(found, default=0)
    return (slots, Interval.of(max(1, slots // most), slots // least, "requests")) if slots >= least else None
