"""Switches of the server's environment that stand in no line: which of them would explain figures that fit no formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.budget import budget_of, capacities
from kvdiag.checks.inputs import CheckInputs, fits
from kvdiag.frozen import replace
from kvdiag.models import Geometry
from kvdiag.sizing import Sizing
from kvdiag.sizing.environment import UNSET, environment_of
from kvdiag.starts import Number

_STATE = (
    ("SGLANG_MAMBA_SSM_DTYPE", "bfloat16"), ("SGLANG_MAMBA_SSM_DTYPE", "float32"), ("SGLANG_MAMBA_CONV_DTYPE", "float32"),
    ("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK", "true"),
)  # fmt: skip
_COMPRESSED = (("SGLANG_DSV4_COMPRESS_STATE_DTYPE", "bfloat16"), ("SGLANG_OPT_USE_ONLINE_COMPRESS", "true"))
_Picks = list[tuple[Number, Callable[[Sizing], int | None]]]


def with_switches(inputs: CheckInputs) -> CheckInputs:
    """`inputs` with the switches that alone make its figures fit where they do not by themselves."""
    geometry = inputs.geometry
    if geometry is None or inputs.arguments.environment != UNSET or not (geometry.state or geometry.compressed):
        return inputs
    stated = list(_stated(inputs))
    if not stated or _fit(inputs, Arithmetic(inputs), stated):
        return inputs
    found = tuple(f"{name}={value}" for name, value in _possible(geometry) if _fits_with(inputs, name, value, stated))
    return replace(inputs, switches=found) if found else inputs


def _possible(geometry: Geometry) -> tuple[tuple[str, str], ...]:
    return _STATE if geometry.state is not None else _COMPRESSED


def _stated(inputs: CheckInputs) -> Iterator[tuple[Number, Callable[[Sizing], int | None]]]:
    """The figures that a budget decides, each with where a sizing has it."""
    for number in capacities(inputs)[:1]:
        yield number, lambda sized: sized.max_total_num_tokens
    for number in inputs.start.find("max_mamba_cache_size", role="target")[:1]:
        yield number, lambda sized: sized.max_mamba_cache_size
    for number in inputs.start.find("max_running_requests")[:1]:
        yield number, lambda sized: sized.max_running_requests


def _fits_with(inputs: CheckInputs, name: str, value: str, stated: _Picks) -> bool:
    environment = environment_of({name: value})
    return _fit(inputs, Arithmetic(inputs, replace(inputs.arguments, environment=environment)), stated)


def _fit(inputs: CheckInputs, arithmetic: Arithmetic, stated: _Picks) -> bool:
    """Whether the newest release gives every figure from the budget of its rank."""
    release = inputs.candidates()[-1]
    for number, pick in stated:
        budget = budget_of(inputs, number.rank)
        if budget is None:
            return False
        value = arithmetic.capacity(release, budget[0], pick, fits(number).unit)
        if value is None or not value.meets(fits(number)):
            return False
    return True
