"""What attention backends decide: pages, the share that AMD's keeps, layouts of FP4 and of index keys."""

from __future__ import annotations

import pytest

import kvdiag
from kvdiag.frozen import replace
from kvdiag.models import geometry_of
from kvdiag.models.config import config_from
from kvdiag.releases import parse_release
from kvdiag.sizing import Device, ServerArguments
from kvdiag.sizing.dtypes import draft_element_bytes, kv_dtype
from kvdiag.sizing.environment import Environment
from kvdiag.sizing.fraction import aiter_share
from kvdiag.sizing.graphs import Resolution
from kvdiag.sizing.pages import page_size
from kvdiag.sizing.resolve import given_share
from kvdiag.sizing.startable import would_not_start
from tests.boundaries import GPT_OSS, LATENT, LLAMA, NEXT
from tests.test_boundaries_sparse import SPARSE, V4

HOPPER, BLACKWELL = Device(81559, (9, 0)), Device(183359, (10, 0))
AMD, ASCEND = Device(196608, None, "amd"), Device(65536, None, "ascend")


def geometry(config, **changes):
    return replace(geometry_of(config_from(config, "config", "config")), **changes)


def page(config, release, device=HOPPER, leaf_states=False, changes=None, **arguments):
    of = geometry(config, **(changes or {}))
    is_mla = bool(of.kv_lora_rank)
    return page_size(of, ServerArguments(**arguments), parse_release(release), device, is_mla=is_mla, leaf_states=leaf_states)


@pytest.mark.parametrize(
    ("release", "backend", "asked", "size"),
    [
        ("0.4.3.post4", "flashmla", None, 1), ("0.4.4", None, None, 1), ("0.4.4", None, 16, 16), ("0.5.9", "flashmla", 16, 64),
        ("0.5.9", "cutlass_mla", None, 128), ("0.5.9", "ascend", 16, 128), ("0.5.9", "trtllm_mla", None, 64),
        ("0.5.9", "trtllm_mla", 32, 32), ("0.5.9", "trtllm_mla", 16, 64), ("0.5.9", "tokenspeed_mla", 128, 64),
        ("0.5.9", "cutedsl_mla", 128, 64), ("0.5.9", "trtllm_mha", None, 64), ("0.5.9", "trtllm_mha", 16, 16),
        ("0.5.9", "trtllm_mha", 32, 32), ("0.5.16", "trtllm_mha", 128, 64), ("0.5.17", "trtllm_mha", 128, 128),
        ("0.5.17", "trtllm_mha", 8, 64), ("0.5.9", "hpc_ops", 16, 64), ("0.5.9", "triton", 16, 16), ("0.5.9", "fa3", None, 1),
        ("0.5.3", "intel_xpu", 16, 16), ("0.5.4", "intel_xpu", 16, 128), ("0.5.4", "intel_xpu", 32, 32),
        ("0.5.11", "intel_xpu", 32, 128), ("0.5.11", "intel_xpu", 64, 64),
    ],
)  # fmt: skip
def test_a_backend_pages_as_its_kernels_do(release, backend, asked, size):
    assert page(LLAMA, release, attention_backend=backend, page_size=asked) == size
    if backend is not None:
        assert page(LLAMA, release, decode_attention_backend=backend, page_size=asked) == size


@pytest.mark.parametrize(
    ("backend", "size"),
    [("trtllm_mha", 64), ("cutedsl_mla", 64), ("hpc_ops", 64), ("flashmla", 16), ("trtllm_mla", 16), ("cutlass_mla", 16)],
)
def test_a_backend_of_prefill_alone_moves_the_page_only_where_it_reads_pages(backend, size):
    asked = 16 if size == 16 else 8
    assert page(LLAMA, "0.5.9", prefill_attention_backend=backend, page_size=asked) == size


@pytest.mark.parametrize(
    ("release", "arguments", "device", "size"),
    [
        ("0.5.3", {"prefill_attention_backend": "fa4"}, HOPPER, 1), ("0.5.4", {"prefill_attention_backend": "fa4"}, HOPPER, 128),
        ("0.5.9", {"prefill_attention_backend": "fa4"}, HOPPER, 128), ("0.5.10", {"prefill_attention_backend": "fa4"}, HOPPER, 1),
        ("0.5.10", {"prefill_attention_backend": "fa4"}, BLACKWELL, 128),
        ("0.5.14", {"attention_backend": "fa4"}, BLACKWELL, 1), ("0.5.15", {"attention_backend": "fa4"}, BLACKWELL, 128),
        ("0.5.15", {"attention_backend": "fa4", "speculative_eagle_topk": 1}, BLACKWELL, 128),
        ("0.5.15", {"attention_backend": "fa4", "speculative_eagle_topk": 4}, BLACKWELL, 1),
    ],
)  # fmt: skip
def test_fa4_insists_on_pages_of_128_in_the_phases_and_cards_of_the_release(release, arguments, device, size):
    assert page(LLAMA, release, device, **arguments) == size


