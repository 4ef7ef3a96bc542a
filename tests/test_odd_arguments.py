"""Odd values on the command line: an answer that says what to do, and never an internal fault."""

from __future__ import annotations

import re

import pytest

from kvdiag.models.find import find_config
from kvdiag.sizing.request import requested_device, requested_size
from tests.conftest import FIXTURES

MLX = ("size", "--release", "0.5.22", "--model", "Qwen/Qwen3-8B", "--backend", "mlx")
KIMI = str(FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log")


@pytest.mark.parametrize("used", ["nan", "inf", "-1", "1e300"])
def test_memory_that_mlx_cannot_hold_is_refused(kvdiag, used):
    answer = kvdiag(*MLX, "--avail", "20", "--total", "30", "--mlx-used", used)
    assert answer.returncode == 2
    assert "mlx_used_gib" in answer.stderr


@pytest.mark.parametrize(("available", "total"), [("-20", "-30"), ("0", "30"), ("20", "0")])
def test_memory_below_nothing_makes_no_mlx_pool(kvdiag, available, total):
    answer = kvdiag(*MLX, "--avail", available, "--total", total, "--mlx-used", "1")
    assert answer.returncode == 2
    assert "nothing is left" in answer.stderr


@pytest.mark.parametrize(
    "option", ["--kv-cache-dtype", "--mamba-scheduler-strategy", "--dtype", "--disaggregation-mode", "--linear-attn-backend"]
)
def test_none_takes_back_only_what_sglang_may_decide(kvdiag, option):
    """These have a default of their own and no value None."""
    answer = kvdiag("whatif", KIMI, option, "none")
    assert answer.returncode in (0, 2), answer.stderr
    assert "=None" not in answer.stdout
    assert "None" in kvdiag("whatif", KIMI, "--attention-backend", "none").stdout


AMD = ("size", "--release", "0.5.9", "--model", "Qwen/Qwen3-8B", "--gpu", "MI300X")
"""SGLang leaves 0.85 of a fraction here."""


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (
            (*AMD, "--total", "139", "--avail", "60", "--mem-fraction-static", "0.6"),
            r"above 0\.669 \(\(1 - .*\) / 0\.85, as SGLang",
        ),
        (
            (*AMD, "--total", "139", "--avail", "20", "--mem-fraction-static", "0.9"),
            "no mem_fraction_static would, as SGLang leaves 0.85",
        ),
        ((*AMD[:5], "--total", "78.7", "--avail", "0.03", "--mem-fraction-static", "0.8"), r"above 0\.9997 \(1 - "),
        ((*AMD[:5], "--total", "1e5", "--avail", "0.001", "--mem-fraction-static", "0.8"), "no mem_fraction_static would: more"),
    ],
)
def test_a_fraction_is_advised_only_where_sglang_takes_it_and_it_leaves_something(kvdiag, options, advice):
    answer = kvdiag(*options)
    assert answer.returncode == 2
    assert re.search(advice, answer.stderr), answer.stderr


def test_a_fraction_that_sglang_does_not_run_with_is_told():
    told = kvdiag_size("0.5.9", "MI300X", 0.9)
    assert (told.mem_fraction_static, told.notes) == (
        pytest.approx(0.765), ("SGLang 0.5.9 makes 0.765 of the --mem-fraction-static 0.9 that is given",),
    )  # fmt: skip
    assert kvdiag_size("0.5.9", "H100", 0.9).notes == ()


def kvdiag_size(release: str, gpu: str, fraction: float):
    config = find_config(None, "Qwen/Qwen3-8B")
    arguments = {"mem_fraction_static": fraction}
    return requested_size(config, release, arguments, (120.0, 139.0), requested_device(gpu))


def test_a_long_text_that_is_not_known_is_not_told_again_in_full(kvdiag):
    answer = kvdiag("what", "x" * 50_000)
    assert answer.returncode == 2
    assert len(answer.stderr) < 1_000
