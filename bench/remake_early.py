"""One server of a release that sizes in ``ModelRunner.init_memory_pool`` itself (0.3.0 to 0.5.6), for `remake_oracle.py`."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import textwrap
import types
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest import mock

_POOLS = (
    "ReqToTokenPool", "HybridReqToTokenPool", "DecodeReqToTokenPool", "HybridMambaDecodeReqToTokenPool", "MHATokenToKVPool",
    "MLATokenToKVPool",
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
        from sglang.srt.configs import model_config
        from sglang.srt.model_executor import model_runner

        self.args, self.job, self.module, self.runner = args, job, model_runner, model_runner.ModelRunner
        self._publish()
        self.config = _config(model_config.ModelConfig, args)

    def size(self, model: Any, least: int | None) -> dict[str, Any]:
        """The pools of one stage; `least` is what the stages agree on, None for the stage's own answer."""
        with suppress(AttributeError):
            self.args.max_mamba_cache_size = self.job["args"].get("max_mamba_cache_size")
        args, requests, cells = self.args, None, []
        runner = self._runner(model)

        def reduced(tensor: Any, **_: Any) -> None:
            if least is not None:
                tensor.fill_(min(int(tensor), least))

        profile = self.runner.profile_max_num_token.__code__

        def watch(frame: Any, event: str, _: Any) -> None:
            if event == "return" and frame.f_code is profile:
                cells.append(frame.f_locals.get("cell_size"))

        with ExitStack() as stack:
            self._patch(stack)
            stack.enter_context(mock.patch("torch.distributed.all_reduce", reduced))
            _between(self.runner, runner)
            sys.setprofile(watch)
            try:
                runner.init_memory_pool(self.job["pre_model_load_gib"], args.max_running_requests, args.max_total_tokens)
            except _Sized as stop:
                requests = stop.size
            finally:
                sys.setprofile(None)
        return self._row(runner, cells, requests)

    def _publish(self) -> None:
        module: Any = sys.modules["sglang.srt.server_args"]
        publish = getattr(module, "set_global_server_args_for_scheduler", None)
        if publish is not None:
            publish(self.args)
        known = getattr(self.module, "global_server_args_dict", None)
        if known is not None:
            known.update(vars(self.args))

    def _ranks(self) -> int:
        args = self.args
        dp = args.dp_size if getattr(args, "enable_dp_attention", False) else 1
        return int(args.tp_size // dp)

    def _patch(self, stack: ExitStack) -> None:
        alone = types.SimpleNamespace(world_size=1, cpu_group=None)
        free, ranks = self.job["available_gpu_mem_gib"], self._ranks()
        replaced: dict[str, Any] = {
            "get_available_gpu_memory": lambda *_, **__: free, "get_world_group": lambda: alone,
            "get_attention_tp_size": lambda: ranks, **dict.fromkeys(_POOLS, _stop),
        }  # fmt: skip
        for name, value in replaced.items():
            if hasattr(self.module, name):
                stack.enter_context(mock.patch.object(self.module, name, value))
        if importlib.util.find_spec("sglang.srt.layers.dp_attention") is not None:
            import sglang.srt.layers.dp_attention as attention

            if hasattr(attention, "get_attention_tp_size"):
                stack.enter_context(mock.patch.object(attention, "get_attention_tp_size", return_value=ranks))

    def _runner(self, model: Any) -> Any:
        from sglang.srt.configs.model_config import AttentionArch

        args, config = self.args, self.config
        runner = object.__new__(self.runner)
        runner.server_args, runner.model_config, runner.model = args, config, model
        runner.dtype = getattr(config, "dtype", None) or _dtype(config)
        runner.device, runner.gpu_id, runner.is_draft_worker = "cuda", 0, False
        runner.tp_rank, runner.tp_size = 0, args.tp_size
        runner.dp_size, runner.pp_size = args.dp_size, getattr(args, "pp_size", 1)
        runner.mem_fraction_static, runner.page_size = args.mem_fraction_static, getattr(args, "page_size", 1)
        with suppress(ImportError):
            from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

            runner.spec_algorithm = SpeculativeAlgorithm.from_string(getattr(args, "speculative_algorithm", None))
        runner.is_hybrid = getattr(config, "is_hybrid", None)
        runner.is_hybrid_swa = getattr(config, "is_hybrid_swa", None)
        runner.use_mla_backend = config.attention_arch == AttentionArch.MLA and not getattr(args, "disable_mla", False)
        runner.attention_chunk_size = getattr(config, "attention_chunk_size", None)
        runner.req_to_token_pool = runner.token_to_kv_pool_allocator = None
        runner.should_log = False
        self._windows(runner, model)
        return runner

    def _windows(self, runner: Any, model: Any) -> None:
        """``sliding_window_size`` as ``load_model`` finds it, and layers of the kinds that the config tells."""
        runner.sliding_window_size = window = window_of(self.module, self.config)
        kinds = getattr(getattr(self.config, "hf_text_config", None), "layer_types", None) or ()
        layers = [_layer(i, window if kind == "sliding_attention" and window else -1) for i, kind in enumerate(kinds)]
        if layers:
            model.model = types.SimpleNamespace(layers=layers)

    def _row(self, runner: Any, cells: list[Any], requests: int | None) -> dict[str, Any]:
        args, config = self.args, self.config
        extra: dict[str, Any] = {
            "page_size": getattr(args, "page_size", 1), "context_len": config.context_len,
            "kv_cache_dtype": str(runner.kv_cache_dtype), "req_to_token_pool_size": requests,
            "max_mamba_cache_size": getattr(args, "max_mamba_cache_size", None),
        }  # fmt: skip
        if getattr(runner, "is_hybrid", None) or getattr(runner, "is_hybrid_swa", None):
            extra["full_max_total_num_tokens"] = getattr(runner, "full_max_total_num_tokens", None)
            extra["swa_max_total_num_tokens"] = getattr(runner, "swa_max_total_num_tokens", None)
        runner.req_to_token_pool = types.SimpleNamespace(size=requests)
        extra["max_running_requests"] = reported_requests(runner, args, runner.max_total_num_tokens)
        ranks = self._ranks() if hasattr(self.module, "get_attention_tp_size") else args.tp_size
        return {
            "mem_fraction_static": args.mem_fraction_static,
            "cell_size": cells[0] if cells else None,
            "kv_heads_per_rank": None if runner.use_mla_backend else config.get_num_kv_heads(ranks),
            "max_total_num_tokens": runner.max_total_num_tokens,
            "extra": extra,
        }


def reported_requests(runner: Any, args: Any, tokens: int) -> int | None:
    """SGLang's own expression for ``max_running_requests`` (0.3.0 to 0.5.9), taken from its source and evaluated."""
    from sglang.srt.managers import tp_worker
    from sglang.srt.model_executor import model_runner

    for module in (tp_worker, model_runner):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
            if (
                isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == "self.max_running_requests"
                and isinstance(node.value, ast.Call)
                and ast.unparse(node.value.func) == "min"
            ):
                worker = types.SimpleNamespace(**vars(runner))
                worker.model_runner, worker.max_total_num_tokens = runner, tokens
                found: int = eval(ast.unparse(node.value), {**vars(module), "self": worker, "server_args": args})
                return found
    return None


def _between(owner: Any, runner: Any) -> None:
    """Runs the statements of ``initialize`` between the loaded model and its quantisation: kinds of layers, radix cache."""
    source = textwrap.dedent(inspect.getsource(owner.initialize)) if hasattr(owner, "initialize") else ""
    body = ast.parse(source).body[0].body if source else []  # type: ignore[attr-defined]
    texts = [ast.unparse(statement) for statement in body]
    first = next((i for i, text in enumerate(texts) if "self.load_model()" in text), len(texts))
    last = next((i for i, text in enumerate(texts) if "torchao_applied" in text), first)
    code = "\n".join(texts[first + 1 : last])
    module = sys.modules[owner.__module__]
    exec(code, vars(module) | {"self": runner, "server_args": runner.server_args})
    if not hasattr(runner, "num_effective_layers"):
        runner.start_layer = getattr(runner.model, "start_layer", 0)
        runner.end_layer = getattr(runner.model, "end_layer", runner.model_config.num_hidden_layers)
        runner.num_effective_layers = runner.end_layer - runner.start_layer


def _layer(number: int, window: int) -> Any:
    attention = types.SimpleNamespace(sliding_window_size=window)
    return types.SimpleNamespace(layer_id=number, self_attn=types.SimpleNamespace(attn=attention))


def window_of(module: Any, config: Any) -> int | None:
    """``sliding_window_size`` of a model runner: one less than the config's by the model class, else the config's own."""
    window = getattr(getattr(config, "hf_text_config", None), "sliding_window", None)
    if window and _tells_window(module, config.hf_config.architectures[0]):
        return int(window) - 1
    own = getattr(config, "sliding_window_size", None) if getattr(config, "is_hybrid_swa", None) else None
    return own if own is not None else getattr(config, "attention_chunk_size", None)


def _tells_window(module: Any, architecture: str) -> bool:
    """Whether the release's model class has ``get_attention_sliding_window_size``."""
    folder = Path(str(module.__file__)).parents[1] / "models"
    for file in folder.glob("*.py"):
        text = file.read_text()
        if f"class {architecture}(" not in text or "get_attention_sliding_window_size" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and node.name == architecture:
                return any(getattr(part, "name", "") == "get_attention_sliding_window_size" for part in node.body)
    return False


def _config(made: Any, args: Any) -> Any:
    """The release's ModelConfig, by the parameters that its constructor has."""
    if hasattr(made, "from_server_args"):
        return made.from_server_args(args)
    given = {
        "path": args.model_path, "model_path": args.model_path, "trust_remote_code": args.trust_remote_code,
        "revision": getattr(args, "revision", None), "context_length": args.context_length,
        "model_override_args": getattr(args, "json_model_override_args", "{}"),
        "is_embedding": args.is_embedding, "dtype": args.dtype, "quantization": args.quantization,
    }  # fmt: skip
    names = inspect.signature(made).parameters
    if "model_override_args" in names and names["model_override_args"].annotation in (dict, "dict"):
        given["model_override_args"] = {}
    return made(**{name: given[name] for name in names if name in given})


def _dtype(config: Any) -> Any:
    import torch

    found = getattr(config.hf_config, "torch_dtype", None)
    return torch.float16 if found in (None, torch.float32) else found
