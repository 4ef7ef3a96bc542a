"""Defaults that the fraction of static memory depends on: prefill chunk, decode batch sizes, captured prefill graphs."""

from __future__ import annotations

from kvdiag.frozen import frozen
from kvdiag.models import Geometry
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import Device
from kvdiag.sizing.history import (
    DSA,
    MULTIMODAL_BREAKABLE,
    MULTIMODAL_PIECEWISE,
    PIECEWISE_OFF,
    listed,
    since,
)

MOST_EXPANDED = 512
LLAMA_2_CONTEXT = 4096
_A2A_WITH_GRAPHS = ("none", "deepep", "megamoe", "flashinfer")


@frozen
class Resolution:
    """A model on a release: facts that several defaults ask for."""

    geometry: Geometry
    arguments: ServerArguments
    release: Release
    device: Device
    is_mla: bool
    is_multimodal: bool


def _npu_defaults(arguments: ServerArguments, release: Release, device: Device) -> tuple[int, int] | None:
    """Chunk and largest batch of graphs on Ascend cards (``set_default_server_args``, before 0.5.7 by the card's memory)."""
    memory, few = device.memory_mib, arguments.tp_size < 4
    if memory is None or not device.is_npu or not since(release, "0.5.3.post3"):
        return None
    if not since(release, "0.5.7"):
        small, large = 20 * 1024 <= memory < 32 * 1024, 60 * 1024 <= memory < 64 * 1024
        return (32768, 16 if few else 64) if small else (32768, 64 if few else 128) if large else None
    if memory <= 32 * 1024:
        return 4096, 16 if few else 64
    return (8192, 64 if few else 256) if memory <= 64 * 1024 else None


def chunk_default(arguments: ServerArguments, release: Release, device: Device) -> int:
    """``chunked_prefill_size`` where it is not given (tokens), by the card's MiB, before DP attention divides it."""
    npu, memory = _npu_defaults(arguments, release, device), device.memory_mib
    if npu is not None:
        return npu[0]
    if not since(release, "0.4.7.post1"):
        return _old_chunk(release, memory)
    if memory is None:
        return 4096
    if memory < 20 * 1024:
        return 2048
    if memory < 35 * 1024:
        return 4096 if since(release, "0.5.20") else 2048
    if memory < 60 * 1024:
        return 4096 if since(release, "0.5.3rc2") else 8192
    return 8192 if memory < 160 * 1024 else 16384


def _old_chunk(release: Release, memory: int | None) -> int:
    if since(release, "0.4.7") and memory is not None and memory > 180_000:
        return 16384
    return 2048 if memory is not None and memory < 25_000 else 8192


def chunked_prefill(arguments: ServerArguments, release: Release, device: Device) -> int:
    """``chunked_prefill_size`` in force: under DP attention each replica's share."""
    size = arguments.chunked_prefill_size
    size = chunk_default(arguments, release, device) if size is None else size
    return size // arguments.attention_dp_size if arguments.attention_dp_size > 1 and size > 0 else size


def decode_graph_size(case: Resolution, memory: int | None) -> int:
    """``cuda_graph_max_bs`` where it is not given (0.5.3rc2 and newer), by the card's MiB and tp_size."""
    arguments, release = case.arguments, case.release
    if arguments.cuda_graph_max_bs is not None:
        return arguments.cuda_graph_max_bs
    npu = _npu_defaults(arguments, release, case.device)
    size = _graph_default(release, memory, arguments.tp_size < 4) if npu is None else npu[1]
    asked = arguments.max_running_requests
    if asked is not None and size < asked <= MOST_EXPANDED and profiled_hopper(case):
        return asked
    return min(size, asked) if asked is not None and since(release, "0.5.22") else size


def profiled_hopper(case: Resolution) -> bool:
    """``large_hopper_qwen3_vl_model_type`` (0.5.20 and newer): Qwen3-VL on a Hopper card of 60 GiB and more."""
    device = case.device
    qwen = case.geometry.architecture in ("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration")
    large = (device.memory_mib or 0) >= 60 * 1024
    return qwen and case.is_multimodal and since(case.release, "0.5.20") and device.is_hopper and large


