"""Starts that did not come up, and processes that died."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit
from kvdiag.checks.phase import first_line, phase
from kvdiag.quantity import GIB, Interval, printed_interval
from kvdiag.starts import Event

At = Mapping[str, float]
_SIZE = r"([0-9]{1,9}(?:\.[0-9]{1,4})?) ?(MiB|GiB|MB|GB)"
_TRIED = "[Tt]ried to allocate " + _SIZE
_TOTAL = r"GPU ([0-9]{1,4}) has a total capacity of ([0-9]{1,6}(?:\.[0-9]{1,4})?)"
_TOTAL_UP_TO_2_0 = r"\([A-Z]{3} ([0-9]{1,4}); ([0-9]{1,6}(?:\.[0-9]{1,4})?) GiB total capacity"
"""As torch 2.0 and its NPU port print it."""
_FREE = "(?:of which |; )" + _SIZE + " (?:is )?free"
_OTHERS = re.compile("Process [0-9]{1,9} has " + _SIZE + " memory in use")
_UNALLOCATED = _SIZE + " is reserved by PyTorch but unallocated"
_FRAMES = 6
"""Lines within which the frame that asks for memory stands before the allocator's text."""
_LONGEST = 600
"""Characters of an exception that a finding quotes."""
_ENTRY_BYTES = 4
"""The request table holds int32 (``ReqToTokenPool``)."""
_PROGRESS = r"avail_mem=([0-9]{1,6}\.[0-9]{1,3}) GB"
_STEPS = r"\| *([0-9]{1,6})/([0-9]{1,6}) \["
_UNITS = {"MiB": 2**20, "MB": 2**20, "GiB": 2**30, "GB": 2**30}
_ABOUT_SIZES = re.compile(r"--[a-z-]{0,60}(?:ratio|fraction|tokens|requests|context-length)|KV budget|\bpool\b")


def _bytes(found: re.Match[str] | None) -> Fraction | None:
    return Fraction(found.group(1)) * _UNITS[found.group(2)] if found else None


def _is_up(facts: Facts) -> bool:
    return bool(facts.events("ready") or facts.start.batches)


def _start_seen(facts: Facts) -> bool:
    return bool(facts.start.server_args or facts.start.find("pre_model_load_memory") or facts.start.find("available_gpu_memory"))


def _oom_values(facts: Facts, event: Event) -> dict[str, Any]:
    text = event.record.message
    total = re.search(_TOTAL, text) or re.search(_TOTAL_UP_TO_2_0, text)
    tried, free = _bytes(re.search(_TRIED, text)), _bytes(re.search(_FREE, text))
    values: dict[str, Any] = {
        "tried": tried,
        "gpu": total.group(1) if total else None,
        "card": total.group(2) if total else None,
        "free": free,
        "unallocated": _bytes(re.search(_UNALLOCATED, text)),
        "short": tried - free if tried is not None and free is not None and tried > free else tried,
    }
    return values | _feasible_below(facts, values["short"])


def _feasible_below(facts: Facts, short: Fraction | None) -> dict[str, Any]:
    """The fractions under which what was short would fit: the weights bound them from below."""
    total, available, fraction = facts.total, facts.available, facts.fraction
    if total is None or available is None or fraction is None or short is None:
        return {"fraction": fraction}
    least = 1 - available.high / total.low
    most = Fraction(str(fraction)) - short / total.high
    if most <= least:
        return {"fraction": fraction, "least": float(least), "impossible": ""}
    return {"fraction": fraction, "least": float(least), "most": float(most)}


def capture_out_of_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """Graphs could not be captured for lack of device memory."""
    for event in facts.ran_out:
        if phase(facts, event) == "capture" or "apture" in event.record.message.partition(":")[0]:
            yield Hit(event_lines([event]), _oom_values(facts, event))
            return


