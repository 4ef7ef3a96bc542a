"""Defaults that SGLang chooses by card, ranks and model, at each side of each of its bounds."""

from __future__ import annotations

import pytest

import kvdiag
from kvdiag.frozen import replace
from kvdiag.models import geometry_of
from kvdiag.models.config import config_from
from kvdiag.releases import parse_release
from kvdiag.sizing import Device, ServerArguments
from kvdiag.sizing.device import placed
from kvdiag.sizing.graphs import Resolution, chunk_default, chunked_prefill, decode_graph_size, prefill_graphs
from kvdiag.sizing.resolve import resolve
from tests.boundaries import NEXT
from tests.test_boundaries_budget import QWEN3_VL, VISION
from tests.test_size import DENSE, LATENT

GEOMETRY = geometry_of(config_from(DENSE, "config", "dense"))
GIB = 1024


def case(release, memory=None, mla=False, multimodal=False, vendor="nvidia", architecture=None, capability=(9, 0), **arguments):
    geometry = GEOMETRY if architecture is None else replace(GEOMETRY, architecture=architecture)
    device = Device(memory, capability, vendor)
    return Resolution(geometry, ServerArguments(**arguments), parse_release(release), device, mla, multimodal)


@pytest.mark.parametrize(
    ("release", "memory", "few", "many"),
    [
        # _handle_gpu_memory_settings: cuda_graph_max_bs below and from four ranks
        ("0.5.9", None, 160, 160), ("0.5.9", 20 * GIB - 1, 8, 8), ("0.5.9", 20 * GIB, 24, 80), ("0.5.9", 35 * GIB - 1, 24, 80),
        ("0.5.4", 20 * GIB, 16, 80), ("0.5.4.post1", 20 * GIB, 24, 80), ("0.5.19", 20 * GIB, 24, 80),
        ("0.5.20", 20 * GIB, 48, 160),
        ("0.5.20", 35 * GIB - 1, 48, 160), ("0.5.20", 35 * GIB, 32, 160), ("0.5.9", 35 * GIB, 32, 160),
        ("0.5.9", 60 * GIB - 1, 32, 160), ("0.5.9", 60 * GIB, 256, 512), ("0.5.9", 160 * GIB - 1, 256, 512),
        ("0.5.9", 160 * GIB, 512, 512),
    ],
)  # fmt: skip
def test_the_largest_captured_batch_follows_card_and_ranks(release, memory, few, many):
    for ranks, size in ((1, few), (3, few), (4, many), (8, many)):
        assert decode_graph_size(case(release, memory, tp_size=ranks), memory) == size, ranks


@pytest.mark.parametrize(
    ("release", "asked", "size"),
    [("0.5.21", 100, 256), ("0.5.22", 100, 100), ("0.5.22", 256, 256), ("0.5.22", 300, 256), ("0.5.22", None, 256)],
)
def test_from_0_5_22_no_batch_is_captured_that_may_not_run(release, asked, size):
    assert decode_graph_size(case(release, 80 * GIB, max_running_requests=asked), 80 * GIB) == size


@pytest.mark.parametrize(
    ("release", "memory", "capability", "asked", "size"),
    [
        ("0.5.20", 80 * GIB, (9, 0), 512, 512), ("0.5.20", 80 * GIB, (9, 0), 513, 256), ("0.5.20", 80 * GIB, (9, 0), 257, 257),
        ("0.5.19", 80 * GIB, (9, 0), 512, 256), ("0.5.20", 80 * GIB, (8, 0), 512, 256), ("0.5.20", 60 * GIB, (9, 0), 512, 512),
        ("0.5.20", 60 * GIB - 1, (9, 0), 512, 32),
    ],
)  # fmt: skip
def test_qwen3_vl_on_large_hopper_cards_captures_all_that_may_run(release, memory, capability, asked, size):
    for name in ("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"):
        of = case(release, memory, multimodal=True, architecture=name, capability=capability, max_running_requests=asked)
        assert decode_graph_size(of, memory) == size
        text = replace(of, is_multimodal=False)
        assert decode_graph_size(text, memory) == (256 if memory >= 60 * GIB else 32)


