"""FlashInfer's workspace: a buffer of fixed size beside the pools, which a batch can be too large for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from kvdiag.checks.facts import Facts, event_lines
from kvdiag.checks.findings import Hit

At = Mapping[str, float]
_SHORT = re.compile(
    r"allocat\w{1,3} memory for (?P<buffer>\w{1,60}) with size (?P<asked>[0-9]{1,18}) and alignment [0-9]{1,9}"
    r"(?:, but only (?P<left>[0-9]{1,18}) bytes available)? in AlignedAllocator"
)

_OWN_SIZE = frozenset(
    {
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "MiMoForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
    }
)
"""Architectures for which releases of SGLang set ``flashinfer_workspace_size`` themselves."""


def too_small(facts: Facts, at: At) -> Iterator[Hit]:
    """A plan of attention asked for more than was left of the workspace (``AlignedAllocator`` of FlashInfer)."""
    for event in facts.events("workspace_short", "graph_capture_failed", "crash"):
        found = _SHORT.search(event.record.message[:4000])
        if found is None:
            continue
        left = found["left"]
        yield Hit(
            event_lines([event]),
            {
                "buffer": found["buffer"],
                "asked": Fraction(found["asked"]),
                "left": Fraction(left) if left is not None else None,
                "when": _sized_by_sglang(facts),
            },
        )
        return


def _sized_by_sglang(facts: Facts) -> str | None:
    """When the environment's size is not the one that counts, in words; None where nothing tells that it is not."""
    if facts.arg("enable_deterministic_inference"):
        return "with --enable-deterministic-inference"
    geometry = facts.inputs.geometry
    architecture = geometry.architecture if geometry is not None else ""
    return f"for {architecture}" if architecture in _OWN_SIZE else None
