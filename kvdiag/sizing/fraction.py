"""``mem_fraction_static`` where it is not given: the part of the card's memory for weights and pools, per release."""

from __future__ import annotations

from kvdiag.releases import Release
from kvdiag.sizing.backends import serves_with_aiter
from kvdiag.sizing.graphs import Resolution, chunk_default, decode_graph_size, prefill_graph_sizes, prefill_graphs
from kvdiag.sizing.history import since

_BY_RANKS = {16: 0.79, 8: 0.83, 4: 0.85, 2: 0.87}
WITHOUT_MEMORY = 0.88


def default_fraction(case: Resolution) -> float:
    """``ServerArgs.mem_fraction_static`` after ``__post_init__`` (``_handle_gpu_memory_settings`` from 0.5.3rc2).

    0.3.0 to 0.4.7 go by the number of ranks, 0.4.5.post3 to 0.4.7 also by the card; 0.4.7.post1 to 0.5.3rc0 reserve by card,
    later by prefill chunk, graph sizes and parallelism. Image models are scaled from 0.4.9.
    """
    release, memory = case.release, case.device.memory_mib
    if not since(release, "0.4.6.post2"):
        return _by_ranks(case, memory)
    if not since(release, "0.4.7.post1"):
        return _by_ranks_and_card(case, memory)
    if memory is None:
        fraction = 0.95 if since(release, "0.5.20") else WITHOUT_MEMORY
    else:
        reserve = _reserve_by_chunk(case, memory) if since(release, "0.5.3rc2") else _reserve_by_card(case, memory)
        fraction = round((memory - reserve) / memory, 3)
    return _scaled_for_images(case, fraction)


def _ranks_table(ranks: int, release: Release) -> float:
    for least, fraction in _BY_RANKS.items():
        if ranks >= least:
            if least == 8 and since(release, "0.3.6"):
                return 0.81 if since(release, "0.4.0") else 0.82
            return fraction
    return 0.88


def _by_ranks(case: Resolution, memory: int | None) -> float:
    """0.3.0 to 0.4.6.post1; cards above 80 GiB keep 13 GiB from 0.4.5.post3 (``gpu_mem <= 81920``)."""
    if memory is not None and memory > 81920 and since(case.release, "0.4.5.post3"):
        return (memory - 1024 * 13) / memory
    return _ranks_table(case.arguments.tp_size, case.release)


def _by_ranks_and_card(case: Resolution, memory: int | None) -> float:
    """0.4.6.post2 to 0.4.7: ranks are tp x pp; large cards keep 18 GiB.

    0.4.7 alone keeps 20 with speculation, has others give 5 % to it, and a constant for NVIDIA cards above 180,000 MiB.
    """
    arguments = case.arguments
    fraction = 0.88
    if memory is not None and memory <= 81920:
        fraction = _ranks_table(arguments.tp_size * arguments.pp_size, case.release)
    later = since(case.release, "0.4.7")
    speculative = arguments.speculative_algorithm is not None and later
    if memory is not None and memory > 180_000 and not case.device.is_amd and later:
        return 0.79
    if memory is not None and memory > 96 * 1024:
        reserve = 1024 * (20 if speculative else 18)
        return min(fraction + 48 * 1024 * (1 - fraction) / memory, (memory - reserve) / memory)
    return fraction * 0.95 if speculative else fraction


def _reserve_by_card(case: Resolution, memory: int) -> float:
    """0.4.7.post1 to 0.5.3rc0: MiB kept for activations and graphs, by the size of the card."""
    arguments = case.arguments
    ranks = arguments.tp_size * arguments.pp_size
    if memory < 35 * 1024:
        reserve = (2.8 + ranks / 10) * 1024
    elif memory < 90 * 1024:
        reserve = (9.5 + ranks / 2) * 1024
    elif memory < 160 * 1024:
        reserve = (12 + ranks / 2) * 1024
    else:
        reserve = 32 * 1024
    algorithm = arguments.speculative_algorithm
    if algorithm is not None:
        reserve += (6 if algorithm == "STANDALONE" and since(case.release, "0.5.2") else 2) * 1024
    return reserve + (4 * 1024 if arguments.enable_dp_attention else 0)


