"""What of a sizing does not depend on free memory: cells, state and shares of every pipeline stage, with their formula."""

from __future__ import annotations

from typing import Any

from kvdiag.frozen import frozen
from kvdiag.models import Windows
from kvdiag.sizing import cells
from kvdiag.sizing.compressed import compressed_demand
from kvdiag.sizing.demand import state_demand
from kvdiag.sizing.dsv4 import Dsv4Demand, bytes_per_full_token
from kvdiag.sizing.dtypes import model_dtype
from kvdiag.sizing.history import since
from kvdiag.sizing.index_keys import index_in_force
from kvdiag.sizing.resolve import Settings
from kvdiag.sizing.slots import SlotDemand
from kvdiag.sizing.speculative import charged_cell, charged_dsa_cell
from kvdiag.sizing.state import StateDemand
from kvdiag.sizing.swa import HybridCell, Pools, hybrid_cell, stage_layers


@frozen
class StagePlan:
    """One pipeline stage: bytes a token (the divisor), the window pools' shares, the V4 demand; None where not used."""

    cell: float
    layers: int
    pools: Pools | None
    hybrid: HybridCell | None
    dsv4: Dsv4Demand | None


@frozen
class Plan:
    """A server sized up to its free memory; `symbol` is where SGLang computes the cell, `terms` what `formula` takes.

    `stage_terms` are those of every pipeline stage, with its cell, where they differ.
    """

    settings: Settings
    stages: tuple[StagePlan, ...]
    heads: int | None
    state: StateDemand | None
    formula: str
    terms: dict[str, Any]
    symbol: str
    stage_terms: tuple[dict[str, Any], ...] = ()

    def slot_demand(self, size: int | None) -> SlotDemand:
        """The request slots' inputs, given the state slots found."""
        settings = self.settings
        cap = size // self.state.slots if self.state is not None and size is not None else None
        return SlotDemand(settings.requests, settings.attention_dp, settings.context, cap, settings.attention_dp)


def make_plan(settings: Settings) -> Plan:
    """The plan of resolved settings. Raises CannotSizeError where no formula holds."""
    split = settings.stages
    heads = None if settings.is_mla else _heads(settings)
    plans = tuple(_stage(settings, stage, heads or 0, last=stage is split[-1]) for stage in split)
    formula, terms = _explain(settings, heads, plans[0])
    differ = len({plan.cell for plan in plans}) > 1
    each = tuple({**_explain(settings, heads, plan)[1], "bytes_per_token": plan.cell} for plan in plans) if differ else ()
    return Plan(settings, plans, heads, state_demand(settings), formula, terms, _symbol(settings), each)


def _heads(settings: Settings) -> int:
    dcp = settings.arguments.dcp_size if since(settings.release, "0.5.18") else 1
    return cells.kv_heads_per_rank(settings.geometry.num_key_value_heads, settings.attention_tp, dcp)


def _stage(settings: Settings, stage: range, heads: int, *, last: bool) -> StagePlan:
    geometry, release = settings.geometry, settings.release
    if settings.pools == "dsv4":
        demand = compressed_demand(settings, stage)
        return StagePlan(bytes_per_full_token(demand, release), len(stage), None, None, demand)
    if settings.windows is not None and settings.pools != "llama4":
        return _window_stage(settings, settings.windows, stage, heads, last=last)
    if settings.pools == "llama4" and since(release, "0.5.7") and geometry.windows is not None:
        full = sum(layer in stage for layer in geometry.windows.full_layers)
        return StagePlan(cells.mha_cell(heads, geometry, full, settings.dtype, release), full, None, None, None)
    layers = _cache_layers(settings, stage)
    return StagePlan(_plain_cell(settings, stage, layers, heads), len(layers), None, None, None)