NPU = [
    # set_default_server_args of the NPU backend: chunk, largest batch below and from four ranks
    ("0.5.7", 32 * GIB, 4096, 16, 64), ("0.5.7", 32 * GIB + 1, 8192, 64, 256), ("0.5.7", 64 * GIB, 8192, 64, 256),
    ("0.5.7", 64 * GIB + 1, None, None, None), ("0.5.23", 32 * GIB, 4096, 16, 64), ("0.5.4", 20 * GIB - 1, None, None, None),
    ("0.5.4", 20 * GIB, 32768, 16, 64), ("0.5.6", 32 * GIB - 1, 32768, 16, 64), ("0.5.6", 32 * GIB, None, None, None),
    ("0.5.6", 60 * GIB - 1, None, None, None), ("0.5.6", 60 * GIB, 32768, 64, 128), ("0.5.6", 64 * GIB - 1, 32768, 64, 128),
    ("0.5.6", 64 * GIB, None, None, None), ("0.5.3", 32 * GIB - 1, None, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("release", "memory", "chunk", "few", "many"), NPU)
def test_ascend_cards_have_defaults_of_their_own(release, memory, chunk, few, many):
    number = parse_release(release)
    for own, asked in ((Device(memory, None, "ascend"), {}), (Device(memory), {"device": "npu"})):
        arguments, device = placed(ServerArguments(**asked), own)
        elsewhere = chunk_default(ServerArguments(), number, Device(memory))
        assert chunk_default(arguments, number, device) == (chunk or elsewhere)
        for ranks, size in ((3, few), (4, many)):
            given = Resolution(GEOMETRY, replace(arguments, tp_size=ranks), number, device, False, False)
            plain = replace(given, device=Device(memory), arguments=ServerArguments(tp_size=ranks))
            assert decode_graph_size(given, memory) == (size or decode_graph_size(plain, memory))


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        ({}, 8192),
        ({"chunked_prefill_size": 4096}, 4096),
        ({"dp_size": 4, "tp_size": 8}, 8192),
        ({"dp_size": 4, "tp_size": 8, "enable_dp_attention": True}, 2048),
        ({"dp_size": 2, "tp_size": 2, "enable_dp_attention": True, "chunked_prefill_size": 4097}, 2048),
        ({"dp_size": 4, "tp_size": 8, "enable_dp_attention": True, "chunked_prefill_size": -1}, -1),
        ({"dp_size": 1, "tp_size": 8, "enable_dp_attention": True}, 8192),
    ],
)
def test_replicas_of_attention_share_the_prefill_chunk(arguments, size):
    assert chunked_prefill(ServerArguments(**arguments), parse_release("0.5.9"), Device(80 * GIB)) == size


CAPTURES = [
    # 0.5.6 to 0.5.9 on request, then unless something rules it out
    ("0.5.5", {"enable_piecewise_cuda_graph": True}, False), ("0.5.6", {"enable_piecewise_cuda_graph": True}, True),
    ("0.5.9", {"enable_piecewise_cuda_graph": True}, True), ("0.5.9", {}, False), ("0.5.10rc0", {}, True), ("0.5.12", {}, True),
    ("0.5.12", {"disable_piecewise_cuda_graph": True}, False), ("0.5.13", {"disable_cuda_graph": True}, True),
    ("0.5.14", {"disable_cuda_graph": True}, False), ("0.5.11", {"speculative_algorithm": "EAGLE"}, False),
    ("0.5.12", {"speculative_algorithm": "EAGLE"}, True),
    *(
        ("0.5.12", arguments, False)
        for arguments in (
            {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}, {"pp_size": 2}, {"attn_cp_size": 2, "tp_size": 2},
            {"moe_a2a_backend": "deepep"}, {"disaggregation_mode": "prefill"}, {"disaggregation_mode": "decode"},
        )
    ),
    # 0.5.15 and newer: what breakable graphs are ruled out by
    ("0.5.15", {}, True), ("0.5.15", {"attn_cp_size": 2, "tp_size": 2}, False), ("0.5.15", {"dcp_size": 2}, False),
    ("0.5.16", {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}, False),
    ("0.5.17", {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}, True),
    ("0.5.16", {"moe_a2a_backend": "deepep"}, False), ("0.5.17", {"moe_a2a_backend": "deepep"}, True),
    ("0.5.17", {"moe_a2a_backend": "megamoe"}, True), ("0.5.17", {"moe_a2a_backend": "flashinfer"}, True),
    ("0.5.17", {"moe_a2a_backend": "mooncake"}, False), ("0.5.18", {"pp_size": 2}, True), ("0.5.19", {"pp_size": 2}, False),
]  # fmt: skip


