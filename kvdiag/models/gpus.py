"""GPUs by name: the memory their vendor's tool reports, which SGLang's defaults are computed from (``rules/gpus``)."""

from __future__ import annotations

import re
from typing import Any

from kvdiag import rulebook
from kvdiag.errors import KvdiagError
from kvdiag.frozen import frozen

_MAKERS = re.compile(r"\b(?:nvidia|geforce|tesla|quadro|amd|instinct|radeon|intel|habana|huawei|graphics)\b")


class GpuError(KvdiagError):
    """A GPU name is not in the catalogue."""


@frozen
class Gpu:
    """One device as the server sees it.

    `memory_mib` is the total that nvidia-smi or rocm-smi prints (``get_device_memory_capacity``), None where it depends on
    the machine; `compute_capability` is ``(major, minor)``, for AMD the gfx generation, None where there is none. `vendor`
    is ``nvidia``, ``amd``, ``habana`` or ``ascend``. `sure` is False where the figure is a data sheet's and not a tool's.
    """

    name: str
    memory_mib: int | None
    compute_capability: tuple[int, int] | None
    vendor: str
    source: str
    sure: bool = True


def find_gpu(name: str) -> Gpu | None:
    """The GPU that `name` means (``H100``, ``NVIDIA H100 80GB HBM3``, ``rtx4090``); None where the catalogue has none."""
    wanted = _normal(name)
    for entry in _entries():
        if any(_normal(known) == wanted for known in entry["names"]):
            return _gpu(entry)
    return None


def gpu(name: str) -> Gpu:
    """As `find_gpu`, but GpuError names the GPUs that are known."""
    found = find_gpu(name)
    if found is None:
        known = ", ".join(sorted(entry["names"][0] for entry in _entries()))
        raise GpuError(f"{name}: no such GPU in the catalogue; give its memory and compute capability, or one of {known}")
    return found


def gpus() -> list[Gpu]:
    """Every GPU of the catalogue."""
    return [_gpu(entry) for entry in _entries()]


def _entries() -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = rulebook.load("gpus")
    return [entry for document in documents for entry in document["gpu"]]


def _gpu(entry: dict[str, Any]) -> Gpu:
    major, dot, minor = str(entry.get("compute_capability", "")).partition(".")
    capability = (int(major), int(minor)) if dot else None
    return Gpu(
        entry["names"][0], entry.get("memory_mib"), capability, entry["vendor"], entry["source"], bool(entry.get("sure", True))
    )


def _normal(name: str) -> str:
    """Makers' words and punctuation do not tell cards apart; ``rtx`` does not either, ``pro`` and ``ti`` do."""
    bare = _MAKERS.sub(" ", name.lower().replace("_", " ").replace("-", " "))
    bare = re.sub(r"\brtx\b|\brtx(?=\d)", " ", bare)
    return re.sub(r"[^a-z0-9]", "", bare)
