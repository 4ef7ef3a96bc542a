"""The arithmetic of single steps, by figures worked out by hand from SGLang's formulas; the oracle holds the whole of it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvdiag
from kvdiag.errors import CannotSizeError
from kvdiag.frozen import replace
from kvdiag.models import StateShape, geometry_of
from kvdiag.models.config import config_from
from kvdiag.models.sparse import Compressed, CompressedKeys, Index
from kvdiag.quantity import GIB, Interval, printed_interval
from kvdiag.releases import parse_release
from kvdiag.sizing import Device, ServerArguments, cells, dsv4, swa
from kvdiag.sizing.dtypes import KvDtype
from kvdiag.sizing.fraction import default_fraction
from kvdiag.sizing.graphs import Resolution, chunk_default, prefill_graph_sizes
from kvdiag.sizing.slots import request_table_bytes
from kvdiag.sizing.speculative import Draft, Speculation, charged_cell, grown_tokens, speculation
from kvdiag.sizing.state import StateDemand, slots_per_request, split_state, state_bytes
from tests.test_size import DENSE, LATENT, WINDOWS, sized

GEOMETRY = geometry_of(config_from(DENSE, "config", "dense"))
NEWEST = parse_release("0.5.23")
H100 = Device(81559, (9, 0))


def case(release, memory=None, mla=False, multimodal=False, vendor="nvidia", **arguments):
    device = Device(memory, (9, 0), vendor)
    return Resolution(GEOMETRY, ServerArguments(**arguments), parse_release(release), device, mla, multimodal)


@pytest.mark.parametrize(
    ("release", "memory", "arguments", "fraction"),
    [
        ("0.3.0", None, {}, 0.88),
        ("0.3.0", None, {"tp_size": 2}, 0.87),
        ("0.3.0", None, {"tp_size": 4}, 0.85),
        ("0.3.0", None, {"tp_size": 8}, 0.83),
        ("0.3.6", None, {"tp_size": 8}, 0.82),
        ("0.4.0", None, {"tp_size": 8}, 0.81),
        ("0.4.0", None, {"tp_size": 16}, 0.79),
        ("0.4.5", 143771, {"tp_size": 8}, 0.81),
        ("0.4.6", 81559, {"tp_size": 8}, 0.81),
        ("0.4.6", 143771, {"tp_size": 8}, (143771 - 13 * 1024) / 143771),
    ],
)
def test_the_first_releases_go_by_ranks_and_0_4_6_by_large_cards(release, memory, arguments, fraction):
    assert default_fraction(case(release, memory, **arguments)) == fraction


@pytest.mark.parametrize(
    ("memory", "vendor", "arguments", "fraction"),
    [
        (None, "nvidia", {"tp_size": 8}, 0.88),
        (81559, "nvidia", {"tp_size": 4, "pp_size": 2}, 0.81),
        (81559, "nvidia", {"tp_size": 2, "speculative_algorithm": "EAGLE"}, 0.87 * 0.95),
        (90000, "nvidia", {}, 0.88),
        (98304, "nvidia", {}, 0.88),
        (143771, "nvidia", {}, (143771 - 18 * 1024) / 143771),
        (143771, "nvidia", {"speculative_algorithm": "EAGLE"}, (143771 - 20 * 1024) / 143771),
        (180000, "nvidia", {}, (180000 - 18 * 1024) / 180000),
        (183359, "nvidia", {}, 0.79),
        (196608, "amd", {}, (196608 - 18 * 1024) / 196608),
        (262144, "amd", {}, 0.88 + 48 * 1024 * 0.12 / 262144),
    ],
)
def test_0_4_7_goes_by_ranks_and_keeps_18_gib_of_large_cards(memory, vendor, arguments, fraction):
    assert default_fraction(case("0.4.7", memory, vendor=vendor, **arguments)) == pytest.approx(fraction, abs=1e-12)


@pytest.mark.parametrize(
    ("release", "memory", "arguments", "reserve_gib"),
    [
        ("0.4.8", 24564, {}, 2.9),
        ("0.4.8", 24564, {"tp_size": 2, "pp_size": 2}, 3.2),
        ("0.4.8", 35 * 1024, {}, 10),
        ("0.4.8", 81559, {"tp_size": 8}, 13.5),
        ("0.4.8", 90 * 1024, {}, 12.5),
        ("0.4.8", 143771, {"tp_size": 2}, 13),
        ("0.4.8", 160 * 1024, {}, 32),
        ("0.4.8", 183359, {"tp_size": 8}, 32),
        ("0.4.8", 81559, {"enable_dp_attention": True}, 14),
        ("0.4.8", 81559, {"speculative_algorithm": "EAGLE"}, 12),
        ("0.5.1", 81559, {"speculative_algorithm": "STANDALONE"}, 12),
        ("0.5.2", 81559, {"speculative_algorithm": "STANDALONE"}, 16),
        ("0.5.2", 81559, {"speculative_algorithm": "EAGLE"}, 12),
    ],
)
def test_0_4_8_to_0_5_2_reserve_by_card_ranks_and_speculation(release, memory, arguments, reserve_gib):
    fraction = round((memory - reserve_gib * 1024) / memory, 3)
    assert default_fraction(case(release, memory, **arguments)) == fraction


@pytest.mark.parametrize(
    ("release", "memory", "arguments", "reserve_mib"),
    [
        # 512 + 1.5 a token of the chunk + 2 a decode size + 128 a rank; at least 10 GiB above 60 GiB
        ("0.5.5", 48 * 1024, {}, 512 + 1.5 * 4096 + 2 * 32 + 128),
        ("0.5.5", 48 * 1024, {"tp_size": 2, "pp_size": 2}, 512 + 1.5 * 4096 + 2 * 32 + 4 * 128),
        ("0.5.5", 48 * 1024, {"chunked_prefill_size": 512}, 512 + 1.5 * 2048 + 2 * 32 + 128),
        ("0.5.5", 48 * 1024, {"chunked_prefill_size": -1}, 512 + 1.5 * 16384 + 2 * 32 + 128),
        ("0.5.5", 48 * 1024, {"cuda_graph_max_bs": 100}, 512 + 1.5 * 4096 + 2 * 100 + 128),
        ("0.5.5", 80 * 1024, {"cuda_graph_max_bs": 8, "chunked_prefill_size": 2048}, 10 * 1024),
        ("0.5.5", 60 * 1024, {"cuda_graph_max_bs": 8, "chunked_prefill_size": 2048}, 512 + 1.5 * 2048 + 16 + 128),
        ("0.5.5", 48 * 1024, {"speculative_algorithm": "EAGLE"}, 512 + 1.5 * 4096 + 64 + 128 + 2 * 1024),
        ("0.5.13", 48 * 1024, {"speculative_algorithm": "EAGLE", "disable_piecewise_cuda_graph": True},
         512 + 1.5 * 4096 + 64 + 128 + 4 * 1024),
        ("0.5.13", 48 * 1024, {"speculative_algorithm": "STANDALONE", "disable_piecewise_cuda_graph": True},
         512 + 1.5 * 4096 + 64 + 128 + 6 * 1024),
        ("0.5.13", 48 * 1024, {"speculative_algorithm": "NGRAM", "disable_piecewise_cuda_graph": True},
         512 + 1.5 * 4096 + 64 + 128),
        ("0.5.14", 48 * 1024, {"speculative_algorithm": "EAGLE", "disable_piecewise_cuda_graph": True},
         512 + 1.5 * 4096 + 64 + 128),
        ("0.5.6", 48 * 1024, {"enable_piecewise_cuda_graph": True}, 512 + 1.5 * 4096 + 64 + 128 + 4096 // 4),
        ("0.5.7", 48 * 1024, {"enable_piecewise_cuda_graph": True}, 512 + 1.5 * 4096 + 64 + 128 + 4096 // 8),
        ("0.5.7", 48 * 1024, {"enable_piecewise_cuda_graph": True, "piecewise_cuda_graph_max_tokens": 1000},
         512 + 1.5 * 4096 + 64 + 128 + 125),
        ("0.5.15", 48 * 1024, {"disable_piecewise_cuda_graph": True, "disable_cuda_graph": True}, 512 + 1.5 * 4096 + 128),
        ("0.5.15", 48 * 1024, {"disable_piecewise_cuda_graph": True, "moe_a2a_backend": "deepep"},
         512 + 1.5 * 4096 + 64 + 128 + 2048),
        ("0.5.14", 48 * 1024, {"disable_piecewise_cuda_graph": True, "moe_a2a_backend": "deepep"}, 512 + 1.5 * 4096 + 64 + 128),
        # DP attention: 3 a size and replica, half as much again where sizes pass 300
        ("0.5.5", 48 * 1024, {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True},
         512 + 1.5 * 4096 + 64 + 256 + 32 * 2 * 3),
        ("0.5.5", 48 * 1024, {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True, "cuda_graph_max_bs": 300},
         512 + 1.5 * 4096 + 600 + 256 + 300 * 2 * 3),
        ("0.5.5", 48 * 1024, {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True, "cuda_graph_max_bs": 301},
         512 + 1.5 * 4096 + 602 + 256 + 301 * 2 * 4.5),
        # decode servers of a disaggregated pair: tokens of a step, at least 2048
        ("0.5.15", 48 * 1024, {"disable_piecewise_cuda_graph": True, "disaggregation_mode": "decode"},
         512 + 1.5 * 2048 + 64 + 128),
        ("0.5.15", 48 * 1024, {"disable_piecewise_cuda_graph": True, "disaggregation_mode": "decode", "cuda_graph_max_bs": 900,
                               "speculative_num_draft_tokens": 4}, 512 + 1.5 * 3600 + 1800 + 128),
        ("0.5.15", 48 * 1024, {"disable_piecewise_cuda_graph": True, "disaggregation_mode": "prefill"}, 512 + 1.5 * 4096 + 128),
    ],
)  # fmt: skip
def test_0_5_3_and_newer_reserve_by_chunk_graphs_and_parallelism(release, memory, arguments, reserve_mib):
    assert default_fraction(case(release, memory, **arguments)) == round((memory - reserve_mib) / memory, 3)


def test_without_a_card_the_fraction_is_a_constant():
    assert default_fraction(case("0.5.9")) == 0.88
    assert default_fraction(case("0.5.20")) == 0.95


@pytest.mark.parametrize(
    ("release", "memory", "chunk"),
    [
        ("0.4.6", 24_999, 2048), ("0.4.6", 25_000, 8192), ("0.4.6", 183359, 8192),
        ("0.4.7", 180_000, 8192), ("0.4.7", 180_001, 16384),
        ("0.4.6", None, 8192), ("0.4.8", None, 4096), ("0.4.8", 20479, 2048), ("0.4.8", 20480, 2048), ("0.5.20", 20479, 2048),
        ("0.5.20", 20480, 4096), ("0.5.19", 35839, 2048), ("0.5.2", 35840, 8192), ("0.5.3", 35840, 4096), ("0.5.3", 61440, 8192),
        ("0.5.3", 163839, 8192), ("0.5.3", 163840, 16384),
    ],
)  # fmt: skip
def test_the_prefill_chunk_follows_the_card(release, memory, chunk):
    assert chunk_default(ServerArguments(), parse_release(release), Device(memory)) == chunk


@pytest.mark.parametrize(
    ("release", "chunk", "arguments", "mla", "sizes"),
    [
        # 4..32 by 4 (8), 48..256 by 16 (14), 288..512 by 32 (8), 576..1024 by 64 (8), 1280..4096 by 256 (12), then by 512
        ("0.5.9", 512, {}, False, 30),
        ("0.5.9", 511, {}, False, 29),
        ("0.5.9", 1024, {}, False, 38),
        ("0.5.8", 1024, {}, False, 37),
        ("0.5.9", 4096, {}, False, 50),
        ("0.5.9", 4608, {}, False, 51),
        ("0.5.9", 8192, {}, False, 58),
        ("0.5.9", 8192, {}, True, 42),
        ("0.5.9", 8192, {"piecewise_cuda_graph_max_tokens": 512}, False, 30),
        ("0.5.9", 8192, {"max_total_tokens": 512}, False, 58),
        ("0.5.10", 8192, {"max_total_tokens": 512}, False, 30),
        ("0.5.12", 8192, {"context_length": 512}, False, 58),
        ("0.5.13", 8192, {"context_length": 512}, False, 30),
        ("0.5.16", 8192, {"context_length": 512}, False, 30),
        ("0.5.17", 8192, {"context_length": 512}, False, 58),
    ],
)
def test_captured_prefill_sizes_grow_by_wider_steps(release, chunk, arguments, mla, sizes):
    assert prefill_graph_sizes(case(release, mla=mla, **arguments), chunk) == sizes


def demand(ratios=(0, 4, 128, 4), requests=None, extra=0, speculative=False, window=128, page=256):
    shape = Compressed(ratios, 448, 64, 128, window, ())
    return dsv4.Dsv4Demand(shape, range(len(ratios)), 0.1, page, 4 if speculative else 0, requests, 65536, extra)


@pytest.mark.parametrize(
    ("release", "speculative", "extra", "c4_state", "c128_state"),
    [
        ("0.5.14", False, 0, 10240 // 128 * 8, 10240 // 128 * 128),
        ("0.5.15", False, 0, 10240 // 128 * 8, 65 * 128),
        ("0.5.15", True, 0, 10240 // 128 * 16, 65 * 256),
        ("0.5.21", False, 3, 10240 // 256 * 8, 68 * 128),
    ],
)
def test_the_pools_of_deepseek_v4(release, speculative, extra, c4_state, c128_state):
    found = dsv4.pools(102_655, 64, demand(speculative=speculative, extra=extra), parse_release(release))
    assert found == dsv4.Dsv4Pools(102_400, 10_240, 25_600, 800, c4_state, c128_state)
    assert isinstance(found.c128, int)


def test_the_state_of_the_widest_compression_is_whole_blocks_of_rows():
    # (60 requests + 1 + 2 extra) x 128 + 128 + 1 rows, in blocks of 128; two float32 of 512 in each of one layer
    assert dsv4.fixed_bytes(demand(extra=2), 60, NEWEST) == (63 * 128 + 128 + 128) * 2 * 512 * 4
    assert dsv4.fixed_bytes(demand(speculative=True), 60, NEWEST) == (61 * 256 + 256 + 128) * 2 * 512 * 4
    assert dsv4.fixed_bytes(demand((0, 4)), 60, NEWEST) == 0
    assert dsv4.fixed_bytes(demand(), 60, parse_release("0.5.14")) == 0


@given(st.integers(10**9, 10**12), st.one_of(st.none(), st.integers(1, 5000)), st.sampled_from([("0.5.22", 1), ("0.5.23", 256)]))
def test_the_profile_of_deepseek_v4_fills_the_budget(budget, requests, step):
    release, page = parse_release(step[0]), step[1]
    asked = demand(requests=requests)
    price = dsv4.bytes_per_full_token(asked, release)
    tokens = dsv4.profiled_tokens(budget, price, asked, release)
    if requests is None:
        guess = int(budget / price)
        requests = min(max(min(int(guess / 65536 * 512), 4096), 2048), guess // 2)
    fixed = dsv4.fixed_bytes(asked, requests, release)
    assert tokens % page == 0
    assert tokens == 0 or tokens * price <= budget - fixed + 1
    assert (tokens + page) * price > budget - fixed - 1


def test_fp4_cells_have_a_scale_in_sixteen_values():
    found = kvdiag.size(config=DENSE, release="0.5.22", args={"kv_cache_dtype": "fp4_mx_block16"})
    assert found.bytes_per_token == 8 * 64 * 32 * 2 + 8 * 128 // 16 * 32 * 2
    assert isinstance(found.bytes_per_token, int)
    before = kvdiag.size(config=DENSE, release="0.5.16", args={"kv_cache_dtype": "fp4_e2m1"}).bytes_per_token
    assert before == 8 * 256 * 32 // 2 + 8 * 128 * 32 * 2 // 16 + 8 * 128 * 2
    with pytest.raises(CannotSizeError, match="nvfp4"):
        kvdiag.size(config=DENSE, release="0.5.22", args={"kv_cache_dtype": "nvfp4"})


def test_compressed_keys_are_those_of_every_ratio_th_token():
    assert cells.compressed_keys_cell(CompressedKeys(2, 128, 4), 10, 2) == 2 * 128 * 2 // 4 * 10


@pytest.mark.parametrize(
    ("overlap", "page", "steps", "topk", "tokens", "slots"),
    [
        (True, 16, 16, 4, 8, 2 * 2 * 16 * 4), (True, 16, 17, 4, 8, 2 * 2 * 16 * 4), (True, 16, 18, 4, 8, 2 * 3 * 16 * 4),
        (True, 1, 3, 1, 4, 2 * 4), (True, 1, 3, 4, 8, 2 * 12), (True, 16, 3, 1, 4, 2 * 4), (True, 16, 3, 4, 8, 2 * 2 * 16 * 4),
        (False, 1, 3, 4, 8, 12), (False, 1, 1, 2, 8, 8), (False, 16, 3, 1, 4, 16), (False, 16, 3, 4, 8, 32 * 4),
        (False, 16, 20, 1, 40, 32), (False, 16, 16, 1, 17, 32), (False, 16, 15, 1, 16, 16),
    ],
)  # fmt: skip
def test_a_capped_window_pool_counts_what_a_decode_step_may_take(overlap, page, steps, topk, tokens, slots):
    args = {
        "speculative_algorithm": "EAGLE", "speculative_num_steps": steps, "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens, "page_size": page, "disable_radix_cache": True, "max_running_requests": 4,
        "chunked_prefill_size": 2048, "disable_overlap_schedule": not overlap, "attention_backend": "triton",
    }  # fmt: skip
    drafts = steps + 1 if topk == 1 else tokens
    slots = max(slots, 2 * drafts if overlap and topk == 1 else slots)
    each = 127 + 128 * drafts + page + slots
    cap = each * 4 + (2 if overlap else 1) * 2048 + page
    found = sized(WINDOWS, "0.5.15", **args)
    assert found.page_size == page
    assert found.swa_max_total_num_tokens == -(-cap // page) * page


@pytest.mark.parametrize(
    ("release", "algorithm", "architecture", "chosen"),
    [
        ("0.5.6", "EAGLE", "LlamaForCausalLM", (5, 4, 8)),
        ("0.5.6", "EAGLE", "GptOssForCausalLM", (3, 1, 4)),
        ("0.5.0", "EAGLE", "GptOssForCausalLM", (5, 4, 8)),
        ("0.5.8", "EAGLE", "Qwen3ForCausalLM", (5, 4, 8)),
        ("0.5.9", "EAGLE", "Qwen3ForCausalLM", (3, 1, 4)),
        ("0.5.9", "EAGLE", "LlamaForCausalLM", (5, 4, 8)),
        ("0.5.6", "STANDALONE", "LlamaForCausalLM", (5, 4, 8)),
        ("0.5.7", "STANDALONE", "LlamaForCausalLM", (3, 1, 4)),
        ("0.5.9", "NEXTN", "LlamaForCausalLM", (5, 4, 8)),
        ("0.5.9", "NGRAM", "LlamaForCausalLM", (0, 1, 12)),
    ],
)
def test_speculation_without_figures_takes_those_of_the_release(release, algorithm, architecture, chosen):
    geometry = geometry_of(config_from(DENSE | {"architectures": [architecture]}, "config", "m"))
    found = speculation(geometry, ServerArguments(speculative_algorithm=algorithm), parse_release(release), None)
    assert (found.num_steps, found.eagle_topk, found.num_draft_tokens) == chosen


def state_demand(**of):
    base = {"whole": GIB, "per_request": GIB, "slots": 3, "ratio": 1.0, "explicit": None, "requests": None, "dp": 1,
            "draft_tokens": 0, "radix": True, "splits_by_dp": False}  # fmt: skip
    return StateDemand(**(base | of))


@pytest.mark.parametrize(
    ("release", "of", "size", "rest"),
    [
        ("0.5.2", {}, 512, 600 - 512),
        ("0.5.2", {"requests": 64}, 64, 536),
        ("0.5.2", {"requests": 64, "explicit": 32}, 32, 568),
        ("0.5.2", {"requests": 64, "dp": 2}, 32, 568),
        ("0.5.6", {}, 300, 300),
        ("0.5.6", {"draft_tokens": 2}, 100, 300),
        ("0.5.6", {"radix": False, "requests": 10, "draft_tokens": 1}, 10, 580),
        ("0.5.6", {"radix": False}, 512, 88),
        ("0.5.6", {"splits_by_dp": True, "dp": 2}, 150, 450),
        ("0.5.8", {"draft_tokens": 2, "requests": 100}, 200, 200),
        ("0.5.7", {"draft_tokens": 2, "requests": 100, "explicit": 20}, 20, 580),
        ("0.5.8", {"draft_tokens": 2, "requests": 100, "explicit": 20}, 20, 380),
        ("0.5.8", {"draft_tokens": 2, "requests": 100, "explicit": 20, "dp": 2}, 10, 490),
        ("0.5.9", {"radix": False}, 300, 300),
        ("0.5.13", {}, 300, 300),
        ("0.5.17", {}, 299, 300),
        ("0.5.13", {"explicit": 30, "requests": 100, "draft_tokens": 2}, 30, 600 - 20 - 30),
        ("0.5.17", {"explicit": 30, "requests": 100, "draft_tokens": 2}, 30, 600 - 22 - 31),
        ("0.5.17", {"radix": False, "requests": 10, "draft_tokens": 2}, 10, 600 - 22 - 11),
        ("0.5.13", {"draft_tokens": 3, "requests": 9}, 150, 600 - 27 - 150),
    ],
)
def test_the_states_share_of_the_budget(release, of, size, rest):
    found = split_state(600.0, state_demand(**of), parse_release(release))
    assert (found.size, found.rest) == (size, rest)


def test_a_state_that_does_not_divide_over_the_ranks_stops_the_server():
    shape = StateShape(family="mamba1", layers=(0,), num_heads=3, head_dim=64, state_size=16, intermediate_size=64, n_groups=1,
                       conv_kernel=4, attention_layers=(), ssm_dtype=None, since="0.5.9")  # fmt: skip
    with pytest.raises(CannotSizeError, match="3 state heads do not divide by 2 ranks"):
        state_bytes(shape, 2, None, NEWEST)


@given(st.integers(1, 10**7), st.integers(1, 64), st.sampled_from([1, 16, 64]), st.sampled_from(["0.5.9", "0.5.10"]))
def test_two_pools_never_take_more_than_one_did(tokens, layers, page, release):
    pools = swa.Pools(1024, 1024, layers, layers, 0.8)
    found = swa.split_by_memory(tokens, pools, page, parse_release(release))
    assert found.full % page == found.window % page == 0
    assert found.full * layers + found.window * layers <= tokens * 2 * layers
    assert found.window <= (found.full + page) * Fraction(8, 10)


def test_the_request_table_is_an_int32_a_position_with_four_to_spare():
    assert request_table_bytes(100, 8192, 3) == 100 * 8199 * 4


def test_a_number_of_four_hundred_characters_is_the_longest():
    assert printed_interval("1" * 400, "tokens").is_exact
    with pytest.raises(ValueError, match="more than 400 characters"):
        printed_interval("1" * 401, "tokens")


@pytest.mark.parametrize(
    ("text", "low", "high"), [("1.5e3", 1450, 1550), ("2.", 2, 2), ("1e2", 50, 150), ("+0.5", "0.45", "0.55")]
)
def test_printed_forms_that_are_rare(text, low, high):
    read = printed_interval(text, "requests")
    assert (read.low, read.high, read.unit) == (Fraction(low), Fraction(high), "requests")


def test_an_interval_refuses_to_be_upside_down_and_says_so():
    with pytest.raises(ValueError, match="low 2 above high 1"):
        Interval.of(2, 1)


def test_intervals_as_data_are_whole_where_they_can_be():
    assert Interval.of(1, 1.5, "tokens").to_dict() == {"low": 1, "high": 1.5, "unit": "tokens"}
    assert isinstance(Interval.of(1, 2).to_dict()["low"], int)
    assert Interval.of(1, 2, "bytes").with_unit("tokens") == Interval.of(1, 2, "tokens")
    assert (Interval.of(3, unit="bytes") * 2).unit == (Interval.of(3, unit="bytes") / 2).unit == "bytes"
    assert -Interval.of(1, 2, "bytes") == Interval.of(-2, -1, "bytes")
    assert (Interval.of(3, unit="bytes") // 2) == Interval.of(1, unit="bytes")


ORACLE_CONFIGS = json.loads((Path(__file__).parent / "data" / "oracle" / "configs.json").read_text(encoding="utf-8"))


def of(model, release, **args):
    return kvdiag.size(
        config=ORACLE_CONFIGS[model], release=release, args={"mem_fraction_static": 0.9, **args}, gpu="H200",
        available_gpu_memory=90.0, pre_model_load_memory=139.0,
    )  # fmt: skip


def test_a_cap_on_tokens_is_shared_out_again_between_the_pools():
    free, capped = (of("DeepSeek-V4-Flash", "0.5.22", tp_size=4, **cap) for cap in ({}, {"max_total_tokens": 100_100}))
    assert free.max_total_num_tokens > 100_100
    assert (capped.max_total_num_tokens, capped.full_max_total_num_tokens) == (100_096, 100_096)
    assert (capped.c4_max_total_num_tokens, capped.c128_max_total_num_tokens) == (25_024, 782)
    windows = sized(WINDOWS, "0.5.15", max_total_tokens=50_001, page_size=16)
    assert (windows.full_max_total_num_tokens, windows.swa_max_total_num_tokens) == (50_000, 40_000)
    held = sized(WINDOWS, "0.5.15", max_total_tokens=50_001, page_size=1, disable_radix_cache=True, max_running_requests=4)
    assert held.full_max_total_num_tokens == 50_001
    assert held.swa_max_total_num_tokens == (127 + 128 + 1 + 1) * 4 + 2 * 8192 + 1


def test_without_chunks_no_cap_on_windows_from_0_5_22():
    args = {"disable_radix_cache": True, "max_running_requests": 4, "chunked_prefill_size": -1, "page_size": 1}
    capped, free = (sized(WINDOWS, release, **args) for release in ("0.5.21", "0.5.22"))
    assert capped.swa_max_total_num_tokens < 2000
    assert free.swa_max_total_num_tokens == int(free.full_max_total_num_tokens * 0.8)


def test_groups_of_state_are_replicated_where_ranks_do_not_divide_them():
    shape = StateShape(family="mamba2", layers=(0, 1), num_heads=8, head_dim=64, state_size=16, intermediate_size=512, n_groups=1,
                       conv_kernel=4, attention_layers=(), ssm_dtype=None, since="0.5.9")  # fmt: skip
    # two ranks: channels (512 + 2 x 2 groups x 16) / 2, three taps of two bytes; four heads of 64 x 16 floats
    assert state_bytes(shape, 2, None, NEWEST) == (3 * 288 * 2 + 4 * 64 * 16 * 4) * 2
    assert state_bytes(shape, 1, "bfloat16", NEWEST) == (3 * 544 * 2 + 8 * 64 * 16 * 2) * 2
    with pytest.raises(CannotSizeError, match="672 convolution channels do not divide by 5 ranks"):
        state_bytes(shape, 5, None, NEWEST)
    plain = replace(shape, family="mamba1")
    assert state_bytes(plain, 2, None, NEWEST) == (3 * 256 * 2 + 4 * 64 * 16 * 4) * 2
    linear = replace(shape, family="kda", ssm_dtype="bfloat16")
    assert state_bytes(linear, 2, None, NEWEST) == (3 * 3 * 256 * 2 + 4 * 64 * 16 * 2) * 2
    assert state_bytes(linear, 2, None, parse_release("0.5.8")) == (3 * 3 * 256 * 2 + 4 * 64 * 16 * 4) * 2
    assert state_bytes(replace(shape, family="conv", state_size=0), 2, None, NEWEST) == 3 * 256 * 2 * 2


@pytest.mark.parametrize(
    ("release", "switches", "slots"),
    [
        ("0.5.3", {}, 1), ("0.5.3.post2", {}, 3), ("0.5.6", {"extra_buffer": True, "speculative": True}, 3), ("0.5.7", {}, 5),
        ("0.5.7", {"extra_buffer": True}, 5), ("0.5.7", {"extra_buffer": True, "speculative": True}, 4), ("0.5.8", {}, 3),
        ("0.5.8", {"extra_buffer": True}, 5), ("0.5.9", {"extra_buffer": True, "speculative": True}, 4),
        ("0.5.10", {"extra_buffer": True}, 4), ("0.5.10", {"extra_buffer": True, "overlap": True}, 5),
        ("0.5.10", {"extra_buffer": True, "overlap": True, "lazy": True}, 4), ("0.5.23", {"radix": False}, 1),
    ],
)  # fmt: skip
def test_state_slots_a_request_takes(release, switches, slots):
    given = {"radix": True, "extra_buffer": False, "lazy": False, "overlap": False, "speculative": False} | switches
    assert slots_per_request(parse_release(release), **given) == slots


@pytest.mark.parametrize(
    ("release", "algorithm", "grown"),
    [("0.4.3", "EAGLE", 0), ("0.4.4", "EAGLE", 10 * 3 * 4 + 10 * 8 + 100), ("0.5.6", "EAGLE", 300), ("0.5.7", "EAGLE", 0),
     ("0.5.3", "NGRAM", 0)],
)  # fmt: skip
def test_tokens_grow_by_what_drafts_may_write(release, algorithm, grown):
    spec = Speculation(algorithm, 3, 4, 8, None)
    assert grown_tokens(5000, 10, spec, parse_release(release)) == 5000 + grown


@pytest.mark.parametrize(
    ("release", "spec", "dcp", "cell"),
    [
        ("0.5.13", ("EAGLE", 2, None), 1, 999), ("0.5.14", ("EAGLE", 2, None), 1, int(999 * (1 + 2 / 7))),
        ("0.5.22", ("EAGLE", 2, None), 1, 999 + int(999 * 2 / 7)), ("0.5.10", ("DFLASH", 2, None), 1, 999),
        ("0.5.11", ("DFLASH", 2, None), 2, -(-999 * 9 // 7)), ("0.5.17", ("DFLASH", 2, None), 2, -(-999 * 11 // 7)),
        ("0.5.17", ("DFLASH", 2, 100), 2, -(-999 * 11 // 7)), ("0.5.18", ("DSPARK", 2, 100), 2, 1199),
        ("0.5.22", ("NGRAM", 2, None), 1, 999),
        ("0.5.22", ("EAGLE", 0, None), 1, 999),
    ],
)  # fmt: skip
def test_the_drafts_share_of_a_cell(release, spec, dcp, cell):
    algorithm, layers, own = spec
    assert charged_cell(999, 7, Speculation(algorithm, 3, 1, 4, Draft(layers, 0, own)), parse_release(release), dcp) == cell


@pytest.mark.parametrize(
    ("release", "drafts", "window_drafts", "own", "cell", "full", "window"),
    [
        ("0.5.14", 2, 1, 0, 4 * 100 + 0.5 * 4 * 60, 400, 240), ("0.5.15", 2, 1, 0, 6 * 100 + 0.5 * 4 * 60, 600, 240),
        ("0.5.19", 2, 1, 7, 5 * 100 + 0.5 * 5 * 60 + 7, 500, 300), ("0.5.19", 2, 5, 0, 4 * 100 + 0.5 * 6 * 60, 400, 360),
    ],
)  # fmt: skip
def test_a_hybrid_cell_counts_window_layers_by_the_ratio(release, drafts, window_drafts, own, cell, full, window):
    found = swa.hybrid_cell(swa.Pools(100, 60, 4, 4, 0.5), drafts, window_drafts, own, parse_release(release))
    assert found == swa.HybridCell(full, window, own, cell)
    alone = swa.hybrid_cell(swa.Pools(100, 60, 0, 4, 0.5), 0, 0, 7, parse_release(release))
    assert alone == swa.HybridCell(0, 240, 7, 247)


def test_pools_of_windows_alone_are_one_pool():
    alone = swa.Pools(100, 60, 0, 4, 0.5)
    for split in (swa.split_by_layers(1000, 4, alone, 16, NEWEST), swa.split_by_memory(1000, alone, 16, NEWEST),
                  swa.split_configured(1000, alone, 16, None, NEWEST)):  # fmt: skip
        assert split == swa.Split(992, 0, 992)


def test_latent_cells_and_their_indexes():
    latent = geometry_of(config_from(LATENT, "config", "latent"))
    assert cells.mla_cell(latent, 61, KvDtype("fp4_e2m1", 1), 576) == 576 * 61 // 2 + 576 // 16 * 61
    assert isinstance(cells.mla_cell(latent, 61, KvDtype("fp4_e2m1", 1), 575), int)
    index = Index(128, frozenset({1, 2}), 4)
    assert cells.index_cell(index, range(4), parse_release("0.5.2")) == 0
    assert cells.index_cell(index, range(4), parse_release("0.5.17"), 2) == 132 * 4
    assert cells.index_cell(index, range(4), parse_release("0.5.18"), 2) == 132 * 2
    assert cells.index_cell(index, range(4), NEWEST, 2) == 33 * 2 * 2
    assert cells.draft_index_cell(index, 3, NEWEST, 2) == 33 * 2 * 3
    assert cells.draft_index_cell(Index(130, frozenset(), 4), 1, NEWEST) == 34
    assert cells.draft_index_cell(index, 3, parse_release("0.5.21"), 2) == 132 * 3


def test_window_layers_in_mxfp8_have_a_scale_in_thirty_two_bytes():
    one = 8 * 128
    found = kvdiag.size(config=WINDOWS, release="0.5.22", args={"kv_cache_dtype": "mxfp8"}).bytes_per_token
    assert found == 16 * (one + one // 32) + 0.8 * (16 * (one + one // 32))


def test_a_capped_window_pool_leaves_whole_pages_or_nothing_starts():
    cell = swa.HybridCell(100, 60, 0, 130)
    assert swa.split_capped(16 * 60 + 16 * 100, 10, cell, 16) == swa.Split(16, 16, 16)
    assert swa.split_capped(1 * 60 + 1 * 100, 1, cell, 1) == swa.Split(1, 1, 1)
    with pytest.raises(CannotSizeError, match="a window pool of 16 tokens leaves no memory for the full layers"):
        swa.split_capped(16 * 60 + 16 * 100 - 1, 10, cell, 16)


def test_llama4_shares_by_chunk_and_context():
    # a ratio of a half and a chunk of a quarter: share 0.625, so windows hold 4 x 0.625 / 2.875 of the tokens
    found = swa.split_llama4(100_000, 0.5, 8192, 32768, 64)
    window, full = 400_000 * 0.625 // 2.875, 400_000 - 1_200_000 * 0.625 // 2.875
    assert (found.full, found.window) == (int(full // 64 * 64), int(window // 64 * 64))
