"""One server of a release that sizes inside ``ModelRunner`` (0.5.7 to 0.5.15), for `remake_oracle.py`."""

from __future__ import annotations

import inspect
import types
from contextlib import ExitStack
from typing import Any
from unittest import mock

from remake_early import reported_requests, window_of
from remake_late import WANTED

_POOLS = (
    "ReqToTokenPool", "HybridReqToTokenPool", "DecodeReqToTokenPool", "MHATokenToKVPool", "MLATokenToKVPool",
)  # fmt: skip


class _Sized(Exception):  # noqa: N818
    """Raised where the release would begin to allocate: everything is sized by then."""

    def __init__(self, size: int | None) -> None:
        super().__init__(size)
        self.size = size


def _stop(*_: Any, size: int | None = None, **__: Any) -> Any:
    raise _Sized(size)


class Server:
    """Arguments and model config of a release, and a model runner that is nothing but its sizing."""

    def __init__(self, args: Any, job: dict[str, Any]) -> None:
        from sglang.srt.configs.model_config import ModelConfig
        from sglang.srt.model_executor import model_runner, model_runner_kv_cache_mixin
        from sglang.srt.server_args import set_global_server_args_for_scheduler

        self.args, self.job, self.mixin, self.runner = args, job, model_runner_kv_cache_mixin, model_runner.ModelRunner
        self.module = model_runner
        set_global_server_args_for_scheduler(args)
        self.config = ModelConfig.from_server_args(args)

    def size(self, model: Any, least: int | None) -> dict[str, Any]:
        """The pools of one stage; `least` is what the stages agree on, None for the stage's own answer."""
        self.args.max_mamba_cache_size = self.job["args"].get("max_mamba_cache_size")
        runner = self._runner(model)
        cells: list[Any] = []
        requests = None

        def reduced(tensor: Any, **_: Any) -> None:
            if least is not None:
                tensor.fill_(min(int(tensor), least))

        with ExitStack() as stack:
            self._patch(stack, cells)
            stack.enter_context(mock.patch("torch.distributed.all_reduce", reduced))
            try:
                runner.init_memory_pool(**_taken(runner.init_memory_pool, self.args, self.job["pre_model_load_gib"]))
            except _Sized as stop:
                requests = stop.size
        return self._row(runner, cells, requests)

    def _patch(self, stack: ExitStack, cells: list[Any]) -> None:
        mixin, args = self.mixin, self.args
        free = self.job["available_gpu_mem_gib"]
        attention_tp = args.tp_size // (args.dp_size if args.enable_dp_attention else 1)
        attention_tp //= max(1, getattr(args, "attn_cp_size", 1) or 1)
        alone = types.SimpleNamespace(world_size=1, cpu_group=None)
        replaced: dict[str, Any] = {
            "get_available_gpu_memory": lambda *_, **__: free, "get_world_group": lambda: alone,
            "get_attention_tp_size": lambda: attention_tp, "get_attention_cp_size": lambda: 1,
        }  # fmt: skip
        modules = [mixin]
        try:
            from sglang.srt.model_executor import pool_configurator

            modules.append(pool_configurator)
            for name in ("DefaultPoolConfigurator", "HybridSWAPoolConfigurator", "DSV4PoolConfigurator"):
                _remember(stack, getattr(pool_configurator, name, None), cells)
        except ImportError:
            _remember_method(stack, self.runner, "get_cell_size_per_token", cells)
        for module in modules:
            for name, value in replaced.items():
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, value))
            for name in _POOLS:
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, _stop))
        import sglang.srt.layers.dp_attention as attention

        stack.enter_context(mock.patch.object(attention, "get_attention_tp_size", replaced["get_attention_tp_size"]))

    def _runner(self, model: Any) -> Any:
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        args, config = self.args, self.config
        runner = object.__new__(self.runner)
        runner.server_args, runner.model_config, runner.model, runner.dtype = args, config, model, config.dtype
        runner.device, runner.gpu_id, runner.is_draft_worker = "cuda", 0, False
        runner.tp_size, runner.dp_size, runner.pp_size = args.tp_size, args.dp_size, args.pp_size
        runner.pp_group = types.SimpleNamespace(world_size=args.pp_size, rank_in_group=0)
        runner.mem_fraction_static, runner.page_size = args.mem_fraction_static, args.page_size
        runner.spec_algorithm = SpeculativeAlgorithm.from_string(args.speculative_algorithm)
        runner.is_hybrid_swa = config.is_hybrid_swa
        runner.is_hybrid_swa_compress = getattr(config, "is_hybrid_swa_compress", False)
        runner.use_mla_backend = getattr(config.attention_arch, "name", "") == "MLA"
        runner.sliding_window_size = self.job.get("sliding_window_size") or window_of(self.module, config)
        runner.enable_hisparse = getattr(args, "enable_hisparse", False)
        runner.req_to_token_pool = runner.token_to_kv_pool_allocator = runner.memory_pool_config = None
        runner._linear_attn_registry_cache = getattr(self.module, "_UNSET", None)
        self._layers(runner)
        self._drafts(runner)
        runner.configure_kv_cache_dtype()
        return runner

    def _layers(self, runner: Any) -> None:
        """What ``ModelRunner.initialize`` works out in passing: layers of the stage, and the kinds they are of."""
        config = self.config
        count = max(config.num_hidden_layers, config.num_attention_layers)
        if config.hf_config.architectures[0] in ("MiMoV2MTP", "Step3p5MTP"):
            count = 1
        runner.start_layer = getattr(runner.model, "start_layer", 0)
        runner.end_layer = getattr(runner.model, "end_layer", count)
        loops = getattr(config.hf_config, "loop_num", 1)
        runner.num_effective_layers = (runner.end_layer - runner.start_layer) * max(1, loops)
        for name in ("full_attention_layer_ids", "swa_attention_layer_ids"):
            known = self.job.setdefault("_" + name, list(getattr(config, name, None) or ()))
            own = range(runner.start_layer, runner.end_layer + 1)
            setattr(config, name, [layer for layer in known if layer in own])

    def _drafts(self, runner: Any) -> None:
        """Draft layers from 0.5.14, where ``ModelRunner.__init__`` works them out without a draft path."""
        runner.eagle_use_aux_hidden_state = runner.dflash_use_aux_hidden_state = False
        runner.dflash_draft_num_layers = None
        tree = runner.spec_algorithm.is_eagle() or runner.spec_algorithm.is_standalone()
        runner.eagle_draft_num_layers = self.config.num_nextn_predict_layers if tree else None

    def _row(self, runner: Any, cells: list[Any], requests: int | None) -> dict[str, Any]:
        args, config = self.args, self.config
        found = getattr(runner, "memory_pool_config", None)
        tokens = runner.max_total_num_tokens if found is None else found.max_total_num_tokens
        state = runner.mambaish_config
        extra = {name: getattr(runner if found is None else found, name, None) for name in WANTED}
        if found is None:
            runner.req_to_token_pool = types.SimpleNamespace(size=requests)
        served = reported_requests(runner, args, tokens) if found is None else found.max_running_requests
        extra |= {
            "max_running_requests": served, "page_size": args.page_size,
            "context_len": config.context_len, "kv_cache_dtype": str(runner.kv_cache_dtype),
            "max_mamba_cache_size": args.max_mamba_cache_size if state else None, "req_to_token_pool_size": requests,
        }  # fmt: skip
        dp = args.dp_size if args.enable_dp_attention else 1
        tp = args.tp_size // dp // max(1, getattr(args, "attn_cp_size", 1) or 1)
        return {
            "mem_fraction_static": args.mem_fraction_static,
            "cell_size": cells[0] if cells else None,
            "kv_heads_per_rank": None if runner.use_mla_backend else config.get_num_kv_heads(tp),
            "max_total_num_tokens": tokens,
            "extra": extra,
        }


def _taken(method: Any, args: Any, memory: float) -> dict[str, Any]:
    """The parameters of ``init_memory_pool`` by name; 0.5.7 takes the server's arguments beside the memory."""
    given = {"server_args": args, "total_gpu_memory": memory, "pre_model_load_memory": memory}
    return {name: given[name] for name in inspect.signature(method).parameters if name in given}


def _remember(stack: ExitStack, made: Any, cells: list[Any]) -> None:
    if made is None:
        return
    begin = made.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        cells.append(getattr(self, "_cell_size", None) or getattr(self, "bytes_per_full_token", None))

    stack.enter_context(mock.patch.object(made, "__init__", init))


def _remember_method(stack: ExitStack, owner: Any, name: str, cells: list[Any]) -> None:
    method = getattr(owner, name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        cells.append(method(self, *args, **kwargs))
        return cells[-1]

    stack.enter_context(mock.patch.object(owner, name, call))
