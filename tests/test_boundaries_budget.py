"""The right budget, clamps, request slots and defaults on either side of each change of SGLang: neighbouring releases."""

import pytest

import kvdiag
from tests.boundaries import (
    AVAIL,
    B200,
    H100,
    LATENT,
    LLAMA,
    PLAIN_CELL,
    REST,
    TOTAL,
    TREE,
    Change,
    F,
    G,
    check,
    label,
    tokens,
)

VISION = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "num_hidden_layers": 28,
    "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 128000,
    "vision_config": {"hidden_size": 1280, "num_hidden_layers": 32}, "torch_dtype": "bfloat16",
}  # fmt: skip


def by_chunk(chunk, graphs, ranks, more=0.0, memory=H100):
    """The default fraction from 0.5.3rc2: MiB kept for activations, graphs and ranks, at least 10 GiB on large cards."""
    reserve = max(512 + chunk * 1.5 + graphs * 2 + ranks / 8 * 1024 + more, 10 * 1024 if memory > 60 * 1024 else 0)
    return round((memory - reserve) / memory, 3)


CHANGES = [
    Change("most estimated requests 5120 to 4096", "0.3.0", "0.3.1", LLAMA, "max_running_requests",
           5120, 4096, {"tp_size": 8}),
    Change("the pool's padding request", "0.3.1.post3", "0.3.2", LLAMA, "max_running_requests", 4096, 4097,
           {"tp_size": 8}),
    Change("the pool's padding request ends", "0.4.6.post5", "0.4.7", LLAMA, "max_running_requests", 4097, 4096, {"tp_size": 8}),
    Change("speculation's default of running requests", "0.4.4.post4", "0.4.5", LLAMA, "max_running_requests", 32, 48, TREE),
    Change("head-room for drafts ends", "0.5.6.post2", "0.5.7", LLAMA, "max_total_num_tokens",
           tokens(PLAIN_CELL) + 48 * 3 * 1 + 48 * 4 + 100, tokens(PLAIN_CELL), TREE),
    Change("the last stages take the remainder", "0.5.5.post3", "0.5.6", LLAMA, "max_total_num_tokens",
           tokens(8 * 128 * 2 * 2 * 12), tokens(8 * 128 * 2 * 2 * 11), {"pp_size": 3}),
    Change("drafts are charged", "0.5.13.post1", "0.5.14", LATENT, "bytes_per_token",
           576 * 61 * 2, 576 * 62 * 2, TREE),
    Change("multimodal reservation", "0.5.17", "0.5.18", VISION, "rest_memory_bytes", REST * G,
           (AVAIL - TOTAL * (1 - F) - 100 / 1024) * G),
    Change("requests asked for are capped", "0.5.9", "0.5.10rc0", LLAMA, "max_running_requests", 5000, 4096,
           {"max_running_requests": 5000, "tp_size": 8}),
    Change("requests asked for are not capped any more", "0.5.13.post1", "0.5.14", LLAMA, "max_running_requests", 4096, 5000,
           {"max_running_requests": 5000, "tp_size": 8}),
    Change("one request for each replica", "0.5.22", "0.5.23", LLAMA, "max_running_requests", 0, 1,
           {"max_running_requests": 2, "tp_size": 8, "dp_size": 4, "enable_dp_attention": True}),
    Change("rope factor with transformers 5", "0.5.9", "0.5.10rc0",
           LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "context_len", 32768, 8192),
    Change("default fraction of 8 ranks: 0.82", "0.3.5.post2", "0.3.6", LLAMA, "mem_fraction_static", 0.83, 0.82, {"tp_size": 8}),
    Change("default fraction of 8 ranks: 0.81", "0.3.6.post3", "0.4.0", LLAMA, "mem_fraction_static", 0.82, 0.81, {"tp_size": 8}),
    Change("default fraction by the card", "0.4.7.post1", "0.4.8", LLAMA, "mem_fraction_static", 0.81,
           round((H100 - (9.5 + 8 / 2) * 1024) / H100, 3), {"tp_size": 8}),
    Change("default fraction by the chunk", "0.5.3rc0", "0.5.3rc2", LLAMA, "mem_fraction_static",
           round((H100 - (9.5 + 8 / 2) * 1024) / H100, 3), by_chunk(8192, 512, 8), {"tp_size": 8}),
    Change("prefill graphs by default", "0.5.9", "0.5.10rc0", LATENT, "mem_fraction_static",
           by_chunk(8192, 512, 8), by_chunk(8192, 512, 8, 1536), {"tp_size": 8}),
    Change("no reserve for drafts", "0.5.13.post1", "0.5.14", LATENT, "mem_fraction_static",
           round((H100 - (max(512 + 8192 * 1.5 + 1024 + 1024 + 1536, 10240) + 4096)) / H100, 3),
           by_chunk(8192, 512, 8, 1536), {"tp_size": 8, **TREE}),
    Change("small cards' chunk and graphs", "0.5.19", "0.5.20", LLAMA, "mem_fraction_static",
           round((24564 - (512 + 2048 * 1.5 + 128)) / 24564, 3), round((24564 - (512 + 4096 * 1.5 + 128)) / 24564, 3),
           {"disable_cuda_graph": True}, 24564),
    Change("Blackwell's default takes pages of 64", "0.5.6.post2", "0.5.7", LLAMA, "page_size", 1, 64, {}, B200),
    Change("trtllm_mha takes pages of 128", "0.5.16", "0.5.17", LLAMA, "page_size", 64, 128,
           {"attention_backend": "trtllm_mha", "page_size": 128}, B200),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_the_budget_changes_where_sglang_changed_it(change):
    check(change)


def test_without_memory_the_sizing_says_what_to_give():
    (missing,) = kvdiag.size(config=LLAMA, release="0.5.9").missing
    assert "--avail" in missing
    assert "--total" in missing
