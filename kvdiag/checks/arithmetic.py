"""Sizing asked from the side of a log: which budgets give the figures it states, and which figures a budget can give."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kvdiag.checks.inputs import CheckInputs
from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.frozen import replace
from kvdiag.quantity import GIB, Interval
from kvdiag.releases import Release
from kvdiag.sizing import Device, Memory, ServerArguments, Sizing, size
from kvdiag.sizing.resolve import Settings, resolve

_POOLS = (
    "max_total_num_tokens",
    "full_max_total_num_tokens",
    "swa_max_total_num_tokens",
    "max_mamba_cache_size",
    "max_running_requests",
)
LARGEST_BUDGET = 1 << 44
"""Bytes no rank has free: where a search for the largest budget ends."""

BELOW_A_BYTE = Interval.of(0, 1, "bytes")
"""What ``int(rest_memory)`` cuts off."""


class Arithmetic:
    """The sizing of one start by each release it may be of, each result computed once.

    Budgets are whole bytes of ``rest_memory``, of which nothing more is kept back. `refused` says why the last release that
    could not size did not.
    """

    def __init__(self, inputs: CheckInputs, arguments: ServerArguments | None = None, device: Device | None = None) -> None:
        self.inputs = inputs
        self.device = inputs.device if device is None else device
        self.arguments = replace(arguments or inputs.arguments, mem_fraction_static=1.0)
        self.refused = inputs.unsized
        self._kept: dict[tuple[Release, int | None], Sizing | None] = {}

    def sized(self, release: Release, budget: int | None = None) -> Sizing | None:
        """Sizing by `release` under a budget in bytes; without one only the cell. None where the release refuses."""
        key = (release, budget)
        if key not in self._kept:
            self._kept[key] = self._size(release, budget)
        return self._kept[key]

    def _size(self, release: Release, budget: int | None) -> Sizing | None:
        if self.inputs.geometry is None:
            return None
        memory = None if budget is None else Memory(budget / GIB, 0.0)
        try:
            return size(self.inputs.geometry, self.arguments, release, memory, self.device, self.inputs.draft, reserved_gib=0.0)
        except (CannotSizeError, ConfigError) as error:
            self.refused = str(error)
            return None

    def settings(self, release: Release) -> Settings | None:
        """The settings that `release` resolves; None where it refuses the model or an argument."""
        if self.inputs.geometry is None:
            return None
        try:
            return resolve(self.inputs.geometry, self.arguments, release, self.device, self.inputs.draft)
        except (CannotSizeError, ConfigError) as error:
            self.refused = str(error)
            return None

    def keeps_state(self, release: Release) -> bool:
        """Whether part of the budget goes to state slots, so that tokens alone do not tell it."""
        settings = self.settings(release)
        return settings is not None and settings.state is not None

    def why_not(self) -> tuple[str, ...]:
        """Why no release can size the model at all; empty where one can."""
        if self.inputs.geometry is None:
            return (self.inputs.unsized,)
        able = any(self.sized(release) is not None for release in reversed(self.inputs.candidates()))
        return () if able else (self.refused,)

    def cell(self, release: Release) -> Interval | None:
        """``bytes_per_token`` by `release`."""
        sized = self.sized(release)
        return None if sized is None else Interval.of(sized.bytes_per_token, unit="bytes")

    def capacity(self, release: Release, budget: Interval, pick: Callable[[Sizing], int | None], unit: str) -> Interval | None:
        """What `pick` can be for any budget in the interval: its ends, and both sides of each step of the state slots.

        A further state slot costs tokens, so that tokens are not monotone in the budget; between two steps they are.
        """
        ends = (max(0, math.floor(budget.low)), max(0, math.ceil(budget.high)))
        points = [*ends]
        low, high = (self.sized(release, end) for end in ends)
        if low is None or high is None:
            return None
        if (low.max_mamba_cache_size or 0) != (high.max_mamba_cache_size or 0):
            for slots in range((low.max_mamba_cache_size or 0) + 1, (high.max_mamba_cache_size or 0) + 1)[:64]:
                step = self._first(release, ends[0], _has_slots(slots))
                points += [step - 1, step]
        values = [pick(sized) for point in points if (sized := self.sized(release, point)) is not None]
        known = [value for value in values if value is not None]
        return Interval.of(min(known), max(known), unit) if known and len(known) == len(values) else None

    def budgets(self, release: Release, tokens: int, slots: int | None) -> Interval | None:
        """The whole bytes of budget with which `release` arrives at `tokens` (and at `slots` of state); None where none does.

        The budget itself may be up to a byte more (BELOW_A_BYTE): SGLang cuts it to an integer first. Where a cap
        hides the budget, the interval has no upper end worth the name: it ends at LARGEST_BUDGET.
        """

        def order(sized: Sizing) -> tuple[int, int]:
            return ((sized.max_mamba_cache_size or 0) if slots is not None else 0, sized.max_total_num_tokens or 0)

        wanted = (slots or 0, tokens)
        cell = self.cell(release)
        if cell is None or (slots is None and self.keeps_state(release)):
            return None
        near = math.ceil(cell.low * tokens)
        first = self._first(release, near, lambda sized: order(sized) >= wanted)
        beyond = self._first(release, near + math.ceil(cell.low), lambda sized: order(sized) > wanted)
        sized = self.sized(release, first)
        if sized is None or order(sized) != wanted:
            return None
        return Interval.of(first, beyond - 1 if beyond < LARGEST_BUDGET else LARGEST_BUDGET, "bytes")

    def cells(self) -> list[tuple[Release, ...]]:
        """Each possible release by itself, for what needs no memory."""
        return [(release,) for release in self.inputs.candidates()]

    def groups(self, budget: int) -> list[tuple[Release, ...]]:
        """The possible releases, those together that size alike: without memory, with this budget and with twice it."""
        found: dict[Any, list[Release]] = {}
        for release in self.inputs.candidates():
            results = [self.sized(release, of) for of in (None, budget, 2 * budget)]
            found.setdefault(tuple(_figures(result) for result in results), []).append(release)
        return [tuple(releases) for releases in found.values()]

    def _first(self, release: Release, near: int, reached: Callable[[Sizing], bool]) -> int:
        """The smallest budget for which `reached` holds, sought from `near`; LARGEST_BUDGET where there is none."""

        def holds(budget: int) -> bool:
            sized = self._size(release, budget)
            return sized is not None and reached(sized)

        low, high, step = -1, min(near, LARGEST_BUDGET), 1
        if holds(high):
            while high > 0 and holds(max(0, high - step)):
                high, step = max(0, high - step), step * 16
            low = high - step
        else:
            low = high
            while high < LARGEST_BUDGET:
                high, step = min(LARGEST_BUDGET, high + step), step * 16
                if holds(high):
                    break
                low = high
            else:
                return LARGEST_BUDGET
        low = max(low, -1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high


def _has_slots(count: int) -> Callable[[Sizing], bool]:
    return lambda sized: (sized.max_mamba_cache_size or 0) >= count


def _figures(sized: Sizing | None) -> tuple[Any, ...] | None:
    if sized is None:
        return None
    return (sized.bytes_per_token, sized.kv_heads_per_rank, sized.rest_memory_bytes, *(getattr(sized, name) for name in _POOLS))
