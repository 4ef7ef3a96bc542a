"""Why a start failed, in a sentence."""

from __future__ import annotations

from kvdiag.checks.model import Finding
from kvdiag.starts import Start

_REASONS = {
    "no_memory_for_pool": "the weights left no memory for the KV pool under this --mem-fraction-static",
    "memory_unbalanced": "the ranks have unequal free memory: another process is on one of the GPUs",
    "graph_capture_failed": "the capture of graphs failed after the pools were made",
    "no_host_memory": "the host has not enough memory for the hierarchical cache",
}


def failure_of(start: Start, last_exception: str) -> Finding | None:
    """A finding for a start that never came up; None for one that did, or where nothing says it failed."""
    if start.events_of("ready"):
        return None
    lines = tuple(event.record.line.number for event in start.events if event.kind == "crash")
    for kind, reason in _REASONS.items():
        events = start.events_of(kind)
        if events and lines:
            message = f"The server did not start: {reason}. The log says: {events[0].record.message.strip()[:300]}"
            return Finding("KV001", "error", "The start failed", message, _advice(kind), (events[0].record.line.number,))
    if lines or last_exception:
        message = "The server did not start: a process died with " + (last_exception[:300] or "an exception")
        return Finding("KV001", "error", "The start failed", message, "Read the traceback above that line.", lines[:1])
    return None


def _advice(kind: str) -> str:
    if kind == "no_memory_for_pool":
        return "Raise --mem-fraction-static, or make the weights smaller per GPU (more --tp-size, quantised weights)."
    if kind == "graph_capture_failed":
        return "Lower --mem-fraction-static or --cuda-graph-max-bs: capture needs memory outside the static part."
    return ""
