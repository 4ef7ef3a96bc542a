"""What a sizing says beside its figures: formula, terms and symbol of the release, reasons for what it refuses, other pools."""

from __future__ import annotations

from fractions import Fraction

import pytest

import kvdiag
from kvdiag.errors import CannotSizeError
from kvdiag.models import StateShape, geometry_of
from kvdiag.models.config import config_from
from kvdiag.quantity import GIB, Interval, abbreviated_interval
from kvdiag.quantity.figures import memory, rounded_down, rounded_up
from kvdiag.releases import parse_release
from kvdiag.sizing import Device, ServerArguments, mlx
from kvdiag.sizing.resolve import resolve
from kvdiag.sizing.rows import pool_row
from kvdiag.sizing.state import StateDemand, split_state, state_bytes
from tests.boundaries import AVAIL, GPT_OSS, H100, LATENT, LLAMA, NEXT, TOTAL, TREE
from tests.test_boundaries_sparse import SPARSE, V4

MIB = 2**20
ELEMENT = {"kv_cache_dtype": "bfloat16", "bytes_per_element": 2}
HEADS = {"kv_heads_per_rank": 8, "head_dim": 128}
RANK = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
WINDOW_TERMS = {
    **ELEMENT, "layers": 32, "full_layers": 16, "swa_layers": 16, "full_bytes_per_layer": 2048, "swa_bytes_per_layer": 2048,
    "swa_full_tokens_ratio": 0.8,
}  # fmt: skip
PLAIN = "kv_heads_per_rank x (head_dim + v_head_dim) x layers x bytes"
ONE_WIDTH = "kv_heads_per_rank x head_dim x 2 x layers x bytes"
LATENT_CELL = "(kv_lora_rank + qk_rope_head_dim) x layers x bytes"
TOLD = [
    (LLAMA, "0.5.6", {}, ONE_WIDTH, {**ELEMENT, "layers": 32, **HEADS}, "ModelRunner.profile_max_num_token"),
    (LLAMA, "0.5.7", {}, PLAIN, {**ELEMENT, "layers": 32, **HEADS, "v_head_dim": 128},
     "ModelRunnerKVCacheMixin.get_cell_size_per_token"),
    (LATENT, "0.5.10", {}, LATENT_CELL, {**ELEMENT, "layers": 61, **RANK}, "ModelRunnerKVCacheMixin.get_cell_size_per_token"),
    (SPARSE, "0.5.11", {}, f"{LATENT_CELL} + index keys of the layers that have them",
     {**ELEMENT, "layers": 61, **RANK, "index_head_dim": 128}, "DefaultPoolConfigurator._compute_cell_size"),
    (GPT_OSS, "0.5.9", {}, "full_bytes x full_layers + swa_bytes x swa_layers", WINDOW_TERMS,
     "ModelRunnerKVCacheMixin.get_cell_size_per_token"),
    (GPT_OSS, "0.5.12", {}, "full_bytes x full_layers + swa_full_tokens_ratio x swa_bytes x swa_layers", WINDOW_TERMS,
     "HybridSWAPoolConfigurator.__init__"),
    (GPT_OSS, "0.5.20", {}, "full_bytes x full_layers + swa_full_tokens_ratio x swa_bytes x swa_layers", WINDOW_TERMS,
     "HybridSWAPoolConfigurator._recompute_cell_size"),
    (NEXT, "0.5.14", {}, PLAIN, {**ELEMENT, "layers": 12, "kv_heads_per_rank": 2, "head_dim": 256, "v_head_dim": 256},
     "DefaultPoolConfigurator._compute_cell_size"),
    (LATENT, "0.5.13", TREE, LATENT_CELL, {**ELEMENT, "layers": 61, **RANK}, "DefaultPoolConfigurator._compute_cell_size"),
    (LATENT, "0.5.14", TREE, f"{LATENT_CELL}, with the draft's layers",
     {**ELEMENT, "layers": 61, **RANK, "draft_layers": 1}, "DefaultPoolConfigurator._compute_cell_size"),
    (V4, "0.5.14", {}, "window pages x ratio + compressed latents, index keys and their states, summed over the layers",
     {"kv_cache_dtype": "fp8_e4m3", "bytes_per_element": 1, "layers": 4, "swa_full_tokens_ratio": 0.1, "page_size": 256},
     "DSV4PoolConfigurator._get_bytes_per_full_token"),
]  # fmt: skip