def _cache_layers(settings: Settings, stage: range) -> range | tuple[int, ...]:
    """Layers with a KV cache on the stage; a model with more of them than layers takes its share of all.

    State models count the layers of all stages up to 0.5.7.
    """
    geometry = settings.geometry
    if settings.state is not None:
        own = stage if since(settings.release, "0.5.8") else range(geometry.num_hidden_layers)
        return tuple(layer for layer in settings.state.attention_layers if layer in own)
    if geometry.num_attention_layers != geometry.num_hidden_layers:
        return range(len(stage) * geometry.num_attention_layers // geometry.num_hidden_layers)
    return stage if settings.arguments.pp_size > 1 and since(settings.release, "0.4.6.post2") else range(len(stage))


def _plain_cell(settings: Settings, stage: range, layers: range | tuple[int, ...], heads: int) -> int:
    geometry, release, dtype = settings.geometry, settings.release, settings.dtype
    count, dcp = len(layers), settings.arguments.dcp_size
    if settings.is_mla:
        cell = cells.mla_cell(geometry, count, dtype, _latent_width(settings))
        if settings.has_index and geometry.index is not None:
            keys, plain = index_in_force(settings)
            index = cells.index_cell(keys, layers, release, dcp, plain)
            spec = settings.spec
            if spec is not None and spec.has_tree and spec.draft is not None and since(release, "0.5.18") and count:
                drafts = spec.draft.layers
                draft_index = cells.draft_index_cell(keys, drafts, release, dcp, plain)
                scale = dcp if since(release, "0.5.22") else 1
                return charged_dsa_cell(cell + index, index, count, draft_index, drafts, scale)
            cell += index
    elif settings.packed_sparse and geometry.sparse is not None:
        cell = cells.packed_minimax_cell(geometry.sparse, stage, heads, geometry.head_dim)
    elif settings.pools == "minimax" and geometry.sparse is not None:
        cell = cells.minimax_cell(geometry.sparse, stage, heads, geometry.head_dim, dtype, _minimax_index_size(settings))
    else:
        cell = cells.mha_cell(heads, geometry, count, dtype, release)
    if geometry.compressed_keys is not None and since(release, "0.5.20"):
        element = 1 if settings.arguments.qsa_indexer_dtype == "fp8_e4m3" else 2
        cell += cells.compressed_keys_cell(geometry.compressed_keys, count, element)
    return charged_cell(cell, count, settings.spec, release, dcp)


def _minimax_index_size(settings: Settings) -> int:
    """Bytes of an index element (``get_minimax_sparse_index_dtype``): the model's dtype, from 0.5.21 fp8 with fp8 attention.

    That is an fp8_e4m3 cache with trtllm_mha, which Blackwell cards choose for it.
    """
    arguments = settings.arguments
    backends = {arguments.attention_backend, arguments.prefill_attention_backend, arguments.decode_attention_backend}
    trtllm = arguments.attention_backend == "trtllm_mha" or backends == {None}
    if settings.dtype.name == "fp8_e4m3" and settings.device.is_blackwell and trtllm and since(settings.release, "0.5.21"):
        return 1
    return 4 if model_dtype(settings.geometry, arguments) == "float32" else 2


def _latent_width(settings: Settings) -> int:
    index = settings.geometry.index if settings.has_index else None
    return cells.latent_width(settings.geometry, index, settings.dtype, settings.release, raw_rows=settings.raw_rows)


def _window_stage(settings: Settings, windows: Windows, stage: range, heads: int, *, last: bool) -> StagePlan:
    geometry, release, dtype = settings.geometry, settings.release, settings.dtype
    full_layers = stage_layers(windows.full_layers, stage, release, last=last)
    window_layers = stage_layers(windows.window_layers, stage, release, last=last)
    window_heads = windows.num_key_value_heads if since(release, "0.5.7") else None
    swa_heads = max(1, (window_heads or geometry.num_key_value_heads) // settings.attention_tp)
    if settings.is_mla:
        full, window = _latent_pools(settings)
    else:
        full_width = heads * (geometry.head_dim + geometry.v_head_dim)
        swa_width = swa_heads * (windows.head_dim + windows.v_head_dim)
        scale = cells.MXFP8_BLOCK if dtype.name == "mxfp8" else 0
        full = full_width * dtype.size + (full_width // scale if scale else 0)
        window = swa_width * dtype.size + (swa_width // scale if scale else 0)
    pools = Pools(full, window, full_layers, window_layers, settings.window_ratio)
    if since(release, "0.5.11"):
        draft = settings.spec.draft if settings.spec is not None else None
        drafts = draft.layers if draft is not None and settings.spec is not None and settings.spec.has_tree else 0
        own = (draft.cell_size or 0) * settings.arguments.dcp_size if draft is not None and since(release, "0.5.18") else 0
        cell = hybrid_cell(pools, drafts, draft.window_layers if draft else 0, own, release)
        return StagePlan(cell.cell, full_layers + window_layers, pools, cell, None)
    return StagePlan(_early_window_cell(settings, pools, stage, heads), full_layers + window_layers, pools, None, None)


def _latent_pools(settings: Settings) -> tuple[int, int]:
    """Bytes of a token in a full and in a window layer of a latent model (0.5.19 and newer), the former with its index."""
    geometry, dtype, release = settings.geometry, settings.dtype, settings.release
    full = _latent_width(settings) * dtype.size
    if settings.has_index:
        keys, plain = index_in_force(settings)
        full += cells.draft_index_cell(keys, 1, release, plain=plain)
    return full, (geometry.swa_kv_lora_rank + geometry.swa_qk_rope_head_dim) * dtype.size


def _early_window_cell(settings: Settings, pools: Pools, stage: range, heads: int) -> int:
    """The profile's cell before the configurators.

    0.5.7 counts full layers only, 0.5.8 all as if they were full; both add MiMo-V2-Flash's window layers. 0.5.9 and 0.5.10
    add the two kinds.
    """
    geometry, release, dtype = settings.geometry, settings.release, settings.dtype
    if since(release, "0.5.9"):
        cell = pools.full_token * pools.full_layers + pools.window_token * pools.window_layers
        if dtype.is_fp4:
            scales = heads * geometry.head_dim * len(stage) * 2 * dtype.size // cells.SCALE_BLOCK
            return cell // 2 + scales
        return cell
    only_full = since(release, "0.5.7") and not since(release, "0.5.8") and pools.full_layers > 0
    cell = cells.mha_cell(heads, geometry, pools.full_layers if only_full else len(stage), dtype, release)
    if geometry.architecture == "MiMoV2FlashForCausalLM" and since(release, "0.5.7"):
        cell += pools.window_token * pools.window_layers
    return cell


def _explain(settings: Settings, heads: int | None, stage: StagePlan) -> tuple[str, dict[str, Any]]:
    geometry, dtype = settings.geometry, settings.dtype
    terms: dict[str, Any] = {"kv_cache_dtype": dtype.name, "bytes_per_element": dtype.size, "layers": stage.layers}
    if settings.pools == "dsv4":
        terms |= {"swa_full_tokens_ratio": settings.window_ratio, "page_size": settings.page}
        return "window pages x ratio + compressed latents, index keys and their states, summed over the layers", terms
    if stage.pools is not None:
        pools = stage.pools
        terms |= {
            "full_layers": pools.full_layers, "swa_layers": pools.window_layers, "full_bytes_per_layer": pools.full_token,
            "swa_bytes_per_layer": pools.window_token, "swa_full_tokens_ratio": pools.ratio,
        }  # fmt: skip
        if not pools.full_layers:
            return "swa_bytes x swa_layers", terms
        if since(settings.release, "0.5.11"):
            return "full_bytes x full_layers + swa_full_tokens_ratio x swa_bytes x swa_layers", terms
        return "full_bytes x full_layers + swa_bytes x swa_layers", terms
    if settings.is_mla:
        terms |= {"kv_lora_rank": geometry.kv_lora_rank, "qk_rope_head_dim": geometry.qk_rope_head_dim}
        formula = "(kv_lora_rank + qk_rope_head_dim) x layers x bytes"
        if settings.has_index and geometry.index is not None:
            terms["index_head_dim"] = geometry.index.head_dim
            formula += " + index keys of the layers that have them"
    else:
        terms |= {"kv_heads_per_rank": heads, "head_dim": geometry.head_dim}
        formula = "kv_heads_per_rank x head_dim x 2 x layers x bytes"
        if since(settings.release, "0.5.7"):
            terms["v_head_dim"] = geometry.v_head_dim
            formula = "kv_heads_per_rank x (head_dim + v_head_dim) x layers x bytes"
        if settings.pools == "minimax":
            formula += " + index keys and values of the sparse layers"
    if settings.spec is not None and settings.spec.draft is not None and since(settings.release, "0.5.14"):
        terms["draft_layers"] = settings.spec.draft.layers
        formula += ", with the draft's layers"
    return formula, terms


def _symbol(settings: Settings) -> str:
    """Where this release computes the divisor."""
    release = settings.release
    if not since(release, "0.5.7"):
        return "ModelRunner.profile_max_num_token"
    if not since(release, "0.5.11"):
        return "ModelRunnerKVCacheMixin.get_cell_size_per_token"
    if settings.pools == "dsv4":
        return "DSV4PoolConfigurator._get_bytes_per_full_token"
    if settings.windows is not None:
        late = since(release, "0.5.20")
        return "HybridSWAPoolConfigurator._recompute_cell_size" if late else "HybridSWAPoolConfigurator.__init__"
    return "DefaultPoolConfigurator._compute_cell_size"