def capture_failed_otherwise(facts: Facts, at: At) -> Iterator[Hit]:
    """Capture failed and no allocator ran out: another exception, or none named."""
    if facts.ran_out or _is_up(facts):
        return
    failed = facts.events("graph_capture_failed")
    began = facts.start.find("memory_before_graphs") or (facts.captures and not _is_complete(facts.captures[-1]))
    died = facts.events("crash", "exception")
    if not failed and not (began and died):
        return
    if not failed and facts.start.find("memory_after_graphs") and not facts.captures:
        return
    begin = min(first_line(facts, "memory_before_graphs"), *(e.record.line.number for e in facts.captures), float("inf"))
    named = [e for e in facts.events("exception") if not failed or e.record.line.number != failed[0].record.line.number]
    named = [e for e in named if "apture" not in e.record.message and (failed or e.record.line.number > begin)]
    lines = event_lines([*failed, *named, *([] if failed else died)], 4)
    if not failed and (not died or died[-1].record.line.number < begin):
        return
    yield Hit(lines, {"exception": _named(named), "free": _free_at_capture(facts), "compile": _compile(facts, failed)})


def _is_complete(event: Event) -> bool:
    """Whether a capture's progress bar has come to its end; where it stands no more than that is known."""
    steps = re.findall(_STEPS, event.record.message)
    return bool(steps) and steps[-1][0] == steps[-1][1]


def _named(events: list[Event]) -> str | None:
    return _short(events[0].record.message) if events else None


def _short(text: str) -> str:
    """An exception's text that fits into a sentence: without its own full stop, cut between words where it is very long.

    What to do often stands at the end of it.
    """
    text = text.strip().rstrip(".")
    return text if len(text) <= _LONGEST else text[:_LONGEST].rpartition(" ")[0] + " [...]"


def _compile(facts: Facts, failed: list[Event]) -> str | None:
    if facts.arg("enable_torch_compile") is False:
        return None
    return "--enable-torch-compile" if facts.arg("enable_torch_compile") or failed else None


def progress_free(text: str) -> Interval | None:
    """The last free memory in a progress bar of graph capture."""
    found = re.findall(_PROGRESS, text)
    return printed_interval(found[-1], "GiB") if found else None


def _free_at_capture(facts: Facts) -> Interval | None:
    """The last free memory printed while capturing."""
    for event in reversed(facts.captures):
        free = progress_free(event.record.message)
        if free is not None:
            return free
    readings = facts.start.find("memory_before_graphs") or facts.start.find("memory_after_pool")
    return readings[-1].interval if readings else None


def loading_out_of_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """The weights themselves did not fit."""
    for event in facts.ran_out:
        if phase(facts, event) == "loading":
            held = [_bytes(found) or Fraction(0) for found in _OTHERS.finditer(event.record.message)]
            values = {"others": sum(held) if held else None, "processes": len(held)}
            yield Hit(event_lines([event]), _oom_values(facts, event) | values)
            return


def request_table_out_of_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """The table of requests and positions, made before the pools, did not fit."""
    frames = [event.record.line.number for event in facts.events("request_table_frame")]
    for event in facts.ran_out:
        line = event.record.line.number
        if any(line - _FRAMES < frame < line for frame in frames):
            values = _oom_values(facts, event)
            row = facts.context * _ENTRY_BYTES if facts.context else None
            rows = round(values["tried"] / row) if row and values["tried"] else None
            yield Hit(event_lines([event]), values | {"context": facts.context, "rows": rows})
            return


def pools_out_of_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """The weights were loaded, and what comes after them did not fit."""
    for event in facts.ran_out:
        if phase(facts, event) == "pools":
            weights = facts.available
            yield Hit(event_lines([event]), _oom_values(facts, event) | {"after": weights})
            return


def serving_out_of_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """A batch did not fit outside the pools while the server ran."""
    for event in facts.ran_out:
        if phase(facts, event) == "serving":
            free = facts.free_at_end.interval if facts.free_at_end else None
            values = _oom_values(facts, event) | {"left": free, "chunk": facts.whole("chunked_prefill_size")}
            yield Hit(event_lines([event]), values)
            return


