"""Who holds a rank's memory, as a bar and a waterfall of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from kvdiag.checks import StartDiagnosis
from kvdiag.checks.memory import Ledger, Part, why_no_ledger
from kvdiag.quantity import Interval
from kvdiag.quantity.ends import ends
from kvdiag.quantity.figures import memory
from kvdiag.reports.because import because
from kvdiag.reports.paint import Paint

_MARKS = {
    "weights": ("#", "weights"),
    "draft_weights": ("%", "draft weights"),
    "kv_pool": ("=", "KV pool"),
    "draft_kv": ("-", "draft KV"),
    "state": ("s", "state slots"),
    "request_table": ("t", "request table"),
    "graphs": ("+", "graphs"),
    "unexplained": ("?", "unexplained"),
    "headroom": (".", "free at the end"),
}
_FREE = {
    "available_gpu_memory": "free after loading",
    "memory_after_pool": "free after the pools",
    "memory_before_graphs": "free before graphs",
}
"""What the head-room is called where the log ends before the start-up does."""

_POOLS = {"kv_pool", "draft_kv", "state"}
_BEFORE_POOLS = {"pre_model_load_memory", "available_gpu_memory"}
"""Readings of free memory that were taken before there were pools."""

_ORDER = tuple(_MARKS)
_BAR = 24
_ROOM = 62
"""Columns that a row of the waterfall takes beside its bar."""


def memory_of(item: StartDiagnosis, paint: Paint) -> Iterator[str]:
    """The waterfall of a start, or why there is none; nothing for a log without any reading of free memory."""
    yield from waterfall(item.memory, paint)
    why = why_no_ledger(item.facts.inputs) if item.facts is not None and not item.memory else ""
    if why:
        yield ""
        yield from paint.wrap(f"Memory: {because(why)}")


def waterfall(ledgers: Sequence[Ledger], paint: Paint) -> Iterator[str]:
    """The memory of the rank with the least head-room; other ranks differ by what the findings say."""
    if not ledgers:
        return
    ledger = min(ledgers, key=_least_free)
    total = _middle(ledger.total)
    if total <= 0:
        return
    yield ""
    others = f", the fullest of {len(ledgers)}" if len(ledgers) > 1 else ""
    yield paint.bold(f"Memory of {ledger.rank or 'the only rank'}{others}") + f": {memory(ledger.total)} free before loading"
    parts = sorted(ledger.parts, key=lambda part: _ORDER.index(part.part))
    cells = max(20, min(paint.width, 100) - 4)
    yield "  " + "".join(_MARKS[part.part][0] * _cells(_middle(part.interval) / total, cells) for part in parts)
    before = ledger.total
    if ledger.context is not None:
        yield f"    process groups (before that) {_amount(ledger.context.interval)}"
    for part in parts:
        yield _row(part, _name(part, ledger), before, total, max(0, min(_BAR, paint.width - _ROOM)))
        before = before - part.interval if part.part not in ("unexplained", "headroom") else before
    yield from paint.wrap(_below_zero(ledger), "    ", dim=True)


def _below_zero(ledger: Ledger) -> str:
    """Why an amount is below zero, or may be; empty where none is."""
    signed = [part for part in (*ledger.parts, ledger.context) if part is not None and part.interval.low < 0]
    if any(part.interval.high < 0 for part in signed):
        return (
            "Below zero, or more than was free: free memory rose between two readings, because something gave some back (a CPU's "
            "memory is the machine's)."
        )
    return "From below zero to above: too little for the digits of the log to tell from nothing." if signed else ""


def _amount(interval: Interval) -> str:
    """An amount of memory; both ends where one is below zero."""
    return ends(interval) if interval.low < 0 else memory(interval)


def _least_free(ledger: Ledger) -> Fraction:
    room = ledger.get("headroom")
    return (ledger.total if room is None else room).low


def _name(part: Part, ledger: Ledger) -> str:
    """What a part is called: the remainder has the pools in it where they were made and no line of theirs is in the log."""
    if part.part != "unexplained":
        return _FREE.get(part.reading, _MARKS[part.part][1])
    if part.interval.high < 0:
        return "more than was free"
    made = any(each.part == "headroom" and each.reading not in _BEFORE_POOLS for each in ledger.parts)
    printed = any(each.part in _POOLS for each in ledger.parts)
    return "pools and other use" if made and not printed else "unexplained"


def _row(part: Part, name: str, before: Interval, total: float, bar: int) -> str:
    mark, amount = _MARKS[part.part][0], part.interval
    if part.part == "unexplained" and amount.high < 0:
        amount = -amount
    start = _cells(1 - _middle(before) / total, bar)
    length = _cells(_middle(part.interval) / total, bar)
    where = f" (line {', '.join(map(str, part.lines[:3]))})" if part.lines else ""
    return f"  {mark} {name:<20} {_amount(amount):>18}  {' ' * start}{mark * length}{where}".rstrip()


def _cells(share: float, width: int) -> int:
    """Characters for a share of the bar; a damaged log may state parts that are larger than the whole."""
    return round(min(1.0, max(0.0, share)) * width)


def _middle(interval: Interval) -> float:
    return float((interval.low + interval.high) / 2)
