"""What SGLang takes between the line that prints free memory after loading and the reading that sizes the pools."""

from __future__ import annotations

from collections.abc import Callable

from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.verdict import Excuse
from kvdiag.quantity import Interval
from kvdiag.sizing.history import since

_FIRST = "0.5.6"
"""The first release with ``reserve_rope_cache_for_long_sequences`` (``srt/utils/common.py``)."""
_MARGIN = 1024
"""More rows than the context that are asked for (``SGLANG_ROPE_CACHE_SAFETY_MARGIN``, alignment, draft tokens)."""
_ENTRY_BYTES = 4
"""The cache of cosines and sines is float32 on CUDA."""
_HELD = 3 * (20 << 20)
"""The most that copying one cache leaves behind: torch maps expandable segments by 20 MiB, and keeps those that the old
place shares with its neighbours at both ends, and the last of the new one."""


def rope_excuses(inputs: CheckInputs, explained: Callable[[Interval], bool]) -> list[Excuse]:
    """An excuse where `explained` holds for a shift of free memory (bytes, below zero) that the RoPE caches can make.

    Behind the 'Load weight end' line each cache is copied into a longer one; what the allocator keeps of the old place is
    missing when the pools are sized, and the pools' buffers fill it later. Seen where full and window layers have heads of
    two widths (Gemma-4): 15 to 85 MiB.
    """
    most = _left_behind(inputs)
    if not most or not explained(Interval.of(-most, 0, "bytes")):
        return []
    why = "the RoPE caches are lengthened between the 'Load weight end' line and sizing, and no line states what that took"
    return [Excuse(why, raises=False)]


def _left_behind(inputs: CheckInputs) -> int:
    """The most that lengthening keeps; zero where the caches are long enough, or the release does not lengthen them."""
    geometry, config = inputs.geometry, inputs.config
    if geometry is None or config is None or geometry.windows is None or geometry.windows.head_dim == geometry.head_dim:
        return 0
    if not inputs.candidates() or not since(inputs.candidates()[-1], _FIRST):
        return 0
    own = config.text.get("max_position_embeddings")
    rows = (inputs.arguments.context_length or geometry.context_len) + _MARGIN
    if isinstance(own, int) and rows <= own:
        return 0
    return sum(min(_HELD, rows * width * _ENTRY_BYTES) for width in (geometry.head_dim, geometry.windows.head_dim))
