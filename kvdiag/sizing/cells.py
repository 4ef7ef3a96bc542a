"""Bytes of KV cache for one token on one rank: the plain pools."""

from __future__ import annotations

from collections.abc import Sequence

from kvdiag.errors import CannotSizeError
from kvdiag.models import Geometry
from kvdiag.models.sparse import CompressedKeys, Index, SparseLayers
from kvdiag.releases import Release
from kvdiag.sizing.dtypes import KvDtype
from kvdiag.sizing.history import since

SCALE_BLOCK = 16
MXFP8_BLOCK = 32
INDEX_BLOCK = 128
MINIMAX_PAGE = 128
PACKED_LINE = 128


def kv_heads_per_rank(heads: int, attention_tp_size: int, dcp_size: int = 1) -> int:
    """KV heads one rank holds, never below one (``ModelConfig.get_num_kv_heads``; decode context parallelism from 0.5.18)."""
    return max(1, heads // max(1, attention_tp_size // max(1, dcp_size)))


def mha_cell(heads: int, geometry: Geometry, layers: int, dtype: KvDtype, release: Release) -> int:
    """``cell_size`` of plain attention: heads x dims x layers x element, with the scales of FP4 and MXFP8.

    0.3.0 to 0.5.6 (``ModelRunner.profile_max_num_token``) take K's width twice; 0.5.7 and newer
    (``get_cell_size_per_token``, ``DefaultPoolConfigurator._compute_cell_size``) K's and V's. FP4: from 0.5.5.post3 half
    plus one scale in 16; from 0.5.16 a dequantisation workspace of one layer; from 0.5.21 per recipe.
    """
    width = geometry.head_dim + geometry.v_head_dim if since(release, "0.5.7") else 2 * geometry.head_dim
    cell = heads * width * layers * dtype.size
    if dtype.is_fp4:
        return _mha_fp4(cell, heads, geometry.head_dim, layers, dtype, release)
    if dtype.name == "mxfp8":
        return cell + heads * width * layers // MXFP8_BLOCK
    return cell


def _mha_fp4(cell: int, heads: int, dim: int, layers: int, dtype: KvDtype, release: Release) -> int:
    if not since(release, "0.5.5.post3"):
        return cell
    if since(release, "0.5.21"):
        return _fp4_recipe(heads, dim, layers, dtype)
    packed = cell // 2 + heads * dim * layers * 2 * dtype.size // SCALE_BLOCK
    return packed + heads * dim * 2 * dtype.size if since(release, "0.5.16") else packed


def _fp4_recipe(heads: int, dim: int, layers: int, dtype: KvDtype) -> int:
    """``compute_cell_size`` of the FP4 quantisation methods (0.5.21 and newer): packed values, their scales, a workspace."""
    packed = heads * (dim // 2) * layers * 2
    if dtype.name == "fp4_mx_block16":
        return packed + heads * dim // SCALE_BLOCK * layers * 2
    if dtype.name != "nvfp4" or not dtype.scale_layouts:
        raise CannotSizeError(
            f"cannot size KV dtype {dtype.name!r}: the layout of its scales depends on the GPU; give --gpu NAME or "
            "--compute-capability X.Y"
        )
    scales = dtype.scale_layouts * heads * (dim // SCALE_BLOCK) * layers * 2
    return packed + scales + (heads * dim * 2 if dtype.workspace else 0)


def mla_cell(geometry: Geometry, layers: int, dtype: KvDtype, width: int) -> int:
    """``cell_size`` of latent attention, the same on every rank: latent and rope part (`width`) x layers x element.

    Holds for every release that knows the class as MLA; FP4 (0.5.4.post3 and newer) is half plus one scale in 16 values.
    """
    cell = width * layers * dtype.size
    if dtype.is_fp4:
        rows = (geometry.kv_lora_rank + geometry.qk_rope_head_dim) // SCALE_BLOCK
        return cell // 2 + rows * layers * dtype.size
    return cell


def latent_width(geometry: Geometry, index: Index | None, dtype: KvDtype, release: Release, *, raw_rows: bool) -> int:
    """Elements of one latent row (``calculate_mla_kv_cache_dim``).

    With a sparse index and fp8_e4m3 the pool stores scales and an unquantised rope part; the cell counts them from
    0.5.17. `raw_rows` says that the backend (trtllm and some others) stores plain rows.
    """
    plain = geometry.kv_lora_rank + geometry.qk_rope_head_dim
    if index is None or raw_rows or dtype.name != "fp8_e4m3" or not since(release, "0.5.17"):
        return plain
    return geometry.kv_lora_rank + geometry.kv_lora_rank // INDEX_BLOCK * 4 + geometry.qk_rope_head_dim * 2


def index_cell(index: Index, layers: Sequence[int], release: Release, dcp_size: int = 1, plain: int = 0) -> int:
    """Bytes of index keys a token: an fp8 key and its float32 scales per layer (``_compute_dsa_indexer_cell_size``).

    0.5.3.post1 and newer (the pool allocates it from 0.5.3rc2). From 0.5.18 layers that share their neighbour's choice
    have none; from 0.5.22 keys are pooled and every decode-context rank holds them all. `plain` is bytes of an element of keys
    that are stored as they are.
    """
    if not since(release, "0.5.3.post1"):
        return 0
    shared = index.shared_layers if since(release, "0.5.18") else frozenset()
    return draft_index_cell(index, sum(layer not in shared for layer in layers), release, dcp_size, plain)


def draft_index_cell(index: Index, layers: int, release: Release, dcp_size: int = 1, plain: int = 0) -> int:
    """The index keys of a draft: every layer has its own."""
    width = index.head_dim + index.head_dim // INDEX_BLOCK * 4
    if since(release, "0.5.22"):
        width = -(-width // index.kpool)
    if plain:
        width = index.head_dim * plain
    return width * layers * (dcp_size if since(release, "0.5.22") else 1)


def minimax_cell(sparse: SparseLayers, stage: range, heads: int, head_dim: int, dtype: KvDtype, index_size: int) -> int:
    """MiniMax-M3 (0.5.15 and newer): keys and values of every layer, and a one-head index in the sparse ones."""
    dense = sum(layer in stage for layer in sparse.dense)
    local = [layer for layer in sparse.sparse if layer in stage]
    keys_only = sum(layer in sparse.key_only for layer in local)
    main = (dense + len(local)) * 2 * heads * head_dim * dtype.size
    return main + ((len(local) - keys_only) * 2 + keys_only) * sparse.index_dim * index_size


def packed_minimax_cell(sparse: SparseLayers, stage: range, heads: int, head_dim: int) -> int:
    """MiniMax-M3 in NVFP4 (0.5.23 and newer, ``msa_v1_page_row_bytes``): a main and an index row a page of each sparse layer.

    A row's parts, values and scales, take whole lines of 128 bytes; dense layers are not counted.
    """
    main = 2 * _packed(heads * MINIMAX_PAGE, head_dim)
    index = _packed(MINIMAX_PAGE, sparse.index_dim)
    return sum(layer in stage for layer in sparse.sparse) * (main + index) // MINIMAX_PAGE


def _packed(rows: int, width: int) -> int:
    return sum(-(-rows * (width // share) // PACKED_LINE) * PACKED_LINE for share in (2, SCALE_BLOCK))


def compressed_keys_cell(keys: CompressedKeys, layers: int, element: int) -> int:
    """QSA's compressed keys, bfloat16 or fp8 (0.5.20 and newer, ``QSATokenToKVPool.qsa_bytes_per_token``)."""
    return keys.kv_heads * keys.head_dim * element // keys.ratio * layers
