"""Output of nvidia-smi (table or CSV) and rocm-smi: memory of the cards, and of processes that are not the server's."""

from __future__ import annotations

import re

from kvdiag.errors import InputError
from kvdiag.outside.model import Outside, read_text
from kvdiag.quantity import Interval

_MIB = 2**20
_ADVICE = "save what nvidia-smi or rocm-smi --showmeminfo vram prints"
_TABLE = re.compile(r"([0-9]{1,7})MiB */ *([0-9]{1,7})MiB")
_CSV = re.compile(r"([0-9]{1,7}) MiB, *([0-9]{1,7}) MiB")
_PROCESS = re.compile(r"\| +([0-9]{1,3}) .{0,40}? ([0-9]{1,9}) +[CG+MPS]{1,5} +(\S{0,200}.{0,100}?) +([0-9]{1,7})MiB +\|")
_ROCM = re.compile(r"GPU\[([0-9]{1,3})\][^:]{0,40}: VRAM Total (Used )?Memory \(B\): ([0-9]{1,15})")
_OWN = ("sglang", "sgl_", "sgl-")
_PERHAPS_OWN = ("python",)


def read_gpu(path: str) -> tuple[Outside, ...]:
    """What the file at `path` states; raises InputError where it is no output of these tools."""
    text = read_text(path, _ADVICE)
    totals, source = _totals(text)
    if not totals:
        raise InputError(f"{path}: no memory of a card in it; {_ADVICE}")
    found = [Outside(source, "gpu_total", Interval.of(min(totals), max(totals), "bytes"))]
    matches = [match for line in text.splitlines() if (match := _PROCESS.match(line))]
    others = _others([(match[1], match[3], match[4]) for match in matches])
    if others:
        found.append(Outside(source, "gpu_others", Interval.of(max(others), unit="bytes")))
    return tuple(found)


def _others(processes: list[tuple[str, str, str]]) -> list[int]:
    """Bytes that others hold of each card the server uses; of every card where no process is known to be the server's.

    A process is the server's if it names SGLang. Where none does, one that is just Python may be it.
    """
    named = any(_is_own(name, _OWN) for _, name, _ in processes)
    own = _OWN if named else _PERHAPS_OWN
    used = {card for card, name, _ in processes if _is_own(name, own)}
    held: dict[str, int] = {}
    for card, name, mebibytes in processes:
        if not _is_own(name, own) and (not used or card in used):
            held[card] = held.get(card, 0) + int(mebibytes) * _MIB
    return list(held.values())


def _is_own(name: str, own: tuple[str, ...]) -> bool:
    return any(mark in name.lower() for mark in own)


def _totals(text: str) -> tuple[list[int], str]:
    cards = _TABLE.findall(text) or _CSV.findall(text)
    if cards:
        return [max(int(first), int(second)) * _MIB for first, second in cards], "nvidia-smi"
    return [int(total) for _, used, total in _ROCM.findall(text) if not used], "rocm-smi"