def unplaced_out_of_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """An allocator ran out and the excerpt does not tell when."""
    for event in facts.ran_out:
        if phase(facts, event) == "unknown" and "apture" not in event.record.message.partition(":")[0]:
            yield Hit(event_lines([event]), _oom_values(facts, event))
            return


def host_memory(facts: Facts, at: At) -> Iterator[Hit]:
    """The host pool of the hierarchical cache does not fit the host."""
    for event in facts.events("no_host_memory"):
        asked, free = event.record.interval("Requesting"), event.record.interval("only have")
        if asked is None or free is None:
            continue
        reserve = Interval.of(at["reserve_gib"] * GIB, unit="bytes")
        usable = free - reserve
        ranks = (facts.arg("tp_size") or 0) if facts.start.server_args else 0
        values = {
            "asked": asked,
            "free": free,
            "reserve": reserve,
            "usable": usable,
            "size": int(usable.low / 10**9) if usable.low > 0 else 0,
            "ranks": ranks if ranks > 1 else None,
        }
        yield Hit(event_lines([event]), values)
        return


def unbalanced(facts: Facts, at: At) -> Iterator[Hit]:
    """Start-up refused because the ranks' free memory differs by more than a tenth."""
    for event in facts.events("memory_unbalanced"):
        smallest = event.record.interval("min_per_gpu_memory") or event.record.interval("pre_model_load_memory")
        here = event.record.interval("local_gpu_memory")
        apart = 1 - smallest.low / here.high if smallest and here and here.low > 0 else None
        yield Hit(
            event_lines([event]),
            {"smallest": smallest, "here": here, "apart": apart, "idle": here - smallest if smallest and here else None},
        )
        return


def other_ranks_died(facts: Facts, at: At) -> Iterator[Hit]:
    """A rank waited at the barrier after loading for ranks that had died."""
    events = facts.events("load_barrier")
    if events:
        yield Hit(event_lines(events), {"rank": events[0].record.number("tp_rank")})


def hung(facts: Facts, at: At) -> Iterator[Hit]:
    """The watchdog fired: a forward pass took longer than its limit."""
    events = [e for e in facts.events("watchdog") if "imeout (" in e.record.message or "timeout (self" in e.record.message]
    if events:
        usages = [b for b in facts.activity.decode if b.usage is not None]
        last = usages[-1].usage if usages else None
        yield Hit(event_lines(events), {"seconds": events[0].record.number("self.watchdog_timeout"), "usage": last})


def start_failed(facts: Facts, at: At) -> Iterator[Hit]:
    """A start that ended in an exception which is no memory shortage."""
    died = facts.events("crash", "exception")
    if _is_up(facts) or not died or not _start_seen(facts) or facts.ran_out:
        return
    named = [e for e in facts.events("exception") if "KeyboardInterrupt" not in e.record.message]
    reason = _named(named[-1:]) or (_short(facts.last_exception) or None)
    if reason is None:
        return
    sizes = reason is not None and bool(_ABOUT_SIZES.search(reason))
    values = {
        "exception": reason,
        "free": _free_now(facts),
        "kind": "is about the size of a pool" if sizes else "is no memory shortage",
        "sizes": "" if sizes else None,
        "other": None if sizes else "",
    }
    yield Hit(event_lines([*named[-1:], *facts.events("crash")[:1]]), values)


def _free_now(facts: Facts) -> Interval | None:
    readings = facts.start.find("available_gpu_memory")
    return readings[-1].interval if readings else None


def died_serving(facts: Facts, at: At) -> Iterator[Hit]:
    """A process of a running server died, one whose start is not in the log, or one of a start whose exception is not."""
    died, named = facts.events("crash") or facts.events("died"), facts.events("exception")
    told = bool(named or facts.last_exception)
    if not died or facts.ran_out or (_start_seen(facts) and not _is_up(facts) and told):
        return
    exception = _named(named[-1:])
    unnamed = "" if exception is None and not facts.events("crash") else None
    yield Hit(event_lines([*named[-1:], *died[:1]]), {"exception": exception, "unnamed": unnamed})
