"""Rows of the pools by hand, with the layouts that a release leaves open; and the MLX back end's pool."""

from __future__ import annotations

from fractions import Fraction

import pytest

import kvdiag
from kvdiag.models import geometry_of
from kvdiag.models.config import config_from
from kvdiag.releases import parse_release
from kvdiag.sizing import UNKNOWN_DEVICE, ServerArguments
from kvdiag.sizing.resolve import resolve
from kvdiag.sizing.rows import Row, draft_row, pool_row
from tests.test_size import DENSE, LATENT, SPARSE, WINDOWS

BARE = "FP4 without its scales"
OPEN = "back ends decide the layout of FP4 values and their scales"


def settings(config, release="0.5.22", **arguments):
    geometry = geometry_of(config_from(config, "config", "m"))
    return resolve(geometry, ServerArguments(**arguments), parse_release(release), UNKNOWN_DEVICE, None)


def test_plain_rows_by_dtype():
    width = 8 * 256 * 32
    assert pool_row(settings(DENSE), range(32)).options == (Row(Fraction(width * 2)),)
    assert pool_row(settings(DENSE, tp_size=2), range(16)).options == (Row(Fraction(width * 2, 4)),)
    assert pool_row(settings(DENSE, kv_cache_dtype="mxfp8"), range(32)).options == (Row(width * Fraction(33, 32)),)
    wide = pool_row(settings(DENSE | {"v_head_dim": 64}, "0.5.9"), range(32))
    assert wide.options[0] == Row(Fraction(8 * (128 + 64) * 32 * 2))


def test_rows_of_fp4_have_three_layouts():
    found = pool_row(settings(DENSE, "0.5.20", kv_cache_dtype="fp4_e2m1"), range(32))
    heads, four = 8 * 32, Fraction(9, 16)
    assert found.options == (
        Row(Fraction(heads * 256, 2), None, BARE),
        Row(heads * 256 * four, None, "K and V in FP4"),
        Row(heads * (128 + 128 * four), None, "K in FP8, V in FP4"),
    )
    assert found.open == OPEN


def test_latent_rows_with_and_without_an_index():
    plain = settings(LATENT)
    assert pool_row(plain, range(61)).options == (Row(Fraction(576 * 61 * 2)),)
    assert draft_row(plain, plain.geometry, 1).options == (Row(Fraction(576 * 2)),)
    four = pool_row(settings(LATENT, "0.5.20", kv_cache_dtype="fp4_e2m1"), range(61))
    assert four.options == (Row(Fraction(576 * 61, 2), None, BARE), Row(576 * 61 * Fraction(9, 16), None, "K and V in FP4"))
    assert four.open == OPEN
    index = pool_row(settings(SPARSE, "0.5.17", kv_cache_dtype="fp8_e4m3"), range(61))
    assert index.options == (
        Row(Fraction((656 + 132) * 61), None, "rows packed with their scales"),
        Row(Fraction((576 + 132) * 61), None, "rows as they are"),
    )
    assert index.open == "the attention backend packs rows or does not, and no line says which"
    whole = pool_row(settings(SPARSE, "0.5.17", kv_cache_dtype="bfloat16"), range(61))
    assert whole.options == (Row(Fraction((576 * 2 + 132) * 61), None, "rows as they are"),)


def test_rows_of_windows_are_a_pair_and_a_plain_draft_has_its_own():
    found = pool_row(settings(WINDOWS), range(32))
    assert found.options == (Row(Fraction(8 * 128 * 16 * 2), Fraction(8 * 128 * 16 * 2)),)
    small = geometry_of(config_from(DENSE | {"num_key_value_heads": 2}, "config", "draft"))
    assert draft_row(settings(DENSE), small, 3).options == (Row(Fraction(2 * 256 * 3 * 2)),)


def test_the_mlx_pool_needs_three_readings_and_says_so():
    args = {"backend": "mlx", "mem_fraction_static": 0.8}
    known = kvdiag.size(
        config=DENSE, release="0.5.22", args={**args, "mlx_used_gib": 16.0}, available_gpu_memory=40.0, pre_model_load_memory=48.0
    )
    cell = 2 * 32 * 8 * 128 * 2
    assert known.bytes_per_token == cell
    assert known.max_total_num_tokens == (int(48 * 2**30 * 0.8) - 16 * 2**30) // cell
    assert (known.formula, known.terms) == (
        "num_key_value_heads x head_dim x 2 x layers x bytes",
        known.terms | {"layers": 32, "head_dim": 128},
    )
    assert known.missing == ()
    for left in (
        {"args": args, "available_gpu_memory": 40.0, "pre_model_load_memory": 48.0},
        {"args": {**args, "mlx_used_gib": 1.0}},
    ):
        (missing,) = kvdiag.size(config=DENSE, release="0.5.22", **left).missing
        assert "--mlx-used GIB" in missing


@pytest.mark.parametrize("release", ["0.5.9", "0.5.16"])
def test_releases_that_print_without_an_index_charge_none(release):
    assert pool_row(settings(LATENT, release), range(61)).open == ""


def test_plain_rows_follow_the_release_the_parallelism_and_the_pools():
    cut = 8 // 8 * 256 * 32 * 2
    assert pool_row(settings(DENSE, "0.5.17", tp_size=8, dcp_size=4), range(32)).options == (Row(Fraction(cut)),)
    assert pool_row(settings(DENSE, "0.5.18", tp_size=8, dcp_size=4), range(32)).options == (Row(Fraction(cut * 4)),)
    whole = pool_row(settings(WINDOWS, "0.5.9", disable_hybrid_swa_memory=True), range(32))
    assert whole.options == (Row(Fraction(8 * 128 * 32 * 2)),)
    wide = pool_row(settings(DENSE | {"head_dim": 192, "v_head_dim": 128}, "0.5.9"), range(32))
    assert wide.options == (Row(Fraction(8 * 320 * 32 * 2)), Row(Fraction(8 * 384 * 32 * 2), None, "V as wide as K"))
    assert wide.open == "V may be stored as wide as K"


def test_an_index_was_charged_for_every_layer_of_the_stage_before_0_5_3_post1():
    for release in ("0.5.3", "0.5.3.post1"):
        found = pool_row(settings(SPARSE, release, kv_cache_dtype="bfloat16"), range(10))
        assert found.options == (Row(Fraction(576 * 2 * 10 + (128 + 4) * 10), None, "rows as they are"),)