@pytest.mark.parametrize(("release", "arguments", "captured"), CAPTURES)
def test_prefill_is_captured_in_graphs_where_nothing_rules_it_out(release, arguments, captured):
    assert prefill_graphs(case(release, 80 * GIB, **arguments)) is captured


@pytest.mark.parametrize(
    ("release", "kind", "captured"),
    [
        ("0.5.14", {"vendor": "amd"}, False), ("0.5.15", {"vendor": "amd"}, False),
        ("0.5.14", {"mla": True}, True), ("0.5.15", {"mla": True}, False), ("0.5.17", {"mla": True}, False),
        ("0.5.18", {"mla": True}, True), ("0.5.14", {"multimodal": True}, False), ("0.5.15", {"multimodal": True}, False),
    ],
)  # fmt: skip
def test_whether_prefill_is_captured_follows_vendor_and_kind_of_model(release, kind, captured):
    assert prefill_graphs(case(release, 80 * GIB, **kind)) is captured


def settings(config, release, **arguments):
    geometry = geometry_of(config_from(config, "config", "config"))
    return resolve(geometry, ServerArguments(**arguments), parse_release(release), Device(80 * GIB, (9, 0)))


@pytest.mark.parametrize(
    ("config", "release", "arguments", "mib"),
    [
        (VISION, "0.5.17", {}, 0), (VISION, "0.5.18", {}, 100), (VISION, "0.5.18", {"mm_feature_transport": "cuda_vmm"}, 1124),
        (VISION, "0.5.18", {"mm_feature_transport": "cuda_ipc"}, 1124), (VISION, "0.5.18", {"mm_feature_transport": "shm"}, 100),
        (VISION, "0.5.20", {"mm_feature_transport": "cuda_ipc", "max_running_requests": 400}, 1124),
        (QWEN3_VL, "0.5.19", {}, 100), (QWEN3_VL, "0.5.20", {}, 1024), (QWEN3_VL, "0.5.20", {"nnodes": 2}, 0),
        (QWEN3_VL, "0.5.20", {"max_running_requests": 399}, 1024), (QWEN3_VL, "0.5.20", {"max_running_requests": 400}, 3072),
        (QWEN3_VL, "0.5.20", {"mm_feature_transport": "cuda_vmm", "max_running_requests": 400}, 1024),
        (QWEN3_VL, "0.5.20", {"mm_preprocess_cache_size_mb": 1}, 0),
        (QWEN3_VL, "0.5.20", {"mm_preprocess_cache_size_mb": 1, "mm_feature_transport": "cuda_ipc", "max_running_requests": 400},
         1024),
    ],
)  # fmt: skip
def test_what_is_kept_back_for_images_follows_model_card_and_transport(config, release, arguments, mib):
    assert settings(config, release, **arguments).reserved_gib == mib / 1024