def sized(config, release, **args):
    return kvdiag.size(
        config=config, release=release, args={"mem_fraction_static": 0.88, **args}, available_gpu_memory=AVAIL,
        pre_model_load_memory=TOTAL, gpu_mem_mib=H100, compute_capability=(9, 0),
    )  # fmt: skip


@pytest.mark.parametrize(("config", "release", "args", "formula", "terms", "symbol"), TOLD)
def test_the_cost_of_a_token_is_told_with_its_formula_its_terms_and_who_computes_it(
    config, release, args, formula, terms, symbol
):
    found = sized(config, release, **args).to_dict()
    assert found["schema"] == "kvdiag.size/1"
    assert (found["formula"], found["terms"], found["symbol"]) == (formula, terms, symbol)
    assert found["release"] == release
    assert (found["mem_fraction_static"], found["missing"], found["stages"]) == (0.88, (), ())
    assert found["context_len"] == config["max_position_embeddings"]


def test_stages_that_differ_are_told_one_by_one():
    found = sized(LLAMA, "0.5.20", pp_size=3)
    terms = {**ELEMENT, **HEADS, "v_head_dim": 128}
    assert found.stages == tuple({**terms, "layers": n, "bytes_per_token": n * 8 * 256 * 2} for n in (10, 11, 11))
    assert found.terms == {**terms, "layers": 10}
    assert sized(LLAMA, "0.5.20", pp_size=2).stages == ()


@pytest.mark.parametrize(
    ("config", "release", "args", "said"),
    [
        (LLAMA, "0.5.9", {"max_total_tokens": 32, "page_size": 64}, "max_total_tokens 32 is less than one page of 64 tokens"),
        (LLAMA, "0.5.9", {"max_total_tokens": 64, "page_size": 64}, None),
        (LLAMA, "0.5.9", {"page_size": 1_000_000}, "its memory holds less than one page of 1000000 tokens; lower page_size"),
        (LLAMA, "0.5.9", {"mem_fraction_static": 0.48}, "not enough memory for one token; raise mem_fraction_static above 0."),
        (
            LLAMA,
            "0.5.14",
            {"mem_fraction_static": 0.4},
            "the weights leave no memory for the KV cache; raise mem_fraction_static",
        ),
        (NEXT, "0.5.14", {"mem_fraction_static": 0.488}, "no memory for the state of a single request"),
    ],
)
def test_a_server_that_would_not_start_is_refused_with_what_to_change(config, release, args, said):
    if said is None:
        assert sized(config, release, **args).max_total_num_tokens == 64
    else:
        with pytest.raises(CannotSizeError, match=f"the server would not start: {said}"):
            sized(config, release, **args)


def settings(config, release, capability=(9, 0), **arguments):
    geometry = geometry_of(config_from(config, "config", "config"))
    return resolve(geometry, ServerArguments(**arguments), parse_release(release), Device(H100, capability))


def test_pools_whose_lines_print_no_row_are_refused():
    with pytest.raises(CannotSizeError, match="cannot size the pool lines of DeepseekV4ForCausalLM: no rule"):
        pool_row(settings(V4, "0.5.14"), range(4))
    assert pool_row(settings(LLAMA, "0.5.14"), range(32)).options[0].full == 8 * 256 * 32 * 2


