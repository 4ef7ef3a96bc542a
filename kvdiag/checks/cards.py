"""Which card a server ran on, by the memory that was free on it."""

from __future__ import annotations

from kvdiag.models.gpus import Gpu, gpus
from kvdiag.quantity import Interval

_MIB = 1 << 20


def likely_gpus(total: Interval) -> list[Gpu]:
    """The cards of the smallest memory in the catalogue that could have had `total` bytes free: a card has little less."""
    able = [gpu for gpu in gpus() if gpu.memory_mib is not None and gpu.memory_mib * _MIB >= total.low]
    least = min((gpu.memory_mib for gpu in able if gpu.memory_mib is not None), default=None)
    return [gpu for gpu in able if gpu.memory_mib == least]