@pytest.mark.parametrize(
    ("release", "arguments", "slots"),
    [
        # radix cache, extra buffers, overlap schedule of a hybrid model
        ("0.5.13", {}, (True, False, True)), ("0.5.13", {"disable_radix_cache": True}, (False, False, True)),
        ("0.5.13", {"disaggregation_mode": "decode"}, (False, False, True)),
        ("0.5.13", {"disaggregation_mode": "prefill"}, (True, False, True)),
        ("0.5.13", {"mamba_scheduler_strategy": "extra_buffer"}, (True, True, True)),
        ("0.5.13", {"disable_overlap_schedule": True}, (True, False, False)), ("0.5.13", {"pp_size": 2}, (True, False, False)),
        ("0.5.14", {}, (True, True, True)), ("0.5.14", {"disable_radix_cache": True}, (False, False, True)),
        ("0.5.14", {"mamba_scheduler_strategy": "no_buffer"}, (True, False, False)),
        ("0.5.14", {"disable_overlap_schedule": True}, (True, False, False)),
        ("0.5.14", {"disable_overlap_schedule": True, "page_size": 64}, (True, True, False)),
        ("0.5.14", {"disable_overlap_schedule": True, "page_size": 1}, (True, False, False)),
        ("0.5.14", {"linear_attn_backend": "flashinfer"}, (True, False, False)),
        ("0.5.14", {"mamba_scheduler_strategy": "extra_buffer", "disable_overlap_schedule": True}, (True, True, False)),
        ("0.5.9", {"speculative_algorithm": "EAGLE"}, (False, False, False)),
        ("0.5.8", {"speculative_algorithm": "EAGLE"}, (True, False, False)),
        ("0.5.10", {"speculative_algorithm": "EAGLE"}, (True, False, False)),
        ("0.5.9", {"speculative_algorithm": "EAGLE", "mamba_scheduler_strategy": "extra_buffer"}, (True, True, False)),
    ],
)  # fmt: skip
def test_what_a_hybrid_server_keeps_of_states(release, arguments, slots):
    found = settings(NEXT, release, **arguments)
    assert (found.radix, found.extra_buffer, found.overlap) == slots


@pytest.mark.parametrize(
    ("release", "algorithm", "topk", "overlap"),
    [
        ("0.5.10", "EAGLE", 1, False), ("0.5.11", "EAGLE", 1, True), ("0.5.11", "EAGLE", 4, False), ("0.5.13", "EAGLE", 4, True),
        ("0.5.11", "NGRAM", None, False), ("0.5.13", "NGRAM", None, False), ("0.5.13", "DFLASH", None, False),
        ("0.5.14", "NGRAM", None, True), ("0.5.14", "EAGLE", 4, True),
    ],
)  # fmt: skip
def test_the_overlap_schedule_runs_with_more_kinds_of_drafts_release_by_release(release, algorithm, topk, overlap):
    drafts = {"speculative_algorithm": algorithm, "speculative_num_draft_tokens": 8, "speculative_num_steps": 3}
    found = settings(DENSE, release, **drafts, **({"speculative_eagle_topk": topk} if topk else {}))
    assert found.overlap is overlap
    assert found.extra_buffer is False


@pytest.mark.parametrize(
    ("architecture", "release", "args", "cell"),
    [
        # a latent class that is not sized as one has heads of 256, MiniCPM3's of 128
        ("DeepseekV2ForCausalLM", "0.4.3", {"disable_mla": True}, 2 * 256),
        ("MiniCPM3ForCausalLM", "0.4.3", {"disable_mla": True}, 2 * 128),
        ("DeepseekV2ForCausalLM", "0.4.3", {}, None), ("DeepseekV2ForCausalLM", "0.3.0", {}, 2 * 256),
        ("DeepseekV2ForCausalLM", "0.3.0", {"enable_mla": True}, None),
    ],
)  # fmt: skip
def test_a_latent_class_is_sized_as_what_its_kernels_use(architecture, release, args, cell):
    config = LATENT | {"architectures": [architecture]}
    found = kvdiag.size(config=config, release=release, args=args).bytes_per_token
    layers, heads = config["num_hidden_layers"], config["num_key_value_heads"]
    latent = (config["kv_lora_rank"] + config["qk_rope_head_dim"]) * layers * 2
    assert found == (latent if cell is None else heads * cell * layers * 2)