@pytest.mark.parametrize(
    ("change", "family"),
    [
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64, "architectures": ["DeepseekV3ForCausalLM"]}, "latent"),
        ({"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 16,
          "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}, "window"),
    ],
)  # fmt: skip
def test_the_mlx_back_end_takes_one_shape_in_all_layers(change, family):
    for config in (LLAMA | change, NEXT, V4):
        geometry = geometry_of(config_from(config, "config", family))
        with pytest.raises(CannotSizeError, match="the MLX back end needs one uniform KV shape in all layers"):
            mlx.bytes_per_slot(geometry, 2, parse_release("0.5.20"))


def test_the_mlx_back_end_has_a_shared_pool_from_0_5_11():
    geometry = geometry_of(config_from(LLAMA, "config", "plain"))
    with pytest.raises(CannotSizeError, match=r"of SGLang 0\.5\.10 has no shared pool; releases from 0\.5\.11 have"):
        mlx.bytes_per_slot(geometry, 2, parse_release("0.5.10"))
    assert mlx.bytes_per_slot(geometry, 2, parse_release("0.5.11")) == 2 * 32 * 8 * 128 * 2
    assert mlx.pool_slots(20.0, 4.0, 30.0, 0.5, 2**20) == 6 * 1024
    assert mlx.pool_slots(20.0, 4.0, 10.0, 0.5, 2**20) == 5 * 1024
    assert mlx.pool_slots(4.0, 4.0, 10.0, 0.5, 2**20) == 256


def test_the_mlx_pool_is_told_as_any_other():
    args = {"backend": "mlx", "mlx_used_gib": 4.0}
    found = kvdiag.size(config=LLAMA, release="0.5.20", args=args, available_gpu_memory=30.0, pre_model_load_memory=20.0)
    slot = 2 * 32 * 8 * 128 * 2
    assert (found.release, found.kv_heads_per_rank, found.kv_cache_dtype, found.bytes_per_token) == (
        "0.5.20",
        8,
        "bfloat16",
        slot,
    )
    assert found.max_total_num_tokens == 12 * GIB // slot
    assert (found.mem_fraction_static, found.symbol) == (0.8, "MlxModelRunner._compute_pool_size")
    assert found.formula == "num_key_value_heads x head_dim x 2 x layers x bytes"
    assert found.terms == {"layers": 32, "head_dim": 128}
    assert found.missing == ()
    half = kvdiag.size(
        config=LLAMA,
        release="0.5.20",
        args={**args, "mem_fraction_static": 0.5},
        available_gpu_memory=30.0,
        pre_model_load_memory=20.0,
    )
    assert (half.max_total_num_tokens, half.mem_fraction_static) == (6 * GIB // slot, 0.5)
    without = kvdiag.size(config=LLAMA, release="0.5.20", args={"backend": "mlx"})
    assert without.max_total_num_tokens is None
    assert "--mlx-used GIB" in without.missing[0]


KDA = StateShape("kda", (0, 1), (2, 3), 96, 0, 6, 16, 16, 4, None, "0.5.5")


@pytest.mark.parametrize(("ranks", "fits"), [(1, True), (2, True), (4, False), (5, False)])
def test_channels_and_heads_that_ranks_do_not_divide_are_refused_by_name(ranks, fits):
    release = parse_release("0.5.9")
    if fits:
        conv, matrices = 3 * 3 * (96 // ranks) * 2, (6 // ranks) * 16 * 16 * 4
        assert state_bytes(KDA, ranks, None, release) == (conv + matrices) * len(KDA.layers)
    else:
        what = "96 linear attention channels" if 96 % ranks else "6 state heads"
        with pytest.raises(CannotSizeError, match=f"the server would not start: {what} do not divide by {ranks} ranks"):
            state_bytes(KDA, ranks, None, release)


def test_a_state_of_no_bytes_is_refused_and_one_of_one_byte_is_not():
    def demand(each):
        return StateDemand(each, each, 3, 0.9, None, None, 1, 0, True, False)

    with pytest.raises(CannotSizeError, match="the state of a request takes no bytes"):
        split_state(1.0, demand(0), parse_release("0.5.14"))
    assert split_state(1.0, demand(1), parse_release("0.5.14")).size == int(0.9 / 1.9 * GIB)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("825k", Fraction(8245, 10) * 1000, 826 * 1024), ("1.2M", Fraction(115, 100) * 10**6, Fraction(13, 10) * 2**20),
        ("1.2m", Fraction(115, 100) * 10**6, Fraction(13, 10) * 2**20), ("~160k", 150 * 1000, 170 * 1024),
        ("~ 161", 160, 162), ("~100", 0, 200), ("0k", 0, 1024), ("~0 K", 0, 1024), ("7 K", 6500, 8 * 1024),
    ],
)  # fmt: skip
def test_an_abbreviated_count_may_have_been_any_that_is_written_so(text, low, high):
    assert abbreviated_interval(text, "tokens") == Interval(Fraction(low), Fraction(high), "tokens")


