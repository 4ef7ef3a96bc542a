"""What a traceback's own frames tell: in which phase of a server's life the exception came."""

from __future__ import annotations

import re
from collections.abc import Iterable

_FRAME = re.compile(r'\s*File "[^"]*[\\/]sglang[\\/](?P<file>srt[\\/][^"]+)", line \d+, in (?P<function>\w+)')
_SERVING = re.compile(
    r"event_loop_\w+|run_batch|forward_batch_(?:generation|embedding)|forward_thread_func_?|forward_(?:fill|prefill|decode)_batch"
)
"""The loop over batches, and functions that nothing else calls."""
_GRAPHS = re.compile(r"init_(?:\w+_)?graphs?")
_CAPTURE = re.compile(r"_?capture(?:_\w+)?")
_POOLS = re.compile(r"init_memory_pool|init_attention_backend|_create_buffers")

FRAMES = frozenset({"traceback", "serving_frame", "capture_frame", "pools_frame", "loading_frame", "draft_frame"})
"""Kinds of events that are lines of a traceback: where it begins, and frames of SGLang that tell the phase."""


def frame_kind(text: str) -> str:
    """The kind of event that a line of a traceback is: a frame by the one phase it can be of; empty for any other line.

    ``draft_frame`` is of the code of speculation, under which a second model is loaded, often beside the first one's pools.
    """
    if text.startswith("Traceback (most recent call last)"):
        return "traceback"
    frame = _FRAME.match(text)
    if frame is None:
        return ""
    file, function = frame["file"].replace("\\", "/"), frame["function"]
    runs_models = file.startswith(("srt/model_executor/", "srt/speculative/"))
    if _SERVING.fullmatch(function):
        return "serving_frame"
    if (_CAPTURE.fullmatch(function) and "graph" in file) or (_GRAPHS.fullmatch(function) and runs_models):
        return "capture_frame"
    if _POOLS.fullmatch(function) and "_host" not in file:
        return "pools_frame"
    if file.startswith("srt/speculative/"):
        return "draft_frame"
    return "loading_frame" if function == "load_model" and runs_models else ""


def phase_of(kinds: list[str]) -> str:
    """The phase that the frames of one traceback, the outermost first, are of; empty where they leave it open.

    Weights are ``loading`` only where the traceback's beginning shows that they are not a draft's.
    """
    told = [kind for kind in kinds if kind not in ("traceback", "draft_frame")]
    if not told:
        return ""
    if told[0] != "loading_frame":
        return told[0].removesuffix("_frame")
    return "loading" if "draft_frame" not in kinds and "traceback" in kinds else ""


def ran_out_in_a_traceback(kinds: Iterable[str]) -> bool:
    """Whether an allocator's failure stands beside frames of SGLang that tell when it came: all that many people quote."""
    seen = set(kinds)
    return not seen.isdisjoint(("out_of_memory", "workspace_short")) and not seen.isdisjoint(
        FRAMES - {"traceback", "draft_frame"}
    )
