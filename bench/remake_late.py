"""One server of a release with ``KVCacheConfigurator`` (0.5.16 and newer), for `remake_oracle.py`."""

from __future__ import annotations

import inspect
import types
from contextlib import suppress
from typing import Any
from unittest import mock

from remake_early import window_of

WANTED = (
    "full_max_total_num_tokens", "swa_max_total_num_tokens", "c4_max_total_num_tokens", "c128_max_total_num_tokens",
    "c4_state_pool_size", "c128_state_pool_size",
)  # fmt: skip


_LAYER_LISTS = ("full_attention_layer_ids", "swa_attention_layer_ids")


class Server:
    """Arguments and model config of a release, published as a scheduler would, and its sizing under given memory."""

    def __init__(self, args: Any, job: dict[str, Any]) -> None:
        from sglang.srt.configs.model_config import ModelConfig
        from sglang.srt.mem_cache import kv_cache_configurator

        self.args, self.job, self.module = args, job, kv_cache_configurator
        _publish(args)
        self.config = ModelConfig.from_server_args(args)

    def size(self, model: Any, least: int | None) -> dict[str, Any]:
        """The pools of one stage; `least` is what the stages agree on, None for the stage's own answer."""
        from sglang.srt.model_executor import pool_configurator

        self._afresh()
        configurator = self._configurator(model)
        cells: list[Any] = []
        make = pool_configurator.create_memory_pool_configurator

        def remembered(kvc: Any) -> Any:
            made = make(kvc)
            cells.append(getattr(made, "_cell_size", None) or getattr(made, "bytes_per_full_token", None))
            return made

        def reduced(tensor: Any, **_: Any) -> None:
            if least is not None:
                tensor.fill_(min(int(tensor), least))

        free = self.job["available_gpu_mem_gib"]
        alone = types.SimpleNamespace(world_size=1, cpu_group=None)
        with (
            mock.patch.object(self.module, "get_world_group", return_value=alone, create=True),
            mock.patch.object(self.module, "get_available_gpu_memory", return_value=free),
            mock.patch.object(pool_configurator, "create_memory_pool_configurator", remembered),
            mock.patch("torch.distributed.all_reduce", reduced),
        ):
            found = configurator._resolve_memory_pool_config(self.job["pre_model_load_gib"])
        return self._row(configurator, found, cells[0])

    def _afresh(self) -> None:
        """Undoes what a sizing leaves behind: its state slots as if they had been asked for, its stage's layers as all."""
        if not hasattr(self, "layers"):
            self.layers = {name: getattr(self.config, name, None) for name in _LAYER_LISTS}
        for name, layers in self.layers.items():
            if layers is not None:
                setattr(self.config, name, list(layers))
        with suppress(Exception):
            self.args.max_mamba_cache_size = self.job["args"].get("max_mamba_cache_size")
        _publish(self.args)

    def _row(self, configurator: Any, found: Any, cell: Any) -> dict[str, Any]:
        schedule = _schedule(self.args)
        heads = None if configurator.use_mla_backend else self.config.get_num_kv_heads(_attention_tp(self.args))
        extra = {name: getattr(found, name, None) for name in WANTED}
        extra |= {
            "max_running_requests": found.max_running_requests, "page_size": schedule.page_size,
            "context_len": self.config.context_len, "kv_cache_dtype": str(configurator.kv_cache_dtype),
            "max_mamba_cache_size": schedule.max_mamba_cache_size if configurator.mambaish_config else None,
        }  # fmt: skip
        if configurator.mambaish_config is not None:
            extra["mamba_cache_per_req"] = configurator.mambaish_config.mamba2_cache_params.mamba_cache_per_req
        return {
            "mem_fraction_static": schedule.mem_fraction_static,
            "cell_size": cell,
            "kv_heads_per_rank": heads,
            "max_total_num_tokens": found.max_total_num_tokens,
            "extra": extra,
        }

    def _configurator(self, model: Any) -> Any:
        from sglang.srt.configs.model_config import AttentionArch
        from sglang.srt.model_executor.model_runner_components import layer_setup
        from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import resolve_spec_aux_hidden_state_config
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        args, config = self.args, self.config
        schedule = _schedule(args)
        spec = SpeculativeAlgorithm.from_string(_spec(args).speculative_algorithm)
        name, dtype = _cache_dtype(args, model, config)
        aux = resolve_spec_aux_hidden_state_config(
            **_taken(resolve_spec_aux_hidden_state_config, server_args=args, model_config=config, spec_algorithm=spec,
                     is_draft_worker=False)
        )  # fmt: skip
        layers = layer_setup.resolve_layer_indices(
            **_taken(
                layer_setup.resolve_layer_indices, model=model, model_config=config, is_draft_worker=False, spec_algorithm=spec
            )
        )
        adjust = getattr(layer_setup, "adjust_hybrid_swa_layer_ids", None)
        if adjust is not None:
            adjust(
                model_config=config,
                start_layer=layers.start_layer,
                end_layer=layers.end_layer,
                is_hybrid_swa=config.is_hybrid_swa,
            )
        given: dict[str, Any] = dict(  # noqa: C408
            device="cuda", gpu_id=0, attn_dp_size=_attention_dp(args), dp_size=args.dp_size, tp_size=args.tp_size, tp_rank=0,
            pp_size=args.pp_size, pp_group=types.SimpleNamespace(world_size=args.pp_size, rank_in_group=0), model=model,
            model_config=config, server_args=args, kv_cache_dtype=dtype, kv_cache_dtype_str=name, model_dtype=config.dtype,
            page_size=schedule.page_size, spec_algorithm=spec,
            sliding_window_size=self.job.get("sliding_window_size") or window_of(self.module, config),
            is_draft_worker=False, post_capture_kv_active=False, spec_aux_config=aux,
            is_hybrid_swa=config.is_hybrid_swa, is_hybrid_swa_compress=getattr(config, "is_hybrid_swa_compress", False),
            use_mla_backend=config.attention_arch == AttentionArch.MLA,
            layer_info=layers,
            forward_stream=None, req_to_token_pool=None, token_to_kv_pool_allocator=None, memory_pool_config=None,
            mem_fraction_static=schedule.mem_fraction_static, ps=_widths(args),
        )  # fmt: skip
        make = self.module.KVCacheConfigurator
        return make(**_taken(make, **given))


