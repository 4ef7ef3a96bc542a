"""Bytes of one row of each pool, as the pool lines print them: what is allocated, which the budget does not always count."""

from __future__ import annotations

from fractions import Fraction

from kvdiag.errors import CannotSizeError
from kvdiag.frozen import frozen
from kvdiag.models import Geometry
from kvdiag.sizing.cells import INDEX_BLOCK, MXFP8_BLOCK, SCALE_BLOCK, index_cell, kv_heads_per_rank
from kvdiag.sizing.history import since
from kvdiag.sizing.index_keys import index_in_force
from kvdiag.sizing.resolve import Settings

_FP4 = Fraction(1, 2) + Fraction(1, SCALE_BLOCK)
_BARE = "FP4 without its scales"
_FP4_OPEN = "back ends decide the layout of FP4 values and their scales"


@frozen
class Row:
    """Bytes of a row of the only pool or of the full-attention pool, and of the window pool where there is one.

    `layout` names the row where a release has several.
    """

    full: Fraction
    window: Fraction | None = None
    layout: str = ""


@frozen
class PoolRow:
    """The rows a release may print; more than one where arguments or back ends decide, and `open` names what does."""

    options: tuple[Row, ...]
    open: str = ""


def pool_row(settings: Settings, stage: range) -> PoolRow:
    """The rows of the target's pools on one pipeline stage (``get_kv_size_bytes`` of the pool classes).

    Raises CannotSizeError where the pools print no such line or no rule knows their rows.
    """
    geometry = settings.geometry
    if settings.pools in ("dsv4", "minimax") or geometry.compressed_keys is not None:
        raise CannotSizeError(f"cannot size the pool lines of {geometry.architecture}: no rule for its rows")
    if settings.pools in ("windows", "llama4") and geometry.windows is not None:
        return _windowed(settings, stage)
    layers = _layers(settings, stage)
    if settings.is_mla:
        return _latent(settings, stage, layers)
    return _plain(geometry.num_key_value_heads, geometry.head_dim, geometry.v_head_dim, layers, settings)


def draft_row(settings: Settings, draft: Geometry, layers: int) -> PoolRow:
    """The row of a draft model's pool of so many layers; `draft` is the target itself where the draft is a part of it."""
    if draft.kv_lora_rank and settings.is_mla:
        return _latent(settings, range(layers), layers)
    return _plain(draft.num_key_value_heads, draft.head_dim, draft.v_head_dim, layers, settings)


def _layers(settings: Settings, stage: range) -> int:
    if settings.state is not None:
        own = stage if since(settings.release, "0.5.9") else range(settings.geometry.num_hidden_layers)
        return sum(layer in own for layer in settings.state.attention_layers)
    geometry = settings.geometry
    return len(stage) * geometry.num_attention_layers // geometry.num_hidden_layers


def _latent(settings: Settings, stage: range, layers: int) -> PoolRow:
    geometry, dtype = settings.geometry, settings.dtype
    rope, rank = geometry.qk_rope_head_dim, geometry.kv_lora_rank
    if not settings.has_index or geometry.index is None:
        width = (rank + rope) * layers
        if not dtype.is_fp4:
            return PoolRow((Row(Fraction(width * dtype.size)),))
        return PoolRow((Row(Fraction(width, 2), None, _BARE), Row(width * _FP4, None, "K and V in FP4")), _FP4_OPEN)
    index = _index(settings, stage)
    plain = Row(Fraction((rank + rope) * dtype.size * layers + index), None, "rows as they are")
    if dtype.name != "fp8_e4m3":
        return PoolRow((plain,))
    packed = Row(Fraction((rank + rank // INDEX_BLOCK * 4 + rope * 2) * layers + index), None, "rows packed with their scales")
    return PoolRow((packed, plain), "the attention backend packs rows or does not, and no line says which")


def _index(settings: Settings, stage: range) -> int:
    index, plain = index_in_force(settings)
    if since(settings.release, "0.5.3.post1"):
        return index_cell(index, stage, settings.release, plain=plain)
    return (index.head_dim + index.head_dim // INDEX_BLOCK * 4) * len(stage)


def _windowed(settings: Settings, stage: range) -> PoolRow:
    geometry, windows = settings.geometry, settings.geometry.windows
    assert windows is not None
    if settings.is_mla:
        raise CannotSizeError(f"cannot size the pool lines of {geometry.architecture}: no rule for its rows")
    full = sum(layer in stage for layer in windows.full_layers)
    window = sum(layer in stage for layer in windows.window_layers)
    heads = windows.num_key_value_heads or geometry.num_key_value_heads
    whole = _plain(geometry.num_key_value_heads, geometry.head_dim, geometry.v_head_dim, full, settings)
    part = _plain(heads, windows.head_dim, windows.v_head_dim, window, settings)
    options = tuple(Row(a.full, b.full, a.layout) for a, b in zip(whole.options, part.options, strict=True))
    return PoolRow(options, whole.open)


def _plain(heads: int, dim: int, v_dim: int, layers: int, settings: Settings) -> PoolRow:
    """K and V of every layer; an FP4 cache may keep K in FP8 (0.5.21 and newer decide by back end).

    The line counts the scales of FP4 from 0.5.16; a pool that is not made for windows may store V as wide as K.
    """
    dtype = settings.dtype
    dcp = settings.arguments.dcp_size if since(settings.release, "0.5.18") else 1
    each = kv_heads_per_rank(heads, settings.attention_tp, dcp) * layers
    if dtype.is_fp4:
        bare = Row(Fraction(each * (dim + v_dim), 2), None, _BARE)
        whole = Row(each * (dim + v_dim) * _FP4, None, "K and V in FP4")
        return PoolRow((bare, whole, Row(each * (dim + v_dim * _FP4), None, "K in FP8, V in FP4")), _FP4_OPEN)
    factor = dtype.size + Fraction(1, MXFP8_BLOCK) if dtype.name == "mxfp8" else Fraction(dtype.size)
    row = Row(each * (dim + v_dim) * factor)
    if dim == v_dim or settings.pools != "plain":
        return PoolRow((row,))
    return PoolRow((row, Row(each * 2 * dim * factor, None, "V as wide as K")), "V may be stored as wide as K")