@pytest.mark.parametrize(
    ("config", "release", "arguments", "size"),
    [
        (LLAMA, "0.5.6.post2", {}, 1), (LLAMA, "0.5.7", {}, 64), (LLAMA, "0.5.7", {"attention_backend": "flashinfer"}, 1),
        (LLAMA, "0.5.7", {"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}, 64),
        (LLAMA, "0.5.7", {"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 4}, 1),
        (LLAMA, "0.5.7", {"prefill_attention_backend": "flashinfer", "decode_attention_backend": "flashinfer"}, 1),
        (LLAMA, "0.5.7", {"decode_attention_backend": "flashinfer"}, 64),
        (LATENT, "0.5.3", {}, 1), (LATENT, "0.5.3.post2", {}, 64), (LATENT, "0.5.9", {"prefill_attention_backend": "fa3"}, 1),
        (GPT_OSS, "0.5.0", {}, 1), (GPT_OSS, "0.5.1", {}, 64), (NEXT, "0.5.10", {}, 1),
    ],
)  # fmt: skip
def test_blackwell_cards_choose_a_backend_and_its_pages_where_none_is_named(config, release, arguments, size):
    assert page(config, release, BLACKWELL, **arguments) == size
    assert page(config, release, HOPPER, **arguments) == 1


@pytest.mark.parametrize(
    ("leaf_states", "arguments", "size"),
    [
        (False, {}, 64), (True, {}, 1), (False, {"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 4}, 1),
        (False, {"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}, 64),
    ],
)  # fmt: skip
def test_gated_delta_models_page_on_blackwell_unless_states_hang_at_leaves(leaf_states, arguments, size):
    assert page(NEXT, "0.5.11", BLACKWELL, leaf_states, **arguments) == size


def test_models_with_a_layout_of_their_own_page_by_it_whatever_is_asked():
    assert page(V4, "0.5.14", page_size=16) == 256
    assert page(V4, "0.5.14", Device(65536), page_size=16) == 256
    assert (page(V4, "0.5.12.post1", ASCEND), page(V4, "0.5.14", ASCEND, page_size=16)) == (256, 128)
    assert page(SPARSE, "0.5.9", page_size=16) == 64
    assert page(SPARSE, "0.5.9", AMD, page_size=16) == 1
    pooled = SPARSE | {"index_kpool": 5}
    assert (page(pooled, "0.5.21"), page(pooled, "0.5.22")) == (64, 320)


@pytest.mark.parametrize(
    ("release", "asked", "size"), [("0.5.6", 16, 128), ("0.5.6.post2", 16, 16), ("0.5.6.post2", None, 128), ("0.5.6", None, 128)]
)
def test_ascend_cards_page_by_128_and_later_as_asked(release, asked, size):
    assert page(LLAMA, release, ASCEND, page_size=asked) == size


@pytest.mark.parametrize(
    ("release", "device", "arguments", "context", "share"),
    [
        ("0.5.4.post1", AMD, {}, 32768, 1.0), ("0.5.4.post2", AMD, {}, 32768, 0.85), ("0.5.9", AMD, {}, 8192, 1.0),
        ("0.5.9", AMD, {}, 8193, 0.85), ("0.5.9", HOPPER, {}, 32768, 1.0),
        ("0.5.9", HOPPER, {"attention_backend": "aiter"}, 32768, 0.85),
        ("0.5.9", AMD, {"attention_backend": "triton"}, 32768, 1.0),
        ("0.5.9", HOPPER, {"prefill_attention_backend": "aiter", "decode_attention_backend": "aiter"}, 32768, 0.85),
        ("0.5.9", AMD, {"prefill_attention_backend": "triton", "decode_attention_backend": "triton"}, 32768, 1.0),
        ("0.5.9", AMD, {"prefill_attention_backend": "triton"}, 32768, 0.85),
        ("0.5.9", AMD, {"prefill_attention_backend": "triton", "decode_attention_backend": "aiter"}, 32768, 0.85),
    ],
)  # fmt: skip
def test_amd_s_attention_keeps_a_share_of_the_fraction_where_contexts_are_long(release, device, arguments, context, share):
    case = Resolution(geometry(LLAMA), ServerArguments(**arguments), parse_release(release), device, False, False)
    assert aiter_share(case, context) == share


@pytest.mark.parametrize(
    ("config", "ranks", "share"),
    [
        (GPT_OSS, 1, 0.85), (LATENT, 1, 0.85), (LATENT, 8, 0.85), (LATENT, 2, 1.0), (LATENT, 16, 1.0), (SPARSE, 1, 1.0),
        (V4, 1, 1.0),
    ],
)  # fmt: skip
def test_amd_s_default_serves_latents_of_16_or_128_heads_and_no_sparse_ones(config, ranks, share):
    of = geometry(config)
    case = Resolution(of, ServerArguments(tp_size=ranks), parse_release("0.5.14"), AMD, bool(of.kv_lora_rank), False)
    assert aiter_share(case, 32768) == share


@pytest.mark.parametrize(
    ("capability", "arguments", "layouts", "workspace"),
    [
        # rows where prefill does not read FP4, and on SM100 the layout of its kernels beside or instead of them
        ((10, 0), {}, 1, False), ((10, 0), {"attention_backend": "trtllm_mha"}, 1, False),
        ((10, 0), {"attention_backend": "flashinfer"}, 2, True), ((10, 0), {"prefill_attention_backend": "flashinfer"}, 2, True),
        ((10, 0), {"attention_backend": "flashinfer", "prefill_attention_backend": "trtllm_mha"}, 1, False),
        ((10, 0), {"prefill_kv_cache_dequant_dtype": "nvfp4"}, 1, False),
        ((10, 0), {"prefill_kv_cache_dequant_dtype": "fp8_e4m3"}, 2, True),
        ((12, 0), {"prefill_kv_cache_dequant_dtype": "nvfp4"}, 1, False), ((12, 0), {}, 1, True),
        ((9, 0), {"attention_backend": "trtllm_mha"}, 1, False), ((9, 0), {}, 1, True), (None, {}, 0, False),
    ],
)  # fmt: skip
def test_nvfp4_keeps_scales_as_prefill_and_the_card_read_them(capability, arguments, layouts, workspace):
    arguments = ServerArguments(kv_cache_dtype="nvfp4", **arguments)
    found = kv_dtype(geometry(LLAMA), arguments, parse_release("0.5.22"), Device(81559, capability))
    assert (found.name, found.size, found.scale_layouts, found.workspace) == ("nvfp4", 1, layouts, workspace)
    assert kv_dtype(geometry(LLAMA), arguments, parse_release("0.5.20"), HOPPER).scale_layouts == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"tp_size": 3}, ["32 attention heads do not divide by 3 ranks"]),
        ({"tp_size": 4, "dp_size": 3, "enable_dp_attention": True}, ["tp_size 4 does not divide by dp_size 3"]),
        ({"tp_size": 4, "dcp_size": 3}, ["dcp_size 3 does not divide tp_size 4"]),
        ({"tp_size": 4, "dcp_size": 2}, []),
        ({"context_length": 8193}, ["--context-length 8193 is more than the model's 8192"]),
        ({"context_length": 8192, "tp_size": 4}, []),
        ({"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}, []),
    ],
)
def test_a_layout_no_server_would_start_with_is_said_beside_the_figures(args, said):
    release = "0.5.19" if "dcp_size" in args else "0.5.9"
    notes = kvdiag.size(config=LLAMA, release=release, args=args).notes
    assert len(notes) == len(said)
    assert all(words in note for words, note in zip(said, notes, strict=True))


DRAFT = geometry(LLAMA)


@pytest.mark.parametrize(
    ("config", "release", "device", "arguments", "size"),
    [
        # the draft's own dtype, the one asked for, or the one the target's class or user insists on
        (LLAMA, "0.5.22", HOPPER, {}, 2), (LLAMA, "0.5.22", HOPPER, {"kv_cache_dtype": "fp8_e4m3"}, 1),
        (LLAMA, "0.5.22", HOPPER, {"kv_cache_dtype": "bfloat16"}, 2),
        (LLAMA, "0.5.22", HOPPER, {"speculative_draft_kv_cache_dtype": "fp8_e4m3"}, 1),
        (LLAMA, "0.5.22", HOPPER, {"speculative_draft_kv_cache_dtype": "auto", "kv_cache_dtype": "fp8_e4m3"}, 2),
        (LLAMA, "0.5.22", HOPPER, {"speculative_draft_kv_cache_dtype": "fp8_e4m3", "attention_backend": "fa4"}, 2),
        (LLAMA, "0.5.22", HOPPER, {"kv_cache_dtype": "fp8_e4m3", "attention_backend": "fa4"}, 2),
        (LLAMA, "0.5.22", HOPPER, {"kv_cache_dtype": "fp8_e4m3", "prefill_attention_backend": "fa4"}, 2),
        (LLAMA, "0.5.22", HOPPER, {"kv_cache_dtype": "fp8_e4m3", "attention_backend": "fa4",
                                   "prefill_attention_backend": "triton"}, 1),
        (LLAMA, "0.5.22", HOPPER, {"kv_cache_dtype": "fp8_e4m3", "attention_backend": "fa4",
                                   "speculative_draft_attention_backend": "triton"}, 1),
        (LLAMA, "0.5.22", BLACKWELL, {"kv_cache_dtype": "fp8_e4m3"}, 1),
        (LLAMA, "0.5.23", BLACKWELL, {"kv_cache_dtype": "fp8_e4m3"}, 2),
        (LLAMA, "0.5.23", BLACKWELL, {"kv_cache_dtype": "fp8_e4m3", "attention_backend": "trtllm_mha"}, 2),
        (LLAMA, "0.5.23", BLACKWELL, {"kv_cache_dtype": "fp8_e4m3", "attention_backend": "flashinfer"}, 1),
        (LLAMA, "0.5.23", HOPPER, {"kv_cache_dtype": "fp8_e4m3"}, 1),
        (V4, "0.5.22", HOPPER, {}, 1), (SPARSE, "0.5.22", BLACKWELL, {}, 1), (SPARSE, "0.5.22", HOPPER, {}, 2),
    ],
)  # fmt: skip
def test_a_draft_of_blocks_has_a_dtype_of_its_own_unless_something_insists(config, release, device, arguments, size):
    of = geometry(config)
    assert draft_element_bytes(of, ServerArguments(**arguments), parse_release(release), device, DRAFT) == size


@pytest.mark.parametrize(
    ("release", "asked", "size"),
    [("0.5.10", 16, 128), ("0.5.10", 32, 32), ("0.5.11", 16, 16), ("0.5.11", 32, 32), ("0.5.11", 64, 64), ("0.5.11", 8, 128)],
)
def test_latents_on_intel_page_by_less(release, asked, size):
    assert page(LATENT, release, attention_backend="intel_xpu", page_size=asked) == size
    assert page(LATENT, release, device=HOPPER, page_size=asked, changes={}) == asked


@pytest.mark.parametrize(("release", "honoured"), [("0.5.18", False), ("0.5.19", True)])
def test_a_fraction_that_is_given_is_kept_whole_where_the_environment_says_so(release, honoured):
    switched = ServerArguments(environment=Environment(honor_explicit_mem_fraction=True))
    long = geometry(LLAMA | {"max_position_embeddings": 131072})
    assert given_share(long, ServerArguments(), parse_release(release), AMD) == 0.85
    assert given_share(long, switched, parse_release(release), AMD) == (1.0 if honoured else 0.85)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"tp_size": 4, "attn_cp_size": 3}, ["tp_size 4 does not divide by attn_cp_size x dp_size 3"]),
        ({"pp_size": 33}, ["33 stages for 32 layers: some of them hold none"]),
        ({"pp_size": 32}, []),
        ({"pp_size": 2, "speculative_algorithm": "EAGLE"}, ["refuses pipeline stages with speculative decoding"]),
        ({"page_size": 3, "chunked_prefill_size": 4096}, ["--chunked-prefill-size 4096 does not divide by --page-size 3"]),
        ({"page_size": 3}, ["the prefill chunk, a power of two, does not divide by --page-size 3"]),
        ({"page_size": 64, "chunked_prefill_size": 4096}, []),
        ({"page_size": 3, "chunked_prefill_size": -1}, []),
    ],
)
def test_a_division_that_does_not_come_out_is_said_beside_the_figures(args, said):
    notes = would_not_start(geometry(LLAMA), ServerArguments(**args), args)
    assert len(notes) == len(said), notes
    assert all(words in note for words, note in zip(said, notes, strict=True))