def _taken(function: Any, **given: Any) -> dict[str, Any]:
    """Those of `given` that the function of this release has as parameters."""
    return {name: given[name] for name in inspect.signature(function).parameters if name in given}


def _publish(args: Any) -> None:
    """Makes the arguments and the widths of the server what this process believes to run with, as rank 0 of its first stage."""
    from sglang.srt import runtime_context
    from sglang.srt.server_args import set_global_server_args_for_scheduler

    if hasattr(runtime_context, "publish"):
        runtime_context.publish(args, **_taken(runtime_context.publish, role="scheduler"))
    else:
        set_global_server_args_for_scheduler(args)
    parallel = runtime_context.get_parallel()
    alone = types.SimpleNamespace(cpu_group=None, world_size=1, rank_in_group=0)
    ranks = ("dcp_rank", "attn_dcp_rank", "attn_cp_rank", "tp_rank", "pp_rank", "attn_tp_rank", "attn_dp_rank", "moe_dp_rank")
    known = dict.fromkeys(ranks, 0) | dict.fromkeys(("world_group", "tp_group", "pp_group", "attn_tp_group"), alone)
    known |= {"launch_world_size": 1, "moe_ep_rank": 0}
    if not hasattr(parallel, "override_permanently"):
        parallel._overrides.update(known | vars(_widths(args)) | {"world_size": 1})
        return
    for name, value in known.items():
        with suppress(ValueError, AttributeError, TypeError):
            parallel.override_permanently(**{name: value})


def _widths(args: Any) -> types.SimpleNamespace:
    """The widths of the server, and rank 0 in each (``ParallelState`` of 0.5.16 to 0.5.20)."""
    dcp = getattr(args, "dcp_size", 1) or 1
    return types.SimpleNamespace(
        tp_rank=0, tp_size=args.tp_size, pp_rank=0, pp_size=args.pp_size, dp_rank=0, dp_size=args.dp_size, attn_tp_rank=0,
        attn_tp_size=_attention_tp(args), attn_cp_rank=0, attn_cp_size=getattr(args, "attn_cp_size", 1) or 1, attn_dp_rank=0,
        attn_dp_size=_attention_dp(args), moe_ep_rank=0, moe_ep_size=1, moe_dp_rank=0, moe_dp_size=1, dcp_size=dcp,
        attn_dcp_size=dcp, gpu_id=0,
    )  # fmt: skip


def _bag(name: str, args: Any) -> Any:
    try:
        from sglang.srt import runtime_context

        return getattr(runtime_context, name)()
    except (ImportError, AttributeError):
        return args


def _schedule(args: Any) -> Any:
    return _bag("get_schedule", args)


def _spec(args: Any) -> Any:
    return _bag("get_spec", args)


def _attention_dp(args: Any) -> int:
    return args.dp_size if args.enable_dp_attention else 1


def _attention_tp(args: Any) -> int:
    return args.tp_size // _attention_dp(args) // max(1, getattr(args, "attn_cp_size", 1) or 1)


def _cache_dtype(args: Any, model: Any, config: Any) -> tuple[str | None, Any]:
    from sglang.srt.mem_cache import kv_cache_dtype

    asked = _bag("get_model", args).kv_cache_dtype
    configure = kv_cache_dtype.configure_kv_cache_dtype
    given: dict[str, Any] = dict(  # noqa: C408
        server_args_kv_cache_dtype=asked, model=model, model_dtype=config.dtype, is_draft_worker=False, is_dflash=False,
                 speculative_draft_attention_backend=None, server_args=args)  # fmt: skip
    name, dtype = configure(**_taken(configure, **given))
    return name or asked, dtype
