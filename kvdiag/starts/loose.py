"""Lines without SGLang's prefix that still tell what happened: exceptions, allocators out of memory, capture progress."""

from __future__ import annotations

import re

from kvdiag.lines import Record
from kvdiag.starts.frames import frame_kind

_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Interrupt|Exit)(?::|$)|(?:[a-z_]\w*\.)+[A-Z]\w*: ")
"""The last line of a traceback: a class named as errors are, or any class with its module (``OutOfResources``)."""

_OUT_OF_MEMORY = ("Tried to allocate", "out of memory", "OutOfMemoryError", "CallbackErrorOutOfMemory")
_WORKSPACE = " in AlignedAllocator"
_TABLE_FRAMES = ("ReqToTokenPool(", "self.req_to_token = torch.")
"""Source lines in the traceback of the table that maps requests and positions to cache rows."""
_OPENINGS = {
    "Loaded weights leave no GPU memory": "no_memory_for_pool",
    "Not enough memory. Please try to increase": "no_memory_for_pool",
    "Capture cuda graph failed": "graph_capture_failed",
    "Capture CUDA graph failed": "graph_capture_failed",
}
"""Beginnings of SGLang's own errors that stay certain when the rest of the text is cut off or reworded."""

_NAMED = r"(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception): "
_NO_STATES = r"max_mamba_cache_size=[0-9]+, mamba_ratio=[0-9]+, resulting max_num_reqs=[0-9]+"
_WEIGHTS = (
    r"Loaded weights leave no GPU memory[^=]{0,60}--mem-fraction-static="
    r"([0-9]{1,4}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?)\.? "
)
_CAPTURING = r"Captur\w+ [\w ]+\((?:\w+=\d+ )?avail_mem="

SGLANG_KINDS = frozenset(_OPENINGS.values())
"""Kinds that show by themselves that the log is SGLang's."""

OPENING_RELEASES = {"Loaded weights leave no GPU memory": "0.5.14.."}
"""Releases that have such a beginning, where it is not as old as the family."""


def loose_releases(record: Record) -> str:
    """The releases that could have printed such a beginning, empty where it tells none."""
    return next((ranges for opening, ranges in OPENING_RELEASES.items() if opening in record.message[:200]), "")


def loose_fraction(record: Record) -> str:
    """The digits of --mem-fraction-static in the beginning of a failure's text, empty where they are not whole."""
    told = re.search(_WEIGHTS, record.message[:400])
    return told[1] if told else ""


def loose_kind(record: Record) -> str:
    """The kind of event a record without a family reports; empty for none. SGLANG_KINDS name what only SGLang prints.

    ``out_of_memory`` is a device allocator's failure, ``request_table_frame`` the traceback's line that makes that table,
    ``workspace_frame`` the one that makes the attention back end, ``workspace_short`` FlashInfer's own allocator's failure,
    ``exception`` the last line of a traceback, ``capturing`` a progress line of graph capture; the others of a traceback
    are those of ``frame_kind``.
    """
    text = record.message[:4000]
    for opening, kind in _OPENINGS.items():
        if opening in text and re.fullmatch(f"(?:{_NAMED})?", text[: text.index(opening)]):
            return kind
    if "max_mamba_cache_size=" in text and re.search(_NO_STATES, text):
        return "no_memory_for_pool"
    if any(mark in text for mark in _OUT_OF_MEMORY) and not record.prefixed:
        return "out_of_memory"
    if any(mark in text for mark in _TABLE_FRAMES) and not record.prefixed:
        return "request_table_frame"
    if "init_attention_backend()" in text and not record.prefixed:
        return "workspace_frame"
    if _WORKSPACE in text and not record.prefixed:
        return "workspace_short"
    if "avail_mem=" in text and re.search(_CAPTURING, text):
        return "capturing"
    if not record.prefixed and _EXCEPTION.match(text.lstrip()):
        return "exception"
    return "" if record.prefixed else frame_kind(text)
