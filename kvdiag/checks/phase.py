"""When in the life of a server an event came: by the frames of its traceback, else by the lines before it."""

from __future__ import annotations

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.starts import Event
from kvdiag.starts.frames import FRAMES, phase_of


def first_line(facts: Facts, *names: str) -> float:
    """The first line that has one of these numbers, infinite where none has."""
    lines = [n.line for name in names for n in facts.start.find(name)]
    return min(lines, default=float("inf"))


def phase(facts: Facts, event: Event) -> str:
    """Where in the life of the server an event stands: loading, pools, capture or serving."""
    line = event.record.line.number
    framed = _phase_of_frames(facts, line)
    if framed:
        return framed
    served = min([b.line for b in facts.activity.batches] + list(event_lines(facts.events("ready"))), default=float("inf"))
    if line > served:
        return "serving"
    if _makes_workspace(facts, line):
        return "pools"
    if event.kind == "graph_capture_failed" or any(e.record.line.number < line for e in facts.captures):
        return "capture"
    if first_line(facts, "memory_before_graphs", "memory_after_pool") < line:
        return "capture"
    if first_line(facts, "available_gpu_memory") < line:
        return "pools"
    return "loading" if first_line(facts, "pre_model_load_memory") < line else "unknown"


def _phase_of_frames(facts: Facts, line: int) -> str:
    """The phase by the frames of the traceback that ends in this line; empty where they do not tell."""
    ends = facts.events("crash", "exception", "out_of_memory", "workspace_short", "graph_capture_failed")
    begun = max((e.record.line.number for e in ends if e.record.line.number < line), default=0)
    frames = [e for e in facts.events(*FRAMES) if begun < e.record.line.number < line]
    headed = ["traceback"] if any(e.record.line.number == begun for e in facts.events("crash")) else []
    return phase_of([*headed, *(e.kind for e in frames)])


def _makes_workspace(facts: Facts, line: int) -> bool:
    """Whether the traceback that ends in this line goes through the making of the attention back end, before any capture."""
    begun = max((e.record.line.number for e in facts.events("crash") if e.record.line.number < line), default=line)
    return any(begun < e.record.line.number < line for e in facts.events("workspace_frame"))