def _reserve_by_chunk(case: Resolution, memory: int) -> float:
    """0.5.3rc2 and newer: 512 MiB, activations of a chunk, graphs, ranks; at least 10 GiB on cards above 60 GiB."""
    arguments, release = case.arguments, case.release
    graphs = decode_graph_size(case, memory)
    reserve: float = 512 + _activation_tokens(case, graphs) * 1.5
    if _captures_decode(case):
        reserve += graphs * 2
    reserve += arguments.tp_size * arguments.pp_size / 8 * 1024
    if arguments.attention_dp_size > 1 and not (arguments.disaggregation_mode == "prefill" and since(release, "0.5.15")):
        reserve += graphs * arguments.dp_size * 3
        reserve += graphs * arguments.dp_size * 1.5 if graphs > 300 else 0
    if since(release, "0.5.8"):
        reserve += _prefill_graphs(case)
    if memory > 60 * 1024:
        reserve = max(reserve, 10 * 1024)
    if arguments.moe_a2a_backend == "deepep" and since(release, "0.5.15") and _captures_decode(case):
        reserve += 2 * 1024
    if arguments.device == "xpu" and since(release, "0.5.20"):
        reserve += 2 * 1024
    reserve += _draft_reserve(case)
    if arguments.enable_piecewise_cuda_graph and since(release, "0.5.5.post1") and not since(release, "0.5.8"):
        tokens = arguments.piecewise_cuda_graph_max_tokens or (_chunk(case) if since(release, "0.5.7") else 4096)
        reserve += tokens // (8 if since(release, "0.5.7") else 4)
    return reserve


def _chunk(case: Resolution) -> int:
    size = case.arguments.chunked_prefill_size
    return chunk_default(case.arguments, case.release, case.device) if size is None else size


def _activation_tokens(case: Resolution, graphs: int) -> int:
    arguments = case.arguments
    if arguments.disaggregation_mode == "decode" and since(case.release, "0.5.15"):
        return max((arguments.max_running_requests or graphs or 1) * (arguments.speculative_num_draft_tokens or 1), 2048)
    chunk = _chunk(case)
    return max(chunk if chunk > 0 else arguments.max_prefill_tokens, 2048)


def _captures_decode(case: Resolution) -> bool:
    if not since(case.release, "0.5.15"):
        return True
    if case.device.is_xpu:
        return False
    return case.arguments.disaggregation_mode != "prefill" and not case.arguments.disable_cuda_graph


def _prefill_graphs(case: Resolution) -> float:
    """MiB of captured prefill graphs; DeepEP's bridge takes a GiB more in those of 0.5.17 and newer."""
    release = case.release
    if not prefill_graphs(case) or (case.arguments.disaggregation_mode == "decode" and since(release, "0.5.15")):
        return 0
    bridge = 1024 if case.arguments.moe_a2a_backend == "deepep" and since(release, "0.5.17") else 0
    if case.is_mla and since(release, "0.5.10rc0"):
        return 1.5 * 1024 + bridge
    return prefill_graph_sizes(case, _chunk(case)) * 8 + bridge


def _draft_reserve(case: Resolution) -> int:
    """MiB for the draft model up to 0.5.13; later its weights are loaded before the pool is sized."""
    algorithm = case.arguments.speculative_algorithm
    if algorithm in (None, "NGRAM") or since(case.release, "0.5.14"):
        return 0
    if algorithm == "STANDALONE":
        return 6 * 1024
    return (4 if since(case.release, "0.5.10rc0") else 2) * 1024


def _scaled_for_images(case: Resolution, fraction: float) -> float:
    """``adjust_mem_fraction_for_vlm`` (0.4.9.post3 and newer): 5 % and a tenth of what the encoder exceeds ViT-L by."""
    if case.is_multimodal and since(case.release, "0.4.9") and not since(case.release, "0.4.9.post3"):
        return fraction * 0.90
    if not depends_on_encoder(case) or case.geometry.vision is None:
        return fraction
    layers, width = case.geometry.vision
    complexity = (layers * width**2) / (24 * 1024**2)
    dynamic = max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))
    return fraction * (0.95 * dynamic)


def depends_on_encoder(case: Resolution) -> bool:
    """Whether the default follows the size of an image encoder; not where this server only serves the language model."""
    arguments, release = case.arguments, case.release
    if not case.is_multimodal or not since(release, "0.4.9.post3"):
        return False
    if arguments.language_only and since(release, "0.5.9"):
        return False
    return not (arguments.disaggregation_mode == "decode" and since(release, "0.5.17"))


def loading_share(release: Release) -> float:
    """What ``ModelRunner`` leaves an image model of its fraction as it loads, after the dump is printed (up to 0.4.8.post1)."""
    if since(release, "0.4.9"):
        return 1.0
    return 0.90 if since(release, "0.4.4.post4") else 0.95


AITER_SHARE = 0.85
AITER_CONTEXT = 8192


def aiter_share(case: Resolution, context: int) -> float:
    """What is left of ``mem_fraction_static``, given or not, where AMD's attention serves long contexts; 1 elsewhere.

    0.5.4.post2 and newer (``_handle_attention_backend_compatibility``). The server_args dump prints the fraction that is left.
    """
    if not since(case.release, "0.5.4.post2") or context <= AITER_CONTEXT:
        return 1.0
    served = serves_with_aiter(case.geometry, case.arguments, case.release, case.device, is_mla=case.is_mla)
    return AITER_SHARE if served else 1.0
