"""A sizing as text: a line a figure with its unit, the formula with its terms, and what is missing at the end."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvdiag.quantity import GIB
from kvdiag.reports.because import because
from kvdiag.reports.paint import Paint

_HIDDEN = ("schema", "formula", "terms", "symbol", "missing", "notes", "stages")
_UNITS = {
    "bytes_per_token": "bytes",
    "rest_memory_bytes": "bytes",
    "mamba_cache_per_req": "bytes",
    "max_total_num_tokens": "tokens",
    "full_max_total_num_tokens": "tokens",
    "swa_max_total_num_tokens": "tokens",
    "c4_max_total_num_tokens": "tokens",
    "c128_max_total_num_tokens": "tokens",
    "page_size": "tokens",
    "context_len": "tokens",
    "max_mamba_cache_size": "slots",
    "c4_state_pool_size": "slots",
    "c128_state_pool_size": "slots",
    "max_running_requests": "requests",
}
_LARGE = GIB // 10
"""Bytes from which on a figure is told in GiB too."""


def render_text(sizing: dict[str, Any], planned: str = "", width: int = 100) -> str:
    """The JSON of ``kvdiag size`` (``Sizing.to_dict``) as text of at most `width` columns, and the sentence of a plan."""
    paint, lines = Paint(False, width), []
    for name, value in sizing.items():
        if value is None or name in _HIDDEN:
            continue
        lines.append(f"{name:<28} {_figure(name, value)}")
        if name == "bytes_per_token":
            lines += _chain(sizing, paint)
    for sentence in (*map(because, sizing["missing"]), *(f"note: {note}" for note in sizing["notes"])):
        lines += paint.wrap(sentence)
    lines += ["", *paint.wrap(planned)] if planned else []
    return "\n".join(lines) + "\n"


def _chain(sizing: dict[str, Any], paint: Paint) -> list[str]:
    """What a token's bytes are made of; where pipeline stages differ, each kind of them."""
    terms = ", ".join(f"{term} {amount}" for term, amount in sizing["terms"].items())
    lines = [f"  = {sizing['formula']}", *paint.wrap(terms, "    "), f"    {sizing['symbol']}"]
    kinds = Counter((stage["layers"], stage["bytes_per_token"]) for stage in sizing["stages"])
    if kinds:
        each = ", ".join(f"{count} of {layers} layers with {cell:,} bytes" for (layers, cell), count in kinds.items())
        told = f"these are the first pipeline stage's; of the stages {each}, and the largest decides the tokens"
        lines += paint.wrap(told, "  ")
    return lines


def _figure(name: str, value: Any) -> str:
    unit = _UNITS.get(name)
    if unit is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    number = f"{int(value):,}" if name.endswith("_bytes") or value == int(value) else f"{value:,}"
    in_gib = f" ({value / GIB:.2f} GiB)" if unit == "bytes" and abs(value) >= _LARGE else ""
    return f"{number} {unit.removesuffix('s') if value == 1 else unit}{in_gib}"