@pytest.mark.parametrize("text", ["825", "k", "1.2", "~", "1.2G", "-3k", "825k "])
def test_what_is_no_abbreviated_count_is_refused(text):
    with pytest.raises(ValueError, match="is no abbreviated number"):
        abbreviated_interval(text, "tokens")


def test_bytes_are_told_alike_as_a_number_and_as_an_interval():
    assert memory(3 * GIB) == memory(Interval.of(3 * GIB, unit="bytes")) == "3.00 GiB"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(2 * MIB, 2 * MIB + 2**10, "2.0 MiB"), (0, MIB, "under 1.0 MiB"), (0, 2**10, "under 1.0 KiB"), (0, 1, "under 1 bytes")],
)
def test_a_narrow_or_small_interval_is_told_in_the_unit_that_suits_it(low, high, said):
    assert memory(Interval(Fraction(low), Fraction(high), "bytes")) == said


def test_a_number_of_just_so_many_decimals_is_its_own_bound():
    assert (rounded_up(Fraction(1, 100), 2), rounded_down(Fraction(1, 100), 2)) == ("0.01", "0.01")
    assert (rounded_up(Fraction(1, 1000), 2), rounded_down(Fraction(-1, 1000), 2)) == ("0.0010", "-0.0010")


def test_drafts_of_the_requests_of_each_replica_are_taken_first():
    asked = StateDemand(MIB, MIB, 3, 0.9, None, 5, 2, 4, True, False)
    rest = 10 - MIB * (5 // 2) * 4 / GIB
    size = int(rest * 0.9 / 1.9 * GIB // MIB)
    found = split_state(10.0, asked, parse_release("0.5.8"))
    assert (found.size, found.rest) == (size, rest - size * MIB / GIB)


@pytest.mark.parametrize(
    ("config", "release", "args", "said"),
    [
        (LLAMA, "0.5.13.post1", {"speculative_algorithm": "EAGLE"}, "makes the draft's pool beside this one"),
        (LLAMA, "0.5.14", {"speculative_algorithm": "EAGLE"}, "no draft model is given"),
        (LLAMA, "0.5.14", {"speculative_algorithm": "NGRAM"}, None),
        (LATENT, "0.5.14", {"speculative_algorithm": "EAGLE"}, None),
    ],
)
def test_a_draft_that_is_not_in_the_figures_is_said_to_be_left_out(config, release, args, said):
    notes = kvdiag.size(
        config=config,
        release=release,
        args={"mem_fraction_static": 0.9, **args},
        available_gpu_memory=60.0,
        pre_model_load_memory=70.0,
    ).notes
    told = [note for note in notes if "draft" in note]
    assert (told == []) if said is None else said in told[0]


def test_a_pool_below_one_context_is_said_beside_its_size():
    def notes(available):
        return kvdiag.size(
            config=LLAMA,
            release="0.5.9",
            args={"mem_fraction_static": 0.9},
            available_gpu_memory=available,
            pre_model_load_memory=70.0,
        ).notes

    assert any("less than one request of the full context" in note for note in notes(7.5))
    assert notes(60.0) == ()