def _graph_default(release: Release, memory: int | None, few_ranks: bool) -> int:
    if memory is None:
        return 160
    if memory < 20 * 1024:
        return 8
    if memory < 35 * 1024:
        if since(release, "0.5.20"):
            return 48 if few_ranks else 160
        return (24 if since(release, "0.5.4.post1") else 16) if few_ranks else 80
    if memory < 60 * 1024:
        return 32 if few_ranks else 160
    if memory < 160 * 1024:
        return 256 if few_ranks else 512
    return 512


def prefill_graphs(case: Resolution) -> bool:
    """Whether prefill is captured in graphs: on request in 0.5.3.post2 to 0.5.9, then unless something rules it out."""
    arguments, release = case.arguments, case.release
    if not since(release, "0.5.10rc0"):
        return arguments.enable_piecewise_cuda_graph and since(release, "0.5.6")
    if arguments.disable_piecewise_cuda_graph or (arguments.disable_cuda_graph and since(release, "0.5.14")):
        return False
    if not case.device.is_cuda:
        return False
    if since(release, "0.5.15") and not _keeps_piecewise(case):
        return _breakable(case)
    return _piecewise(case)


def _keeps_piecewise(case: Resolution) -> bool:
    """0.5.16 to 0.5.21: multimodal models validated for piecewise graphs only."""
    name, release = case.geometry.architecture, case.release
    if not since(release, "0.5.16") or since(release, "0.5.22") or not case.is_multimodal:
        return False
    breakable = listed(MULTIMODAL_BREAKABLE, name, release) and since(release, "0.5.18")
    return listed(MULTIMODAL_PIECEWISE, name, release) and not breakable


def _piecewise(case: Resolution) -> bool:
    arguments, release, name = case.arguments, case.release, case.geometry.architecture
    if arguments.speculative_algorithm is not None and not since(release, "0.5.12"):
        return False
    if case.is_multimodal and not listed(MULTIMODAL_PIECEWISE, name, release):
        return False
    single = arguments.attention_dp_size == 1 and arguments.pp_size == 1 and arguments.attn_cp_size == 1
    plain = arguments.moe_a2a_backend == "none" and arguments.disaggregation_mode == "null"
    return single and plain and not listed(PIECEWISE_OFF, name, release)


def _breakable(case: Resolution) -> bool:
    """``_disable_breakable_cudagraph_if_incompatible``, whose list shrank release by release."""
    arguments, release, geometry = case.arguments, case.release, case.geometry
    dsa = geometry.index is not None and listed(DSA, geometry.architecture, release)
    if geometry.compressed or arguments.attn_cp_size > 1 or arguments.dcp_size > 1:
        return False
    if case.is_multimodal and not listed(MULTIMODAL_BREAKABLE, geometry.architecture, release):
        return False
    if case.is_mla and not since(release, "0.5.18") and not (dsa and since(release, "0.5.17")):
        return False
    if not since(release, "0.5.17") and (arguments.attention_dp_size > 1 or arguments.moe_a2a_backend != "none"):
        return False
    if since(release, "0.5.17") and arguments.moe_a2a_backend not in _A2A_WITH_GRAPHS:
        return False
    if since(release, "0.5.19") and arguments.pp_size > 1:
        return False
    state = geometry.state
    return not (state is not None and state.family == "kda" and since(release, "0.5.20"))


def prefill_graph_sizes(case: Resolution, chunk: int) -> int:
    """How many prefill sizes are captured (``_generate_piecewise_cuda_graph_tokens``)."""
    arguments, release = case.arguments, case.release
    most = arguments.piecewise_cuda_graph_max_tokens
    if most is None:
        most = chunk if not case.is_mla else 2048
        if arguments.max_total_tokens is not None and since(release, "0.5.10rc0"):
            most = min(most, arguments.max_total_tokens)
        if "llama-2" in (arguments.model_path or "").lower() and since(release, "0.5.10rc0"):
            most = min(most, LLAMA_2_CONTEXT)
    if arguments.context_length is not None and since(release, "0.5.13") and not since(release, "0.5.17"):
        most = min(most, arguments.context_length)
    steps = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32)]
    first = 576 if since(release, "0.5.9") else 640
    steps += [*range(first, 1025, 64), *range(1280, 4097, 256), *range(4608, most + 1, 512)]
    return sum(step <= most for step in steps)
