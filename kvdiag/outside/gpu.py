"""Output of nvidia-smi (table or CSV) and rocm-smi: memory of the cards, and of processes that are not the server's."""

from __future__ import annotations

import re

from kvdiag.errors import InputError
from kvdiag.outside.model import Outside, read_text
from kvdiag.quantity import Interval

_MIB = 2**20
_TABLE = re.compile(r"([0-9]{1,7})MiB */ *([0-9]{1,7})MiB")
_CSV = re.compile(r"([0-9]{1,7}) MiB, *([0-9]{1,7}) MiB")
_PROCESS = re.compile(r"\| +([0-9]{1,3}) .{0,40}? ([0-9]{1,9}) +[CG+MPS]{1,5} +(\S{0,200}.{0,100}?) +([0-9]{1,7})MiB +\|")
_ROCM = re.compile(r"GPU\[([0-9]{1,3})\][^:]{0,40}: VRAM Total (Used )?Memory \(B\): ([0-9]{1,15})")
_OWN = ("sglang", "python", "sgl")


def read_gpu(path: str) -> tuple[Outside, ...]:
    """What the file at `path` states; raises InputError where it is no output of these tools."""
    text = read_text(path)
    totals, source = _totals(text)
    if not totals:
        raise InputError(f"{path}: no memory of a card in it; save what nvidia-smi or rocm-smi --showmeminfo vram prints")
    found = [Outside(source, "gpu_total", Interval.of(min(totals), max(totals), "bytes"))]
    others: dict[str, int] = {}
    for line in text.splitlines():
        process = _PROCESS.match(line)
        if process and not any(name in process.group(3).lower() for name in _OWN):
            others[process.group(1)] = others.get(process.group(1), 0) + int(process.group(4)) * _MIB
    if others:
        found.append(Outside(source, "gpu_others", Interval.of(max(others.values()), unit="bytes")))
    return tuple(found)


def _totals(text: str) -> tuple[list[int], str]:
    cards = _TABLE.findall(text) or _CSV.findall(text)
    if cards:
        return [max(int(first), int(second)) * _MIB for first, second in cards], "nvidia-smi"
    return [int(total) for _, used, total in _ROCM.findall(text) if not used], "rocm-smi"
